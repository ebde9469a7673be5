//go:build faults && unix

package faults

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// F01, I1, I2, I4: killed at each step of recording, everything or nothing of
// the call is stored; the same call again reports duplicates exactly if it had
// been stored, and totals, events and items are those of one call.
func TestKillWhileRecording(t *testing.T) {
	t.Parallel()
	for name, open := range stores() {
		for _, label := range []string{"r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9"} {
			t.Run(name+"/"+label, func(t *testing.T) {
				t.Parallel()
				killWhileRecording(t, open(t, defaults()), label)
			})
		}
	}
}

func killWhileRecording(t *testing.T, r *rig, label string) {
	t.Helper()
	r.subscribe()
	s := r.start(label + "=kill@n2")
	if n := r.record(events("first", 20)); n != 20 {
		t.Fatalf("%d of the first call were new", n)
	}
	// Units of two events each: no part of one may be stored alone.
	second := completions("second", 15)
	if _, err := r.post(second); err == nil {
		t.Fatal("the call was answered by a server that was to be killed in it")
	}
	s.died(label)

	committed := label == "r8" || label == "r9"
	want := 20
	if committed {
		want += 2 * len(second)
	}
	if got := len(r.read().events); got != want {
		t.Errorf("killed at %s: %d events are stored, want %d", label, got, want)
	}

	r.start("")
	inserted := r.record(second)
	if committed && inserted != 0 || !committed && inserted != len(second) {
		t.Errorf("the repeated call inserted %d of %d, committed before: %t", inserted, len(second), committed)
	}
	if n := r.record(second); n != 0 {
		t.Errorf("the third call inserted %d", n)
	}
	r.drain()
	b := r.audit()
	if n := b.accepted(r); n != 20+2*len(second) {
		t.Errorf("%d items", n)
	}
}

// F01 with many callers whose single events are written together: the kill
// takes a transaction that belongs to all of them.
func TestKillWhileManyRecord(t *testing.T) {
	t.Parallel()
	for name, open := range stores() {
		for _, label := range []string{"r3", "r7", "r8", "r9"} {
			t.Run(name+"/"+label, func(t *testing.T) {
				t.Parallel()
				killWhileManyRecord(t, open(t, defaults()), label)
			})
		}
	}
}

func killWhileManyRecord(t *testing.T, r *rig, label string) {
	t.Helper()
	r.subscribe()
	s := r.start(label + "=kill@n6")
	const callers, each = 16, 12
	all := make([][]event, callers)
	var wg sync.WaitGroup
	for c := range callers {
		all[c] = events(fmt.Sprint("caller", c), each)
		for i := range all[c] {
			if i%3 == 0 {
				all[c][i].at = all[c][i].at.AddDate(0, 0, -20) // perhaps another period
			}
		}
		wg.Go(func() {
			for _, e := range all[c] {
				if _, err := r.post([]event{e}); err != nil {
					return // the server is gone; the client comes back later
				}
			}
		})
	}
	wg.Wait()
	s.died(label)

	r.start("")
	stored := r.read()
	for c := range callers {
		for _, e := range all[c] {
			_, had := stored.byKey[eventKey{tenant, e.id}]
			if inserted := r.record([]event{e}); had == (inserted == 1) {
				t.Errorf("event %s: stored before %t, inserted now %d", e.id, had, inserted)
			}
		}
	}
	r.drain()
	if n := r.audit().accepted(r); n != callers*each {
		t.Errorf("%d items, want %d", n, callers*each)
	}
}

// An event without a time keeps the time of its first receipt when its client
// repeats it after a kill (Q1).
func TestKillWhileRecordingWithoutTime(t *testing.T) {
	t.Parallel()
	r := newRig(t, defaults())
	r.subscribe()
	s := r.start("r8=kill@n1")
	timeless := events("timeless", 5)
	for i := range timeless {
		timeless[i].at = time.Time{}
	}
	if _, err := r.post(timeless); err == nil {
		t.Fatal("answered")
	}
	s.died("r8")
	before := r.read().byKey
	r.start("")
	if n := r.record(timeless); n != 0 {
		t.Errorf("%d inserted again", n)
	}
	r.drain()
	b := r.audit()
	b.accepted(r)
	for k, e := range b.byKey {
		if !before[k].at.Equal(e.at) {
			t.Errorf("event %v moved from %v to %v", k, before[k].at, e.at)
		}
	}
}
