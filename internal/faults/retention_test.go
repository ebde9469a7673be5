//go:build faults && linux

package faults

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/internal/pgtest"
)

// prune removes events that are older than an age.
func (r *rig) prune(age string) (api.PruneAnswer, error) {
	r.t.Helper()
	var answer api.PruneAnswer
	err := r.call(http.MethodPost, "/v1/retention/prune", "application/json",
		[]byte(fmt.Sprintf(`{"kind": "events", "age": %q, "dry_run": false}`, age)), &answer)
	return answer, err
}

// F56, S15: retention removes events while their clients repeat them. A repeat
// is a duplicate before and after, as what is left of an event remembers it; with
// another quantity it is a conflict. Nothing counts twice, and the totals stay
// what they were.
func TestPruneWhileClientsRepeat(t *testing.T) {
	t.Parallel()
	clock := pgtest.NewClock(t)
	b := newOwn(t, defaults(), pgtest.NewCluster(t, pgtest.ClusterConfig{Clock: clock}))
	b.subscribe()
	clock.Step(-48 * time.Hour)
	b.start("")
	all := events("e", 120)
	b.record(all)
	b.drain()
	clock.Step(0)
	b.pruneWhileClientsRepeat(all)
}

// F56 on SQLite, where a removal and a repeat cannot meet inside each other: one
// writes at a time. The clock is the program's, so the events are made older
// behind its back.
func TestPruneWhileClientsRepeatOnSQLite(t *testing.T) {
	t.Parallel()
	r := newRig(t, defaults())
	r.subscribe()
	r.start("")
	all := events("e", 120)
	r.record(all)
	r.drain()
	r.server.stop()
	r.older(48 * time.Hour)
	r.start("")
	r.pruneWhileClientsRepeat(all)
}

// older takes an age from the time at which everything was recorded.
func (r *rig) older(age time.Duration) {
	r.t.Helper()
	c, err := sqlite.OpenConn(filepath.Join(r.dir, "fencepost.db"), sqlite.OpenReadWrite)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	const name = "fencepost_events_no_update"
	trigger, err := sqlitex.ResultText(c.Prep("SELECT sql FROM sqlite_schema WHERE name = '" + name + "'"))
	if err != nil {
		r.t.Fatal(err)
	}
	text := fmt.Sprintf("DROP TRIGGER %s; UPDATE fencepost_events SET recorded_at = recorded_at - %d; %s;", name, age.Microseconds(), trigger)
	if err := sqlitex.ExecuteScript(c, text, nil); err != nil {
		r.t.Fatal(err)
	}
}

// pruneWhileClientsRepeat removes events that are old enough while three callers
// repeat them.
func (r *rig) pruneWhileClientsRepeat(all []event) {
	t := r.t
	t.Helper()
	before := r.usage()
	done := make(chan struct{})
	var wg sync.WaitGroup
	for c := range 3 {
		wg.Go(func() {
			for n := c; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				e := all[n*7%len(all)]
				answer, err := r.post([]event{e})
				if err != nil && !strings.Contains(err.Error(), "conflict_unresolved") {
					t.Errorf("a repeat: %v", err)
					return
				}
				if err == nil && answer.Summary["duplicate"] != 1 {
					t.Errorf("a repeat of %s is answered %v", e.id, answer.Summary)
					return
				}
			}
		})
	}
	removed := 0
	eventually(t, "all events are removed", func() bool {
		a, err := r.prune("1d")
		if err != nil {
			t.Fatalf("prune: %v", err)
		}
		var n int
		_, _ = fmt.Sscan(a.Removed, &n)
		removed += n
		return !a.More && len(r.read().events) == 0
	})
	close(done)
	wg.Wait()
	if removed == 0 {
		t.Error("nothing was removed")
	}
	other := all[3]
	other.quantity = "77"
	if answer, err := r.post([]event{other}); err != nil || answer.Summary["conflict"] != 1 {
		t.Errorf("another quantity: %+v, %v", answer.Summary, err)
	}
	if n := r.record(all); n != 0 {
		t.Errorf("%d were inserted again", n)
	}
	if after := r.usage(); after != before {
		t.Errorf("usage was %s and is %s", before, after)
	}
}

// usage is the tenant's usage as the API answers it.
func (r *rig) usage() string {
	r.t.Helper()
	var u api.UsageAnswer
	r.get("/v1/usage?tenant="+tenant, &u)
	rows := make([]string, len(u.Data))
	for i, row := range u.Data {
		rows[i] = fmt.Sprint(row.Feature, " ", row.Value)
	}
	return strings.Join(rows, "; ")
}
