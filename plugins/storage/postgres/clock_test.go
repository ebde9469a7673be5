//go:build linux

package postgres

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/pgtest"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// S12: times that the store makes are the server's, whatever the program's clock
// says, and of the statement, not of the transaction: in one of an embedder's
// that began before, they are later than its beginning.
func TestTimesAreTheServers(t *testing.T) {
	t.Parallel()
	clock := pgtest.NewClock(t)
	clock.Step(3 * time.Hour)
	c := pgtest.NewCluster(t, pgtest.ClusterConfig{Clock: clock})
	a := openDSN(t, c.DSN()+"&fencepost_schema=fencepost")
	must(t, recordUsage(t.Context(), a, usageOf("acme", "own", "1", november, nil)))
	tx, err := a.pools[workPool].Begin(t.Context())
	must(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	var began time.Time
	must(t, tx.QueryRow(t.Context(), "SELECT now()").Scan(&began))
	clock.Step(4 * time.Hour)
	must(t, recordUsage(t.Context(), a.WithTx(tx), usageOf("acme", "bound", "1", november, nil)))
	must(t, tx.Commit(t.Context()))
	for id, want := range map[string]time.Duration{"own": 3 * time.Hour, "bound": 4 * time.Hour} {
		ev, err := a.LoadEvent(t.Context(), storage.EventKey{Tenant: "acme", EventID: id})
		must(t, err)
		if off := time.Until(ev.RecordedAt) - want; off.Abs() > 10*time.Minute {
			t.Errorf("%s was recorded at %v, %v from the server's clock", id, ev.RecordedAt, off)
		}
		if id == "bound" && ev.RecordedAt.Sub(began) < 50*time.Minute {
			t.Errorf("it was recorded at %v in a transaction of %v", ev.RecordedAt, began)
		}
	}
}
