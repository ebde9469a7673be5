package awsmarketplace_test

import (
	"testing"

	"github.com/fencepost/fencepost/plugins/exporters/awsmarketplace"
	"github.com/fencepost/fencepost/plugins/exporters/awsmarketplace/awsmarketplacetest"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest"
)

// The suite of every exporter.
func TestConformance(t *testing.T) {
	t.Parallel()
	exportertest.Run(t, exportertest.Linked(awsmarketplace.New), awsmarketplacetest.Provider())
}
