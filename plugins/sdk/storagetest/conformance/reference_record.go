package conformance

import (
	"cmp"
	"context"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// totalKey identifies a total.
type totalKey struct {
	tenant, feature string
	start           int64 // µs
	generation      int64
}

func (k totalKey) compare(l totalKey) int {
	return cmp.Or(cmp.Compare(k.tenant, l.tenant), cmp.Compare(k.feature, l.feature), cmp.Compare(k.start, l.start))
}

// RecordEvents follows [storage.RecordRequest]: it judges every unit before it
// writes the first.
func (s *Reference) RecordEvents(ctx context.Context, req storage.RecordRequest) (storage.RecordResult, error) {
	if err := s.begin(ctx); err != nil {
		return storage.RecordResult{}, err
	}
	defer s.mu.Unlock()
	if stale := s.stale(req.RoutesRevision, req.Subscriptions); stale != nil && !s.flaws.has(flawStaleIgnored) {
		return storage.RecordResult{Stale: stale}, nil
	}
	res := storage.RecordResult{Units: make([]storage.UnitResult, len(req.Units))}
	conflict := false
	for i := range req.Units {
		res.Units[i] = s.judge(&req.Units[i])
		conflict = conflict || res.Units[i].Outcome == storage.Conflict
	}
	if conflict && req.Mode == storage.Atomic && !s.flaws.has(flawPartialAtomic) {
		for i := range res.Units {
			if res.Units[i].Outcome != storage.Conflict {
				res.Units[i] = storage.UnitResult{}
			}
		}
		return res, nil
	}
	if s.wouldGoNegative(req.Units, res.Units) {
		return storage.RecordResult{}, sdk.Invalid("quantity", "totals of an unsigned feature stay at zero or above")
	}
	if s.entriesMoved(req.Units, res.Units) {
		return storage.RecordResult{Stale: &storage.Stale{Items: true}}, nil
	}
	if s.flaws.has(flawTotalsOfDuplicates) {
		for i := range req.Units {
			if res.Units[i].Outcome == storage.Duplicate && len(req.Units[i].Entries) > 0 {
				s.addTotal(s.projection.Active, totalOf(req.Units[i].Entries[0].Event))
			}
		}
	}
	order := sortedUnits(req.Units)
	for _, i := range order {
		if res.Units[i].Outcome == "" {
			res.Units[i] = s.insertUnit(&req.Units[i], &res.Superseded)
		}
	}
	if s.flaws.has(flawInvisibleIsDuplicate) {
		s.pauseInFlight(req.Units)
	}
	if s.flaws.has(flawResultsSorted) {
		sorted := make([]storage.UnitResult, len(order))
		for at, i := range order {
			sorted[at] = res.Units[i]
		}
		res.Units = sorted
	}
	return res, nil
}

// pauseInFlight is part of a flaw: it lets others run while these identities
// count as not yet visible.
func (s *Reference) pauseInFlight(units []storage.Unit) {
	for i := range units {
		s.inFlight[unitKey(&units[i])] = true
	}
	s.mu.Unlock()
	for range 20 {
		runtime.Gosched()
	}
	s.mu.Lock()
	for i := range units {
		delete(s.inFlight, unitKey(&units[i]))
	}
}

func (s *Reference) stale(routes int64, tenants []storage.SubscriptionRevision) *storage.Stale {
	stale := storage.Stale{Routes: routes != s.routes.Revision}
	for _, t := range tenants {
		if s.subscriptions[t.Tenant].Revision != t.Revision {
			stale.Tenants = append(stale.Tenants, t.Tenant)
		}
	}
	if stale.Routes || len(stale.Tenants) > 0 {
		return &stale
	}
	return nil
}

func unitKey(u *storage.Unit) storage.EventKey {
	if u.Receipt != nil {
		return storage.EventKey{Tenant: u.Receipt.Tenant, EventID: u.Receipt.ReceiptID}
	}
	return keyOf(&u.Entries[0].Event)
}

func keyOf(e *storage.Event) storage.EventKey {
	return storage.EventKey{Tenant: e.Tenant, EventID: e.EventID}
}

func sortedUnits(units []storage.Unit) []int {
	order := make([]int, len(units))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := unitKey(&units[i]), unitKey(&units[j])
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.EventID, b.EventID))
	})
	return order
}

