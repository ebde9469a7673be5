// Package webhooktest says how a receiver of webhooks answers, for the conformance suite of
// exporters.
package webhooktest

import (
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest/conformance"
)

// Provider returns a receiver of webhooks, in test mode.
func Provider() conformance.Provider {
	return conformance.Provider{
		Configuration: exporter.Configuration{Name: "hook", Mode: "test", BaseURL: "https://receiver.example/usage"},
		Nonsense:      []exporter.Configuration{{Mode: "test"}},
		AnyBody:       true, // a receiver's 2xx needs no body
		Definite:      []int{301, 302, 303, 307, 308},
		Answer: func(a conformance.Answer, _ capability.Request, _ []exporter.Item) (capability.Response, bool) {
			switch a { //nolint:exhaustive // a receiver has no others
			case conformance.Accept:
				return capability.Response{Status: 204}, true
			case conformance.Mend:
				return capability.Response{Status: 308}, true
			}
			return capability.Response{}, false
		},
	}
}
