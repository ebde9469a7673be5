package postgres_test

import (
	"context"
	"testing"

	"github.com/fencepost/fencepost/internal/pgtest"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/storagetest"
	"github.com/fencepost/fencepost/plugins/storage/postgres"
)

// S16, B49: the suite that every adapter has to pass.
func TestConformance(t *testing.T) {
	t.Parallel()
	var first string // schema of the store that is opened first
	storagetest.Run(t, func(t *testing.T) storage.Adapter {
		t.Helper()
		dsn, _ := pgtest.Schema(t)
		if first == "" {
			first = dsn
		}
		// The suite closes what it opened, before the schema is dropped.
		a, err := postgres.Open(context.WithoutCancel(t.Context()), postgres.Config{DSN: dsn, Migrate: true, MaxConns: 8})
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		t.Cleanup(func() { _ = a.Close() })
		return a
	}, storagetest.Beside(func() (storage.Adapter, error) {
		return postgres.Open(context.WithoutCancel(t.Context()), postgres.Config{DSN: first, MaxConns: 8})
	}), storagetest.Effort(0, 15)) // a race is looked for on every server of the matrix
}
