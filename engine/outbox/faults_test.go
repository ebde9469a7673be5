//go:build faults && unix

package outbox

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/fault"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// F05, F26, F31: a worker that ends at d1, d2, d3 or d8 costs at most an attempt.
// The next one finishes the item, with one charge; what was claimed is open.
func TestFaultPoints(t *testing.T) {
	t.Parallel()
	for label, want := range map[string]struct {
		state            storage.ItemState // after the fault
		attempts, logged int               // in the end
	}{
		"d1": {storage.Pending, 1, 1},
		"d2": {storage.Leased, 2, 1},
		"d3": {storage.Leased, 2, 1},
		"d8": {storage.Leased, 2, 1},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				id := b.store.add(sample("req_1", time.Now()))
				plan, err := fault.NewPlan(label+"=error@n1", nil)
				if err != nil {
					t.Fatal(err)
				}
				d := b.deliverer(&scripted{manifest: testManifest, answer: honest(b.provider)})
				if _, err := d.Once(fault.With(t.Context(), plan)); err == nil || plan.Fired(label) != 1 {
					t.Fatalf("%s did not fire: %v", label, err)
				}
				b.want(id, want.state, "")
				time.Sleep(121 * time.Second)
				b.once(d)
				item := b.want(id, storage.Accepted, "")
				charges, times := b.provider.count(IdentifierOf(item.Digest))
				if charges != 1 || (label == "d8") != (times == 2) {
					t.Errorf("%d charges, seen %d times", charges, times)
				}
				if item.Attempts != want.attempts || len(b.store.log(id)) != want.logged || item.Unresolved != (label != "d1") {
					t.Errorf("%+v", item)
				}
			})
		})
	}
}

// O14: a process that is stopped between claim and send, for longer than its
// lease allows, sends nothing when it goes on.
func TestFaultSleepBeforeSend(t *testing.T) {
	t.Parallel()
	for _, label := range []string{"d2", "d3"} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			id := b.store.add(sample("req_1", time.Now()))
			plan, err := fault.NewPlan(label+"=sleep(91s)", nil)
			if err != nil {
				t.Fatal(err)
			}
			s := &scripted{manifest: testManifest, answer: honest(b.provider)}
			if _, err := b.deliverer(s).Once(fault.With(t.Context(), plan)); err != nil || len(s.sent()) != 0 {
				t.Errorf("%s: %v, %d calls", label, err, len(s.sent()))
			}
			if item := b.want(id, storage.Pending, ""); item.Attempts != 0 || item.Unresolved {
				t.Errorf("%s: %+v", label, item)
			}
		})
	}
}
