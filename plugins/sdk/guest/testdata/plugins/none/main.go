// Command none is a plugin that uses no capability.
package main

import (
	"context"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/guest"
)

type quiet struct{}

func (quiet) Describe(context.Context) (exporter.Manifest, error) {
	return exporter.Manifest{Name: "none", Version: "1", MaxBatch: 1}, nil
}

func (quiet) Configure(context.Context, exporter.Configuration) error { return nil }

func (quiet) Deliver(_ context.Context, d exporter.Delivery) ([]exporter.ItemOutcome, error) {
	out := make([]exporter.ItemOutcome, len(d.Items))
	for i, it := range d.Items {
		out[i] = exporter.ItemOutcome{ItemID: it.ID, Kind: exporter.Retry}
	}
	return out, nil
}

func (quiet) Close(context.Context) error { return nil }

var plugin = guest.Serve(func(capability.Host) exporter.Exporter { return quiet{} })

func main() { plugin.Main() }
