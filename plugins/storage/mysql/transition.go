package mysql

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Transition implements [storage.OutboxStore]: the rows are read under the lock,
// compared here and written whole.
func (a *Adapter) Transition(ctx context.Context, moves []storage.Transition) (results []storage.TransitionResult, err error) {
	if len(moves) > 1000 {
		return nil, sdk.Invalid("moves", "at most 1000")
	}
	for i := range moves {
		if err := checkMove(&moves[i]); err != nil {
			return nil, err
		}
	}
	if len(moves) == 0 {
		return []storage.TransitionResult{}, nil
	}
	err = a.write(ctx, "transition", func(t *tx) error {
		results = make([]storage.TransitionResult, len(moves))
		s, err := t.load(moves)
		if err != nil {
			return err
		}
		for i := range moves {
			results[i].ItemID = moves[i].ItemID
			if results[i].Rows, err = s.move(&moves[i]); err != nil {
				return err
			}
		}
		return t.save(s.all()...)
	})
	if err != nil {
		return nil, err
	}
	return results, nil
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

// itemSet are the rows of one transaction: each is there once.
type itemSet struct {
	*tx
	items map[int64]*item
	// dependents are by the item that they depend on, in order, superseded
	// ones left out.
	dependents map[int64][]*item
}

// load reads the items of moves, and what depends on them where it matters.
func (t *tx) load(moves []storage.Transition) (*itemSet, error) {
	var ids, originals []int64
	for i := range moves {
		ids = append(ids, moves[i].ItemID)
		if moves[i].Waiting != nil || moves[i].Dependents != nil {
			originals = append(originals, moves[i].ItemID)
		}
	}
	return t.loadItems(ids, originals)
}

func (t *tx) loadItems(ids, originals []int64) (*itemSet, error) {
	s := &itemSet{t, map[int64]*item{}, map[int64][]*item{}}
	keep := func(it *item) *item {
		if known := s.items[it.ItemID]; known != nil {
			return known
		}
		s.items[it.ItemID] = it
		return it
	}
	for list := range slices.Chunk(ids, maxPage) {
		if err := t.query(func(r *row) { keep(r.item()) }, selectItems+"item IN "+places(len(list)), anys(list)...); err != nil {
			return nil, err
		}
	}
	for list := range slices.Chunk(originals, maxPage) {
		after := int64(0)
		for n := maxPage; n == maxPage; {
			n = 0
			err := t.query(func(r *row) {
				it := keep(r.item())
				s.dependents[it.DependsOn] = append(s.dependents[it.DependsOn], it)
				after = it.ItemID
				n++
			}, selectItems+"superseded_by = 0 AND item > ? AND depends_on IN "+places(len(list))+" ORDER BY item LIMIT ?",
				append(append([]any{after}, anys(list)...), maxPage)...)
			if err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

func (s *itemSet) all() []*item {
	list := make([]*item, 0, len(s.items))
	for _, it := range s.items {
		list = append(list, it)
	}
	return list
}

// move applies one conditional update and answers how many rows it changed.
func (s *itemSet) move(m *storage.Transition) (int, error) {
	it := s.items[m.ItemID]
	if it == nil {
		return 0, nil
	}
	rows := 0
	if it.holds(&m.Expect, s.now) && it.fits(&m.Set) {
		rows = 1
		it.change(&m.Set, s.now)
		s.beside(it, m)
	}
	if m.Attempt != nil {
		at := *m.Attempt
		at.ItemID, at.Fenced = m.ItemID, rows == 0
		content, err := json.Marshal(at)
		if err != nil {
			return 0, err
		}
		s.exec(1, "INSERT INTO fencepost_attempts (item, fenced, content) VALUES (?, ?, ?)", at.ItemID, at.Fenced, json.RawMessage(content))
	}
	return rows, s.room()
}

// holds tests what an update expects.
func (it *item) holds(e *storage.Expect, now time.Time) bool {
	return it.SupersededBy == 0 && it.State == e.State &&
		(e.LeaseToken == nil || *e.LeaseToken == it.LeaseToken) &&
		(e.MappingVersion == nil || *e.MappingVersion == it.Identity.MappingVersion) &&
		(e.Unresolved == nil || *e.Unresolved == it.Unresolved) &&
		(e.Settled == nil || *e.Settled != it.SettledAt.IsZero()) &&
		(e.Attempts == nil || *e.Attempts == it.Attempts) &&
		(e.QuietFor == nil || it.ClaimedAt.IsZero() || now.Sub(it.ClaimedAt) >= *e.QuietFor) &&
		(e.Within == nil || it.FirstUnresolvedAt.IsZero() || now.Sub(it.FirstUnresolvedAt) < *e.Within) &&
		(e.TrustedSince == nil || it.FirstUnresolvedAt.IsZero() || !it.FirstUnresolvedAt.Before(*e.TrustedSince))
}

// fits reports whether what a change sets once is not set to something else.
func (it *item) fits(c *storage.Change) bool {
	return (c.Method == nil || it.Method == "" || it.Method == *c.Method) &&
		(c.Customer == nil || it.Customer == "" || it.Customer == *c.Customer)
}

func (it *item) release() { it.LeaseOwner, it.LeaseExpiresAt = "", time.Time{} }

func (it *item) settle(settled bool, now time.Time) {
	it.SettledAt = time.Time{}
	if settled {
		it.SettledAt = now
	}
}

func (it *item) change(c *storage.Change, now time.Time) {
	it.changed = true
	if c.State != storage.Leased {
		it.release()
	}
	it.State = c.State
	if c.NextAttemptAfter != nil {
		it.NextAttemptAt = now.Add(*c.NextAttemptAfter)
	}
	if c.ReturnAttempt {
		it.Attempts = max(it.Attempts-1, 0)
	}
	if c.MarkUnresolved {
		it.Unresolved = true
		if it.FirstUnresolvedAt.IsZero() {
			it.FirstUnresolvedAt = it.ClaimedAt
		}
	}
	if c.AcceptedNow {
		it.AcceptedAt = now
	}
	if c.ConfirmedNow {
		it.ConfirmedAt = now
	}
	if c.LastError != nil {
		it.LastError = c.LastError
	}
	set(&it.ProviderRef, c.ProviderRef)
	set(&it.ConfirmedBy, c.ConfirmedBy)
	set(&it.QuarantineReason, c.QuarantineReason)
	it.changeForPeople(c)
	left := it.Disputed != "" && (c.AcceptedNow || c.ConfirmedNow)
	if c.Settled != nil && !(*c.Settled && left) {
		it.settle(*c.Settled, now)
	}
}

func set(to, from *string) {
	if from != nil {
		*to = *from
	}
}

// changeForPeople is the part of a change that the loop rarely writes.
func (it *item) changeForPeople(c *storage.Change) {
	if c.ClearQuarantine {
		it.QuarantineReason = ""
	}
	it.AttemptBudget += c.AddBudget
	set(&it.Disputed, c.Disputed)
	set(&it.Method, c.Method)
	if c.Customer != nil {
		it.Customer = *c.Customer
		set(&it.SerialKey, c.SerialKey)
	}
	if c.Release {
		it.Waits = false
	}
}

// beside is what goes with a change: what it means for what depends on the item,
// and who did it.
func (s *itemSet) beside(it *item, m *storage.Transition) {
	for _, d := range s.dependents[it.ItemID] {
		switch {
		case d.SupersededBy != 0:
		case d.Waits && m.Waiting != nil:
			d.whileWaiting(m.Waiting, s.now)
		case !d.Waits && m.Dependents != nil:
			d.changed = true
			set(&d.Disputed, m.Dependents.Disputed)
			if m.Dependents.Settled != nil {
				d.settle(*m.Dependents.Settled, s.now)
			}
		}
	}
	if m.Action != nil {
		s.act(m.Action, it.ItemID)
	}
}

// whileWaiting applies a change to an item that waits.
func (it *item) whileWaiting(w *storage.Change, now time.Time) {
	if w.State == storage.Quarantined && it.State != storage.Pending && it.State != storage.Quarantined {
		return
	}
	it.changed = true
	if w.NextAttemptAfter != nil {
		it.NextAttemptAt = now.Add(*w.NextAttemptAfter)
	}
	set(&it.Disputed, w.Disputed)
	if w.Release {
		it.Waits = false
	}
	if w.State == storage.Pending {
		return
	}
	it.State = storage.Quarantined
	set(&it.QuarantineReason, w.QuarantineReason)
	if w.Settled != nil {
		it.settle(*w.Settled, now)
	}
}
