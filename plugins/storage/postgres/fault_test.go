package postgres

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/internal/pgtest"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// F14: a server that takes no writes any more is left, with all connections to
// it, and the call goes to the one that answers at the address now.
func TestReadOnlyIsLeft(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.Schema(t)
	if pooled(dsn) {
		t.Skip("a pooler keeps no settings of a session")
	}
	a := openDSN(t, dsn)
	poison := func() {
		for range a.cfg.MaxConns { // more than a call is tried
			c, err := a.pools[workPool].Acquire(t.Context())
			must(t, err)
			defer c.Release()
			_, err = c.Exec(t.Context(), "SET default_transaction_read_only = on")
			must(t, err)
		}
	}
	poison()
	wantOutcomes(t, record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(tokens("acme", "e1", "1"))}}), "inserted e1")
	poison()
	_, err := a.PutSubscription(t.Context(), storage.Subscription{Tenant: "acme"})
	must(t, err)
	if n := sqlOne[int](t, a, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", a.target.schema); n > 4 {
		t.Errorf("%d connections: those to the read-only server were kept", n)
	}
}

// D9, F23: an error of the COMMIT itself is unavailable, whatever it says: the
// transaction may be found done.
func TestFailedCommit(t *testing.T) {
	t.Parallel()
	a := open(t)
	sqlExec(t, a, `CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'late' USING ERRCODE = 'check_violation'; END $$`)
	sqlExec(t, a, `CREATE CONSTRAINT TRIGGER late AFTER INSERT ON {schema}.fencepost_subscriptions
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.refuse()`)
	_, err := a.PutSubscription(t.Context(), storage.Subscription{Tenant: "acme"})
	wantFailure(t, err, sdk.TagUnavailable, "constraint")
	must(t, a.Ping(t.Context())) // the connection of it is not used again
	subs, err := a.Subscriptions(t.Context(), []string{"acme"})
	if err != nil || len(subs) != 0 {
		t.Errorf("%+v, %v", subs, err)
	}
}

// F19: backends are killed all the time. Every answer is right, or unavailable,
// and the same call again settles it.
func TestTerminatedBackends(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.Schema(t)
	a, killer := openDSN(t, dsn), openDSN(t, dsn)
	const callers, each = 4, 25
	var wg sync.WaitGroup
	var failed atomic.Int64
	done := make(chan struct{}, callers*each)
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				req := storage.RecordRequest{Mode: storage.Atomic, Units: []storage.Unit{plain(tokens("acme", fmt.Sprintf("e%d-%d", c, i), "1"))}}
				for try := 0; ; try++ {
					res, err := a.RecordEvents(t.Context(), req)
					if err == nil {
						if o := res.Units[0].Outcome; o == storage.Conflict || o == storage.Duplicate && try == 0 {
							t.Errorf("outcome %s at try %d", o, try)
						}
						break
					}
					failed.Add(1)
					if sdk.TagOf(err) != sdk.TagUnavailable || try > 200 {
						t.Errorf("try %d: %v", try, err)
						break
					}
				}
				done <- struct{}{}
			}
		})
	}
	for n := range callers * each {
		if <-done; n%5 == 0 { // between two kills something gets done
			sqlExec(t, killer, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = $1 AND pid <> pg_backend_pid() AND query LIKE '%unnest%'`, a.target.schema)
		}
	}
	wg.Wait()
	if failed.Load() == 0 {
		t.Log("no call met a killed backend")
	}
	// The last of the signals may reach its backend only when this reads.
	var totals []storage.Total
	for try := 0; ; try++ {
		var err error
		totals, err = a.LoadTotals(t.Context(), storage.TotalsQuery{Tenant: "acme"})
		if err == nil {
			break
		}
		if sdk.TagOf(err) != sdk.TagUnavailable || try > 200 {
			t.Fatalf("try %d: %v", try, err)
		}
	}
	if got := totalsText(totals); got != "tokens 100/100/100" {
		t.Errorf("totals: %s", got)
	}
}
