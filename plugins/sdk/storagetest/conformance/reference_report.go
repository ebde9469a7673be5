package conformance

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// count adds what an event of a counted period adds to its counter.
func (s *Reference) count(counted bool, ev *storage.Event) {
	if !counted || s.slips.has(slipCountedForgotten) {
		return
	}
	key := storage.CounterKey{Tenant: ev.Tenant, Feature: ev.Feature, PeriodStart: ev.PeriodStart}
	s.addCounters([]storage.Counter{{CounterKey: key, PeriodEnd: ev.PeriodEnd, Value: ev.Effect}})
}

func boundKey(k storage.BoundKey) storage.BoundKey {
	k.PeriodStart = k.PeriodStart.UTC()
	return k
}

func compareBounds(a, b storage.BoundKey) int {
	return cmp.Or(cmp.Compare(a.Exporter, b.Exporter), cmp.Compare(a.Account, b.Account), cmp.Compare(a.Mode, b.Mode),
		cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Feature, b.Feature), a.PeriodStart.Compare(b.PeriodStart))
}

// bound is a bound with what its item says.
func (s *Reference) bound(k storage.BoundKey) (storage.Bound, bool) {
	b, ok := s.settled.bounds[boundKey(k)]
	if it := s.items[b.ItemID]; it != nil {
		b.ItemState, b.ItemSettled = it.State, !it.SettledAt.IsZero()
	}
	return b, ok
}

// ReportBounds pages in key order.
func (s *Reference) ReportBounds(ctx context.Context, q storage.BoundQuery) (storage.BoundPage, error) {
	if err := s.begin(ctx); err != nil {
		return storage.BoundPage{}, err
	}
	defer s.mu.Unlock()
	page := storage.BoundPage{Bounds: []storage.Bound{}, Next: q.After}
	for _, k := range slices.SortedFunc(maps.Keys(s.settled.bounds), compareBounds) {
		b, _ := s.bound(k)
		if len(q.Keys) > 0 {
			if slices.ContainsFunc(q.Keys, func(o storage.BoundKey) bool { return compareBounds(o, k) == 0 }) {
				page.Bounds = append(page.Bounds, b)
			}
			continue
		}
		if compareBounds(k, q.After) <= 0 || !same(q.Exporter, k.Exporter) || !same(q.Tenant, k.Tenant) ||
			!same(q.Feature, k.Feature) || (q.Staged && b.StagedTo == nil && !s.slips.has(slipStagedIgnored)) {
			continue
		}
		if len(page.Bounds) == q.Limit {
			page.More = true
			break
		}
		page.Bounds = append(page.Bounds, b)
		page.Next = k
	}
	return page, nil
}

// StageWindow stages a window and its item.
func (s *Reference) StageWindow(ctx context.Context, w storage.WindowStage) (storage.WindowResult, error) {
	if err := s.begin(ctx); err != nil {
		return storage.WindowResult{}, err
	}
	defer s.mu.Unlock()
	if s.routes.Revision != w.RoutesRevision {
		return storage.WindowResult{}, clash("routes_moved")
	}
	key := boundKey(w.Key)
	b, ok := s.bound(key)
	if !ok {
		b = storage.Bound{BoundKey: key, PeriodEnd: w.PeriodEnd.UTC()}
	}
	if (b.StagedTo != nil || !b.Acked.Equal(w.From)) && !s.slips.has(slipWindowIgnoresAcked) {
		return storage.WindowResult{Bound: b}, nil
	}
	id := s.enqueue(&w.Item, 0, key.Feature)
	if id == 0 {
		if s.slips.has(slipWindowTwice) {
			return storage.WindowResult{Changed: true, Bound: b}, nil
		}
		return storage.WindowResult{}, clash("window_exists")
	}
	to := w.To
	b.StagedTo, b.ItemID, b.UpdatedAt = &to, id, s.clock()
	s.settled.bounds[key] = b
	b, _ = s.bound(key)
	return storage.WindowResult{Changed: true, Bound: b, ItemID: id}, nil
}

// SettleWindow ends a staged window.
func (s *Reference) SettleWindow(ctx context.Context, w storage.WindowSettle) (storage.WindowResult, error) {
	if err := s.begin(ctx); err != nil {
		return storage.WindowResult{}, err
	}
	defer s.mu.Unlock()
	if w.Disposition != storage.WindowAcknowledged && w.Disposition != storage.WindowWrittenOff && w.Disposition != storage.WindowRestage {
		return storage.WindowResult{}, sdk.Invalid("disposition", "one of the closed list")
	}
	if w.Action != nil {
		if err := checkAction(w.Action); err != nil {
			return storage.WindowResult{}, err
		}
	}
	key := boundKey(w.Key)
	b, ok := s.bound(key)
	if !ok {
		return storage.WindowResult{Bound: storage.Bound{BoundKey: key}}, nil
	}
	fits := slices.Contains(w.States, b.ItemState) && (!w.Settled || b.ItemSettled)
	if b.StagedTo == nil || b.ItemID != w.ItemID || !fits && !s.slips.has(slipSettlesAnyState) {
		return storage.WindowResult{Bound: b}, nil
	}
	if w.Disposition != storage.WindowRestage || s.slips.has(slipRestageAdvances) {
		b.Acked = *b.StagedTo
	}
	b.StagedTo, b.ItemID, b.ItemState, b.ItemSettled, b.UpdatedAt = nil, 0, "", false, s.clock()
	s.settled.bounds[key] = b
	if w.Action != nil {
		s.act(w.Action, w.ItemID)
	}
	return storage.WindowResult{Changed: true, Bound: b}, nil
}

