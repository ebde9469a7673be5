package stripe_test

import (
	"testing"

	"github.com/fencepost/fencepost/plugins/exporters/stripe"
	"github.com/fencepost/fencepost/plugins/exporters/stripe/stripetest"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest"
)

// Q29, P1-P6: the suite that every exporter passes, over the exporter linked in.
func TestConformance(t *testing.T) {
	t.Parallel()
	exportertest.Run(t, exportertest.Linked(stripe.New), stripetest.Provider())
}
