//go:build faults && unix

package faults

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// correction takes back some of an event.
type correction struct{ id, of, quantity string }

// correct sends corrections in one call. An error means that nothing is known
// of those that the answer does not name.
func (r *rig) correct(all ...correction) (api.CorrectionAnswer, error) {
	r.t.Helper()
	bodies := make([]map[string]string, len(all))
	for i, c := range all {
		bodies[i] = map[string]string{"id": c.id, "tenant": tenant, "event_id": c.of, "quantity": c.quantity, "reason": "test"}
		r.mu.Lock()
		r.sent[eventKey{tenant, c.id}] = event{id: c.id, feature: "tokens", quantity: c.quantity}
		r.mu.Unlock()
	}
	raw, err := json.Marshal(bodies)
	if err != nil {
		r.t.Fatal(err)
	}
	var answer api.CorrectionAnswer
	if err := r.call(http.MethodPost, "/v1/corrections", "application/json", raw, &answer); err != nil {
		return answer, err
	}
	for i, res := range answer.Results {
		r.answered(event{id: all[i].id}, string(res.Outcome))
	}
	return answer, nil
}

// exceeds says that an answer refuses a correction because the event has less.
func exceeds(a api.CorrectionAnswer) bool {
	text, _ := json.Marshal(a)
	return strings.Contains(string(text), "exceeds_original")
}

// auditCorrections audits with corrections in the store: each has been told to
// the provider, which bills what is left, and an event is not corrected by more
// than it is (I5).
func (r *rig) auditCorrections() {
	r.t.Helper()
	b := r.audit()
	left := map[eventKey]decimal.Decimal{}
	for k, e := range b.byKey {
		if e.kind == "usage" {
			left[k] = left[k].Add(e.quantity)
		} else {
			of := eventKey{k.tenant, e.original}
			left[of] = left[of].Add(e.effect)
		}
	}
	for k, q := range left {
		if q.Sign() < 0 {
			r.t.Errorf("event %v is corrected to %s", k, q)
		}
	}
	for _, it := range b.items {
		if it.method == "" && b.events[it.seq].kind != "usage" {
			r.t.Errorf("item %d of a correction is %s and has no method", it.id, it.state)
		}
	}
	b.accepted(r)
}

// F02, I5, B26-B33: killed at each step of a correction, all of it is stored or
// nothing. The same correction again is inserted, or a duplicate exactly if it
// had been stored, even where a second one would exceed the event.
func TestKillWhileCorrecting(t *testing.T) {
	t.Parallel()
	for name, open := range stores() {
		for _, label := range []string{"c1", "c2", "c3", "c4", "c5", "c6", "c7"} {
			t.Run(name+"/"+label, func(t *testing.T) {
				t.Parallel()
				killWhileCorrecting(t, open(t, defaults()), label)
			})
		}
	}
}

func killWhileCorrecting(t *testing.T, r *rig, label string) {
	t.Helper()
	r.subscribe()
	s := r.start(label + "=kill@n2")
	r.record([]event{{id: "e", feature: "tokens", quantity: "10.5"}})
	r.drain() // a correction that finds its original on the move passes the points again
	if a, err := r.correct(correction{"first", "e", "0.25"}); err != nil || a.Summary["inserted"] != 1 {
		t.Fatalf("%+v, %v", a, err)
	}
	all := correction{"second", "e", "10.25"} // all that is left
	if a, err := r.correct(all); err == nil {
		t.Fatalf("answered by a server that was to be killed: %+v", a)
	}
	s.died(label)
	_, stored := r.read().byKey[eventKey{tenant, all.id}]
	if stored != (label == "c7") {
		t.Errorf("killed at %s: stored %t", label, stored)
	}
	r.auditTotals(r.read())

	r.start("")
	want := "inserted"
	if stored {
		want = "duplicate"
	}
	for _, outcome := range []string{want, "duplicate"} {
		if a, err := r.correct(all); err != nil || a.Summary[outcome] != 1 {
			t.Errorf("again: %+v, %v; want %s", a, err, outcome)
		}
	}
	if a, err := r.correct(correction{"third", "e", "0.001"}); err != nil || a.Summary["inserted"] != 0 || !exceeds(a) {
		t.Errorf("nothing is left: %+v, %v", a, err)
	}
	delete(r.sent, eventKey{tenant, "third"})
	r.drain()
	r.auditCorrections()
}

// F58, B29: 32 callers correct one event at once, by more than it is in all.
// Exactly as many go through as fit, and each identifier once, though two
// callers send it.
func TestManyCorrectOneEvent(t *testing.T) {
	t.Parallel()
	for name, open := range stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t, defaults())
			r.subscribe()
			r.start("")
			r.record([]event{{id: "e", feature: "tokens", quantity: "10"}})
			var inserted, duplicate, refused atomic.Int64
			var wg sync.WaitGroup
			const callers = 32
			for c := range callers {
				wg.Go(func() {
					for n := range 2 {
						a, err := r.correct(correction{fmt.Sprint("c", c/2, "-", n), "e", "1"})
						if err != nil {
							t.Errorf("caller %d: %v", c, err)
							return
						}
						inserted.Add(int64(a.Summary["inserted"]))
						duplicate.Add(int64(a.Summary["duplicate"]))
						if exceeds(a) {
							refused.Add(1)
						}
					}
				})
			}
			wg.Wait()
			if inserted.Load() != 10 || inserted.Load()+duplicate.Load()+refused.Load() != 2*callers || duplicate.Load() == 0 || refused.Load() == 0 {
				t.Errorf("%d inserted, %d duplicates, %d refused; want 10 inserted of %d", inserted.Load(), duplicate.Load(), refused.Load(), 2*callers)
			}
			r.settled()
		})
	}
}

// settled forgets corrections that were refused, waits and audits.
func (r *rig) settled() {
	r.t.Helper()
	b := r.read()
	for k := range r.sent {
		if _, ok := b.byKey[k]; !ok && !r.acked[k] {
			delete(r.sent, k)
		}
	}
	r.drain()
	r.auditCorrections()
}

// F57, I4, B40: events are recorded and corrected while totals are built anew,
// also events that the build has not read yet. The new totals are what the events
// and corrections come to.
func TestCorrectWhileReplaying(t *testing.T) {
	t.Parallel()
	for name, open := range stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t, defaults())
			r.subscribe()
			r.start("")
			old := events("old", 200)
			r.record(old)
			if _, err := r.replaying("", map[string]any{"batch_size": 3}); err != nil {
				t.Fatal(err)
			}
			var st api.ReplayStatus
			r.get("/v1/replays", &st)
			building := st.Building
			stop := r.recording(events("new", 100))
			var wg sync.WaitGroup
			for c := range 4 {
				wg.Go(func() {
					for i := len(old) - 1 - c; i > 0; i -= 4 { // from the end, which is read last
						if a, err := r.correct(correction{"c-" + old[i].id, old[i].id, "0.001"}); err != nil || a.Summary["inserted"] != 1 {
							t.Errorf("%+v, %v", a, err)
							return
						}
					}
				})
			}
			wg.Wait()
			stop()
			if st = r.replayed(); st.Run.State != "done" || st.Run.Differing != "0" || (building != "" && st.Active != building) {
				t.Errorf("%+v, %+v", st, st.Run)
			}
			r.settled()
		})
	}
}
