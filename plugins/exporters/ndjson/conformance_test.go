package ndjson_test

import (
	"testing"

	"github.com/fencepost/fencepost/plugins/exporters/ndjson"
	"github.com/fencepost/fencepost/plugins/exporters/ndjson/ndjsontest"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest"
)

// The suite of every exporter.
func TestConformance(t *testing.T) {
	t.Parallel()
	exportertest.Run(t, exportertest.Linked(ndjson.New), ndjsontest.Provider())
}
