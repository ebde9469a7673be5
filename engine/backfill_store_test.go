package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// fill calls Backfill until nothing is left.
func (d *desk) fill(b engine.Backfill) (made, quarantined, skipped int) {
	d.t.Helper()
	for range 50 {
		got, err := d.Backfill(d.t.Context(), b, anna)
		if err != nil {
			d.t.Fatal(err)
		}
		made, quarantined, skipped = made+got.Made, quarantined+got.Quarantined, skipped+len(got.Skipped)
		if !got.More {
			return made, quarantined, skipped
		}
		b.After = got.Next
	}
	d.t.Fatal("backfill never ends")
	return 0, 0, 0
}

// Q4: events from before the route, and their corrections, are made up for, in
// pages, once.
func TestBackfill(t *testing.T) {
	t.Parallel()
	onDesks(t, func(d *desk) {
		d.customer("cus_1")
		for i := range 5 {
			record(d.t, d.Engine, plain(fmt.Sprintf("req_%d", i), "10"))
		}
		d.correct("cor_1", "4") // of req_1
		record(d.t, d.Engine, plain("req_0000", "0"))
		if _, err := d.Backfill(d.t.Context(), engine.Backfill{Exporter: "stripe"}, anna); !errors.Is(err, sdk.ErrNotFound) {
			d.t.Errorf("%v", err)
		}
		d.apply(plan(map[string]string{"tokens": "llm"}))
		record(d.t, d.Engine, plain("req_5", "10"))
		d.want("pending")
		dry := anna
		dry.DryRun = true
		if got, err := d.Backfill(d.t.Context(), engine.Backfill{Exporter: "stripe"}, dry); err != nil || got.Made != 5 || got.Scanned != 8 || len(got.Skipped) != 1 || got.More {
			d.t.Errorf("%+v, %v", got, err)
		}
		d.want("pending")
		if made, quarantined, skipped := d.fill(engine.Backfill{Exporter: "stripe", Limit: 2}); made != 6 || quarantined != 0 || skipped != 1 {
			d.t.Errorf("made %d, quarantined %d, skipped %d", made, quarantined, skipped)
		}
		if made, _, skipped := d.fill(engine.Backfill{Exporter: "stripe", Limit: 3}); made != 0 || skipped != 6 {
			d.t.Errorf("again: made %d, skipped %d", made, skipped)
		}
		d.deliver()
		d.want("accepted", "accepted", "accepted", "accepted", "accepted", "accepted", "accepted")
		sum := map[string]int{}
		for _, i := range d.sent {
			sum[i.Kind+" "+i.Value]++
		}
		if sum["event 10"] != 6 || sum["correction -4"] != 1 {
			d.t.Errorf("%v", sum)
		}
	}, known)
}

// Q4: whatever became of an item, its event is not billed again at the same
// place; a superseded item does not count, because another took its place.
func TestBackfillSkips(t *testing.T) {
	t.Parallel()
	onDesks(t, func(d *desk) {
		d.apply(plan(map[string]string{"other": "x"}))
		d.customer("cus_1")
		record(d.t, d.Engine, plain("req_1", "10"), plain("req_2", "10"))
		items := d.want("quarantined feature_unmapped", "quarantined feature_unmapped")
		d.apply(plan(map[string]string{"tokens": "llm"}))
		if _, err := d.Abandon(d.t.Context(), items[0].ItemID, engine.Abandonment{}, anna); err != nil {
			d.t.Fatal(err)
		}
		if _, err := d.Requeue(d.t.Context(), items[1].ItemID, engine.Requeue{}, anna); err != nil {
			d.t.Fatal(err)
		}
		got, err := d.Backfill(d.t.Context(), engine.Backfill{Exporter: "stripe"}, anna)
		if err != nil || got.Made != 0 || len(got.Skipped) != 2 {
			d.t.Fatalf("%+v, %v", got, err)
		}
		if s := got.Skipped[0]; s.ItemID != items[0].ItemID || s.State != storage.Quarantined || s.Event.EventID != "req_1" {
			d.t.Errorf("%+v", s)
		}
		if s := got.Skipped[1]; s.ItemID == items[1].ItemID || s.State != storage.Pending {
			d.t.Errorf("%+v", s)
		}
	})
}

// Q4: what was made under an exporter's old name was made under its new one.
func TestBackfillAfterARename(t *testing.T) {
	t.Parallel()
	onDesks(t, func(d *desk) {
		d.apply(plan(map[string]string{"other": "x"}))
		d.customer("cus_1")
		record(d.t, d.Engine, plain("req_1", "10"))
		if _, err := d.RenameRoute(d.t.Context(), "stripe", "billing", anna); err != nil {
			d.t.Fatal(err)
		}
		d.apply(as("billing", plan(map[string]string{"tokens": "llm"})))
		if made, _, skipped := d.fill(engine.Backfill{Exporter: "billing"}); made != 0 || skipped != 1 {
			d.t.Errorf("made %d, skipped %d", made, skipped)
		}
		// It is requeued under the new name instead.
		got, err := d.Requeue(d.t.Context(), d.items()[0].ItemID, engine.Requeue{}, anna)
		if err != nil || !got.Superseded {
			d.t.Fatalf("%+v, %v", got, err)
		}
		if items := d.want("quarantined feature_unmapped superseded", "pending"); items[1].Identity.Exporter != "billing" || items[1].Customer != "cus_1" {
			d.t.Errorf("%+v", items[1])
		}
	}, known)
}

