package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// onlySums refuses what counters cannot tell.
func (e *Engine) onlySums(q UsageQuery) error {
	if agg := e.aggregation(q, q.Feature); agg == meter.Sum && len(q.GroupBy) == 0 && len(q.Filter) == 0 {
		return nil
	}
	return &sdk.Error{
		Tag: sdk.TagUnsupported, Code: "buffered", Field: "feature",
		Rule: "a feature whose usage is recorded as events; of a buffered one only the sum is known",
	}
}

// withUnflushed adds what this host holds in memory, with rows for periods of
// which the store knows nothing yet.
func (e *Engine) withUnflushed(ctx context.Context, q UsageQuery, rows []UsageRow) ([]UsageRow, error) {
	for name, f := range e.cfg.Features {
		if !f.Buffered || (q.Feature != "" && q.Feature != name) {
			continue
		}
		for start, held := range e.counters.Unflushed(q.Tenant, name) {
			if !q.selects(start) {
				continue
			}
			at := slices.IndexFunc(rows, func(r UsageRow) bool { return r.Feature == name && r.From.Equal(start) })
			if at < 0 {
				found, err := e.subjects.of(ctx, []string{q.Tenant})
				if err != nil {
					return nil, err
				}
				at = len(rows)
				rows = append(rows, UsageRow{
					Feature: name, From: start, To: found[q.Tenant].calendar.At(start).End,
					Aggregation: meter.Sum, Value: &decimal.Decimal{}, Buffered: true,
				})
			}
			rows[at].Unflushed = held
		}
	}
	return rows, nil
}

// historyPage bounds one reading of a counter's history.
const historyPage = 10_000

// bufferedWindows answers windows from the history of a counter, which has a
// step every five minutes, by the time of Track.
func (e *Engine) bufferedWindows(ctx context.Context, q UsageQuery, edges []time.Time) ([]UsageRow, error) {
	if err := e.onlySums(q); err != nil {
		return nil, err
	}
	if !onBuckets(edges) {
		err := sdk.Invalid("window", "windows that begin and end on five minutes: the history of a buffered feature has no shorter steps")
		err.Code = "buffered"
		return nil, err
	}
	store, err := need[storage.HistoryStore](e.cfg.Store, storage.Counters)
	if err != nil {
		return nil, err
	}
	rows := make([]UsageRow, len(edges)-1)
	for i := range rows {
		rows[i] = UsageRow{
			Feature: q.Feature, From: edges[i], To: edges[i+1], Aggregation: meter.Sum, Value: &decimal.Decimal{}, Buffered: true,
		}
	}
	sel := storage.HistoryQuery{Tenant: q.Tenant, Feature: q.Feature, From: edges[0], To: edges[len(edges)-1], Limit: historyPage}
	for w := 0; ; {
		points, err := store.LoadHistoryRange(ctx, sel)
		if err != nil {
			return nil, fmt.Errorf("load history: %w", err)
		}
		for _, p := range points {
			for !p.Start.Before(rows[w].To) {
				w++
			}
			sum := rows[w].Value.Add(p.Value)
			rows[w].Value = &sum
		}
		if len(points) < historyPage {
			return rows, nil
		}
		sel.From = points[len(points)-1].Start.Add(storage.HistoryStep)
	}
}
