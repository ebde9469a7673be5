// Package meterline is a sample exporter for a provider that does not exist: one
// POST of JSON for each item, recognised again by its Idempotency-Key.
//
//	POST {base_url}/v1/usage
//	Authorization: Bearer TOKEN          the host adds it
//	Content-Type: application/json
//	Idempotency-Key: IDENTIFIER
//
//	{"id":"IDENTIFIER","customer":"…","meter":"…","value":"1.50","timestamp":1796040000}
//
// It answers 200 or 201 with {"id":"IDENTIFIER"} for what it took, 409 with
// {"error":{"code":"duplicate","id":"IDENTIFIER"}} for what it has, 400 or 422
// with an error.code for what it refuses, and 429 and 5xx as everybody does.
//
// The mapping of a feature has one key, meter. There are no settings.
package meterline

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

const (
	defaultBaseURL = "https://api.meterline.example"
	keyMeter       = "meter"
	maxIdentifier  = 100
)

// New builds the exporter on the host's HTTP capability. It is an
// [exporter.New].
func New(host capability.Host) exporter.Exporter { return &sample{http: host.HTTP} }

type sample struct {
	http       capability.HTTP
	config     exporter.Configuration
	configured bool
}

// Describe returns the manifest.
func (*sample) Describe(context.Context) (exporter.Manifest, error) { return manifest(), nil }

// Configure checks and takes the operator's settings.
func (s *sample) Configure(_ context.Context, c exporter.Configuration) error {
	if c.Mode != "test" && c.Mode != "live" {
		return sdk.Invalid("mode", "test or live")
	}
	if c.BaseURL == "" {
		c.BaseURL = defaultBaseURL
	}
	host, https := strings.CutPrefix(c.BaseURL, "https://")
	if !https || host == "" || host[0] == '/' || strings.ContainsFunc(host, notInAddress) {
		return sdk.Invalid("base_url", "an https address without user, query and fragment")
	}
	c.BaseURL = strings.TrimRight(c.BaseURL, "/")
	if len(c.Settings) > 0 {
		var settings map[string]json.RawMessage
		if err := json.Unmarshal(c.Settings, &settings); err != nil || settings == nil || len(settings) > 0 {
			return sdk.Invalid("settings", "an empty JSON object: there are no settings")
		}
	}
	s.config, s.configured = c, true
	return nil
}

// notInAddress finds what would make an address mean something else.
func notInAddress(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`@?#\`, r) }

// Close has nothing to release.
func (*sample) Close(context.Context) error { return nil }

// Deliver sends each item as a request of its own, all in one batch.
func (s *sample) Deliver(ctx context.Context, d exporter.Delivery) ([]exporter.ItemOutcome, error) {
	if !s.configured {
		return nil, &sdk.Error{Tag: sdk.TagInvalid, Code: "not_configured", Rule: "Configure before Deliver"}
	}
	outcomes := make([]exporter.ItemOutcome, len(d.Items))
	var requests []capability.Request
	var sent []int // sent[i]: the item of requests[i]
	for i := range d.Items {
		item := &d.Items[i]
		if code := s.unsendable(item); code != "" {
			outcomes[i] = exporter.ItemOutcome{ItemID: item.ID, Kind: exporter.Retry, Code: code}
			continue
		}
		requests, sent = append(requests, s.request(item)), append(sent, i)
	}
	if len(requests) == 0 {
		return outcomes, nil
	}
	responses, err := s.http.Send(ctx, requests)
	for n, i := range sent {
		item := &d.Items[i]
		switch {
		case err != nil:
			outcomes[i] = exporter.ItemOutcome{ItemID: item.ID, Kind: exporter.Retry, Code: "not_sent"}
		case len(responses) != len(requests):
			outcomes[i] = exporter.ItemOutcome{ItemID: item.ID, Kind: exporter.Retry, Code: "no_answer"}
		default:
			outcomes[i] = judge(item, &responses[n])
		}
	}
	return outcomes, nil
}

// unsendable says why an item must not be sent, or nothing. Only the provider
// may reject, so such an item is tried again.
func (s *sample) unsendable(item *exporter.Item) string {
	switch {
	case item.Mode != s.config.Mode:
		return "mode_not_served"
	case item.Account != s.config.Account:
		return "account_not_served"
	case item.Mapping[keyMeter] == "":
		return "mapping_incomplete"
	case item.Identifier == "" || len(item.Identifier) > maxIdentifier:
		return "identifier_invalid"
	case item.Corrects != nil && item.Corrects.Method != exporter.CorrectNegative:
		return "correction_method_unknown"
	case item.Customer == "":
		return "customer_missing"
	case !plainDecimal(item.Value):
		return "value_invalid"
	}
	return ""
}

// plainDecimal reports whether s is digits, with a sign and a point at most. It
// is sent as it is: a float would change it.
func plainDecimal(s string) bool {
	whole, fraction, point := strings.Cut(strings.TrimPrefix(s, "-"), ".")
	return whole != "" && (!point || fraction != "") && strings.Trim(whole+fraction, "0123456789") == ""
}

func (s *sample) request(item *exporter.Item) capability.Request {
	body := append([]byte(`{"id":`), quote(item.Identifier)...)
	body = append(append(body, `,"customer":`...), quote(item.Customer)...)
	body = append(append(body, `,"meter":`...), quote(item.Mapping[keyMeter])...)
	body = append(append(body, `,"value":`...), quote(item.Value)...)
	body = append(body, `,"timestamp":`...)
	body = strconv.AppendInt(body, item.Timestamp.Unix(), 10)
	return capability.Request{
		Method: "POST", URL: s.config.BaseURL + "/v1/usage",
		Headers: []capability.Header{
			{Name: "Content-Type", Value: "application/json"}, {Name: "Idempotency-Key", Value: item.Identifier},
		},
		Body: append(body, '}'), Items: []string{item.ID}, Secrets: []string{"token"},
	}
}
