package remote

import (
	"cmp"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/wire/storagev1"
)

func checkLoadCounter(in *storage.CounterKey, out *storage.Counter) error {
	absent := out.CounterKey == (storage.CounterKey{}) && out.PeriodEnd.IsZero() && out.Value.IsZero()
	return foreign(absent || sameCounter(out.CounterKey, *in))
}

func checkStreamCounters(in *storage.CounterQuery, out *storage.CounterPage) error {
	if n := len(out.Counters); n > 0 && !sameCounter(out.Next, out.Counters[n-1].CounterKey) {
		return errCursor
	}
	return first(
		page{len(out.Counters), in.Limit, out.More}.check(),
		ascending(out.Counters, &storage.Counter{CounterKey: in.After}, func(a, b *storage.Counter) int { return compareCounters(a.CounterKey, b.CounterKey) }),
		each(out.Counters, func(_ int, c *storage.Counter) bool {
			return matches(in.Tenant, c.Tenant) && matches(in.Feature, c.Feature)
		}, errForeign),
	)
}

func checkFlushBatch(in *storage.FlushBatch, out *storage.FlushResult) error {
	return first(
		count(len(out.Counters), len(in.Counters)),
		each(out.Counters, func(i int, c *storage.Counter) bool { return sameCounter(c.CounterKey, in.Counters[i].CounterKey) }, errForeign),
	)
}

func checkLoadHistory(in *storage.HistoryKey, out *storage.HistoryPoint) error {
	absent := out.HistoryKey == (storage.HistoryKey{}) && out.Value.IsZero()
	return foreign(absent || (out.Tenant == in.Tenant && out.Feature == in.Feature && out.Start.Equal(in.Start)))
}

func checkLoadHistoryRange(in *storage.HistoryQuery, out *storagev1.LoadHistoryRangeAnswer) error {
	return first(
		atMost(len(out.Result), in.Limit),
		each(out.Result, func(_ int, p *storage.HistoryPoint) bool {
			return p.Tenant == in.Tenant && p.Feature == in.Feature && inside(p.Start, in.From, in.To)
		}, errForeign),
		ascending(out.Result, nil, func(a, b *storage.HistoryPoint) int { return a.Start.Compare(b.Start) }),
	)
}

func checkReportBounds(in *storage.BoundQuery, out *storage.BoundPage) error {
	err := ascending(out.Bounds, nil, func(a, b *storage.Bound) int { return compareBounds(a.BoundKey, b.BoundKey) })
	if len(in.Keys) > 0 {
		asked := make(map[storage.BoundKey]bool, len(in.Keys))
		for _, k := range in.Keys {
			k.PeriodStart = k.PeriodStart.UTC()
			asked[k] = true
		}
		return first(err, each(out.Bounds, func(_ int, b *storage.Bound) bool { return asked[b.BoundKey] }, errForeign))
	}
	if n := len(out.Bounds); n > 0 && compareBounds(out.Next, out.Bounds[n-1].BoundKey) != 0 {
		return errCursor
	}
	return first(err,
		page{len(out.Bounds), in.Limit, out.More}.check(),
		each(out.Bounds, func(_ int, b *storage.Bound) bool {
			return compareBounds(in.After, b.BoundKey) < 0 && matches(in.Exporter, b.Exporter) && matches(in.Tenant, b.Tenant) &&
				matches(in.Feature, b.Feature) && (!in.Staged || b.StagedTo != nil)
		}, errForeign),
	)
}

func checkStageWindow(in *storage.WindowStage, out *storage.WindowResult) error {
	return first(checkWindow(in.Key, out), holds(!out.Changed || out.ItemID > 0, "the item that was inserted"))
}

func checkSettleWindow(in *storage.WindowSettle, out *storage.WindowResult) error {
	return checkWindow(in.Key, out)
}

func checkWindow(key storage.BoundKey, out *storage.WindowResult) error {
	absent := !out.Changed && out.Bound.BoundKey == (storage.BoundKey{})
	return foreign(absent || compareBounds(out.Bound.BoundKey, key) == 0)
}

func checkDecideCutovers(in *storagev1.DecideCutoversRequest, out *storagev1.DecideCutoversAnswer) error {
	return first(
		count(len(out.Result), len(in.List)),
		each(out.Result, func(i int, c *storage.Cutover) bool {
			return compareCutovers(*c, in.List[i]) == 0 && !c.DurableFrom.IsZero()
		}, errForeign),
	)
}

