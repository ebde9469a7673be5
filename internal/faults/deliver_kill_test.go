//go:build faults && unix

package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/stripedouble"
)

// deliveryLabels are the steps of a delivery, with what must be so at the
// moment of a kill: may the provider have charged, must it have.
var deliveryLabels = []struct {
	label         string
	leased        bool // items of the killed worker are leased
	charged, sure bool
}{
	{"d1", false, false, true},
	{"d2", true, false, true},
	{"d3", true, false, true},
	{"d4", true, false, true},
	{"d5", true, true, false},
	{"d6", true, true, true},
	{"d7", true, true, true},
	{"d8", true, true, true},
	{"d9", true, true, true},
	{"d10", false, true, true},
}

// F03, I7, I8, I9: killed at each step of a delivery, first and in the middle of
// a page; in the end everything is charged once and accepted.
func TestKillWhileDelivering(t *testing.T) {
	t.Parallel()
	for _, test := range deliveryLabels {
		t.Run(test.label, func(t *testing.T) {
			t.Parallel()
			s := defaults()
			// One request after another, so that what the provider has
			// seen at the first hit of a point is known.
			s.concurrency = 1
			r := newRig(t, s)
			r.subscribe()
			const n = 12
			r.load(events("e", n))

			r.launch(test.label + "=kill@n1").died(test.label)
			b := r.read()
			charges := r.double.Ledger().Charges
			switch {
			case test.sure && test.charged != (charges > 0):
				t.Errorf("killed at %s: %d charges", test.label, charges)
			case charges > n:
				t.Errorf("%d charges for %d items", charges, n)
			}
			for _, it := range b.items {
				leased := it.state == "leased"
				if leased != test.leased {
					t.Errorf("killed at %s: item %d is %s", test.label, it.id, it.state)
				}
				// The attempt is counted by the claim, not by what came of it.
				if want := min(1, b2i(test.label != "d1")); it.attempts != want {
					t.Errorf("killed at %s: item %d has %d attempts", test.label, it.id, it.attempts)
				}
			}

			// Again in the middle, where the point is reached that often.
			again := r.launch(test.label + "=kill@n5")
			if again.serving() {
				r.server = again
				within(patience, func() bool { return again.hasEnded() || drained(r) })
			}
			if again.hasEnded() {
				again.died(test.label)
			} else {
				again.stop()
			}

			r.start("")
			r.drain()
			b = r.audit()
			if got := b.accepted(r); got != n {
				t.Errorf("%d items, want %d", got, n)
			}
			l := r.double.Ledger()
			if l.Charges != n || l.DoubleCharges != 0 || l.Replays != 0 {
				t.Errorf("%d charges, %d double, %d replays of an Idempotency-Key", l.Charges, l.DoubleCharges, l.Replays)
			}
			t.Logf("%s: %d requests for %d charges, %d duplicates refused", test.label, l.Requests, l.Charges, l.DuplicatesRefused)
		})
	}
}

// F03 with many requests on their way at once: the kill cuts all of them.
func TestKillWhileManyAreOnTheirWay(t *testing.T) {
	t.Parallel()
	for _, label := range []string{"d4", "d5", "d6", "d7"} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, defaults(), func(c *stripedouble.Config) { c.Latency = 20 * time.Millisecond })
			r.subscribeCrowd()
			const n = 40
			r.load(crowd("e", n))
			r.launch(label + "=kill@n9").died(label)
			r.launch(label + "=kill@n3").died(label)
			r.start("")
			r.drain()
			if got := r.audit().accepted(r); got != n {
				t.Errorf("%d items, want %d", got, n)
			}
			l := r.double.Ledger()
			t.Logf("%s: %d requests for %d charges, %d duplicates refused", label, l.Requests, l.Charges, l.DuplicatesRefused)
		})
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// drained reports whether nothing is left to deliver; a server that has ended
// meanwhile has not drained.
func drained(r *rig) bool {
	var st struct{ States map[string]int64 }
	if err := r.call("GET", "/v1/outbox/stats", "", nil, &st); err != nil {
		return false
	}
	return st.States["pending"]+st.States["leased"] == 0
}

// F03: an item at which every worker dies ends uncertain at its cap. It is
// claimed alone, so it takes no other item's attempts with it (Q12).
func TestCrashLoopEndsAtTheCap(t *testing.T) {
	t.Parallel()
	s := defaults()
	s.attempts = 4
	r := newRig(t, s)
	r.subscribe()
	r.load(events("poison", 1))
	r.launch("d5=kill@n1").died("d5")
	r.load(events("other", 20))
	for range s.attempts - 1 {
		// What was leased goes first and alone: the kill hits it again.
		r.launch("d5=kill@n1").died("d5")
	}
	b := r.read()
	if it := b.of(t, "poison-0000"); it.state != "leased" || it.attempts != s.attempts {
		t.Errorf("after %d kills: %s, %d attempts", s.attempts, it.state, it.attempts)
	}
	for i := range 20 {
		if it := b.of(t, fmt.Sprintf("other-%04d", i)); it.state != "pending" || it.attempts != 0 || it.token != 0 {
			t.Errorf("the crash loop touched item %d: %s, %d attempts", it.id, it.state, it.attempts)
		}
	}

	r.start("")
	r.drain()
	b = r.audit()
	it := b.of(t, "poison-0000")
	if it.state != "uncertain" || it.code != "attempts_exhausted" || !it.unresolved || it.attempts != s.attempts {
		t.Errorf("the item ended %s, %s, unresolved %t, %d attempts", it.state, it.code, it.unresolved, it.attempts)
	}
	if n := b.states(); n["accepted"] != 20 || n["uncertain"] != 1 {
		t.Errorf("states %v", n)
	}
	for i := range 20 {
		if it := b.of(t, fmt.Sprintf("other-%04d", i)); it.attempts != 1 {
			t.Errorf("item %d needed %d attempts", it.id, it.attempts)
		}
	}
	if l := r.double.Ledger(); l.Charges != 21 {
		t.Errorf("%d charges, want 21: the lost item was charged, and nobody knows", l.Charges)
	}
}

// F03: a worker that always dies after a few requests still makes progress:
// what it leaves leased comes back one by one, and ends accepted.
func TestCrashLoopMakesProgress(t *testing.T) {
	t.Parallel()
	s := defaults()
	s.concurrency = 1
	r := newRig(t, s)
	r.subscribe()
	const n = 30
	r.load(events("e", n))
	kills := 0
	for done := false; !done; {
		srv := r.launch("d7=kill@n8")
		if srv.serving() {
			r.server = srv
			within(patience, func() bool { done = drained(r); return done || srv.hasEnded() })
		}
		if done {
			break
		}
		srv.died("d7")
		if kills++; kills > n {
			t.Fatalf("%d kills and not done: %v", kills, r.read().states())
		}
	}
	b := r.audit()
	if got := b.accepted(r); got != n {
		t.Errorf("%d items", got)
	}
	for _, it := range b.items {
		if it.attempts > kills+1 {
			t.Errorf("item %d needed %d attempts in %d kills", it.id, it.attempts, kills)
		}
	}
	if kills < 3 {
		t.Errorf("only %d kills: this proves little", kills)
	}
	t.Logf("%d kills, %d requests, %d charges", kills, r.double.Ledger().Requests, r.double.Ledger().Charges)
}
