package engine_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Q17, Q18: a correction that a restore made uncertain beside its original, which
// somebody then finds refused, must not wait for it for ever.
func TestRestoredCorrectionOfARefusedOriginal(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"rejected", "abandoned"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			onDesks(t, func(d *desk) {
				ctx := d.t.Context()
				d.apply(plan(map[string]string{"tokens": "llm"}))
				d.customer("cus_1")
				record(d.t, d.Engine, plain("req_1", "10"))
				d.correct("cor_1", "1")
				items := d.want("pending", "pending waits")
				d.restored(items[1].CreatedAt.Add(time.Hour), items[0].CreatedAt, 2)
				d.want("uncertain", "uncertain waits")
				var err error
				if how == "rejected" {
					_, err = d.Resolve(ctx, items[0].ItemID, engine.Resolution{To: storage.Rejected, Evidence: asserted(outbox.FoundRefused)}, anna)
				} else {
					_, err = d.Abandon(ctx, items[0].ItemID, engine.Abandonment{}, anna)
				}
				if err != nil {
					d.t.Fatal(err)
				}
				_, err = d.Resolve(ctx, items[1].ItemID, engine.Resolution{To: storage.Pending, Evidence: asserted(outbox.FoundRefused)}, anna)
				if !errors.Is(err, &sdk.Error{Tag: sdk.TagConflict, Code: "not_sendable"}) || !strings.Contains(err.Error(), "original_not_charged") {
					d.t.Errorf("resolve to pending: %v", err)
				}
				d.deliver()
				for _, i := range d.items() {
					d.t.Logf("item %d: %s waits=%v reason=%q settled=%v error=%+v", i.ItemID, i.State, i.Waits, i.QuarantineReason, !i.SettledAt.IsZero(), i.LastError)
					if i.State == storage.Pending && i.Waits {
						d.t.Errorf("item %d waits for ever", i.ItemID)
					}
				}
			})
		})
	}
}

// Q10, Q17: what can no longer be sent for its time.
func TestRestoredItemOutsideItsWindow(t *testing.T) {
	t.Parallel()
	onDesks(t, func(d *desk) {
		ctx := d.t.Context()
		d.apply(plan(map[string]string{"tokens": "llm"}))
		d.customer("cus_1")
		ev := plain("req_1", "10")
		ev.Time = noon.Add(-34 * 24 * time.Hour)
		record(d.t, d.Engine, ev)
		item := d.want("pending")[0]
		d.restored(item.CreatedAt.Add(time.Hour), item.CreatedAt, 1)
		// Taken inside the window, looked at outside of it.
		late := over(d.t, d.st, func(c *engine.Config) {
			c.Recovery.QuietTime = -100 * 365 * 24 * time.Hour
			c.Manifests = map[string]exporter.Manifest{"stripe": manifest()}
			c.Now = func() time.Time { return noon.Add(48 * time.Hour) }
		})
		again := engine.Resolution{To: storage.Pending, Evidence: asserted(outbox.FoundRefused)}
		if _, err := late.Resolve(ctx, item.ItemID, again, anna); !errors.Is(err, &sdk.Error{Tag: sdk.TagConflict, Code: "not_sendable"}) || !strings.Contains(err.Error(), "timestamp_window") {
			d.t.Errorf("%v", err)
		}
		d.want("uncertain")
		if _, err := d.Resolve(ctx, item.ItemID, again, anna); err != nil { // inside
			d.t.Error(err)
		}
		d.want("pending")
	})
}