func checkCutovers(in *storagev1.CutoversRequest, out *storagev1.CutoversAnswer) error {
	return first(
		atMost(len(out.Result), in.Limit),
		ascending(out.Result, &in.After, func(a, b *storage.Cutover) int { return compareCutovers(*a, *b) }),
	)
}

func checkPrune(_ *storage.PruneRequest, out *storage.PruneResult) error {
	return holds(out.Removed >= 0 && out.Kept >= 0, "counts")
}

func checkBeginProjection(_ *storagev1.BeginProjectionRequest, out *storage.ProjectionState) error {
	return first(holds(out.Building > 0, "a generation that is building"), checkProjectionState(nil, out))
}

func checkProjectionState(_ *struct{}, out *storage.ProjectionState) error {
	return holds(out.Active >= 0 && out.Building >= 0 && out.Previous >= 0 && out.Cursor >= 0 && out.Watermark >= 0, "a state")
}

func checkActivateProjection(in *storagev1.ActivateProjectionRequest, out *storage.ProjectionState) error {
	return first(foreign(out.Active == in.Generation), checkProjectionState(nil, out))
}

func checkPauseProjection(in *storagev1.PauseProjectionRequest, out *storage.ProjectionState) error {
	return first(foreign(out.Building == in.Generation && out.Paused == in.Paused), checkProjectionState(nil, out))
}

func checkDrainSeed(in *storagev1.DrainSeedRequest, out *storagev1.DrainSeedAnswer) error {
	return first(holds(out.Result >= 0, "a count"), atMost(out.Result, in.Limit))
}

func checkPruneProjection(in *storagev1.PruneProjectionRequest, out *storagev1.PruneProjectionAnswer) error {
	return first(holds(out.Result >= 0, "a count"), atMost(out.Result, in.Limit))
}

func checkFoldProjection(in *storage.ProjectionFold, out *storage.ProjectionFolded) error {
	return holds(out.Cursor > in.After && out.Events >= 0 && out.Events <= int64(in.Limit), "a cursor that moved, over at most as many events as asked for")
}

func checkCompareProjections(in *storagev1.CompareProjectionsRequest, out *storage.ProjectionDiff) error {
	return first(atMost(len(out.Differences), in.Limit), holds(out.Total >= int64(len(out.Differences)), "a count of all differences"))
}

func checkSumItems(in *storage.SumQuery, out *storage.SumPage) error {
	if n := len(out.Sums); n > 0 && out.Next != out.Sums[n-1].SumKey {
		return errCursor
	}
	return first(
		page{len(out.Sums), in.Limit, out.More}.check(),
		ascending(out.Sums, nil, func(a, b *storage.ItemSum) int { return compareSums(a.SumKey, b.SumKey) }),
		each(out.Sums, func(_ int, s *storage.ItemSum) bool {
			later := in.After == (storage.SumKey{}) || compareSums(in.After, s.SumKey) < 0
			return later && matches(in.Customer, s.Customer) && matches(in.Feature, s.Feature)
		}, errForeign),
	)
}

func checkConfirmSum(in *storage.SumConfirm, out *storagev1.ConfirmSumAnswer) error {
	return holds(out.Result >= 0 && out.Result <= max(in.Expect.ReportedItems, 0), "a count of reported items")
}

func checkReconciliations(in *storage.ReconciliationQuery, out *storagev1.ReconciliationsAnswer) error {
	return first(
		atMost(len(out.Result), in.Limit),
		each(out.Result, func(_ int, r *storage.Reconciliation) bool {
			return r.ID != "" && matches(in.Exporter, r.Exporter) && matches(in.ID, r.ID) && len(r.NewLines) == 0 &&
				(in.Before.IsZero() || r.StartedAt.Before(in.Before))
		}, errForeign),
	)
}

func checkReconciliationLines(in *storagev1.ReconciliationLinesRequest, out *storagev1.ReconciliationLinesAnswer) error {
	return first(
		atMost(len(out.Result), in.Limit),
		ascending(out.Result, &storage.ReconciliationLine{Line: in.After}, func(a, b *storage.ReconciliationLine) int { return cmp.Compare(a.Line, b.Line) }),
	)
}
