package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// usageOfBoth answers the windows between edges with what was recorded and what
// was tracked: a feature may have changed its source, and is not forgotten with
// the other one.
func (e *Engine) usageOfBoth(ctx context.Context, q UsageQuery, edges []time.Time) ([]UsageRow, error) {
	if e.cfg.feature(q.Feature).Buffered {
		rows, err := e.bufferedWindows(ctx, q, edges)
		if err != nil {
			return nil, err
		}
		return e.withRecorded(ctx, q, edges, rows)
	}
	rows, err := e.usageByWindow(ctx, q, edges)
	if err != nil {
		return nil, err
	}
	return e.withTracked(ctx, q, edges, rows)
}

// withRecorded adds to the windows of a buffered feature what was recorded of it.
func (e *Engine) withRecorded(ctx context.Context, q UsageQuery, edges []time.Time, rows []UsageRow) ([]UsageRow, error) {
	totals, err := e.store.events.LoadTotals(ctx, storage.TotalsQuery{Tenant: q.Tenant, Feature: q.Feature})
	if err != nil {
		return nil, fmt.Errorf("load totals: %w", err)
	}
	if len(totals) == 0 {
		return rows, nil
	}
	recorded, err := e.usageByWindow(ctx, q, edges)
	if err != nil {
		return nil, err
	}
	for i, r := range recorded { // only sums: a row for each window
		sum := rows[i].Value.Add(*r.Value)
		rows[i].Value = &sum
	}
	return rows, nil
}

// withTracked adds to windows of events what was tracked of the feature, where
// anything was. What is no sum is of events alone.
func (e *Engine) withTracked(ctx context.Context, q UsageQuery, edges []time.Time, rows []UsageRow) ([]UsageRow, error) {
	store, err := need[storage.HistoryStore](e.cfg.Store, storage.Counters)
	if err != nil || len(edges) < 2 || e.aggregation(q, q.Feature) != meter.Sum {
		return rows, nil //nolint:nilerr // without counters nothing was tracked
	}
	sel := storage.HistoryQuery{
		Tenant: q.Tenant, Feature: q.Feature, From: edges[0].Truncate(storage.HistoryStep), To: edges[len(edges)-1], Limit: 1,
	}
	points, err := store.LoadHistoryRange(ctx, sel)
	switch {
	case err != nil:
		return nil, fmt.Errorf("load history: %w", err)
	case len(points) == 0:
		return rows, nil
	}
	if e.onlySums(q) != nil {
		return nil, partlyTracked()
	}
	tracked, err := e.bufferedWindows(ctx, q, edges)
	if err != nil {
		return nil, err
	}
	for i, r := range tracked {
		if !r.Value.IsZero() {
			sum := rows[i].Value.Add(*r.Value)
			rows[i].Value, rows[i].Count = &sum, nil
		}
	}
	return rows, nil
}

// trackedOnly takes from counters what was recorded into them: in a period that
// the counter reports, recording adds to it, and the events answer for that. // Q21.
func (e *Engine) trackedOnly(ctx context.Context, rows []UsageRow, recorded []storage.Total) ([]UsageRow, error) {
	for _, t := range recorded {
		at := slices.IndexFunc(rows, func(r UsageRow) bool { return r.Feature == t.Feature && r.From.Equal(t.PeriodStart) })
		if at < 0 {
			continue
		}
		counted, err := e.counterOwns(ctx, t.Tenant, t.Feature, t.PeriodStart)
		switch {
		case err != nil:
			return nil, err
		case !counted:
			continue
		}
		rest := rows[at].Value.Sub(t.Quantity)
		if rows[at].Value = &rest; rest.IsZero() {
			rows = slices.Delete(rows, at, at+1)
		}
	}
	return rows, nil
}

// partlyTracked refuses what counters cannot tell of a feature that has events
// now, and was buffered.
func partlyTracked() error {
	return &sdk.Error{
		Tag: sdk.TagUnsupported, Code: "buffered", Field: "from",
		Rule: "a time in which the feature was not buffered: of what was tracked only the sum is known",
		Hint: "ask for the sum without group and filter, or for another time",
	}
}

// besideEvents refuses a sum over periods that would leave out what was tracked in
// them. What is no sum is of events alone.
func (e *Engine) besideEvents(q UsageQuery, tracked []UsageRow) error {
	if e.aggregation(q, q.Feature) != meter.Sum {
		return nil
	}
	if slices.ContainsFunc(tracked, func(r UsageRow) bool { return !r.Value.IsZero() }) {
		return partlyTracked()
	}
	return nil
}
