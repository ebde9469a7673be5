package stripedouble

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Error codes that answers carry; doc.go says where.
const (
	codeAccountInvalid     = "account_invalid"
	codeArchivedMeter      = "archived_meter"
	codeCustomerNotFound   = "meter_event_customer_not_found"
	codeDuplicate          = "duplicate_meter_event"
	codeInvalidValue       = "meter_event_invalid_value"
	codeKeyInUse           = "idempotency_key_in_use"
	codeLockTimeout        = "lock_timeout"
	codeNoCustomer         = "meter_event_no_customer_defined"
	codeNoMeter            = "no_meter"
	codeParameterEmpty     = "parameter_invalid_empty"
	codeParameterInteger   = "parameter_invalid_integer"
	codeParameterMissing   = "parameter_missing"
	codeParameterUnknown   = "parameter_unknown"
	codeRateLimit          = "rate_limit"
	codeResourceMissing    = "resource_missing"
	codeTimestampFuture    = "timestamp_in_future"
	codeTimestampPast      = "timestamp_too_far_in_past"
	codeTooManyDigits      = "meter_event_value_too_many_digits"
	codeURLInvalid         = "url_invalid"
	typeAPI                = "api_error"
	typeIdempotency        = "idempotency_error"
	typeInvalidRequest     = "invalid_request_error"
	paramCancelID          = "cancel[identifier]"
	paramEventName         = "event_name"
	paramIdentifier        = "identifier"
	paramPayload           = "payload"
	paramPayloadCustomer   = "payload[stripe_customer_id]"
	paramPayloadValue      = "payload[value]"
	paramTimestamp         = "timestamp"
	payloadCustomer        = "stripe_customer_id"
	payloadValue           = "value"
	headerIdempotencyKey   = "Idempotency-Key"
	maxIdempotencyKeyChars = 255
)

// apiError is a refusal. aboutEvent marks those whose code [Config.Codes]
// governs.
type apiError struct {
	status     int
	kind       string
	code       string
	param      string
	message    string
	aboutEvent bool
	noRetry    bool   // header Stripe-Should-Retry: false
	reason     string // header Stripe-Rate-Limited-Reason
}

func invalid(code, param, message string) *apiError {
	return &apiError{status: 400, kind: typeInvalidRequest, code: code, param: param, message: message}
}

func eventRefused(code, param, message string) *apiError {
	e := invalid(code, param, message)
	e.aboutEvent = true
	return e
}

func noKey() *apiError {
	return &apiError{status: 401, kind: typeInvalidRequest, message: "You did not provide an API key. You need to provide your API key in the Authorization header, using Bearer auth (e.g. 'Authorization: Bearer YOUR_SECRET_KEY'). See https://stripe.com/docs/api#authentication for details, or we can help at https://support.stripe.com/."}
}

// wrongKey shows no more of the key than its kind.
func wrongKey(key string) *apiError {
	shown := "****"
	for _, p := range []string{"sk_test_", "sk_live_", "rk_test_", "rk_live_"} {
		if strings.HasPrefix(key, p) {
			shown = p + "****"
		}
	}
	return &apiError{status: 401, kind: typeInvalidRequest, message: "Invalid API Key provided: " + shown}
}

func noSuchAccount(account string) *apiError {
	return &apiError{status: 403, kind: typeInvalidRequest, code: codeAccountInvalid, message: "The provided key does not have access to account '" + account + "' (or that account does not exist). Application access may have been revoked."}
}

func unknownURL(method, path string) *apiError {
	return &apiError{status: 404, kind: typeInvalidRequest, code: codeURLInvalid, message: "Unrecognized request URL (" + method + ": " + path + "). Please see https://stripe.com/docs or we can help at https://support.stripe.com/."}
}

func rateLimited() *apiError {
	return &apiError{status: 429, kind: typeInvalidRequest, code: codeRateLimit, reason: "global-rate", message: "Request rate limit exceeded. Learn more about rate limits here https://stripe.com/docs/rate-limits."}
}

