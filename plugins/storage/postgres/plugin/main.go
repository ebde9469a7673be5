// Command plugin is the PostgreSQL adapter as a plugin. The data source is its
// DSN, with the parameters of ours.
package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/guest/storageplugin"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/postgres"
)

var plugin = storageplugin.Serve(open)

func open(ctx context.Context, _ capability.Host, o storage.Opening) (storage.Adapter, error) {
	a, err := postgres.Open(ctx, postgres.Config{DSN: o.DSN, Migrate: o.Migrate, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return nil, err // not a nil adapter in an interface
	}
	return a, nil
}

func main() { plugin.Main() }
