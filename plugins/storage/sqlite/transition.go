package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// errRowMoved cannot happen: the transaction is the only writer.
var errRowMoved = sdk.Unavailable("corrupt", errors.New("an item moved inside the transaction that read it"))

// Transition applies conditional updates in order, in one transaction, and
// answers how many rows each changed. Attempts are appended whatever the
// answer is.
func (a *Adapter) Transition(ctx context.Context, moves []storage.Transition) ([]storage.TransitionResult, error) {
	const op = "transition items"
	if err := checkMoves(moves); err != nil {
		return nil, storeError(ctx, op, err)
	}
	var results []storage.TransitionResult
	var back int64 // lowest item that became pending
	err := a.writeAt(ctx, op, transitionFaults, func(_ context.Context, c *conn) error {
		m := &mover{c: c, now: a.now(), counts: countDeltas{}}
		results, back = make([]storage.TransitionResult, len(moves)), 0
		for i := range moves {
			rows, err := m.move(&moves[i])
			if err != nil {
				return err
			}
			results[i] = storage.TransitionResult{ItemID: moves[i].ItemID, Rows: rows}
			if rows == 1 && moves[i].Set.State == storage.Pending && (back == 0 || moves[i].ItemID < back) {
				back = moves[i].ItemID
			}
		}
		return m.counts.write(c)
	})
	// Also when the outcome is unknown: an answer that is too low costs time.
	a.oldest.lower(back)
	if err != nil {
		return nil, err
	}
	return results, nil
}

func checkMoves(moves []storage.Transition) error {
	for i := range moves {
		m := &moves[i]
		switch {
		case !slices.Contains(storage.ItemStates[:], m.Expect.State):
			return sdk.Invalid("expect.state", "one of the seven states").At(i)
		case !slices.Contains(storage.ItemStates[:], m.Set.State):
			return sdk.Invalid("set.state", "one of the seven states").At(i)
		case m.Set.State == storage.Leased && m.Expect.State != storage.Leased:
			return sdk.Invalid("set.state", "leased comes from Claim only").At(i)
		case m.Waiting != nil && m.Waiting.State != storage.Pending && m.Waiting.State != storage.Quarantined:
			return sdk.Invalid("waiting.state", "pending or quarantined").At(i)
		}
		if m.Action == nil {
			continue
		}
		if e := checkAction(m.Action); e != nil {
			return e.At(i)
		}
	}
	return nil
}

// mover is the state of one Transition, inside its transaction.
type mover struct {
	c      *conn
	now    time.Time
	counts countDeltas
}

func (m *mover) move(t *storage.Transition) (rows int, err error) {
	var route int64
	var wasOpen, disputed bool
	if _, err := m.c.bind(qMoveBefore).int(t.ItemID).one(func(r *row) {
		route, wasOpen, disputed = r.int(), r.bool(), r.bool()
	}); err != nil {
		return 0, err
	}
	t = leaveOpen(t, disputed)
	changed, err := m.update(t)
	if err != nil {
		return 0, err
	}
	if changed {
		rows = 1
		m.counts.moved(route, t.Expect.State, wasOpen, t.Set.State, openAfter(wasOpen, t.Set.Settled))
		if err := m.beside(t); err != nil {
			return 0, err
		}
	}
	if t.Attempt != nil {
		err = m.append(t, !changed)
	}
	return rows, err
}

// leaveOpen takes the settlement out of an acceptance or confirmation of an item
// that evidence speaks against (Q25).
func leaveOpen(t *storage.Transition, disputed bool) *storage.Transition {
	if d := t.Set.Disputed; d != nil {
		disputed = *d != ""
	}
	if !disputed || t.Set.Settled == nil || !*t.Set.Settled || !t.Set.AcceptedNow && !t.Set.ConfirmedNow {
		return t
	}
	left := *t
	left.Set.Settled = nil
	return &left
}