// judge answers duplicate or conflict, or no outcome for what is new.
func (s *Reference) judge(u *storage.Unit) storage.UnitResult {
	if u.Receipt != nil {
		r := s.receipts[storage.ReceiptKey{Tenant: u.Receipt.Tenant, ReceiptID: u.Receipt.ReceiptID}]
		switch {
		case r == nil:
		case r.DedupeHash == u.Receipt.DedupeHash:
			return storage.UnitResult{Outcome: storage.Duplicate, Entries: slices.Clone(r.entries)}
		default:
			return storage.UnitResult{Outcome: storage.Conflict}
		}
	}
	for i := range u.Entries {
		known, hash, result := s.find(&u.Entries[i].Event)
		switch {
		case !known:
		case s.flaws.has(flawConflictIsDuplicate) || (s.flaws.has(flawInvisibleIsDuplicate) && s.inFlight[unitKey(u)]):
			return storage.UnitResult{Outcome: storage.Duplicate, Entries: []storage.EntryResult{result}}
		case hash != u.Entries[i].Event.DedupeHash:
			return storage.UnitResult{Outcome: storage.Conflict}
		case u.Receipt == nil:
			return storage.UnitResult{Outcome: storage.Duplicate, Entries: []storage.EntryResult{result}}
		}
	}
	return storage.UnitResult{}
}

// find looks an identity up, also among what retention removed.
func (s *Reference) find(e *storage.Event) (bool, storage.Hash, storage.EntryResult) {
	key := keyOf(e)
	if s.flaws.has(flawTenantBlind) {
		for k := range s.byKey {
			if k.EventID == key.EventID {
				key = k
			}
		}
	}
	if seq := s.byKey[key]; seq != 0 {
		stored := s.event(seq)
		return true, stored.DedupeHash, storage.EntryResult{EventID: stored.EventID, Feature: stored.Feature, Seq: seq}
	}
	t, ok := s.tombs[key]
	return ok, t.hash, storage.EntryResult{EventID: e.EventID, Feature: t.feature, Seq: t.seq}
}

func (s *Reference) event(seq int64) *storage.Event {
	i, ok := slices.BinarySearchFunc(s.events, seq, func(e storage.Event, seq int64) int { return cmp.Compare(e.Seq, seq) })
	if !ok {
		return nil
	}
	return &s.events[i]
}

// wouldGoNegative reports whether the new units take a total of an unsigned
// feature below zero.
func (s *Reference) wouldGoNegative(units []storage.Unit, results []storage.UnitResult) bool {
	sums := map[totalKey]storage.Total{}
	for i := range units {
		for j := range units[i].Entries {
			e := &units[i].Entries[j]
			if results[i].Outcome != "" || e.Signed {
				continue
			}
			k := totalKey{e.Event.Tenant, e.Event.Feature, e.Event.PeriodStart.UnixMicro(), s.projection.Active}
			t := sums[k]
			t.Quantity = t.Quantity.Add(e.Event.Quantity)
			sums[k] = t
		}
	}
	for k, t := range sums {
		if s.totals[k].Quantity.Add(t.Quantity).Sign() < 0 {
			return true
		}
	}
	return false
}

func (s *Reference) insertUnit(u *storage.Unit, superseded *int) storage.UnitResult {
	res := storage.UnitResult{Outcome: storage.Inserted}
	for i := range u.Entries {
		res.Entries = append(res.Entries, s.insertEntry(&u.Entries[i], superseded))
	}
	if u.Receipt != nil && !s.flaws.has(flawReceiptNotKept) {
		r := &receipt{Receipt: *u.Receipt, entries: slices.Clone(res.Entries)}
		r.Features, r.Body = slices.Clone(r.Features), slices.Clone(r.Body)
		r.RecordedAt = s.clock()
		s.receipts[storage.ReceiptKey{Tenant: r.Tenant, ReceiptID: r.ReceiptID}] = r
	}
	return res
}

// insertEntry writes an event that is new, or finds it.
func (s *Reference) insertEntry(e *storage.Entry, superseded *int) storage.EntryResult {
	if known, _, result := s.find(&e.Event); known {
		return result
	}
	ev := e.Event
	ev.Effect = ev.Quantity
	ev = s.insertEvent(ev, detail{bucket: e.Bucket, signed: e.Signed})
	s.count(e.Counted, &ev)
	for i := range e.Items {
		if i == 0 && s.flaws.has(flawDropsAnItem) && ev.Seq%2 == 0 {
			continue
		}
		*superseded += s.insertItem(&e.Items[i], &ev)
	}
	return storage.EntryResult{EventID: ev.EventID, Feature: ev.Feature, Seq: ev.Seq}
}

// insertEvent gives an event its place, and moves totals and buckets by its
// effect, in the generation in use and in the one that is built.
func (s *Reference) insertEvent(ev storage.Event, d detail) storage.Event {
	s.lastSeq++
	ev.Seq, ev.RecordedAt = s.lastSeq, s.clock()
	ev.OccurredAt, ev.PeriodStart, ev.PeriodEnd = ev.OccurredAt.UTC(), ev.PeriodStart.UTC(), ev.PeriodEnd.UTC()
	ev.Dimensions, ev.Metadata = maps.Clone(ev.Dimensions), slices.Clone(ev.Metadata)
	s.events = append(s.events, ev)
	s.byKey[keyOf(&ev)] = ev.Seq
	s.details[ev.Seq] = d
	for _, g := range s.generations() {
		s.addTotal(g, totalDelta(&ev))
		if d.bucket != nil {
			s.addBucket(g, bucketDelta(&ev, *d.bucket))
		}
	}
	return ev
}

