package postgres

import (
	"context"
	"testing"

	"github.com/fencepost/fencepost/internal/pgtest"
)

// open answers a migrated store in a schema of its own.
func open(t testing.TB) *Adapter {
	t.Helper()
	dsn, _ := pgtest.Schema(t)
	return openDSN(t, dsn)
}

func openDSN(t testing.TB, dsn string) *Adapter {
	t.Helper()
	a, err := Open(context.WithoutCancel(t.Context()), Config{DSN: dsn, Migrate: true, MaxConns: 4})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}
