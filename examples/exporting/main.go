// Command exporting embeds a host that reports to Stripe: single facts, and calls
// of which only their number counts. It is the example of the README.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/plugins/exporters/stripe/module"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

func main() {
	settings, err := config.Load(os.Args[1])
	if err == nil {
		err = serve(context.Background(), settings, func(*host.Host) error { return nil })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "exporting:", err)
		os.Exit(1)
	}
}

// serve is a program that records and counts, with its own work in between.
func serve(ctx context.Context, settings config.Config, work func(*host.Host) error) error {
	// README
	openSQLite := func(ctx context.Context, dsn string, logger *slog.Logger) (storage.Adapter, error) {
		return sqlite.Open(ctx, sqlite.Config{Path: dsn, Migrate: true, Logger: logger})
	}
	h, err := host.Open(ctx, host.Config{
		Settings: settings,
		Builtins: host.Builtins{ // what "builtin:" in the settings may name
			Storage:   map[string]host.OpenStorage{"sqlite": openSQLite},
			Exporters: map[string]func() ([]byte, error){"stripe": module.Bytes},
		},
		Getenv: os.LookupEnv, // for env:STRIPE_API_KEY
		Logger: slog.Default(),
	})
	if err != nil {
		return err
	}
	e := h.Engine()
	_, err = e.PutSubscription(ctx, storage.Subscription{Tenant: "acme", Customers: map[string]string{"stripe": "cus_1"}})
	if err != nil {
		return errors.Join(err, h.Close(ctx))
	}
	// A fact, with an id: safe to repeat, on the disk when Record returns.
	_, err = e.Record(ctx, engine.Event{ID: "req-1", Tenant: "acme", Feature: "tokens", Quantity: decimal.MustParse("12.5")})
	// A call of which only the number counts: in memory until the next flush.
	err = errors.Join(err, e.Track(ctx, "acme", "api_calls", decimal.One))
	// README
	err = errors.Join(err, work(h))
	return errors.Join(err, h.Close(ctx)) // writes what was counted
}
