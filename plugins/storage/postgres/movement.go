package postgres

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qWaiting    query = "waiting"
	qRelease    query = "release"
	qDependents query = "dependents"
)

// movement applies transitions of distinct items, and what follows from them
// for the items that depend on these.
type movement struct {
	t       *tx
	moves   []storage.Transition
	results []storage.TransitionResult
	// released: something waits no longer, as far as is known.
	released bool
	// lean: the lean statement may be used.
	lean bool
}

func (m *movement) run(ctx context.Context) error {
	at := make(map[int64]int, len(m.moves))
	for i := range m.moves {
		m.results[i].ItemID = m.moves[i].ItemID
		at[m.moves[i].ItemID] = i
	}
	b := &pgx.Batch{}
	if err := m.queueMoves(b, at); err != nil {
		return err
	}
	awaited, err := m.queueWaiting(b, at)
	if err != nil {
		return err
	}
	if err := m.t.q.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	if err := m.settledLease(ctx); err != nil {
		return err
	}
	// Before anything is released: what waited is not meant.
	if err := m.dependents(ctx); err != nil {
		return err
	}
	return m.release(ctx, awaited)
}

// queueMoves queues the updates, lean if every move is.
func (m *movement) queueMoves(b *pgx.Batch, at map[int64]int) error {
	var c moveColumns
	full := !m.lean || slices.ContainsFunc(m.moves, isFull)
	m.lean = !full
	q := qMove
	if full {
		q = qMoveFull
		reach := make([]int64, 0, len(m.moves))
		for i := range m.moves {
			if m.moves[i].Waiting != nil || m.moves[i].Dependents != nil {
				reach = append(reach, m.moves[i].ItemID)
			}
		}
		if err := m.t.queue(b, qMoveLock, itemsOf(m.moves), reach); err != nil {
			return err
		}
	}
	// In the order of items: the lean statement takes its locks in that of its
	// parameters.
	order := make([]int, len(m.moves))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(m.moves[i].ItemID, m.moves[j].ItemID) })
	for _, i := range order {
		if err := c.add(&m.moves[i]); err != nil {
			return err
		}
	}
	args := c.leanArgs()
	if full {
		args = append(c.args(), operatorArgs(m.moves, order)...)
	}
	if err := m.t.queue(b, q, args...); err != nil {
		return err
	}
	b.QueuedQueries[b.Len()-1].Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var id int64
			if err := rows.Scan(&id); err != nil {
				return err
			}
			m.results[at[id]].Rows = 1
		}
		return rows.Err()
	})
	return nil
}

// settledLease looks why the lean statement left an item alone.
func (m *movement) settledLease(ctx context.Context) error {
	if !m.lean || !slices.ContainsFunc(m.results, func(r storage.TransitionResult) bool { return r.Rows == 0 }) {
		return nil
	}
	settled := false
	err := m.t.row(ctx, qMoveSettled, []any{&settled}, itemsOf(m.moves))
	if err == nil && settled {
		err = errSettledLease
	}
	return err
}

func itemsOf(moves []storage.Transition) []int64 {
	ids := make([]int64, len(moves))
	for i := range moves {
		ids[i] = moves[i].ItemID
	}
	return ids
}

// queueWaiting queues the look for items that wait for these. Its answer is the
// indexes of the moves they wait for, complete when the batch is read.
func (m *movement) queueWaiting(b *pgx.Batch, at map[int64]int) (*[]int, error) {
	var awaited []int
	var ids []int64
	for i := range m.moves {
		if m.moves[i].Waiting != nil {
			ids = append(ids, m.moves[i].ItemID)
		}
	}
	if len(ids) == 0 {
		return &awaited, nil
	}
	if err := m.t.queue(b, qWaiting, ids); err != nil {
		return nil, err
	}
	b.QueuedQueries[b.Len()-1].Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var id int64
			if err := rows.Scan(&id); err != nil {
				return err
			}
			if i := at[id]; len(awaited) == 0 || awaited[len(awaited)-1] != i {
				awaited = append(awaited, i)
			}
		}
		return rows.Err()
	})
	return &awaited, nil
}

// release applies Waiting of the moves that changed a row.
func (m *movement) release(ctx context.Context, awaited *[]int) error {
	var (
		ids              []int64
		states           []string
		release          []bool
		reason, disputed []*string
		settled          []*bool
		delay            []*time.Duration
	)
	for _, i := range *awaited {
		w := m.moves[i].Waiting
		if m.results[i].Rows == 0 {
			continue
		}
		ids, states, release = append(ids, m.moves[i].ItemID), append(states, string(w.State)), append(release, w.Release)
		reason, settled = append(reason, cleanPtr(w.QuarantineReason)), append(settled, w.Settled)
		delay, disputed = append(delay, w.NextAttemptAfter), append(disputed, cleanPtr(w.Disputed))
	}
	if len(ids) == 0 {
		return nil
	}
	m.released = true
	return m.t.row(ctx, qRelease, []any{nil}, ids, states, release, reason, settled, delay, disputed)
}

// dependents applies Dependents of the moves that changed a row.
func (m *movement) dependents(ctx context.Context) error {
	var ids []int64
	var disputed []*string
	var settled []*bool
	for i := range m.moves {
		if d := m.moves[i].Dependents; d != nil && m.results[i].Rows == 1 {
			ids = append(ids, m.moves[i].ItemID)
			disputed, settled = append(disputed, cleanPtr(d.Disputed)), append(settled, d.Settled)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return m.t.row(ctx, qDependents, []any{nil}, ids, disputed, settled)
}

// isFull reports whether the lean statement cannot do a move.
func isFull(m storage.Transition) bool {
	e, s := &m.Expect, &m.Set
	return e.State != storage.Leased || e.MappingVersion != nil || e.Settled != nil || e.Attempts != nil || e.QuietFor != nil || e.Within != nil || e.TrustedSince != nil ||
		s.ClearQuarantine || s.AddBudget != 0 || s.Disputed != nil || s.Method != nil || s.Customer != nil ||
		s.Release || m.Dependents != nil
}

// operatorArgs are the parameters of the full statement after those of the
// lean one, in this order of the moves.
func operatorArgs(moves []storage.Transition, order []int) []any {
	n := len(moves)
	wasSettled, wasAttempts := make([]*bool, n), make([]*int, n)
	quiet, within, trusted := make([]*time.Duration, n), make([]*time.Duration, n), make([]*time.Time, n)
	clearReason, release, budget := make([]bool, n), make([]bool, n), make([]int, n)
	disputed, method, customer, serial := make([]*string, n), make([]*string, n), make([]*string, n), make([]*string, n)
	for i, move := range order {
		e, s := &moves[move].Expect, &moves[move].Set
		wasSettled[i], wasAttempts[i] = e.Settled, e.Attempts
		quiet[i], within[i], trusted[i] = e.QuietFor, e.Within, e.TrustedSince
		clearReason[i], release[i], budget[i] = s.ClearQuarantine, s.Release, s.AddBudget
		disputed[i], method[i] = cleanPtr(s.Disputed), cleanPtr(s.Method)
		customer[i], serial[i] = cleanPtr(s.Customer), cleanPtr(s.SerialKey)
	}
	return []any{
		wasSettled, wasAttempts, quiet, within, trusted,
		clearReason, budget, disputed, method, customer, serial, release,
	}
}
