package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// usageByPeriod answers by billing period.
func (e *Engine) usageByPeriod(ctx context.Context, q UsageQuery) ([]UsageRow, error) {
	if q.Feature != "" && e.cfg.feature(q.Feature).Buffered {
		if err := e.onlySums(q); err != nil {
			return nil, err
		}
	}
	// All periods: whether they overlap does not depend on the selection.
	totals, err := e.store.events.LoadTotals(ctx, storage.TotalsQuery{Tenant: q.Tenant, Feature: q.Feature})
	if err != nil {
		return nil, fmt.Errorf("load totals: %w", err)
	}
	recorded := totals
	var rows []UsageRow
	for len(totals) > 0 {
		n := slices.IndexFunc(totals, func(t storage.Total) bool { return t.Feature != totals[0].Feature })
		if n < 0 {
			n = len(totals)
		}
		some, err := e.featureByPeriod(ctx, q, totals[:n])
		if err != nil && q.Feature == "" {
			some, err = e.besideRefused(ctx, q, totals[:n], err)
		}
		if err != nil {
			return nil, err
		}
		rows, totals = append(rows, some...), totals[n:]
	}
	buffered, err := e.bufferedPeriods(ctx, q, recorded)
	if err != nil {
		return nil, err
	}
	rows = append(rows, buffered...)
	slices.SortStableFunc(rows, func(a, b UsageRow) int {
		return cmp.Or(cmp.Compare(a.Feature, b.Feature), a.From.Compare(b.From))
	})
	return rows, nil
}

// featureByPeriod answers for the totals of one feature, in order.
func (e *Engine) featureByPeriod(ctx context.Context, q UsageQuery, totals []storage.Total) ([]UsageRow, error) {
	q.Feature = totals[0].Feature
	agg := e.aggregation(q, q.Feature)
	if agg.Exportable() && len(q.GroupBy) == 0 && len(q.Filter) == 0 {
		var rows []UsageRow
		for _, t := range totals {
			if !q.selects(t.PeriodStart) {
				continue
			}
			row := UsageRow{Feature: t.Feature, From: t.PeriodStart, To: t.PeriodEnd, Aggregation: agg}
			rows = append(rows, row.with(storage.AggregateRow{Sum: t.Quantity, Count: t.Count}, q))
		}
		return rows, nil
	}
	return e.aggregatePeriods(ctx, q, totals)
}

// besideRefused answers for a feature of which something was refused, in an answer
// about all features: it hides no other feature, and what retention removed hides
// no period that begins after it.
func (e *Engine) besideRefused(ctx context.Context, q UsageQuery, totals []storage.Total, err error) ([]UsageRow, error) {
	pruned, ok := errors.AsType[prunedError](err)
	if !ok {
		return e.refusedPeriods(q, totals, err)
	}
	whole := slices.IndexFunc(totals, func(t storage.Total) bool { return !t.PeriodStart.Before(pruned.before) })
	if whole < 0 {
		return e.refusedPeriods(q, totals, err)
	}
	rows, err := e.refusedPeriods(q, totals[:whole], err)
	if err != nil {
		return nil, err
	}
	if q.From.Before(pruned.before) {
		q.From = pruned.before
	}
	rest, err := e.featureByPeriod(ctx, q, totals)
	if err != nil {
		rest, err = e.refusedPeriods(q, totals[whole:], err)
	}
	return append(rows, rest...), err
}

// refusedPeriods are rows that say what could not be answered, if err says that it
// cannot be.
func (e *Engine) refusedPeriods(q UsageQuery, totals []storage.Total, err error) ([]UsageRow, error) {
	refused, ok := errors.AsType[*sdk.Error](err)
	if !ok || refused.Tag != sdk.TagUnsupported {
		return nil, err
	}
	var rows []UsageRow
	for _, t := range totals {
		if q.selects(t.PeriodStart) {
			rows = append(rows, UsageRow{
				Feature: t.Feature, From: t.PeriodStart, To: t.PeriodEnd, Aggregation: e.aggregation(q, t.Feature), Count: &t.Count, Refused: refused.Code,
			})
		}
	}
	return rows, nil
}

// selects reports whether a period that starts then is asked for.
func (q UsageQuery) selects(start time.Time) bool {
	return (q.From.IsZero() || !start.Before(q.From)) && (q.To.IsZero() || start.Before(q.To))
}

// aggregatePeriods answers from events, whose time tells their period as long as
// no two periods overlap.
func (e *Engine) aggregatePeriods(ctx context.Context, q UsageQuery, totals []storage.Total) ([]UsageRow, error) {
	var edges []time.Time
	wanted := map[time.Time]bool{} // by the start
	var latest time.Time           // end of all periods before
	for i, t := range totals {
		overlaps := t.PeriodStart.Before(latest) || (i+1 < len(totals) && totals[i+1].PeriodStart.Before(t.PeriodEnd))
		if t.PeriodEnd.After(latest) {
			latest = t.PeriodEnd
		}
		if !q.selects(t.PeriodStart) {
			continue
		}
		if overlaps {
			return nil, &sdk.Error{
				Tag: sdk.TagUnsupported, Code: "periods_overlap", Field: "window",
				Rule: "billing periods that do not overlap; the tenant's subscription was changed within one",
				Hint: "ask by day or hour, or without group, filter and aggregation",
			}
		}
		wanted[t.PeriodStart] = true
		if len(edges) == 0 || !edges[len(edges)-1].Equal(t.PeriodStart) {
			edges = append(edges, t.PeriodStart)
		}
		edges = append(edges, t.PeriodEnd)
	}
	if len(edges) > maxWindows {
		return nil, tooMany("from", "at most 10,000 periods in one answer")
	}
	rows, err := e.usageByWindow(ctx, q, edges)
	return slices.DeleteFunc(rows, func(r UsageRow) bool { return !wanted[r.From] }), err
}

// bufferedPeriods answers for what was tracked: what the store holds, and beside
// it what this host still holds. A feature that is not buffered by this host's
// configuration may be by another's, or have been.
func (e *Engine) bufferedPeriods(ctx context.Context, q UsageQuery, recorded []storage.Total) ([]UsageRow, error) {
	buffered := q.Feature != "" && e.cfg.feature(q.Feature).Buffered
	store, err := need[storage.CounterStore](e.cfg.Store, storage.Counters)
	switch {
	case err != nil && buffered:
		return nil, err
	case err != nil:
		return nil, nil //nolint:nilerr // nothing was ever tracked in this store
	}
	var rows []UsageRow
	for page := (storage.CounterPage{More: true}); page.More; {
		page, err = store.StreamCounters(ctx, storage.CounterQuery{Tenant: q.Tenant, Feature: q.Feature, After: page.Next, Limit: 1000})
		if err != nil {
			return nil, fmt.Errorf("stream counters: %w", err)
		}
		for _, k := range page.Counters {
			if q.selects(k.PeriodStart) {
				value := k.Value
				rows = append(rows, UsageRow{
					Feature: k.Feature, From: k.PeriodStart, To: k.PeriodEnd, Aggregation: meter.Sum, Value: &value, Buffered: true,
				})
			}
		}
	}
	if rows, err = e.trackedOnly(ctx, rows, recorded); err != nil {
		return nil, err
	}
	if q.Feature != "" && !buffered && e.onlySums(q) != nil {
		return nil, e.besideEvents(q, rows)
	}
	return e.withUnflushed(ctx, q, rows)
}