// openAfter reports whether an item is open once settled was applied to it.
func openAfter(wasOpen bool, settled *bool) bool {
	if settled == nil {
		return wasOpen
	}
	return !*settled
}

// beside writes what goes with a change of the row: a customer that is known
// now, what it means for the items that depend on this one, and who did it.
func (m *mover) beside(t *storage.Transition) error {
	if t.Set.Customer != nil {
		if _, err := m.c.bind(qItemCustomer).int(t.ItemID).text(*t.Set.Customer).run(); err != nil {
			return err
		}
	}
	if t.Waiting != nil || t.Dependents != nil {
		if err := m.dependents(t); err != nil {
			return err
		}
	}
	if t.Action == nil {
		return nil
	}
	action := *t.Action
	action.ItemID = t.ItemID
	return appendAction(m.c, &action, m.now)
}

// update is the one conditional statement; it reports whether it changed the
// row. What the loop itself writes is a shorter one.
func (m *mover) update(t *storage.Transition) (bool, error) {
	s := &t.Set
	var next, accepted, confirmed time.Time
	if s.NextAttemptAfter != nil {
		next = m.now.Add(*s.NextAttemptAfter)
	}
	if s.AcceptedNow {
		accepted = m.now
	}
	if s.ConfirmedNow {
		confirmed = m.now
	}
	var lastError json.RawMessage
	if s.LastError != nil {
		var err error
		if lastError, err = json.Marshal(s.LastError); err != nil {
			return false, err
		}
	}
	statement, short := qMove, isShort(t)
	if !short {
		statement = qMoveFull
	}
	b := m.c.bind(statement).int(t.ItemID).text(string(s.State)).optTime(next).bool(s.ReturnAttempt).
		bool(s.MarkUnresolved).ptrText(s.ProviderRef).optTime(accepted).optTime(confirmed).
		ptrText(s.ConfirmedBy).json(lastError).ptrText(s.QuarantineReason).ptrBool(s.Settled).time(m.now).
		text(string(t.Expect.State)).ptrInt(t.Expect.LeaseToken).ptrBool(t.Expect.Unresolved)
	if !short {
		m.bindRest(b, t)
	}
	rows, err := b.run()
	return rows == 1, err
}

// isShort reports whether a transition is made of what the loop writes.
func isShort(t *storage.Transition) bool {
	rest, set := t.Expect, t.Set
	rest.State, rest.LeaseToken, rest.Unresolved = "", nil, nil
	return rest == storage.Expect{} && set.AddBudget == 0 && set.Disputed == nil && set.Method == nil &&
		set.Customer == nil && !set.Release && !set.ClearQuarantine
}

// bindRest binds what only the long statement has. A bound of time is the
// instant that it means now.
func (m *mover) bindRest(b *binder, t *storage.Transition) {
	e, s := &t.Expect, &t.Set
	b.int(int64(s.AddBudget)).ptrText(s.Disputed).ptrText(s.Method).ptrText(s.Customer).ptrText(s.SerialKey).
		bool(s.Release).bool(s.ClearQuarantine).ptrBool(e.Settled)
	if e.Attempts != nil {
		b.int(int64(*e.Attempts))
	} else {
		b.null()
	}
	b.before(m.now, e.QuietFor).before(m.now, e.Within).ptrTime(e.TrustedSince).ptrText(e.MappingVersion)
}

// append writes a line of the log. The item is the transition's.
func (m *mover) append(t *storage.Transition, fenced bool) error {
	at := t.Attempt
	_, err := m.c.bind(qAttemptInsert).int(t.ItemID).int(at.LeaseToken).text(at.Owner).
		optTime(at.StartedAt).optTime(at.FinishedAt).text(at.HostClass).text(at.Outcome).
		text(at.Evidence).int(int64(at.Status)).text(at.RequestID).text(at.Code).text(at.Message).
		text(string(at.Decided)).bool(fenced).time(m.now).run()
	return err
}
