// Package meterlinetest says how the provider of the sample exporter answers, for
// the conformance suite.
package meterlinetest

import (
	"github.com/fencepost/fencepost/examples"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest/conformance"
)

// Provider returns the provider, which provider.json beside the exporter
// describes.
func Provider() conformance.Provider {
	text, err := examples.Sources.ReadFile("exporter-go/provider.json")
	if err != nil {
		panic(err) // it is embedded
	}
	d, err := conformance.ParseProvider(text)
	if err != nil {
		panic(err)
	}
	return d.Provider
}