func sameCutover(a storage.Cutover) func(storage.Cutover) bool {
	return func(b storage.Cutover) bool { return a.Tenant == b.Tenant && a.Feature == b.Feature }
}

// DecideCutovers stores what is not decided yet.
func (s *Reference) DecideCutovers(ctx context.Context, list []storage.Cutover) ([]storage.Cutover, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	stored := make([]storage.Cutover, len(list))
	for n, c := range list {
		c.DurableFrom = c.DurableFrom.UTC()
		i := slices.IndexFunc(s.settled.cutovers, sameCutover(c))
		switch {
		case i < 0:
			i = len(s.settled.cutovers)
			s.settled.cutovers = append(s.settled.cutovers, c)
		case s.slips.has(slipCutoverMoves):
			s.settled.cutovers[i] = c
		}
		stored[n] = s.settled.cutovers[i]
	}
	return stored, nil
}

// Cutovers pages in key order.
func (s *Reference) Cutovers(ctx context.Context, after storage.Cutover, limit int) ([]storage.Cutover, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	order := func(a, b storage.Cutover) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Feature, b.Feature))
	}
	all := []storage.Cutover{}
	for _, c := range slices.SortedFunc(slices.Values(s.settled.cutovers), order) {
		if order(c, after) > 0 && len(all) < limit {
			all = append(all, c)
		}
	}
	return all, nil
}

// routeOpen reports whether an item of a route is open.
func (s *Reference) routeOpen(route int64) bool {
	for _, it := range s.items {
		if it.RouteID == route && it.SettledAt.IsZero() && it.SupersededBy == 0 {
			return !s.slips.has(slipIdleIgnored)
		}
	}
	return false
}

// rename gives the routes of an exporter another name.
func (s *Reference) rename(set *storage.RouteSet, r *storage.RouteRename) error {
	if r == nil {
		return nil
	}
	for k := range s.settled.bounds {
		if k.Exporter == r.To {
			return clash("route_exists")
		}
	}
	found := false
	for i := range set.Routes {
		switch set.Routes[i].Exporter {
		case r.To:
			return clash("route_exists")
		case r.From:
			found = true
		}
	}
	if !found {
		return missing("a route of the exporter")
	}
	for i := range set.Routes {
		if set.Routes[i].Exporter == r.From {
			set.Routes[i].Exporter = r.To
		}
	}
	return nil
}

// called reports whether an item is of the exporter that has a name now, or, where
// none has it, was made under it.
func (s *Reference) called(name string, it *itemRow) bool {
	taken := false
	for _, r := range s.routes.Routes {
		if r.Exporter == name {
			taken = true
			if r.ID == it.RouteID && !s.slips.has(slipOldNames) {
				return true
			}
		}
	}
	return name == "" || (!taken || s.slips.has(slipOldNames)) && name == it.Identity.Exporter
}

// renameBounds goes with a rename that is certain.
func (s *Reference) renameBounds(r *storage.RouteRename) {
	if r == nil || s.slips.has(slipRenameForgetsBounds) {
		return
	}
	for k, b := range maps.Clone(s.settled.bounds) {
		if k.Exporter == r.From {
			delete(s.settled.bounds, k)
			k.Exporter, b.Exporter = r.To, r.To
			s.settled.bounds[k] = b
		}
	}
}

// selects is the part of a query that people and reconcilers ask with.
func (s *Reference) selects(q *storage.ItemQuery, it *itemRow) bool {
	unconfirmed := it.State == storage.Accepted && it.SupersededBy == 0 && !it.AcceptedAt.IsZero() &&
		s.clock().Sub(it.AcceptedAt) >= q.Unconfirmed
	subject := storage.EventKey{Tenant: it.Identity.Tenant, EventID: it.Identity.SubjectRef}
	ofEvent := len(q.Events) == 0 || slices.Contains(q.Events, subject) && it.Identity.SubjectKind != storage.SubjectWindow || s.slips.has(slipEventsIgnored)
	return ofEvent && same(q.Account, it.Identity.Account) && same(q.Mode, it.Identity.Mode) && (!q.Open || it.SettledAt.IsZero()) &&
		(!q.Disputed || it.Disputed != "") && (q.Unconfirmed == 0 || unconfirmed) && (q.DependsOn == 0 || it.DependsOn == q.DependsOn) &&
		(len(q.Digests) == 0 || slices.Contains(q.Digests, it.Digest) || s.slips.has(slipDigestsIgnored))
}

// gauges are the numbers beside the counts.
func (s *Reference) gauges(stats *storage.OutboxStats) {
	if s.slips.has(slipGaugesForgotten) {
		return
	}
	for _, it := range s.items {
		if it.Disputed != "" && it.SettledAt.IsZero() && it.SupersededBy == 0 {
			stats.Disputed++
		}
		if it.State == storage.Accepted && it.SupersededBy == 0 && !it.AcceptedAt.IsZero() {
			stats.OldestAccepted = max(stats.OldestAccepted, s.clock().Sub(it.AcceptedAt))
		}
	}
}

// usageAt is when the usage of an item was, and what it tells the provider.
func (s *Reference) usageAt(it *itemRow) (time.Time, decimal.Decimal, error) {
	if ev := s.event(it.event); ev != nil {
		return ev.OccurredAt, ev.Effect, nil
	}
	p := payloadOf(it.payload)
	value, err := decimal.ParseTotal(p.Value)
	if err != nil {
		return time.Time{}, value, sdk.Unavailable("corrupt", err)
	}
	if s.slips.has(slipWindowMagnitude) {
		value = value.Abs()
	}
	return p.Timestamp, value, nil
}
