package conformance

import (
	"context"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Transition applies conditional updates.
func (s *Reference) Transition(ctx context.Context, moves []storage.Transition) ([]storage.TransitionResult, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	results := make([]storage.TransitionResult, len(moves))
	for i := range moves {
		m := &moves[i]
		results[i].ItemID = m.ItemID
		it := s.items[m.ItemID]
		if it == nil {
			continue
		}
		holds := s.holds(it, &m.Expect)
		if holds {
			results[i].Rows = 1
			s.change(it, &m.Set)
		}
		if m.Attempt != nil && (holds || !s.flaws.has(flawFencedAttemptLost)) {
			a := *m.Attempt
			a.ItemID, a.Fenced = m.ItemID, !holds
			it.attempts = append(it.attempts, a)
		}
	}
	return results, nil
}

func (s *Reference) holds(it *itemRow, e *storage.Expect) bool {
	return it.SupersededBy == 0 && it.State == e.State &&
		(e.LeaseToken == nil || *e.LeaseToken == it.LeaseToken || s.flaws.has(flawStaleTokenAccepted)) &&
		(e.MappingVersion == nil || *e.MappingVersion == it.Identity.MappingVersion) &&
		(e.Unresolved == nil || *e.Unresolved == it.Unresolved)
}

func (s *Reference) change(it *itemRow, c *storage.Change) {
	now := s.clock()
	if it.State == storage.Leased && c.State != storage.Leased {
		it.LeaseOwner, it.LeaseExpiresAt = "", time.Time{}
	}
	it.State = c.State
	if c.NextAttemptAfter != nil {
		it.NextAttemptAt = now.Add(*c.NextAttemptAfter)
	}
	if c.ReturnAttempt {
		it.Attempts--
	}
	if c.MarkUnresolved {
		it.Unresolved = true
		if it.FirstUnresolvedAt.IsZero() {
			it.FirstUnresolvedAt = it.ClaimedAt
		}
	}
	if c.ProviderRef != nil {
		it.ProviderRef = *c.ProviderRef
	}
	if c.AcceptedNow {
		it.AcceptedAt = now
	}
	if c.ConfirmedNow {
		it.ConfirmedAt = now
	}
	if c.ConfirmedBy != nil {
		it.ConfirmedBy = *c.ConfirmedBy
	}
	if c.LastError != nil {
		e := *c.LastError
		it.LastError = &e
	}
	if c.QuarantineReason != nil {
		it.QuarantineReason = *c.QuarantineReason
	}
	if c.Settled != nil {
		it.SettledAt = time.Time{}
		if *c.Settled {
			it.SettledAt = now
		}
	}
}
