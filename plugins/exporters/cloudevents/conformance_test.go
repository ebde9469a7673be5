package cloudevents_test

import (
	"testing"

	"github.com/fencepost/fencepost/plugins/exporters/cloudevents"
	"github.com/fencepost/fencepost/plugins/exporters/cloudevents/cloudeventstest"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest"
)

// The suite of every exporter.
func TestConformance(t *testing.T) {
	t.Parallel()
	exportertest.Run(t, exportertest.Linked(cloudevents.New), cloudeventstest.Provider())
}