func locked() *apiError {
	return &apiError{status: 429, kind: typeInvalidRequest, code: codeLockTimeout, message: "This object cannot be accessed right now because another API request or Stripe process is currently accessing it. If you see this error intermittently, retry the request. If you see this error frequently and are making multiple concurrent requests to a single object, make your requests serially or at a lower rate. For more details, see https://stripe.com/docs/rate-limits#object-lock-timeouts."}
}

func keyMismatch(key string) *apiError {
	return &apiError{status: 400, kind: typeIdempotency, message: "Keys for idempotent requests can only be used with the same parameters they were first used with. Try using a key other than '" + key + "' if you meant to execute a different request."}
}

func keyInUse(key string) *apiError {
	return &apiError{status: 409, kind: typeIdempotency, code: codeKeyInUse, message: "There is currently another in-progress request using this Idempotent Key (that probably means you submitted twice, and the other request is still going through): " + key + ". Please try again later."}
}

func noActiveMeter(code, eventName string) *apiError {
	return eventRefused(code, paramEventName, "No active meter found for event name "+strconv.Quote(eventName)+".")
}

func noSuchCustomer(id string) *apiError {
	return eventRefused(codeResourceMissing, paramPayloadCustomer, "No such customer: '"+id+"'")
}

func alreadyExists(identifier string) *apiError {
	e := eventRefused(codeDuplicate, "", "An event already exists with identifier "+identifier+".")
	e.noRetry = true
	return e
}

func tooManyDigits(value string) *apiError {
	return eventRefused(codeTooManyDigits, paramPayloadValue, "The value in the event payload can have at most 15 digits. Received "+value+".")
}

func tooOld(limit time.Time) *apiError {
	return eventRefused(codeTimestampPast, paramTimestamp, fmt.Sprintf("The event timestamp cannot be more than 35 days in past. Expected a timestamp greater than or equal to %d.", limit.Unix()))
}

func tooNew(limit time.Time) *apiError {
	return eventRefused(codeTimestampFuture, paramTimestamp, fmt.Sprintf("The event timestamp cannot be more than 5 minutes in future. Expected a timestamp less than or equal to %d.", limit.Unix()))
}

// statusError is what a fault of a bare status answers.
func statusError(status int) *apiError {
	e := &apiError{status: status, kind: typeAPI, message: "An unknown error occurred"}
	switch status {
	case 401:
		e = wrongKey("")
	case 403:
		e = noSuchAccount("acct_unknown")
	case 404:
		e.kind, e.code, e.message = typeInvalidRequest, codeResourceMissing, "No such meter"
	case 409:
		e.kind, e.code, e.message = typeIdempotency, codeKeyInUse, "There is currently another in-progress request using this Idempotent Key. Please try again later."
	case 429:
		e = rateLimited()
	default:
		if status < 500 {
			e.kind, e.message = typeInvalidRequest, "The request could not be handled"
		}
	}
	return e
}

type errorBody struct {
	Error errorFields `json:"error"`
}

type errorFields struct {
	Code          string `json:"code,omitempty"`
	DocURL        string `json:"doc_url,omitempty"`
	Message       string `json:"message"`
	Param         string `json:"param,omitempty"`
	RequestLogURL string `json:"request_log_url"`
	Type          string `json:"type"`
}

// answer renders e for one request.
func (e *apiError) answer(codes Codes, requestID string, live bool) answer {
	f := errorFields{Code: e.code, Message: e.message, Param: e.param, Type: e.kind}
	if e.aboutEvent && (codes == CodesNone || (codes == CodesDefault && e.code == codeDuplicate)) {
		f.Code = ""
	}
	if f.Code != "" {
		f.DocURL = "https://stripe.com/docs/error-codes/" + strings.ReplaceAll(f.Code, "_", "-")
	}
	mode := "test/"
	if live {
		mode = ""
	}
	f.RequestLogURL = "https://dashboard.stripe.com/" + mode + "logs/" + requestID
	body, err := json.Marshal(errorBody{f})
	if err != nil { // strings always encode
		body = []byte(`{"error":{"type":"api_error"}}`)
	}
	return answer{status: e.status, body: body, noRetry: e.noRetry, reason: e.reason}
}
