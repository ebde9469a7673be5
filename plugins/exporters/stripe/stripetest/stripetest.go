// Package stripetest says how Stripe answers, for the conformance suite of
// exporters.
package stripetest

import (
	"encoding/json"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest/conformance"
)

// Provider returns Stripe, in test mode, for the account of the key.
func Provider() conformance.Provider {
	return conformance.Provider{
		Configuration: exporter.Configuration{Name: "stripe", Account: "acct_1", Mode: "test"},
		Nonsense: []exporter.Configuration{
			{Mode: "test", BaseURL: "https://a.example/?b=c"},
			{Mode: "test", Account: "none", Settings: []byte(`{"connected":true}`)},
		},
		Mapping: map[string]string{"event_name": "llm_tokens"},
		Answer:  answer,
		// Stripe replays its answer to a repeated key, a 500 included.
		PerAttempt: []string{"Idempotency-Key"},
	}
}

func answer(a conformance.Answer, r capability.Request, items []exporter.Item) (capability.Response, bool) {
	if len(items) != 1 {
		return capability.Response{Status: 400}, true
	}
	id, cancel := items[0].Identifier, strings.HasSuffix(r.URL, "/meter_event_adjustments")
	if cancel {
		id = items[0].Corrects.Identifier
	}
	switch {
	case a == conformance.Accept && cancel:
		return body(200, map[string]any{"type": "cancel", "livemode": false, "cancel": map[string]any{"identifier": id}}), true
	case a == conformance.Accept:
		return body(200, map[string]any{"object": "billing.meter_event", "identifier": id, "livemode": false}), true
	case a == conformance.Duplicate:
		return refusal("", "An event already exists with identifier "+id+"."), true
	case a == conformance.Refuse:
		return refusal("timestamp_too_far_in_past", "The event timestamp cannot be more than 35 days in the past."), true
	case a == conformance.Mend:
		return refusal("resource_missing", "No such customer: 'cus_1'"), true
	}
	return capability.Response{}, false
}

func refusal(code, message string) capability.Response {
	e := map[string]any{"type": "invalid_request_error", "message": message}
	if code != "" {
		e["code"] = code
	}
	return body(400, map[string]any{"error": e})
}

func body(status int, value any) capability.Response {
	b, err := json.Marshal(value)
	if err != nil {
		panic(err) // maps and strings
	}
	return capability.Response{Status: status, Body: b}
}
