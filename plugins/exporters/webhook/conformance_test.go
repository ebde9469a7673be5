package webhook_test

import (
	"testing"

	"github.com/fencepost/fencepost/plugins/exporters/webhook"
	"github.com/fencepost/fencepost/plugins/exporters/webhook/webhooktest"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest"
)

// The suite of every exporter.
func TestConformance(t *testing.T) {
	t.Parallel()
	exportertest.Run(t, exportertest.Linked(webhook.New), webhooktest.Provider())
}
