package conformance

import (
	"context"
	"runtime"
	"strconv"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// throughFloat is part of a flaw: it keeps what a float64 keeps.
func throughFloat(d decimal.Decimal) decimal.Decimal {
	f, err := strconv.ParseFloat(d.String(), 64)
	if err != nil {
		return d
	}
	out, err := decimal.ParseTotal(strconv.FormatFloat(f, 'f', -1, 64))
	if err != nil {
		return d
	}
	return out
}

// LoadCorrectable returns a usage event and what is known of its corrections.
func (s *Reference) LoadCorrectable(ctx context.Context, key storage.EventKey) (storage.Correctable, error) {
	if err := s.begin(ctx); err != nil {
		return storage.Correctable{}, err
	}
	defer s.mu.Unlock()
	original := s.event(s.byKey[key])
	if original == nil {
		return storage.Correctable{}, missing("an event")
	}
	c := storage.Correctable{Original: *original, Corrected: s.corrected(original), Items: []storage.Item{}}
	for _, it := range s.sortedItems() {
		if it.event == original.Seq && it.SupersededBy == 0 {
			c.Items = append(c.Items, it.Item)
		}
	}
	return c, nil
}

// corrected is the sum of the magnitudes of an event's corrections.
func (s *Reference) corrected(original *storage.Event) decimal.Decimal {
	var sum decimal.Decimal
	for i := range s.events {
		c := &s.events[i]
		if c.Tenant == original.Tenant && c.Kind == storage.Correction && c.OriginalEventID == original.EventID {
			sum = sum.Add(c.Quantity)
		}
	}
	return sum
}

// RecordCorrection follows [storage.CorrectRequest].
func (s *Reference) RecordCorrection(ctx context.Context, req storage.CorrectRequest) (storage.CorrectResult, error) {
	if err := s.begin(ctx); err != nil {
		return storage.CorrectResult{}, err
	}
	defer s.mu.Unlock()
	if stale := s.stale(req.RoutesRevision, req.Subscriptions); stale != nil && !s.flaws.has(flawStaleIgnored) {
		return storage.CorrectResult{Stale: stale}, nil
	}
	original := s.event(s.byKey[storage.EventKey{Tenant: req.Event.Tenant, EventID: req.Event.OriginalEventID}])
	var sum decimal.Decimal
	if original != nil {
		sum = s.corrected(original)
	}
	if s.flaws.has(flawBoundBeforeDuplicate) {
		if reason := refusal(&req, original, sum); reason != "" {
			return storage.CorrectResult{Refused: reason}, nil
		}
	}
	if known, hash, result := s.find(&req.Event); known {
		return s.knownCorrection(&req, hash, result), nil
	}
	if s.flaws.has(flawSumsBeforeLock) {
		s.mu.Unlock()
		for range 20 {
			runtime.Gosched()
		}
		s.mu.Lock()
		original = s.event(s.byKey[storage.EventKey{Tenant: req.Event.Tenant, EventID: req.Event.OriginalEventID}])
	}
	if req.ExpectCorrected != nil && !req.ExpectCorrected.Equal(sum) {
		return storage.CorrectResult{Stale: &storage.Stale{}}, nil
	}
	if reason := refusal(&req, original, sum); reason != "" {
		if s.flaws.has(flawRefusalWrites) && original != nil {
			s.addTotal(s.projection.Active, storage.TotalDelta{
				Tenant: original.Tenant, Feature: original.Feature,
				PeriodStart: original.PeriodStart, PeriodEnd: original.PeriodEnd, Events: 1,
			})
		}
		res := storage.CorrectResult{Refused: reason}
		if original != nil {
			res.Remaining = original.Quantity.Abs().Sub(sum)
		}
		return res, nil
	}
	if s.itemsMoved(req.Items) || (req.Replacement != nil && s.itemsMoved(req.Replacement.Items)) {
		return storage.CorrectResult{Stale: &storage.Stale{Items: true}}, nil
	}
	return s.insertCorrection(&req, *original, sum), nil
}

// knownCorrection answers a repeat. A repeat with another replacement than the
// one that is stored is no repeat.
func (s *Reference) knownCorrection(req *storage.CorrectRequest, hash storage.Hash, result storage.EntryResult) storage.CorrectResult {
	if hash != req.Event.DedupeHash {
		return storage.CorrectResult{Outcome: storage.Conflict}
	}
	res := storage.CorrectResult{Outcome: storage.Duplicate, Correction: result}
	if req.Replacement != nil {
		known, other, r := s.find(&req.Replacement.Event)
		if known && other != req.Replacement.Event.DedupeHash {
			return storage.CorrectResult{Outcome: storage.Conflict}
		}
		if known {
			res.Replacement = &r
		}
	}
	if stored := s.event(result.Seq); stored != nil {
		if o := s.event(s.byKey[storage.EventKey{Tenant: stored.Tenant, EventID: stored.OriginalEventID}]); o != nil {
			res.Remaining = o.Quantity.Abs().Sub(s.corrected(o))
		}
	}
	return res
}

// refusal decides, with the sum of the corrections so far.
func refusal(req *storage.CorrectRequest, original *storage.Event, corrected decimal.Decimal) string {
	if original == nil {
		return storage.RefusedNotFound
	}
	sum, bound := corrected.Add(req.Event.Quantity), original.Quantity.Abs()
	switch {
	case original.Kind != storage.Usage:
		return storage.RefusedNotUsage
	case req.Event.Quantity.IsZero():
		return storage.RefusedNothingRemaining
	case sum.Cmp(bound) > 0:
		return storage.RefusedExceedsOriginal
	case req.WholeOnly && sum.Cmp(bound) < 0:
		return storage.RefusedPartial
	}
	return ""
}

func (s *Reference) insertCorrection(req *storage.CorrectRequest, original storage.Event, sum decimal.Decimal) storage.CorrectResult {
	if req.Replacement != nil && !s.flaws.has(flawReplacementAlone) {
		known, hash, _ := s.find(&req.Replacement.Event)
		if known && (hash != req.Replacement.Event.DedupeHash || !s.flaws.has(flawReplacementShared)) {
			return storage.CorrectResult{Outcome: storage.Conflict}
		}
	}
	ev := req.Event
	ev.Kind = storage.Correction
	ev.Feature, ev.OccurredAt = original.Feature, original.OccurredAt
	ev.PeriodStart, ev.PeriodEnd, ev.PeriodSource = original.PeriodStart, original.PeriodEnd, original.PeriodSource
	ev.Plan, ev.PlanVersion, ev.Dimensions = original.Plan, original.PlanVersion, original.Dimensions
	ev.Effect = ev.Quantity
	if original.Quantity.Sign() > 0 || s.flaws.has(flawNegativeOriginalSign) {
		ev.Effect = ev.Quantity.Neg()
	}
	left := original.Quantity.Abs().Sub(sum).Sub(ev.Quantity)
	ev.Reverses = left.IsZero()
	ev = s.insertEvent(ev, detail{bucket: req.Bucket, signed: req.Signed})
	s.count(req.Counted, &ev)
	for i := range req.Items {
		s.insertItem(&req.Items[i], &ev)
	}
	res := storage.CorrectResult{
		Outcome:    storage.Inserted,
		Correction: storage.EntryResult{EventID: ev.EventID, Feature: ev.Feature, Seq: ev.Seq},
		Remaining:  left,
	}
	if req.Replacement != nil {
		var superseded int
		r := s.insertEntry(req.Replacement, &superseded)
		res.Replacement = &r
	}
	return res
}
