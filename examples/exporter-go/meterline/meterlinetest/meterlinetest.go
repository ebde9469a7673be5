// Package meterlinetest says how the provider of the sample exporter answers, for
// the conformance suite.
package meterlinetest

import (
	"encoding/json"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest/conformance"
)

// Provider returns the provider.
func Provider() conformance.Provider {
	return conformance.Provider{
		Configuration: exporter.Configuration{Name: "sample", Account: "acme", Mode: "test", BaseURL: "https://api.meterline.example"},
		Nonsense: []exporter.Configuration{
			{Mode: "test", BaseURL: "https:///v1"},
			{Mode: "test", BaseURL: "https://a.example/?b=c"},
			{Mode: "test", BaseURL: "https://a.example/ b"},
			{Mode: "test", Settings: []byte("null")},
			{Mode: "test", Settings: []byte("{} {}")},
		},
		Mapping: map[string]string{"meter": "llm tokens"},
		Answer:  answer,
	}
}

func answer(a conformance.Answer, _ capability.Request, items []exporter.Item) (capability.Response, bool) {
	if len(items) != 1 {
		return capability.Response{Status: 400}, true
	}
	id := items[0].Identifier
	switch a {
	case conformance.Accept:
		return body(200, map[string]any{"id": id, "counted": true}), true
	case conformance.Duplicate:
		return body(409, map[string]any{"error": map[string]any{"code": "duplicate", "id": id}}), true
	case conformance.Refuse:
		return body(422, map[string]any{"error": map[string]any{"code": "invalid_value", "message": "no"}}), true
	case conformance.Mend:
		return body(400, map[string]any{"error": map[string]any{"message": "who?", "code": "no_such_customer"}}), true
	}
	return capability.Response{}, false
}

func body(status int, value any) capability.Response {
	b, err := json.Marshal(value)
	if err != nil {
		panic(err) // maps and strings
	}
	return capability.Response{Status: status, Body: b, Headers: []capability.Header{{Name: "Content-Type", Value: "application/json"}}}
}
