package wirev1

import (
	"fmt"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
)

// ReasonUnknownFailure is the reason of a response whose failure this version
// does not know.
const ReasonUnknownFailure = "unknown_failure"

// EncodeRequests encodes an HttpBatch.
func EncodeRequests(requests []capability.Request) []byte {
	m := &HttpBatch{Requests: make([]*HttpRequest, len(requests))}
	for i, r := range requests {
		m.Requests[i] = &HttpRequest{
			Method: r.Method, Url: r.URL, Headers: headerMessages(r.Headers), Body: r.Body,
			Items: r.Items, Secrets: r.Secrets, SigningScope: text(r.SigningScope),
		}
	}
	return encode(m)
}

// DecodeRequests decodes an HttpBatch.
func DecodeRequests(data []byte) ([]capability.Request, error) {
	var m HttpBatch
	if err := decode("HttpBatch", data, boundsRequests, &m); err != nil {
		return nil, err
	}
	out := make([]capability.Request, len(m.GetRequests()))
	for i, r := range m.GetRequests() {
		out[i] = capability.Request{
			Method: r.GetMethod(), URL: r.GetUrl(), Headers: headerValues(r.GetHeaders()), Body: r.GetBody(),
			Items: strs(r.GetItems()), Secrets: strs(r.GetSecrets()), SigningScope: r.GetSigningScope(),
		}
	}
	return out, nil
}

// EncodeResponses encodes an HttpAnswers. If err is not nil the whole batch was
// refused before anything was sent, and responses are left out.
func EncodeResponses(responses []capability.Response, err error) []byte {
	if err != nil {
		return encode(&HttpAnswers{Error: errorMessage(err)})
	}
	m := &HttpAnswers{Answers: make([]*HttpAnswer, len(responses))}
	for i, r := range responses {
		m.Answers[i] = &HttpAnswer{
			Failure: failureMessage(r.Failure), Reason: text(r.Reason), Status: int64(r.Status),
			Headers: headerMessages(r.Headers), Body: r.Body,
		}
	}
	return encode(m)
}

// DecodeResponses decodes an HttpAnswers for a batch of n requests. The refusal
// of the whole batch comes back as a *sdk.Error. Another number of answers than
// n is malformed: nobody can tell whose they are.
func DecodeResponses(data []byte, n int) ([]capability.Response, error) {
	var m HttpAnswers
	if err := decode("HttpAnswers", data, boundsResponses, &m); err != nil {
		return nil, err
	}
	if m.Error != nil {
		return nil, errorValue(m.Error)
	}
	if len(m.GetAnswers()) != n {
		return nil, fmt.Errorf("decode HttpAnswers: %w: %d answers to %d requests", ErrMalformed, len(m.GetAnswers()), n)
	}
	out := make([]capability.Response, n)
	for i, r := range m.GetAnswers() {
		out[i] = capability.Response{
			Reason: r.GetReason(), Status: count(r.GetStatus()),
			Headers: headerValues(r.GetHeaders()), Body: r.GetBody(),
		}
		out[i].Failure = failureValue(r.GetFailure(), &out[i].Reason)
	}
	return out, nil
}

// failureValue also writes the reason of a failure that this version does not
// know.
func failureValue(f HttpFailure, reason *string) capability.Failure {
	switch f {
	case HttpFailure_HTTP_FAILURE_NONE:
		return capability.FailureNone
	case HttpFailure_HTTP_FAILURE_NOT_SENT:
		return capability.FailureNotSent
	case HttpFailure_HTTP_FAILURE_UNKNOWN:
		return capability.FailureUnknown
	}
	*reason = ReasonUnknownFailure
	return capability.FailureUnknown
}

func failureMessage(f capability.Failure) HttpFailure {
	switch f {
	case capability.FailureNone:
		return HttpFailure_HTTP_FAILURE_NONE
	case capability.FailureNotSent:
		return HttpFailure_HTTP_FAILURE_NOT_SENT
	case capability.FailureUnknown:
	}
	return HttpFailure_HTTP_FAILURE_UNKNOWN
}

func headerMessages(in []capability.Header) []*HttpHeader {
	if len(in) == 0 {
		return nil
	}
	out := make([]*HttpHeader, len(in))
	for i, h := range in {
		out[i] = &HttpHeader{Name: text(h.Name), Value: text(h.Value)}
	}
	return out
}

func headerValues(in []*HttpHeader) []capability.Header {
	if len(in) == 0 {
		return nil
	}
	out := make([]capability.Header, len(in))
	for i, h := range in {
		out[i] = capability.Header{Name: h.GetName(), Value: h.GetValue()}
	}
	return out
}
