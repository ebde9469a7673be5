package conformance

import (
	"context"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// minReceiptAge is the least age of a receipt that may be forgotten.
const minReceiptAge = 24 * time.Hour

// Prune follows [storage.RetentionStore].
func (s *Reference) Prune(ctx context.Context, req storage.PruneRequest) (storage.PruneResult, error) {
	if err := s.begin(ctx); err != nil {
		return storage.PruneResult{}, err
	}
	defer s.mu.Unlock()
	var res pruning
	before := s.clock().Add(-req.Age)
	switch req.Kind {
	case storage.PruneEvents:
		s.pruneEvents(before, &req, &res)
	case storage.PruneTombstones:
		for k, t := range s.tombs {
			if t.at.Before(before) && res.take(&req) && !req.DryRun {
				delete(s.tombs, k)
			}
		}
	case storage.PruneReceipts:
		if req.Age < minReceiptAge {
			return res.PruneResult, sdk.Invalid("age", "at least a day")
		}
		for id, at := range s.batches {
			if at.Before(before) && res.take(&req) && !req.DryRun {
				delete(s.batches, id)
			}
		}
	default:
		return res.PruneResult, sdk.Invalid("kind", "one of the closed list")
	}
	return res.PruneResult, nil
}

// pruning counts what goes and what the limit leaves.
type pruning struct{ storage.PruneResult }

// take reports whether one more row may go.
func (p *pruning) take(req *storage.PruneRequest) bool {
	if p.Removed == int64(req.Limit) {
		p.More = true
		return false
	}
	p.Removed++
	return true
}

// pruneEvents removes an event with its corrections, or none of them: a
// correction without its original, or the other way round, would lose the
// bound of what may still be corrected.
func (s *Reference) pruneEvents(before time.Time, req *storage.PruneRequest, res *pruning) {
	remove := map[int64]bool{}
	for i := range s.events {
		ev := &s.events[i]
		if !ev.RecordedAt.Before(before) {
			continue
		}
		if !s.mayGo(ev, before) {
			res.Kept++
			continue
		}
		if res.take(req) {
			remove[ev.Seq] = true
		}
	}
	if req.DryRun && !s.flaws.has(flawDryRunRemoves) {
		return
	}
	var left []storage.Event
	for i := range s.events {
		ev := s.events[i]
		if !remove[ev.Seq] {
			left = append(left, ev)
			continue
		}
		s.forget(ev)
	}
	s.events = left
}

func (s *Reference) forget(ev storage.Event) {
	key := keyOf(&ev)
	delete(s.byKey, key)
	if !s.flaws.has(flawPruneForgetsIdentity) {
		s.tombs[key] = tomb{hash: ev.DedupeHash, feature: ev.Feature, seq: ev.Seq, at: s.clock()}
	}
	for id, it := range s.items {
		if it.event == ev.Seq {
			delete(s.items, id)
		}
	}
	k := totalKey{ev.Tenant, ev.Feature, ev.PeriodStart.UnixMicro(), 0}
	d, t := totalDelta(&ev), s.pruned[totalKey{ev.Tenant, ev.Feature, ev.PeriodStart.UnixMicro(), 0}]
	t.Tenant, t.Feature, t.PeriodStart, t.PeriodEnd = d.Tenant, d.Feature, d.PeriodStart, d.PeriodEnd
	t.Quantity, t.Events, t.Count = t.Quantity.Add(d.Quantity), t.Events+d.Events, t.Count+d.Count
	s.pruned[k] = t
	s.gone = append(s.gone, goneEvent{ev, s.details[ev.Seq].bucket})
}

// mayGo reports whether an event and all that belongs to it is old enough and
// settled.
func (s *Reference) mayGo(ev *storage.Event, before time.Time) bool {
	unscanned := s.projection.Building != 0 && ev.Seq > s.projection.Cursor && ev.Seq <= s.projection.Watermark
	if unscanned {
		return false
	}
	root := ev.EventID
	if ev.Kind == storage.Correction {
		if s.flaws.has(flawPrunesCorrections) {
			return true
		}
		root = ev.OriginalEventID
	}
	for i := range s.events {
		e := &s.events[i]
		if e.Tenant != ev.Tenant || (e.EventID != root && e.OriginalEventID != root) {
			continue
		}
		if !e.RecordedAt.Before(before) {
			return false
		}
		for _, it := range s.items {
			if it.event == e.Seq && it.SettledAt.IsZero() && !s.flaws.has(flawPruneOpenItems) {
				return false
			}
		}
	}
	return true
}
