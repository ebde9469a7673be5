package postgres

import (
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// claimRow receives a row of a claiming statement. All columns of the item are
// absent when nothing moved.
type claimRow struct {
	at        time.Time
	code      string
	it        storage.ClaimedItem
	dependsOn int64
	effect    *decimal.Decimal // absent where it is the quantity
}

func (r *claimRow) dest(p *page) []any {
	it := &r.it
	d := []any{
		utcInto{&p.now},
		&p.seen, &p.held,
		utcInto{&p.next.at},
		intInto(&p.next.item),
		utcInto{&p.aim.at},
		intInto(&p.aim.item),
		utcInto{&r.at},
		textInto(&r.code), intInto(&it.ItemID), intInto(&it.RouteID), sameInto(&it.SerialKey),
		countInto{&it.Attempts},
		countInto{&it.AttemptBudget},
		boolInto{&it.Unresolved},
		utcInto{&it.FirstAttemptAt},
		intInto(&it.LeaseToken), textInto(&it.Method), intInto(&r.dependsOn),
	}
	d = append(d, identityInto(&it.Identity)...)
	d = append(d, hashInto{&it.Digest}, sameInto(&it.Customer), documentInto{&it.Payload})
	ev := &it.Event
	return append(d,
		intInto(&ev.Seq), textInto(&ev.EventID), sameInto(&ev.Feature), decimalInto{&ev.Quantity}, optDecimalInto{&r.effect},
		sameInto(&ev.Kind), boolInto{&ev.Reverses}, textInto(&ev.OriginalEventID),
		utcInto{&ev.OccurredAt}, utcInto{&ev.PeriodStart}, utcInto{&ev.PeriodEnd},
		sameInto(&ev.PeriodSource), sameInto(&ev.Plan), sameInto(&ev.PlanVersion),
		dimensionsInto{&ev.Dimensions}, documentInto{&ev.Metadata},
		hashInto{&ev.PayloadHash}, hashInto{&ev.DedupeHash}, utcInto{&ev.RecordedAt},
	)
}

// complete fills in what a row leaves out of its event because it says it
// already.
func (r *claimRow) complete() {
	ev := &r.it.Event
	if ev.Seq == 0 {
		return
	}
	ev.Tenant, ev.Effect = r.it.Identity.Tenant, ev.Quantity
	if r.effect != nil {
		ev.Effect = *r.effect
	}
	if ev.DedupeHash == (storage.Hash{}) {
		ev.DedupeHash = ev.PayloadHash
	}
}