func (s *Reference) generations() []int64 {
	if s.projection.Building == 0 || s.flaws.has(flawForgetsBuilding) {
		return []int64{s.projection.Active}
	}
	return []int64{s.projection.Active, s.projection.Building}
}

// totalDelta is what an event adds to its total.
func totalDelta(ev *storage.Event) storage.TotalDelta {
	d := storage.TotalDelta{
		Tenant: ev.Tenant, Feature: ev.Feature, PeriodStart: ev.PeriodStart, PeriodEnd: ev.PeriodEnd,
		Quantity: ev.Effect, Events: 1, Count: netCount(ev),
	}
	return d
}

func totalOf(usage storage.Event) storage.TotalDelta {
	usage = withEffect(usage)
	return totalDelta(&usage)
}

func netCount(ev *storage.Event) int64 {
	switch {
	case ev.Kind == storage.Usage:
		return 1
	case ev.Reverses:
		return -1
	}
	return 0
}

func (s *Reference) addTotal(generation int64, d storage.TotalDelta) {
	k := totalKey{d.Tenant, d.Feature, d.PeriodStart.UnixMicro(), generation}
	t := s.totals[k]
	t.Tenant, t.Feature, t.PeriodStart, t.PeriodEnd = d.Tenant, d.Feature, d.PeriodStart, d.PeriodEnd
	if s.flaws.has(flawAbsoluteTotals) {
		before := t
		s.mu.Unlock()
		for range 20 {
			runtime.Gosched()
		}
		s.mu.Lock()
		t = before
	}
	t.Quantity = t.Quantity.Add(d.Quantity)
	t.Events += d.Events
	t.Count += d.Count
	if s.flaws.has(flawFloat) {
		t.Quantity = throughFloat(t.Quantity)
	}
	s.totals[k] = t
}

// LoadEvent returns one event.
func (s *Reference) LoadEvent(ctx context.Context, key storage.EventKey) (storage.Event, error) {
	if err := s.begin(ctx); err != nil {
		return storage.Event{}, err
	}
	defer s.mu.Unlock()
	if ev := s.event(s.byKey[key]); ev != nil {
		return *ev, nil
	}
	return storage.Event{}, missing("an event")
}

// LoadReceipt returns the first receipt of a CloudEvent.
func (s *Reference) LoadReceipt(ctx context.Context, key storage.ReceiptKey) (storage.Receipt, error) {
	if err := s.begin(ctx); err != nil {
		return storage.Receipt{}, err
	}
	defer s.mu.Unlock()
	if r := s.receipts[key]; r != nil {
		return r.Receipt, nil
	}
	return storage.Receipt{}, missing("a receipt")
}

// LoadTotals returns totals of the active generation.
func (s *Reference) LoadTotals(ctx context.Context, q storage.TotalsQuery) ([]storage.Total, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	all := []storage.Total{}
	for _, k := range s.totalKeys(s.projection.Active) {
		t := s.totals[k]
		if t.Tenant == q.Tenant && (q.Feature == "" || t.Feature == q.Feature) && within(t.PeriodStart, q.From, q.To) {
			all = append(all, t)
		}
	}
	return all, nil
}

func (s *Reference) totalKeys(generation int64) []totalKey {
	var keys []totalKey
	for k := range s.totals {
		if k.generation == generation {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, totalKey.compare)
	return keys
}

// StreamEvents pages by seq.
func (s *Reference) StreamEvents(ctx context.Context, q storage.StreamQuery) (storage.EventPage, error) {
	if err := s.begin(ctx); err != nil {
		return storage.EventPage{}, err
	}
	defer s.mu.Unlock()
	page := storage.EventPage{Events: []storage.Event{}, Next: q.After}
	from, _ := slices.BinarySearchFunc(s.events, q.After+1, func(e storage.Event, seq int64) int { return cmp.Compare(e.Seq, seq) })
	for _, ev := range s.events[from:] {
		if ev.Seq <= q.After || (q.Tenant != "" && ev.Tenant != q.Tenant) || (q.Feature != "" && ev.Feature != q.Feature) {
			continue
		}
		if s.flaws.has(flawStreamForgetsOne) && ev.Seq == s.lastSeq && s.lastSeq%3 == 0 {
			page.Next = ev.Seq
			continue
		}
		page.Events = append(page.Events, ev)
		if len(page.Events) > q.Limit && !s.flaws.has(flawStreamByID) {
			break
		}
	}
	if s.flaws.has(flawStreamByID) {
		slices.SortFunc(page.Events, func(a, b storage.Event) int { return strings.Compare(a.EventID, b.EventID) })
	}
	if len(page.Events) > q.Limit {
		page.Events, page.More = page.Events[:q.Limit], true
	}
	if n := len(page.Events); n > 0 {
		page.Next = max(page.Next, page.Events[n-1].Seq)
	}
	return page, nil
}
