//go:build faults && unix

package postgres

import (
	"testing"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/fault"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// F01 for corrections: stopped at c1 to c6, nothing is stored; at c7 all is.
// Either way the same call again says which (B48).
func TestCorrectFaults(t *testing.T) {
	t.Parallel()
	for _, label := range []string{"c1", "c2", "c3", "c4", "c5", "c6", "c7"} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			a := open(t)
			record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(tokens("acme", "e1", "5"))}})
			plan, err := fault.NewPlan(label+"=error", nil)
			must(t, err)
			_, err = a.RecordCorrection(fault.With(t.Context(), plan), correcting("c", "e1", "2"))
			wantTag(t, err, sdk.TagUnavailable, "injected_fault")
			if plan.Fired(label) != 1 {
				t.Errorf("%s fired %d times", label, plan.Fired(label))
			}
			want := "inserted c 3"
			if label == "c7" {
				want = "duplicate c 3"
			} else {
				wantTotals(t, a, "acme", "tokens 5/1/1")
				wantRows(t, a, map[string]int{"events": 1})
			}
			wantTold(t, correct(t, a, correcting("c", "e1", "2")), want)
			wantTotals(t, a, "acme", "tokens 3/2/1")
		})
	}
}

// F02: an outcome is not written at d9 and is at d10, whatever the caller sees.
func TestTransitionFaults(t *testing.T) {
	t.Parallel()
	for label, want := range map[string]storage.ItemState{"d9": storage.Leased, "d10": storage.Accepted} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			o := seeded(t, 1, noSerial)
			o.claim(storage.ClaimRequest{})
			plan, err := fault.NewPlan(label+"=error", nil)
			must(t, err)
			_, err = o.Transition(fault.With(t.Context(), plan), []storage.Transition{{
				ItemID: 1, Expect: fenced(1), Set: storage.Change{State: storage.Accepted}, Attempt: &storage.Attempt{LeaseToken: 1},
			}})
			wantTag(t, err, sdk.TagUnavailable, "injected_fault")
			if d := o.load(1); d.Item.State != want || len(d.Attempts) != map[bool]int{true: 1, false: 0}[want == storage.Accepted] {
				t.Errorf("item %+v, attempts %+v", d.Item, d.Attempts)
			}
			o.checkCounts()
		})
	}
}
