//go:build linux

package remote_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/mysqltest"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Issue 5, point 2: what a plugin wrote in a transaction that it did not commit
// is gone when its call is over, however that ended, and nobody waits for it: a
// trap, an exit, a loop past the deadline, or forgetting (F38, F39).
func TestTransactionEndsWithTheCall(t *testing.T) {
	t.Parallel()
	const evil = "host/remote/testdata/evilstore"
	for name, carry := range map[string]carryMySQL{"module": module(t, evil), "process": program(t, evil)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := mysqltest.Database(t)
			mysqltest.Exec(t, dsn, "CREATE TABLE evil (k VARBINARY(64) NOT NULL PRIMARY KEY) ENGINE = InnoDB")
			a := openMySQL(t, dsn, carry)
			for _, how := range []string{"trap", "loop", "exit", "forget", "trap"} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if how == "loop" {
					ctx, cancel = context.WithTimeout(t.Context(), 500*time.Millisecond)
				}
				err := a.UpsertCounters(ctx, []storage.Counter{{CounterKey: storage.CounterKey{Tenant: "a row", Feature: how}}})
				cancel()
				if how != "forget" && !errors.Is(err, sdk.ErrUnavailable) {
					t.Errorf("%s: %v", how, err)
				}
				// The row is not there, and its lock is free: the same key
				// goes in at once.
				if rows := mysqltest.Exec(t, dsn, "SELECT COUNT(*) FROM evil"); rows[0][0] != int64(0) {
					t.Errorf("%s: %v rows", how, rows)
				}
				mysqltest.Exec(t, dsn, "INSERT INTO evil (k) VALUES ('a row')", "DELETE FROM evil")
			}
			// More often than there are connections, so that none was lost.
			for range 20 {
				if err := a.UpsertCounters(t.Context(), []storage.Counter{{CounterKey: storage.CounterKey{Tenant: "a row", Feature: "forget"}}}); err != nil {
					t.Fatal(err)
				}
			}
			if err := a.UpsertCounters(t.Context(), []storage.Counter{{CounterKey: storage.CounterKey{Tenant: "kept", Feature: "commit"}}}); err != nil {
				t.Fatal(err)
			}
			if rows := mysqltest.Exec(t, dsn, "SELECT k FROM evil"); len(rows) != 1 || string(rows[0][0].([]byte)) != "kept" { //nolint:forcetypeassert // a binary column
				t.Errorf("%v", rows)
			}
		})
	}
}
