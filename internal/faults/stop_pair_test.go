//go:build faults && linux

package faults

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/stripedouble"
)

// beside starts the host that is to be ended, and, once that one is at work, the
// other one.
func (r *rig) beside(working func() bool) (victim *server) {
	r.t.Helper()
	victim = r.start("")
	eventually(r.t, "the first host is at work", working)
	r.second = victim
	if r.server = r.launchSecond(""); !r.server.serving() {
		r.t.Fatalf("the other host ended: %v", r.server.err)
	}
	return victim
}

// F06 with two hosts: SIGTERM in the middle of a page. What is on its way ends and is
// written, the rest is handed to the other host, and nothing is sent twice.
func TestTerminatedBesideAnother(t *testing.T) {
	t.Parallel()
	r := newBed(t, defaults(), func(c *stripedouble.Config) { c.Latency = 100 * time.Millisecond }).apart()
	r.subscribe()
	const n = 40
	r.load(events("e", n))
	victim := r.beside(func() bool { return r.double.Ledger().Charges >= 3 })
	if took := victim.stop(); took > graceMax {
		t.Errorf("ended %v after SIGTERM", took)
	}
	left := r.read()
	for _, it := range left.items {
		if it.state == "pending" && (it.attempts != 0 || it.unresolved) {
			t.Errorf("item %d was not sent and has %d attempts, unresolved %t", it.id, it.attempts, it.unresolved)
		}
	}
	if st := left.states(); st["accepted"] == 0 || st["accepted"] == n {
		t.Errorf("states when the first host had ended: %v", st)
	}
	b := r.healed()
	if got := b.accepted(r); got != n {
		t.Errorf("%d items, want %d", got, n)
	}
	if l := r.double.Ledger(); l.DuplicatesRefused != 0 || l.Requests != n {
		t.Errorf("%d requests for %d items, %d duplicates", l.Requests, n, l.DuplicatesRefused)
	}
	owners := map[string]bool{}
	for _, it := range b.items {
		for _, a := range b.attempts[it.id] {
			owners[a.owner] = true
		}
	}
	if len(owners) != 2 {
		t.Errorf("%d hosts delivered", len(owners))
	}
}

// F06 with two hosts: the provider hangs in the middle of a request, before what it
// does and after. A host that is told to end does so within its grace, and the other
// one settles the item that is open; told twice it ends at once, which is a crash.
func TestTerminatedBesideAnotherWhileTheProviderHangs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		schedule string
		twice    bool
	}{
		"nothing happened":       {"before:slow(delay=10m)@n1", false},
		"it was charged":         {"after:slow(delay=10m)@n1", false},
		"nothing happened twice": {"before:slow(delay=10m)@n1", true},
		"it was charged twice":   {"after:slow(delay=10m)@n1", true},
	} {
		t.Run(subtest(name), func(t *testing.T) {
			t.Parallel()
			s := defaults()
			s.page, s.lease = 5, "10s"
			// Without the lock of one customer's meter, which a request that hangs would keep.
			r := newBed(t, s, withSerialLimit(-1)).apart()
			r.subscribe()
			r.load(events("e", 10))
			r.faults(test.schedule)
			victim := r.beside(func() bool { return r.double.Ledger().Requests >= 1 })
			if test.twice {
				for range 2 {
					if err := victim.cmd.Process.Signal(syscall.SIGTERM); err != nil {
						t.Fatal(err)
					}
					eventually(t, "the first one is seen", func() bool { return len(victim.logged("stopping")) > 0 })
				}
				victim.wait(5 * time.Second)
				if victim.signalled() != syscall.SIGTERM {
					t.Errorf("ended with %v", victim.err)
				}
			} else if took := victim.stop(); took > graceMax {
				t.Errorf("ended %v after SIGTERM", took)
			}
			r.fired()
			if got := r.healed().accepted(r); got != 10 {
				t.Errorf("%d items", got)
			}
			l := r.double.Ledger()
			if want := b2i(test.schedule[0] == 'a'); l.DuplicatesRefused != want {
				t.Errorf("%d duplicates refused, want %d", l.DuplicatesRefused, want)
			}
		})
	}
}

// F06 with two hosts: SIGTERM while clients record. What the first host did not
// answer is sent to the other one, which says of each event whether it is there.
func TestTerminatedBesideAnotherWhileRecording(t *testing.T) {
	t.Parallel()
	r := newBed(t, defaults()).apart()
	r.subscribe()
	victim := r.beside(func() bool { return true })
	r.server, r.second = victim, r.server
	const callers, each = 8, 300
	all := make([][]event, callers)
	var wg sync.WaitGroup
	var mu sync.Mutex
	answered := 0
	for c := range callers {
		all[c] = events(fmt.Sprint("caller", c), each)
		wg.Go(func() {
			for _, e := range all[c] {
				if _, err := r.post([]event{e}); err != nil {
					return
				}
				mu.Lock()
				answered++
				mu.Unlock()
			}
		})
	}
	eventually(t, "some are answered", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return answered > 50
	})
	victim.stop()
	wg.Wait()
	if answered == callers*each {
		t.Error("every call was answered: the signal came too late to prove anything")
	}
	r.server, r.second = r.second, nil
	stored := len(r.read().events)
	inserted := 0
	for c := range callers {
		inserted += r.record(all[c])
	}
	if stored+inserted != callers*each || stored < answered {
		t.Errorf("%d were answered, %d stored, then %d inserted of %d", answered, stored, inserted, callers*each)
	}
	if n := r.healed().accepted(r); n != callers*each {
		t.Errorf("%d items", n)
	}
}
