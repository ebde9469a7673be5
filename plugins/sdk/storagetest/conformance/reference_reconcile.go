package conformance

import (
	"cmp"
	"context"
	"slices"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// reconciliation is a run with its lines.
type reconciliation struct {
	storage.Reconciliation
	lines []storage.ReconciliationLine
}

func compareSums(a, b storage.SumKey) int {
	return cmp.Or(cmp.Compare(a.Customer, b.Customer), cmp.Compare(a.Feature, b.Feature), cmp.Compare(a.MappingVersion, b.MappingVersion))
}

// counted reports whether a counter reports what the item says.
func (s *Reference) counted(it *itemRow) bool {
	if it == nil || it.State != storage.Quarantined {
		return false
	}
	switch it.QuarantineReason {
	case "period_buffered", "feature_buffered":
		return true
	case "original_ineligible":
		return s.counted(s.items[it.DependsOn])
	}
	return false
}

// summed are the items of a destination whose usage is in a stretch, and what
// they add up to for each key.
func (s *Reference) summed(q *storage.SumQuery) ([]*itemRow, []storage.ItemSum, error) {
	var items []*itemRow
	sums := []storage.ItemSum{}
	for _, it := range s.sortedItems() {
		i := slices.IndexFunc(s.routes.Routes, func(r storage.Route) bool { return r.ID == it.RouteID })
		if i < 0 || it.SupersededBy != 0 && !s.slips.has(slipSumsSuperseded) {
			continue
		}
		if s.counted(it) && !s.slips.has(slipSumsCounted) {
			continue
		}
		at, value, err := s.usageAt(it)
		if err != nil {
			return nil, nil, err
		}
		to := &s.routes.Routes[i]
		if to.Exporter != q.Exporter || to.Account != q.Account || to.Mode != q.Mode || at.Before(q.From) || !at.Before(q.To) {
			continue
		}
		key := storage.SumKey{Customer: it.Customer, Feature: it.Feature, MappingVersion: it.Identity.MappingVersion}
		n, found := slices.BinarySearchFunc(sums, key, func(x storage.ItemSum, k storage.SumKey) int { return compareSums(x.SumKey, k) })
		if !found {
			sums = slices.Insert(sums, n, storage.ItemSum{SumKey: key})
		}
		items = append(items, it)
		sum := &sums[n]
		sum.Recorded = sum.Recorded.Add(value)
		if it.Disputed != "" {
			sum.Disputed++
			sum.DisputedValue = sum.DisputedValue.Add(value)
		}
		switch it.State {
		case storage.Accepted, storage.Confirmed:
			if it.Disputed != "" && !s.slips.has(slipSumsDisputed) {
				continue
			}
			sum.Reported = sum.Reported.Add(value)
			sum.ReportedItems++
			if it.State == storage.Confirmed {
				sum.Confirmed++
			}
			if q.Lag > 0 && s.clock().Sub(it.AcceptedAt) < q.Lag && !s.slips.has(slipFreshForgotten) {
				sum.Fresh++
				sum.FreshValue = sum.FreshValue.Add(value)
			}
		case storage.Pending, storage.Leased, storage.Uncertain:
			sum.Open++
			sum.OpenValue = sum.OpenValue.Add(value)
		case storage.Quarantined, storage.Rejected:
			sum.Held++
			sum.HeldValue = sum.HeldValue.Add(value)
		}
	}
	return items, sums, nil
}

// SumItems pages in key order.
func (s *Reference) SumItems(ctx context.Context, q storage.SumQuery) (storage.SumPage, error) {
	if err := s.begin(ctx); err != nil {
		return storage.SumPage{}, err
	}
	defer s.mu.Unlock()
	_, sums, err := s.summed(&q)
	if err != nil {
		return storage.SumPage{}, err
	}
	page := storage.SumPage{Sums: []storage.ItemSum{}, Next: q.After}
	if s.slips.has(slipSumPages) && q.After.Customer != "" && len(sums) > 1 {
		sums = sums[:len(sums)-1]
	}
	for _, x := range sums {
		if compareSums(x.SumKey, q.After) <= 0 || !same(q.Customer, x.Customer) || !same(q.Feature, x.Feature) {
			continue
		}
		if len(page.Sums) == q.Limit {
			page.More = true
			break
		}
		page.Sums = append(page.Sums, x)
		page.Next = x.SumKey
	}
	return page, nil
}

// ConfirmSum confirms the accepted items of one sum.
func (s *Reference) ConfirmSum(ctx context.Context, c storage.SumConfirm) (int64, error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	if err := checkAction(&c.Action); err != nil {
		return 0, err
	}
	items, sums, err := s.summed(&c.Query)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(sums, func(x storage.ItemSum) bool { return x.SumKey == c.Key })
	if i < 0 {
		return 0, nil
	}
	now, want := &sums[i], &c.Expect
	if !now.Reported.Equal(want.Reported) || now.ReportedItems != want.ReportedItems {
		return 0, nil
	}
	if (now.Open != 0 || now.Disputed != 0 || want.Open != 0 || want.Disputed != 0) && !s.slips.has(slipConfirmsWithOpen) {
		return 0, nil
	}
	var confirm []*itemRow
	for _, it := range items {
		key := storage.SumKey{Customer: it.Customer, Feature: it.Feature, MappingVersion: it.Identity.MappingVersion}
		if key != c.Key || it.State != storage.Accepted {
			continue
		}
		if it.AcceptedAt.IsZero() {
			return 0, nil
		}
		confirm = append(confirm, it)
	}
	for _, it := range confirm {
		it.State, it.ConfirmedAt, it.ConfirmedBy = storage.Confirmed, s.clock(), c.ConfirmedBy
		if it.SettledAt.IsZero() {
			s.settle(it, true)
		}
	}
	if len(confirm) > 0 {
		s.act(&c.Action, 0)
	}
	return int64(len(confirm)), nil
}

// SaveReconciliation stores a run and appends its new lines.
func (s *Reference) SaveReconciliation(ctx context.Context, r storage.Reconciliation) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.settled.runs, func(x reconciliation) bool { return x.ID == r.ID })
	if i < 0 {
		i = len(s.settled.runs)
		s.settled.runs = append(s.settled.runs, reconciliation{})
	}
	run := &s.settled.runs[i]
	if !run.FinishedAt.IsZero() && !s.slips.has(slipFinishedReplaced) {
		return clash("reconciliation_finished")
	}
	for _, l := range r.NewLines {
		l.Line = int64(len(run.lines) + 1)
		run.lines = append(run.lines, l)
	}
	r.NewLines = nil
	run.Reconciliation = r
	return nil
}

// Reconciliations returns runs, latest first.
func (s *Reference) Reconciliations(ctx context.Context, q storage.ReconciliationQuery) ([]storage.Reconciliation, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	all := []storage.Reconciliation{}
	for _, x := range s.settled.runs {
		if same(q.Exporter, x.Exporter) && same(q.ID, x.ID) && (q.Before.IsZero() || x.StartedAt.Before(q.Before)) {
			all = append(all, x.Reconciliation)
		}
	}
	slices.SortFunc(all, func(a, b storage.Reconciliation) int {
		return cmp.Or(b.StartedAt.Compare(a.StartedAt), cmp.Compare(b.ID, a.ID))
	})
	return all[:min(len(all), q.Limit)], nil
}

// ReconciliationLines returns the lines of one run.
func (s *Reference) ReconciliationLines(ctx context.Context, run string, after int64, limit int) ([]storage.ReconciliationLine, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	all := []storage.ReconciliationLine{}
	for _, x := range s.settled.runs {
		for _, l := range x.lines {
			if x.ID == run && l.Line > after && len(all) < limit {
				all = append(all, l)
			}
		}
	}
	return all, nil
}
