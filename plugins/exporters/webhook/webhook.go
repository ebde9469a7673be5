// Package webhook exports usage as messages of Standard Webhooks 1.0.0 to the
// operator's own receiver: one POST for each item to base_url, signed by the
// host.
//
// The webhook-id is the item's identifier and the same at every attempt, so a
// receiver that remembers ids takes a message once. How long it does is its own
// affair: the exporter's horizon in the configuration must not be longer.
//
// # Mapping of a feature
//
//	type   the message's type, default usage.reported; corrections have
//	       ".corrected" in place of what follows the last full stop
package webhook

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// Version of this exporter.
const Version = "1.0.0"

// SecretSigning is the name of the secret that signs the messages.
const SecretSigning = "signing_secret"

// Codes of outcomes, beside http_STATUS.
const (
	CodeNotSent  = "not_sent"
	CodeNoAnswer = "no_answer" // sent, and no whole answer came back
	CodeRedirect = "redirect"  // the receiver is elsewhere: mend base_url
	CodeGone     = "gone"      // the receiver wants no more messages
	CodeBusy     = "busy"
	CodeUnknown  = "unknown_correction" // of a method that was not declared: nothing is sent
)

const keyType = "type"

// New builds the exporter on the host's HTTP capability. It is an
// [exporter.New].
func New(host capability.Host) exporter.Exporter { return &Exporter{http: host.HTTP} }

// Exporter sends items as messages. Make it with [New]; the zero value can only
// describe itself. It is not for use from two goroutines at once.
type Exporter struct {
	http capability.HTTP
	url  string
}

// Describe returns the manifest.
func (*Exporter) Describe(context.Context) (exporter.Manifest, error) {
	m := exporter.Manifest{
		Name: "webhook", Version: Version,
		IdentifierMaxLength: 255,
		// The specification's example schedule lasts a day. A receiver that
		// forgets earlier needs a shorter horizon in the configuration.
		IdentifierHorizon: 23 * time.Hour,
		Values:            exporter.ValueDomain{MaxDecimals: -1, Negative: true, Zero: true},
		MaxBatch:          100,
		Concurrency:       4,
		Corrections:       exporter.CorrectNegative,
		Capabilities:      []capability.Name{capability.HTTPName},
		Secrets:           []exporter.Secret{{Name: SecretSigning, Scheme: exporter.SecretWebhook}},
	}
	// A redirect is a failure by the specification. Nothing follows it, and
	// nothing but a person's hand at base_url mends it.
	for _, status := range []int{
		http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect,
	} {
		m.Answers = append(m.Answers, exporter.AnswerPattern{Class: exporter.AnswerMendable, Status: status})
	}
	return m, nil
}

// Configure checks and takes the operator's settings. Its errors are tagged
// invalid and name the field.
func (e *Exporter) Configure(_ context.Context, c exporter.Configuration) error {
	if e.http == nil {
		return &sdk.Error{
			Tag: sdk.TagUnsupported, Code: "capability_missing", Field: "http",
			Rule: "the capability http", Hint: "grant http to this plugin",
		}
	}
	if c.Mode != "test" && c.Mode != "live" {
		return sdk.Invalid("mode", "test or live")
	}
	u, err := url.Parse(c.BaseURL)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" {
		return sdk.Invalid("base_url", `the https address of the receiver, such as "https://example.com/usage"`)
	}
	if text := strings.TrimSpace(string(c.Settings)); text != "" && text != "{}" && text != "null" {
		return sdk.Invalid("settings", "absent: this exporter has none")
	}
	e.url = c.BaseURL
	return nil
}

// Close has nothing to release.
func (*Exporter) Close(context.Context) error { return nil }

// Message is the body of a request.
type Message struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"` // when the usage happened
	Data      Data      `json:"data"`
}

// Data is what a message says.
type Data struct {
	Identifier  string    `json:"identifier"` // as webhook-id
	Kind        string    `json:"kind"`       // event, correction or usage_window
	Account     string    `json:"account,omitempty"`
	Mode        string    `json:"mode"`
	Customer    string    `json:"customer"`
	Feature     string    `json:"feature"`
	Value       string    `json:"value"` // exact decimal; of a correction what changes
	PeriodStart time.Time `json:"period_start"`
	PeriodEnd   time.Time `json:"period_end"`
	// Corrects is the identifier of what a correction takes back.
	Corrects string `json:"corrects,omitempty"`
}

