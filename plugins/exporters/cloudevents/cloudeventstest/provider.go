// Package cloudeventstest says how OpenMeter answers, for the conformance suite of
// exporters.
package cloudeventstest

import (
	"encoding/json"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest/conformance"
)

// Provider returns OpenMeter, in test mode.
func Provider() conformance.Provider {
	return conformance.Provider{
		Configuration: exporter.Configuration{
			Name: "meter", Mode: "test", BaseURL: "https://meter.example", Settings: json.RawMessage(`{"shape":"openmeter"}`),
		},
		Nonsense: []exporter.Configuration{{Mode: "test", BaseURL: "https://meter.example"}},
		Mapping:  map[string]string{"event_type": "calls"},
		AnyBody:  true, // 204
		Answer: func(a conformance.Answer, _ capability.Request, _ []exporter.Item) (capability.Response, bool) {
			switch a { //nolint:exhaustive // it has no others
			case conformance.Accept:
				return capability.Response{Status: 204}, true
			case conformance.Refuse:
				return capability.Response{Status: 400, Body: []byte(`{"title":"Bad Request","status":400}`)}, true
			}
			return capability.Response{}, false
		},
	}
}
