package meterline_test

import (
	"testing"

	"github.com/fencepost/fencepost/examples/exporter-go/meterline"
	"github.com/fencepost/fencepost/examples/exporter-go/meterline/meterlinetest"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest"
)

// How an author runs the suite.
func TestConformance(t *testing.T) {
	t.Parallel()
	exportertest.Run(t, exportertest.Linked(meterline.New), meterlinetest.Provider())
}
