package engine_test

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// A replacement is recorded with the reversal or not at all, and a repeat of
// either is a duplicate.
func TestReplacementsAreAtomic(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, st backend) {
		e := over(t, st)
		record(t, e, plain("req_1", "10"), plain("taken", "1"))
		c := take("c1", "")
		ev := plain("taken", "2")
		c.Replace = &ev
		_, err := e.Correct(t.Context(), c)
		tagIs(t, err, sdk.TagConflict, "payload_differs")
		fieldIs(t, err, "replace.id")
		if got := totals(t, st, "tokens"); got[0] != "11/2/2" {
			t.Errorf("totals %v after a conflict, want 11/2/2", got)
		}
		ev = plain("req_2", "4")
		ev.Feature, ev.Time = "images", time.Time{}
		for _, want := range []engine.Outcome{engine.Inserted, engine.Duplicate} {
			res, err := e.Correct(t.Context(), c)
			if err != nil || res.Outcome != want || res.Quantity.String() != "10" || res.Replacement == nil || res.Replacement.EventID != "req_2" || res.Replacement.Seq == 0 {
				t.Errorf("%+v, %v; want %s", res, err, want)
			}
		}
		if a, b := totals(t, st, "tokens"), totals(t, st, "images"); a[0] != "1/3/1" || len(b) != 1 || b[0] != "4/1/1" {
			t.Errorf("totals %v and %v, want 1/3/1 and 4/1/1", a, b)
		}
		res, err := e.Record(t.Context(), ev)
		if err != nil || outcomes(res) != "duplicate" {
			t.Errorf("the replacement by itself: %s, %v", outcomes(res), err)
		}
		other := ev
		other.Quantity = decimal.MustParse("5")
		c.Replace = &other
		_, err = e.Correct(t.Context(), c)
		tagIs(t, err, sdk.TagConflict, "payload_differs")
		// The replacement can be replaced again.
		c = take("c2", "")
		c.EventID, c.Replace = "req_2", &engine.Event{ID: "req_3", Tenant: "acme", Feature: "images", Quantity: decimal.One}
		if _, err := e.Correct(t.Context(), c); err != nil {
			t.Error(err)
		}
		if got := totals(t, st, "images"); got[0] != "1/3/1" {
			t.Errorf("totals %v, want 1/3/1", got)
		}
	})
}

// S7, B24: one event takes the place of one other. What another correction put
// there, or a record, is a conflict with equal content too, and nothing is
// taken back: without its replacement that usage would be lost.
func TestReplacementsAreNotShared(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, st backend) {
		e := over(t, st)
		record(t, e, plain("req_1", "10"), plain("req_3", "10"), plain("there", "5"))
		by, there := plain("req_2", "4"), plain("there", "5")
		first := take("c1", "")
		first.Replace = &by
		if res, err := e.Correct(t.Context(), first); err != nil || res.Outcome != engine.Inserted {
			t.Fatalf("%+v, %v", res, err)
		}
		back := take("c2", "")
		back.EventID = "req_2"
		for _, step := range []struct {
			do   *engine.Correction
			want string
		}{{nil, "19/5/3"}, {&back, "15/6/2"}} {
			if step.do != nil {
				if _, err := e.Correct(t.Context(), *step.do); err != nil {
					t.Fatal(err)
				}
			}
			for _, replacement := range []*engine.Event{&by, &there} {
				second := take("c3", "")
				second.EventID, second.Replace = "req_3", replacement
				_, err := e.Correct(t.Context(), second)
				tagIs(t, err, sdk.TagConflict, "replacement_exists")
				fieldIs(t, err, "replace.id")
			}
			if got := totals(t, st, "tokens"); got[0] != step.want {
				t.Errorf("totals %v, want %s", got, step.want)
			}
		}
		res, err := e.Correct(t.Context(), first)
		if err != nil || res.Outcome != engine.Duplicate || res.Replacement == nil || res.Replacement.EventID != "req_2" {
			t.Errorf("the repeat: %+v, %v", res, err)
		}
	})
}
