// Package ndjsontest says how a host's file answers, for the conformance suite of
// exporters.
package ndjsontest

import (
	"net/http"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest/conformance"
)

// Provider returns a file, in test mode: see [conformance.Double.AppendSend].
func Provider() conformance.Provider {
	return conformance.Provider{
		Configuration: exporter.Configuration{Name: "file", Mode: "test"},
		Nonsense:      []exporter.Configuration{{Mode: "test", BaseURL: "https://file.example"}},
		AnyBody:       true, // a line has no answer but its number
		Answer: func(a conformance.Answer, _ capability.Request, _ []exporter.Item) (capability.Response, bool) {
			switch a { //nolint:exhaustive // a file takes every line
			case conformance.Accept:
				return capability.Response{Status: http.StatusOK}, true
			case conformance.Duplicate:
				return capability.Response{Status: http.StatusAlreadyReported}, true
			}
			return capability.Response{}, false
		},
	}
}
