package buffer_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine/buffer"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

var errOverloaded = &sdk.Error{Tag: sdk.TagUnavailable, Code: "overloaded"}

// Names that were refused for want of room are not kept, also while the store does
// not answer and nothing is collected: whoever invents them takes no memory. Those
// that have a counter go on.
func TestRefusedNamesAreForgotten(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *buffer.Config) { c.Max = 3 })
	r.ledger.answer = func(storage.FlushBatch) error { return errDown }
	for i := range 3 {
		r.track(t, fmt.Sprint("t", i), "calls", "1")
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 1000 {
				name := fmt.Sprintf("hostile-%d-%d", g%2, i) // two goroutines meet in each
				if err := r.Track(t.Context(), name, "calls", decimal.One); !errors.Is(err, errOverloaded) {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	wg.Wait()
	if n := r.Names(); n != 3 {
		t.Errorf("%d names are held, want 3", n)
	}
	_ = r.Flush(t.Context())
	r.track(t, "t0", "calls", "1")
	r.ledger.answer = nil
	r.set(noon.Add(storage.HistoryStep))
	r.flush(t)
	r.flush(t)
	r.holds(t, "t0", "calls", "2")
	if n := r.Names(); n != 0 {
		t.Errorf("%d names are held by nothing", n)
	}
	r.track(t, "hostile-0-0", "calls", "1") // there is room again
}

// What the store refuses stays until it takes it, and counts as held: names of which
// every counter is refused do not add up without end, step after step. // B4.
func TestRefusedBatchesAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *buffer.Config) { c.Max = 20 })
	refuse := func(storage.FlushBatch) error { return sdk.Invalid("value", "a total that fits") }
	r.ledger.answer = refuse
	counted := 0
	for step := range 30 {
		for i := range 3 {
			err := r.Track(t.Context(), fmt.Sprintf("t%d-%d", step, i), "calls", decimal.One)
			switch {
			case err == nil:
				counted++
			case !errors.Is(err, errOverloaded):
				t.Fatal(err)
			}
		}
		r.set(noon.Add(time.Duration(step+1) * storage.HistoryStep)) // the cells end
		if err := r.Flush(t.Context()); err == nil {
			t.Fatal("a refused batch is no error")
		}
	}
	if counted < 17 || counted > 20 {
		t.Errorf("%d names were taken, of which at most 20 may be held", counted)
	}
	if n := r.Names(); n != 0 {
		t.Errorf("%d names beside what is refused", n)
	}
	r.ledger.answer = nil
	r.flush(t)
	written := 0
	for step := range 30 {
		for i := range 3 {
			if c, _ := r.ledger.total(fmt.Sprintf("t%d-%d", step, i), "calls"); c == "1" {
				written++
			}
		}
	}
	if written != counted {
		t.Errorf("%d of %d were written", written, counted)
	}
	for i := range 20 { // all the room is there again
		r.track(t, fmt.Sprint("u", i), "calls", "1")
	}
	if err := r.Track(t.Context(), "u20", "calls", decimal.One); !errors.Is(err, errOverloaded) {
		t.Errorf("one more than fits: %v", err)
	}
}
