// Package stripedouble is a stand-in for the part of Stripe that takes usage:
// a real HTTPS server that answers POST /v1/billing/meter_events as Stripe's
// API v1 does, keeps a durable ledger of what it charged, and misbehaves on
// request. Tests and the demo trust its ledger to judge whether an item was
// charged once, so nothing in the ledger depends on what a client says of
// itself.
//
// It is a test double. Only what is listed here is modelled; late rejections,
// event summaries, adjustments and API v2 are not.
//
// # Order of checks
//
// A request to /v1 is judged in this order, and the first check that fails
// answers: route, API key, account, rate limit, Idempotency-Key (replay,
// mismatch, in use), parameters, lock per customer and meter, meter, customer,
// identifier. Parameters are checked before execution, so what they refuse is
// not stored under the Idempotency-Key. Meter, customer and identifier are
// checked by execution, so their refusals are stored, as is a 500.
//
// # Answers
//
// A success is 200 with
//
//	{"object":"billing.meter_event","created":1704824589,"event_name":"llm_tokens",
//	 "identifier":"fencepost_1","livemode":false,
//	 "payload":{"stripe_customer_id":"cus_1","value":"25"},"timestamp":1704824580}
//
// Every refusal is
//
//	{"error":{"type":T,"code":C,"message":M,"param":P,"doc_url":U,"request_log_url":L}}
//
// where code, param and doc_url are absent if the table has none. T is
// invalid_request_error unless stated.
//
//	status  code                               param                         message
//	401     -                                  -                             You did not provide an API key. …
//	401     -                                  -                             Invalid API Key provided: sk_test_****…
//	403     account_invalid                    -                             The provided key does not have access to account 'acct_x' (or that account does not exist). …
//	404     url_invalid                        -                             Unrecognized request URL (GET: /v1/x). …
//	429     rate_limit                         -                             Request rate limit exceeded. …            (header Stripe-Rate-Limited-Reason: global-rate)
//	400     -       (type idempotency_error)   -                             Keys for idempotent requests can only be used with the same parameters they were first used with. …
//	409     idempotency_key_in_use             -                             There is currently another in-progress request using this Idempotent Key …
//	        (type idempotency_error)
//	400     parameter_missing                  event_name, payload           Missing required param: event_name.
//	400     parameter_unknown                  the parameter                 Received unknown parameter: x
//	400     parameter_invalid_empty            event_name, identifier        You passed an empty string for 'event_name'. …
//	400     parameter_invalid_integer          timestamp                     Invalid integer: x
//	400     -                                  event_name, identifier        Invalid string: must be at most 100 characters
//	400     -                                  payload                       Invalid object
//	400     meter_event_no_customer_defined    payload[stripe_customer_id]   The event payload has no customer. …
//	400     meter_event_invalid_value          payload[value]                The value in the event payload is not a decimal number. …
//	400     meter_event_value_too_many_digits  payload[value]                The value in the event payload can have at most 15 digits. Received 1234567890123456.
//	400     timestamp_too_far_in_past          timestamp                     The event timestamp cannot be more than 35 days in past. Expected a timestamp greater than or equal to 1758141836.
//	400     timestamp_in_future                timestamp                     The event timestamp cannot be more than 5 minutes in future. Expected a timestamp less than or equal to 1758141836.
//	429     lock_timeout                       -                             This object cannot be accessed right now because another API request or Stripe process is currently accessing it. …
//	400     no_meter                           event_name                    No active meter found for event name "x".
//	400     archived_meter                     event_name                    No active meter found for event name "x".
//	400     resource_missing                   payload[stripe_customer_id]   No such customer: 'cus_x'
//	400     -                                  -                             An event already exists with identifier fencepost_1.   (header Stripe-Should-Retry: false)
//	500     -       (type api_error)           -                             An unknown error occurred
//
// The refusal of a repeated identifier has no code, which is how API v1 has
// been seen to answer; the documented name is duplicate_meter_event and
// [CodesAll] adds it. The sentences of the value, timestamp and meter refusals
// are those that integrators have seen; whether API v1 also carries a code
// there is not documented, so the codes are those of Stripe's asynchronous
// error report, and [CodesNone] leaves them out. An exporter has to recognise
// both forms.
//
// A refusal never says whether the content of a repeated identifier was the
// same. Values may be negative or zero; they must be plain decimals ("12.50",
// never "1e3") of at most 12 decimals.
//
// # Identifier and Idempotency-Key
//
// An identifier belongs to (account, mode). It is refused for
// [Config.DedupeWindow] after the last charge and charges again afterwards.
//
// An Idempotency-Key belongs to (account, mode) too and is forgotten after
// [Config.DedupeWindow] or 24 hours, whichever is longer. The same key with
// the same parameters answers the stored status and body with header
// Idempotent-Replayed: true; what is stored survives a restart. Stored: the
// outcome of an execution, 200, 400 or 500. Not stored: 401, 403, 404, 409,
// 429, refused parameters, and everything a fault does on the network.
//
// # Ledger
//
// The ledger is a file of JSON lines, appended before an answer is sent and
// synced too if [Config.Sync] is set. A start reads it; a last line that was
// cut short is dropped and cut off the file, any other damage is an error. A
// directory belongs to one running server.
//
// # Control
//
//	GET  /__ledger          the judgement: see [Ledger]
//	GET  /__ledger/events   one [Entry] per line, in order of first charge
//	POST /__clock           {"advance":"25h"}: moves the double's clock, durably
//	POST /__faults          {"faults":"after:500@p0.1"}: replaces the schedule
//	POST /__preload         an [Entry]: an event that somebody else reported
//	POST /__reset           forgets ledger, keys and counters
//
// These need no API key. Serve the double on loopback only.
//
// # Faults
//
// See [ParseFaults] for the schedule.
package stripedouble