// Deliver sends one message for each item and answers for each.
func (e *Exporter) Deliver(ctx context.Context, d exporter.Delivery) ([]exporter.ItemOutcome, error) {
	if e.url == "" {
		return nil, &sdk.Error{Tag: sdk.TagInvalid, Code: "not_configured", Rule: "Configure before Deliver"}
	}
	outcomes := make([]exporter.ItemOutcome, len(d.Items))
	var requests []capability.Request
	var sent []int
	for i := range d.Items {
		if c := d.Items[i].Corrects; c != nil && c.Method != exporter.CorrectNegative {
			outcomes[i] = exporter.ItemOutcome{ItemID: d.Items[i].ID, Kind: exporter.Retry, Code: CodeUnknown}
			continue
		}
		body, err := json.Marshal(message(&d.Items[i]))
		if err != nil {
			return nil, sdk.Invalid("items", "times and texts that JSON has").At(i)
		}
		sent = append(sent, i)
		requests = append(requests, capability.Request{
			Method: http.MethodPost, URL: e.url, Body: body, Items: []string{d.Items[i].ID}, Secrets: []string{SecretSigning},
			Headers: []capability.Header{
				{Name: "Content-Type", Value: "application/json"},
				{Name: "webhook-id", Value: d.Items[i].Identifier},
			},
		})
	}
	if len(requests) == 0 {
		return outcomes, nil
	}
	responses, err := e.http.Send(ctx, requests)
	if err != nil {
		return nil, err //nolint:wrapcheck // the host's own refusal says it all
	}
	for n, i := range sent {
		outcomes[i] = judge(&d.Items[i], &responses[n])
	}
	return outcomes, nil
}

func message(item *exporter.Item) Message {
	m := Message{
		Type: item.Mapping[keyType], Timestamp: item.Timestamp.UTC(),
		Data: Data{
			Identifier: item.Identifier, Kind: item.Kind, Account: item.Account, Mode: item.Mode, Customer: item.Customer,
			Feature: item.Feature, Value: item.Value, PeriodStart: item.PeriodStart.UTC(), PeriodEnd: item.PeriodEnd.UTC(),
		},
	}
	if m.Type == "" {
		m.Type = "usage.reported"
	}
	if item.Corrects != nil {
		m.Data.Corrects = item.Corrects.Identifier
		if i := strings.LastIndexByte(m.Type, '.'); i >= 0 {
			m.Type = m.Type[:i]
		}
		m.Type += ".corrected"
	}
	return m
}

// judge says what an answer means. Whatever leaves open whether the receiver
// took the message is uncertain: the same id settles it.
func judge(item *exporter.Item, r *capability.Response) exporter.ItemOutcome {
	o := exporter.ItemOutcome{ItemID: item.ID, Kind: exporter.Uncertain, Code: "http_" + strconv.Itoa(r.Status)}
	switch {
	case r.Failure == capability.FailureNotSent:
		o.Kind, o.Code, o.Message = exporter.Retry, CodeNotSent, r.Reason
	case r.Failure != capability.FailureNone:
		o.Code, o.Message = CodeNoAnswer, r.Reason
	case r.Status >= 200 && r.Status < 300:
		o.Kind, o.Code = exporter.Accepted, ""
	case r.Status >= 300 && r.Status < 400:
		o.Kind, o.Code, o.Mendable = exporter.Rejected, CodeRedirect, true
	case r.Status == http.StatusGone:
		o.Code = CodeGone
	case r.Status == http.StatusTooManyRequests, r.Status == http.StatusBadGateway,
		r.Status == http.StatusServiceUnavailable, r.Status == http.StatusGatewayTimeout:
		// How long it wants to be left alone, the host has read.
		o.Kind, o.Code = exporter.RateLimited, CodeBusy
	}
	return o
}
