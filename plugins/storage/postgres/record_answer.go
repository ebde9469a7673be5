package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// recordAnswer is the one row that the record statement answers. Orders count
// from one.
type recordAnswer struct {
	routes  bool
	tenants []string

	inserted, insertedSeq []int64

	skipped        []int64
	skippedSeq     []*int64
	skippedFeature []*string
	skippedSame    []*bool // nil: not visible

	repeated     []int64 // receipts that were here
	repeatedSame []*bool
	// The events of repeated receipts, in the order of their features.
	ofReceipt          []int64
	eventIDs, features []string
	eventSeqs          []*int64
	superseded         int
}

func (r *recorder) scan(row pgx.Row) error {
	r.answer = recordAnswer{}
	a := &r.answer
	return row.Scan(&a.routes, &a.tenants, &a.inserted, &a.insertedSeq,
		&a.skipped, &a.skippedSeq, &a.skippedFeature, &a.skippedSame,
		&a.repeated, &a.repeatedSame, &a.ofReceipt, &a.eventIDs, &a.features, &a.eventSeqs,
		&a.superseded, nil)
}

// stale says which assumptions do not hold, or nil.
func (a *recordAnswer) stale() *storage.Stale {
	if !a.routes && len(a.tenants) == 0 {
		return nil
	}
	s := &storage.Stale{Routes: a.routes}
	if len(a.tenants) > 0 {
		s.Tenants = a.tenants
	}
	return s
}

// unseen reports whether an event was skipped that the statement could not see.
func (a *recordAnswer) unseen() bool {
	return slices.Contains(a.skippedSame, nil)
}

// known is an identity of the request that is stored.
type known struct {
	event   bool
	ord     int64
	seq     int64
	feature string
	same    bool
}

func (r *recorder) find(ctx context.Context, t *tx, f func(known)) error {
	e, c := &r.columns.events, &r.columns.receipts
	return t.each(ctx, qRecordKnown, func(rows pgx.Rows) error {
		var k known
		err := rows.Scan(&k.event, &k.ord, &k.seq, &k.feature, &k.same)
		if err == nil {
			f(k)
		}
		return err
	}, e.tenant, e.id, e.dedupeHash, c.tenant, c.receiptID, c.dedupeHash)
}

// findConflicts excludes the units that cannot be recorded because of what is
// stored. Plain events in mode each are left to the statement: their conflict
// undoes nothing else.
func (r *recorder) findConflicts(ctx context.Context, t *tx) error {
	differs := map[int]bool{} // units with an event that differs
	settled := map[int]bool{} // units whose receipt is here
	err := r.find(ctx, t, func(k known) {
		if k.event {
			unit := r.entries[k.ord-1].unit
			differs[unit] = differs[unit] || !k.same
			return
		}
		unit := r.receipts[k.ord-1]
		settled[unit] = true
		if !k.same && r.req.Mode == storage.Atomic {
			r.exclude(unit)
		}
	})
	if err != nil {
		return err
	}
	for unit, differ := range differs {
		plain := r.req.Units[unit].Receipt == nil
		if differ && !settled[unit] && (!plain || r.req.Mode == storage.Atomic) {
			r.exclude(unit)
		}
	}
	return r.build()
}

// findSkipped asks again for the events that the statement could not see.
func (r *recorder) findSkipped(ctx context.Context, t *tx) error {
	a := &r.answer
	at := map[int64]int{}
	for i, ord := range a.skipped {
		if a.skippedSame[i] == nil {
			at[ord] = i
		}
	}
	return r.find(ctx, t, func(k known) {
		if i, ok := at[k.ord]; ok && k.event {
			a.skippedSeq[i], a.skippedFeature[i], a.skippedSame[i] = &k.seq, &k.feature, &k.same
		}
	})
}

// result puts the answer in the order of the request.
func (r *recorder) result() (storage.RecordResult, error) {
	a := &r.answer
	if stale := a.stale(); stale != nil {
		return storage.RecordResult{Stale: stale}, nil
	}
	res := storage.RecordResult{Units: make([]storage.UnitResult, len(r.req.Units)), Superseded: a.superseded}
	for i := range r.excluded {
		res.Units[i].Outcome = storage.Conflict
	}
	for i, u := range r.req.Units {
		if u.Receipt != nil && !r.excluded[i] {
			res.Units[i].Outcome = storage.Inserted // unless its receipt was here
			if n := len(u.Entries); n > 0 {
				res.Units[i].Entries = make([]storage.EntryResult, n)
			}
		}
	}
	for n, ord := range a.inserted {
		p := r.entries[ord-1]
		r.put(&res, p, storage.Inserted, storage.EntryResult{
			EventID: r.event(p).EventID, Feature: r.event(p).Feature, Seq: a.insertedSeq[n],
		})
	}
	for n, ord := range a.skipped {
		p := r.entries[ord-1]
		if a.skippedSame[n] == nil || r.req.Units[p.unit].Receipt != nil && !*a.skippedSame[n] {
			// Unknown; or it came since the conflicts were looked for, and the
			// rest of its unit is in.
			return storage.RecordResult{}, conflictUnresolved()
		}
		if !*a.skippedSame[n] {
			res.Units[p.unit] = storage.UnitResult{Outcome: storage.Conflict}
			continue
		}
		r.put(&res, p, storage.Duplicate, storage.EntryResult{
			EventID: r.event(p).EventID, Feature: *a.skippedFeature[n], Seq: *a.skippedSeq[n],
		})
	}
	return res, r.repeats(&res)
}

// put notes an entry. A unit with a receipt has the outcome of its receipt.
func (r *recorder) put(res *storage.RecordResult, p slot, outcome storage.Outcome, e storage.EntryResult) {
	u := &res.Units[p.unit]
	if r.req.Units[p.unit].Receipt != nil {
		u.Entries[p.entry] = e
		return
	}
	u.Outcome, u.Entries = outcome, []storage.EntryResult{e}
}

// repeats notes the units whose receipt was here, as first recorded.
func (r *recorder) repeats(res *storage.RecordResult) error {
	a := &r.answer
	for n, ord := range a.repeated {
		u := &res.Units[r.receipts[ord-1]]
		switch same := a.repeatedSame[n]; {
		case same == nil:
			return conflictUnresolved()
		case !*same:
			*u = storage.UnitResult{Outcome: storage.Conflict}
		default:
			*u = storage.UnitResult{Outcome: storage.Duplicate}
		}
	}
	for n, ord := range a.ofReceipt {
		if a.eventSeqs[n] == nil {
			return conflictUnresolved()
		}
		u := &res.Units[r.receipts[ord-1]]
		u.Entries = append(u.Entries, storage.EntryResult{
			EventID: a.eventIDs[n], Feature: a.features[n], Seq: *a.eventSeqs[n],
		})
	}
	return nil
}
