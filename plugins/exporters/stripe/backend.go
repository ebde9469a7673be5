package stripe

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"

	stripego "github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/form"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
)

// backend is the seam where stripe-go would send. It does one thing at a time:
// without an answer it records the request, with one it replays the answer into
// stripe-go's types.
type backend struct {
	base    string
	request *capability.Request  // set by recording
	answer  *capability.Response // replayed if not nil

	// livemode is the answer's, nil if it has none: stripe-go's own field
	// cannot tell that from false.
	livemode *bool
}

var (
	errRecorded    = errors.New("recorded")
	errNotUsed     = errors.New("not used by this exporter")
	errNoErrorBody = errors.New("the answer is no Stripe error")
)

// Call records or replays. It never sends.
func (b *backend) Call(method, path, _ string, params stripego.ParamsContainer, v stripego.LastResponseSetter) error {
	if b.answer == nil {
		return b.record(method, path, params)
	}
	return b.replay(v)
}

func (b *backend) record(method, path string, params stripego.ParamsContainer) error {
	values := &form.Values{}
	form.AppendTo(values, params)
	common := params.GetParams()
	b.request = &capability.Request{
		Method: method,
		URL:    b.base + path,
		Headers: []capability.Header{
			{Name: "Content-Type", Value: "application/x-www-form-urlencoded"},
			{Name: "Stripe-Version", Value: stripego.APIVersion},
		},
		Body:    []byte(values.Encode()),
		Secrets: []string{SecretAPIKey},
	}
	add := func(name string, value *string) {
		if value != nil {
			b.request.Headers = append(b.request.Headers, capability.Header{Name: name, Value: *value})
		}
	}
	add("Idempotency-Key", common.IdempotencyKey)
	add("Stripe-Account", common.StripeAccount)
	return errRecorded
}

// errorEnvelope is the body of every answer of Stripe's that is no success.
type errorEnvelope struct {
	Error *stripego.Error `json:"error"`
}

func (b *backend) replay(v stripego.LastResponseSetter) error {
	response := &stripego.APIResponse{
		RawJSON:    b.answer.Body,
		RequestID:  header(b.answer.Headers, "Request-Id"),
		StatusCode: b.answer.Status,
	}
	if b.answer.Status >= 200 && b.answer.Status < 300 {
		var body struct {
			Livemode *bool `json:"livemode"`
		}
		if err := errors.Join(json.Unmarshal(b.answer.Body, v), json.Unmarshal(b.answer.Body, &body)); err != nil {
			return err
		}
		b.livemode = body.Livemode
		v.SetLastResponse(response)
		return nil
	}
	var envelope errorEnvelope
	if err := json.Unmarshal(b.answer.Body, &envelope); err != nil {
		return err
	}
	if envelope.Error == nil || reflect.ValueOf(*envelope.Error).IsZero() {
		return errNoErrorBody
	}
	envelope.Error.HTTPStatusCode = b.answer.Status
	envelope.Error.RequestID = response.RequestID
	envelope.Error.SetLastResponse(response)
	return envelope.Error
}

// The rest of stripego.Backend is for other kinds of calls.

// CallStreaming is not used.
func (*backend) CallStreaming(string, string, string, stripego.ParamsContainer, stripego.StreamingLastResponseSetter) error {
	return errNotUsed
}

// CallRaw is not used.
func (*backend) CallRaw(string, string, string, *form.Values, *stripego.Params, stripego.LastResponseSetter) error {
	return errNotUsed
}

// CallMultipart is not used.
func (*backend) CallMultipart(string, string, string, string, *bytes.Buffer, *stripego.Params, stripego.LastResponseSetter) error {
	return errNotUsed
}

// SetMaxNetworkRetries does nothing: nothing here retries.
func (*backend) SetMaxNetworkRetries(int64) {}
