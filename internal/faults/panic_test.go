//go:build faults && linux

package faults

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// F07: a panic at a step of recording, of a correction or of a delivery. The
// process lives or ends; what it held is let go either way, and everything that is
// sent again is stored and charged once.
func TestPanic(t *testing.T) {
	t.Parallel()
	for store, labels := range map[string][]string{
		"sqlite": {"r7", "c4", "d2", "d8", "d9"}, "postgres": {"r4", "r7", "r9", "c6", "d2", "d3", "d7", "d8", "d9"},
	} {
		open := pairs()[store]
		for _, label := range labels {
			t.Run(store+"/"+label, func(t *testing.T) {
				t.Parallel()
				panicAt(t, open(t, shortLease()), label)
			})
		}
	}
}

func panicAt(t *testing.T, r *rig, label string) {
	t.Helper()
	r.subscribe()
	// Deliverers walk before the server serves: it may end with its second pass.
	victim := r.launch(label + "=panic@n2")
	if !victim.serving() && victim.firings(label, "panic") == 0 {
		t.Fatalf("the server ended before it served: %v", victim.err)
	}
	r.server = victim
	calls := [][]event{events("first", 3)} // recorded at the end
	var corrections []correction
	for n := 0; victim.firings(label, "panic") == 0 && !victim.hasEnded(); n++ {
		if n == 100 {
			t.Fatalf("no panic at %s in %d calls", label, n)
		}
		call := events(fmt.Sprint("e", n), 3)
		calls = append(calls, call)
		if _, err := r.post(call); err != nil {
			continue // the panic was in it
		}
		if label[0] == 'd' {
			within(patience, func() bool { return drained(r) || victim.hasEnded() || victim.firings(label, "panic") > 0 })
			continue
		}
		c := correction{fmt.Sprint("c", n), call[0].id, "0.001"}
		corrections = append(corrections, c)
		_, _ = r.correct(c)
	}
	victim.faulted(label, "panic")
	// A host beside it is not held up, nor is the same one.
	if r.separate {
		r.second = victim
		if r.server = r.launchSecond(""); !r.server.serving() {
			t.Fatalf("the other host ended: %v", r.server.err)
		}
	} else if label[0] == 'd' && within(10*time.Second, victim.hasEnded) { // no request waits for it
		r.start("")
	}
	t.Logf("%s: the process ended: %t", label, victim.hasEnded())
	if code := r.status("/livez"); code != http.StatusOK {
		t.Errorf("live answers %d", code)
	}
	for _, call := range calls {
		r.record(call)
	}
	if len(corrections) > 0 {
		if a, err := r.correct(corrections...); err != nil || a.Summary["inserted"]+a.Summary["duplicate"] != len(corrections) {
			t.Errorf("%+v, %v", a, err)
		}
	}
	r.drain()
	r.auditCorrections()
}

// F18: tables change under two hosts, again and again, so that what the sessions
// have prepared is no longer right. Nothing that was acknowledged is lost, and
// nothing is charged twice.
func TestTablesChange(t *testing.T) {
	t.Parallel()
	b := newBed(t, shortLease())
	b.apart()
	b.subscribe()
	b.pair("")
	load := b.stream(3)
	load.more(5)
	admin := b.session()
	b.sql(admin, "SET lock_timeout = '2s'")
	changed := 0
	for n := range 10 {
		for _, table := range []string{"events", "outbox_items", "outbox_state", "totals"} {
			name := b.schema + ".fencepost_" + table
			for _, sql := range []string{
				fmt.Sprintf("ALTER TABLE %s ADD COLUMN another%d text", name, n), fmt.Sprintf("ALTER TABLE %s DROP COLUMN another%d", name, n),
			} {
				if _, err := admin.Exec(t.Context(), sql); err == nil {
					changed++
				}
			}
		}
		load.more(2)
	}
	if changed < 20 {
		t.Errorf("only %d changes went through", changed)
	}
	load.stop()
}
