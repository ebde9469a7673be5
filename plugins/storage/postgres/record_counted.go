package postgres

import (
	"context"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// counts reports whether an event of the request adds to a counter.
func counts(req storage.RecordRequest) bool {
	for i := range req.Units {
		for j := range req.Units[i].Entries {
			if req.Units[i].Entries[j].Counted {
				return true
			}
		}
	}
	return false
}

// count adds the events that the statement inserted to the counters that own
// their periods: after all totals and buckets, in the order of keys (Q21).
func (r *recorder) count(ctx context.Context, t *tx) error {
	var deltas []storage.Counter
	for _, ord := range r.answer.inserted {
		if e := r.entry(r.entries[ord-1]); e.Counted {
			deltas = append(deltas, countedDelta(&e.Event, e.Event.Quantity))
		}
	}
	return writeCounters(ctx, t, qCountersAdd, foldCounters(deltas, decimal.Decimal.Add))
}

// countedDelta is what an event adds to the counter of its period.
func countedDelta(ev *storage.Event, quantity decimal.Decimal) storage.Counter {
	return storage.Counter{
		CounterKey: storage.CounterKey{Tenant: ev.Tenant, Feature: ev.Feature, PeriodStart: ev.PeriodStart},
		PeriodEnd:  ev.PeriodEnd, Value: quantity,
	}
}
