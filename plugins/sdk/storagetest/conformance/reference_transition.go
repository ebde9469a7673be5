package conformance

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Transition applies conditional updates.
func (s *Reference) Transition(ctx context.Context, moves []storage.Transition) ([]storage.TransitionResult, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	for i := range moves {
		if err := checkMove(&moves[i]); err != nil {
			return nil, err
		}
	}
	results := make([]storage.TransitionResult, len(moves))
	for i := range moves {
		m := &moves[i]
		results[i].ItemID = m.ItemID
		it := s.items[m.ItemID]
		if it == nil {
			continue
		}
		holds := s.holds(it, &m.Expect) && s.fits(it, &m.Set)
		if holds {
			results[i].Rows = 1
			s.change(it, &m.Set)
		}
		if holds || s.slips.has(slipBesideUnchanged) {
			s.beside(it, m)
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
		(e.Unresolved == nil || *e.Unresolved == it.Unresolved) && s.holdsForPeople(it, e)
}

// holdsForPeople is the part of an expectation that operators' actions have.
func (s *Reference) holdsForPeople(it *itemRow, e *storage.Expect) bool {
	now := s.clock()
	return (e.Settled == nil || *e.Settled != it.SettledAt.IsZero() || s.slips.has(slipSettledIgnored)) &&
		(e.Attempts == nil || *e.Attempts == it.Attempts || s.slips.has(slipAttemptsIgnored)) &&
		(e.QuietFor == nil || it.ClaimedAt.IsZero() || now.Sub(it.ClaimedAt) >= *e.QuietFor || s.slips.has(slipQuietIgnored)) &&
		(e.Within == nil || it.FirstUnresolvedAt.IsZero() || now.Sub(it.FirstUnresolvedAt) < *e.Within || s.slips.has(slipWithinIgnored)) &&
		(e.TrustedSince == nil || it.FirstUnresolvedAt.IsZero() || !it.FirstUnresolvedAt.Before(*e.TrustedSince) ||
			s.slips.has(slipTrustIgnored))
}

// fits reports whether what a change sets once is not set to something else.
func (s *Reference) fits(it *itemRow, c *storage.Change) bool {
	return (c.Method == nil || it.Method == "" || it.Method == *c.Method || s.slips.has(slipMethodMoves)) &&
		(c.Customer == nil || it.Customer == "" || it.Customer == *c.Customer || s.slips.has(slipCustomerMoves))
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
	s.changeForPeople(it, c)
	left := it.Disputed != "" && (c.AcceptedNow || c.ConfirmedNow) && !s.slips.has(slipSettlesDisputed)
	if c.Settled != nil && !(*c.Settled && left) {
		s.settle(it, *c.Settled)
	}
}

func (s *Reference) settle(it *itemRow, settled bool) {
	it.SettledAt = time.Time{}
	if settled {
		it.SettledAt = s.clock()
	}
}

// changeForPeople is the part of a change that the loop rarely writes.
func (s *Reference) changeForPeople(it *itemRow, c *storage.Change) {
	if c.ClearQuarantine {
		it.QuarantineReason = ""
	}
	it.AttemptBudget += c.AddBudget
	if c.Disputed != nil {
		it.Disputed = *c.Disputed
	}
	if c.Method != nil {
		it.Method = *c.Method
	}
	if c.Customer != nil {
		it.Customer = *c.Customer
		if c.SerialKey != nil {
			it.SerialKey = *c.SerialKey
		}
	}
	if c.Release {
		it.Waits = false
	}
}

func checkMove(m *storage.Transition) error {
	if !slices.Contains(storage.ItemStates[:], m.Expect.State) || !slices.Contains(storage.ItemStates[:], m.Set.State) {
		return sdk.Invalid("state", "one of the seven states")
	}
	if m.Waiting != nil && m.Waiting.State != storage.Pending && m.Waiting.State != storage.Quarantined {
		return sdk.Invalid("waiting.state", "pending or quarantined")
	}
	if m.Action != nil {
		return checkAction(m.Action)
	}
	return nil
}

// beside is what goes with a change of an item: what it means for those that
// depend on it, and who did it.
func (s *Reference) beside(it *itemRow, m *storage.Transition) {
	for _, d := range s.dependents(it.ItemID) {
		waited := d.Waits
		if waited && m.Waiting != nil {
			s.whileWaiting(d, m.Waiting)
		}
		if m.Dependents != nil && (!waited || s.slips.has(slipEvidenceReachesAll)) {
			if m.Dependents.Disputed != nil {
				d.Disputed = *m.Dependents.Disputed
			}
			if m.Dependents.Settled != nil {
				s.settle(d, *m.Dependents.Settled)
			}
		}
	}
	if m.Action != nil {
		s.act(m.Action, it.ItemID)
	}
}

// dependents are the items that depend on one, superseded ones left out.
func (s *Reference) dependents(id int64) []*itemRow {
	var all []*itemRow
	for _, it := range s.sortedItems() {
		if it.DependsOn == id && (it.SupersededBy == 0 || s.slips.has(slipSupersededDepend)) {
			all = append(all, it)
		}
	}
	return all
}

// whileWaiting applies a change to an item that waits.
func (s *Reference) whileWaiting(d *itemRow, w *storage.Change) {
	takes := d.State == storage.Pending || d.State == storage.Quarantined || s.slips.has(slipQuarantineTakesAll)
	if w.State == storage.Quarantined && !takes {
		return
	}
	if w.NextAttemptAfter != nil {
		d.NextAttemptAt = s.clock().Add(*w.NextAttemptAfter)
	}
	if w.Disputed != nil {
		d.Disputed = *w.Disputed
	}
	if w.Release {
		d.Waits = false
	}
	if w.State == storage.Pending {
		if s.slips.has(slipReleaseUnquarantines) && d.State == storage.Quarantined {
			d.State, d.NextAttemptAt = storage.Pending, s.clock()
		}
		return
	}
	d.State = storage.Quarantined
	if w.QuarantineReason != nil {
		d.QuarantineReason = *w.QuarantineReason
	}
	if w.Settled != nil {
		s.settle(d, *w.Settled)
	}
}

// original is what a correction's item is told of the item it depends on.
func (s *Reference) original(it *itemRow) *storage.OriginalItem {
	of := s.items[it.DependsOn]
	if of == nil {
		return nil
	}
	o := &storage.OriginalItem{
		ItemID: of.ItemID, Digest: of.Digest, State: of.State, Unresolved: of.Unresolved, Disputed: of.Disputed,
		Dependents: len(s.dependents(of.ItemID)),
	}
	if s.slips.has(slipDependentsUncounted) {
		o.Dependents = 1
	}
	if !of.FirstAttemptAt.IsZero() {
		o.SinceFirstAttempt = s.clock().Sub(of.FirstAttemptAt)
	}
	return o
}

// itemsMoved reports whether an item that one of these depends on is not as
// they say.
func (s *Reference) itemsMoved(items []storage.NewItem) bool {
	for i := range items {
		d := items[i].DependsOn
		if d != nil && s.slips.has(slipDependencyUnchecked) {
			s.letOthersRun()
			continue
		}
		if d == nil {
			continue
		}
		of := s.items[d.ItemID]
		if of == nil || of.State != d.State || of.SettledAt.IsZero() == d.Settled || (of.SupersededBy != 0) != d.Superseded {
			return true
		}
	}
	return false
}

// letOthersRun is part of a slip: others get in where a lock should be.
func (s *Reference) letOthersRun() {
	s.mu.Unlock()
	for range 20 {
		runtime.Gosched()
	}
	s.mu.Lock()
}

// entriesMoved is itemsMoved for the units that are to be inserted.
func (s *Reference) entriesMoved(units []storage.Unit, results []storage.UnitResult) bool {
	for i := range units {
		for j := range units[i].Entries {
			if results[i].Outcome == "" && s.itemsMoved(units[i].Entries[j].Items) {
				return true
			}
		}
	}
	return false
}
