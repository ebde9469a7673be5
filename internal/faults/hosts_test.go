//go:build faults && linux

package faults

import (
	"fmt"
	"testing"
)

// F03, I7, I8, I9 with two processes on one schema: one is killed at each step of
// a delivery while the other goes on, again on its second life, and then the
// other too. Each takes over what the other leaves; everything is charged once.
func TestKillOneOfTwoHosts(t *testing.T) {
	t.Parallel()
	for _, test := range deliveryLabels {
		t.Run(test.label, func(t *testing.T) {
			t.Parallel()
			s := shortLease()
			s.page = 4
			r := newBed(t, s).apart()
			r.subscribeCrowd()
			other := r.launchSecond("")
			if !other.serving() {
				t.Fatalf("the other host ended: %v", other.err)
			}
			n := 0
			for _, rule := range []string{"=kill@n6", "=kill@n3"} {
				victim := r.launch(test.label + rule)
				r.server = other
				eventually(t, "the fault kills the host", func() bool {
					if victim.hasEnded() {
						return true
					}
					if st := r.stats(); st.States["pending"] < 40 { // either host may take it
						r.record(crowd(fmt.Sprint("e", n), 10))
						n += 10
					}
					return false
				})
				victim.died(test.label)
			}
			r.record(crowd(fmt.Sprint("e", n), 10))
			n += 10
			other.kill()
			r.pair("")
			r.drain()
			if got := r.audit().accepted(r); got != n {
				t.Errorf("%d items, want %d", got, n)
			}
			l := r.double.Ledger()
			t.Logf("%s: %d requests for %d charges, %d duplicates refused", test.label, l.Requests, l.Charges, l.DuplicatesRefused)
		})
	}
}
