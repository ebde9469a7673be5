package meterline_test

import (
	"testing"

	"github.com/fencepost/fencepost/examples/exporter-go/meterline"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest/conformance"
)

// The suite of exporters, over the exporter as it is linked into this test.
// fencepost plugin conformance runs it over the module.
func TestConformance(t *testing.T) {
	t.Parallel()
	provider, err := conformance.ReadProvider("../provider.json")
	if err != nil {
		t.Fatal(err)
	}
	exportertest.Run(t, exportertest.Linked(meterline.New), provider)
}
