//go:build faults && linux

package faults

import (
	"fmt"
	"testing"
)

// F55, O24: a release with another mapping is rolled out beside the old one, and
// back, by two programs on one schema, while the provider loses answers. An event
// that both are sent is one item, which keeps the identifier that it was first
// sent with; nothing is charged twice. (That a program refuses a schema which is
// newer than it is tested in plugins/storage/postgres.)
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	r := newBed(t, shortLease()).apart()
	r.subscribeCrowd()
	r.faults("after:500@every3; before:500@every7")
	identifiers := map[int64]string{}
	n := 0
	// Every event goes to both hosts.
	round := func() {
		t.Helper()
		for range 3 {
			batch := crowd(fmt.Sprint("e", n), 10)
			n += len(batch)
			for range 2 {
				r.record(batch)
				if r.second != nil {
					r.server, r.second = r.second, r.server
				}
			}
			for _, it := range r.read().items {
				if was, ok := identifiers[it.id]; ok && was != it.identifier {
					t.Errorf("item %d was sent as %s and is %s", it.id, was, it.identifier)
				}
				identifiers[it.id] = it.identifier
			}
		}
	}
	old := r.start("")
	round()
	// The new release is another program with another mapping.
	next := r.settings
	next.mapping = 2
	r.writeConfig(r.secondConfig(), "state-2", next)
	r.program = shipped
	r.second = r.launchSecond("")
	if !r.second.serving() {
		t.Fatalf("the new release ended: %v", r.second.err)
	}
	round()
	old.kill() // and back again, while the new one still runs
	if r.server.hasEnded() {
		r.server, r.second = r.second, nil
	} else {
		r.second = nil
	}
	round()
	r.program = binary
	back := r.launch("")
	if !back.serving() {
		t.Fatalf("the old release ended: %v", back.err)
	}
	r.second = back
	round()
	r.server.kill()
	r.server, r.second = back, nil
	round()
	r.drain()
	r.fired()
	b := r.audit()
	if got := b.accepted(r); got != n {
		t.Errorf("%d items of %d events", got, n)
	}
	routes := map[int64]bool{}
	for _, it := range b.items {
		routes[it.route] = true
	}
	if len(routes) < 2 {
		t.Error("there was one mapping only: this proves nothing")
	}
	if l := r.double.Ledger(); l.Charges != n || l.DoubleCharges != 0 || l.DuplicatesRefused == 0 {
		t.Errorf("%d charges of %d, %d double, %d duplicates refused", l.Charges, n, l.DoubleCharges, l.DuplicatesRefused)
	}
}