// O21, Q4, Q18: the correction of what was told to an exporter that is retired is
// neither dropped nor left to wait for nobody: it is quarantined and open, and goes
// on once somebody reports there again. A change of the mapping is no retirement.
func TestCorrectionForARetiredExporter(t *testing.T) {
	t.Parallel()
	onDesks(t, func(d *desk) {
		ctx := d.t.Context()
		d.apply(plan(map[string]string{"tokens": "llm"}))
		d.customer("cus_1")
		record(d.t, d.Engine, plain("req_1", "10"))
		d.deliver()
		d.apply(plan(map[string]string{"tokens": "llm_2"}))
		d.correct("cor_1", "1")
		d.deliver()
		d.want("accepted", "accepted")
		if _, err := d.RetireRoute(ctx, engine.RouteRetirement{Exporter: "stripe"}, anna); err != nil {
			d.t.Fatal(err)
		}
		d.correct("cor_2", "2")
		d.deliver()
		items := d.want("accepted", "accepted", "quarantined route_retired")
		if i := items[2]; !i.SettledAt.IsZero() || i.DependsOn != items[0].ItemID || i.Identity.Account != "acct_1" {
			d.t.Errorf("%+v", i)
		}
		if _, err := d.Requeue(ctx, items[2].ItemID, engine.Requeue{}, anna); !errors.Is(err, &sdk.Error{Tag: sdk.TagConflict, Code: "still_ineligible"}) {
			d.t.Errorf("%v", err)
		}
		moved := plan(map[string]string{"tokens": "llm"})
		moved.Account, moved.Label = "acct_2", "2"
		d.apply(moved) // elsewhere, it is not what the customer is owed
		if _, err := d.Requeue(ctx, items[2].ItemID, engine.Requeue{}, anna); !errors.Is(err, &sdk.Error{Tag: sdk.TagConflict, Code: "still_ineligible"}) {
			d.t.Errorf("%v", err)
		}
		back := plan(map[string]string{"tokens": "llm"})
		back.Label = "3"
		d.apply(back)
		if _, err := d.Requeue(ctx, items[2].ItemID, engine.Requeue{}, anna); err != nil {
			d.t.Fatal(err)
		}
		d.deliver()
		d.want("accepted", "accepted", "accepted")
		if last := d.sent[len(d.sent)-1]; last.Value != "-2" || last.Mapping["event_name"] != "llm" || last.Account != "acct_1" {
			d.t.Errorf("%+v", last)
		}
	})
}

// A correction that is computed while its original has no item, and written after
// a backfill made one, would leave the provider without the credit: it is
// computed anew.
func TestCorrectionBesideABackfill(t *testing.T) {
	t.Parallel()
	onDesks(t, func(d *desk) {
		d.customer("cus_1")
		record(d.t, d.Engine, plain("req_1", "10"))
		d.apply(plan(map[string]string{"tokens": "llm"}))
		racing := &during{backend: d.st, SubscriptionStore: d.st.(storage.SubscriptionStore), before: func() {
			if made, _, _ := d.fill(engine.Backfill{Exporter: "stripe"}); made != 1 {
				d.t.Errorf("made %d", made)
			}
		}}
		if _, err := over(d.t, racing).Correct(d.t.Context(), take("cor_1", "4")); err != nil {
			d.t.Fatal(err)
		}
		d.want("pending", "pending waits")
	})
}

// Q18: an original that is taken between the reading and the writing of its
// correction leaves nothing to wait for: the correction is computed anew.
func TestCorrectionBesideADelivery(t *testing.T) {
	t.Parallel()
	onDesks(t, func(d *desk) {
		d.apply(plan(map[string]string{"tokens": "llm"}))
		d.customer("cus_1")
		record(d.t, d.Engine, plain("req_1", "10"))
		racing := &during{backend: d.st, SubscriptionStore: d.st.(storage.SubscriptionStore), before: d.deliver}
		if _, err := over(d.t, racing).Correct(d.t.Context(), take("cor_1", "4")); err != nil {
			d.t.Fatal(err)
		}
		d.want("accepted", "pending")
		d.deliver()
		d.want("accepted", "accepted")
	})
}

// during is a store in which something happens between the reading of an original
// and the writing of its correction, once.
type during struct {
	backend
	storage.SubscriptionStore
	before func()
}

func (s *during) RecordCorrection(ctx context.Context, req storage.CorrectRequest) (storage.CorrectResult, error) {
	if f := s.before; f != nil {
		s.before = nil
		f()
	}
	return s.backend.RecordCorrection(ctx, req) //nolint:wrapcheck // the store's own answer
}
