package remote_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/pgtest"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/storagetest"
	"github.com/fencepost/fencepost/plugins/sdk/storagetest/conformance"
	"github.com/fencepost/fencepost/plugins/storage/postgres"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// What holds of an adapter holds of it over the wire: the whole suite, with the
// reference, SQLite and PostgreSQL behind the encoding (B7, S16).
func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("reference", func(t *testing.T) {
		t.Parallel()
		storagetest.Run(t, func(t *testing.T) storage.Adapter {
			t.Helper()
			return open(t, carryAdapter(conformance.NewReference(time.Now)))
		})
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		storagetest.Run(t, func(t *testing.T) storage.Adapter {
			t.Helper()
			st, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "usage.db"), Migrate: true})
			if err != nil {
				t.Fatal(err)
			}
			return open(t, carryAdapter(st))
		})
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		storagetest.Run(t, func(t *testing.T) storage.Adapter {
			t.Helper()
			dsn, _ := pgtest.Schema(t)
			// The suite closes what it opened, before the schema is dropped.
			st, err := postgres.Open(context.WithoutCancel(t.Context()), postgres.Config{DSN: dsn, Migrate: true, MaxConns: 8})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = st.Close() })
			return open(t, carryAdapter(st))
		}, storagetest.Effort(0, 15))
	})
}
