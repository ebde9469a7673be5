package egress

// Reasons: short codes for why there is no answer, in responses, exchanges and
// logs. Scripts and dashboards read them.
const (
	reasonURLInvalid        = "url_invalid"
	reasonURLTooLong        = "url_too_long"
	reasonNotHTTPS          = "not_https"
	reasonUserInfo          = "user_info"
	reasonHostNotGranted    = "host_not_granted"
	reasonAddressRefused    = "address_refused"
	reasonMethodRefused     = "method_refused"
	reasonHeaderRefused     = "header_refused"
	reasonHeaderInvalid     = "header_invalid"
	reasonHeadersTooLarge   = "headers_too_large"
	reasonBodyTooLarge      = "request_too_large"
	reasonSecretUnknown     = "secret_unknown"
	reasonNoCall            = "no_call"
	reasonCallEnded         = "call_ended"
	reasonItemUnknown       = "item_unknown"
	reasonItemsMissing      = "items_missing"
	reasonIdentifierMissing = "identifier_missing"
	reasonTooManyRequests   = "too_many_requests"
	reasonNotSignable       = "not_signable"
	reasonRecordsDiffer     = "records_differ"
	reasonRecordsAlike      = "records_alike"

	reasonThrottled   = "throttled"
	reasonBreakerOpen = "breaker_open"
	reasonDeadline    = "deadline"
	reasonCanceled    = "canceled"
	reasonShutdown    = "shutdown"
	reasonDNS         = "dns"
	reasonTLS         = "tls"
	reasonConnect     = "connect"

	reasonTimeout     = "timeout"
	reasonInterrupted = "interrupted"
	reasonProtocol    = "protocol"
	reasonReset       = "reset"
	reasonTruncated   = "truncated"
	reasonTooLarge    = "response_too_large"
	reasonEncoding    = "response_encoding"
	reasonMalformed   = "response_malformed"
	reasonInFlight    = "in_flight"
	reasonFault       = "fault"

	reasonRecordMissing = "record_missing"
	reasonRecordUnknown = "record_unknown"
)

// sentences explain reasons to people. A reason without one explains itself.
var sentences = map[string]string{
	reasonHostNotGranted:    "the plugin asked for a host that is not granted",
	reasonAddressRefused:    "the host has an address that is not public and not in allow_private",
	reasonHeaderRefused:     "the plugin set a header that belongs to the host",
	reasonNoCall:            "the plugin reported an item outside of a delivery",
	reasonCallEnded:         "the delivery had ended",
	reasonItemUnknown:       "the plugin reported an item that it was not given",
	reasonItemsMissing:      "the plugin sent a request that may have an effect and named no items",
	reasonIdentifierMissing: "the item's identifier does not occur in the request",
	reasonTooManyRequests:   "the plugin sent more requests than its items can need",
	reasonNotSignable:       "the request has not what its secret needs to sign it: one webhook-id, or a signing scope and a plain path",
	reasonRecordsDiffer:     "the records of the request are not those of its items",
	reasonRecordsAlike:      "two records of the request cannot be told apart in an answer",
	reasonThrottled:         "not sent: an earlier request of the batch was throttled",
	reasonBreakerOpen:       "not sent: the destination refused an earlier request of the batch",
	reasonDeadline:          "not sent: the time for this delivery was used up",
	reasonCanceled:          "not sent: the delivery was cancelled",
	reasonShutdown:          "not sent: the host is shutting down",
	reasonDNS:               "not sent: the host name does not resolve",
	reasonTLS:               "not sent: the server's certificate or TLS version is not acceptable",
	reasonConnect:           "not sent: no connection",
	reasonTimeout:           "sent, and no whole answer in time",
	reasonInterrupted:       "sent, and the delivery ended before the answer",
	reasonProtocol:          "sent, and the answer is not HTTP within the limits",
	reasonReset:             "sent, and the connection broke before a whole answer",
	reasonTruncated:         "sent, and the answer was cut short",
	reasonTooLarge:          "sent, and the answer is larger than allowed",
	reasonEncoding:          "sent, and the answer is compressed though it must not be",
	reasonMalformed:         "sent, and the answer says that it is JSON and is not",
	reasonRecordMissing:     "the answer does not say once what became of the record",
	reasonRecordUnknown:     "the answer says of the record what no pattern explains",
	reasonInFlight:          "sent, and no answer yet when the delivery ended",
}
