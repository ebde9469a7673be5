package sqlite

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/fault"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// RecordEvents writes units, their totals and their outbox items in one
// transaction; see [storage.RecordRequest].
func (a *Adapter) RecordEvents(ctx context.Context, req storage.RecordRequest) (storage.RecordResult, error) {
	const op = "record events"
	var res storage.RecordResult
	if err := checkRecord(req); err != nil {
		return res, storeError(ctx, op, err)
	}
	rec := newRecorder(a.now, req)
	for {
		err := a.writeAt(ctx, op, recordFaults, func(ctx context.Context, c *conn) (err error) {
			res, err = rec.run(ctx, c)
			return err
		})
		switch {
		case errors.Is(err, errRedo):
			continue
		case errors.Is(err, errUndo):
			return res, nil
		case err != nil:
			return storage.RecordResult{}, err
		}
		return res, nil
	}
}

// recordIn is RecordEvents inside a transaction that is already open; a
// savepoint stands for the transaction.
func recordIn(ctx context.Context, c *conn, now func() time.Time, req storage.RecordRequest) (storage.RecordResult, error) {
	var res storage.RecordResult
	if err := checkRecord(req); err != nil {
		return res, err
	}
	rec := newRecorder(now, req)
	for {
		err := c.savepoint(func() (err error) {
			res, err = rec.run(ctx, c)
			return err
		})
		switch {
		case errors.Is(err, errRedo):
			continue
		case errors.Is(err, errUndo):
			return res, nil
		case err != nil:
			return storage.RecordResult{}, err
		}
		return res, nil
	}
}

// checkRecord refuses what the rules of a request exclude.
func checkRecord(req storage.RecordRequest) error {
	if req.Mode != storage.Atomic && req.Mode != storage.Each {
		return sdk.Invalid("mode", "atomic or each")
	}
	for i, u := range req.Units {
		if u.Receipt == nil && len(u.Entries) != 1 {
			return sdk.Invalid("units", "a unit without a receipt has one entry").At(i)
		}
		if u.Receipt != nil && len(u.Receipt.Features) != len(u.Entries) {
			return sdk.Invalid("units", "a receipt names the feature of each entry").At(i)
		}
		for j := range u.Entries {
			if u.Entries[j].Event.Kind != storage.Usage {
				return sdk.Invalid("kind", "usage").At(i)
			}
		}
	}
	return nil
}

var (
	// errUndo rolls back while the result stands: stale, or a conflict in
	// atomic mode.
	errUndo = errors.New("undo")
	// errRedo rolls back and runs again without the units that conflict.
	errRedo = errors.New("redo")
)

// recorder is the state of one call. It survives a redo.
type recorder struct {
	req   storage.RecordRequest
	clock func() time.Time
	order []int // of units, sorted by identity
	// conflicts are units that were found to conflict after some of their
	// rows were in.
	conflicts map[int]bool

	now     time.Time
	lastSeq int64 // highest seq handed out
	deltas  deltas
	counted counted
	// tombstones says that there are any: most stores have none.
	tombstones bool
	counts     countDeltas
	items      []itemOf
	res        storage.RecordResult
}

// itemOf is an item of an inserted event.
type itemOf struct {
	new     *storage.NewItem
	seq     int64
	feature string
	at      time.Time // when it occurred
}

func newRecorder(clock func() time.Time, req storage.RecordRequest) *recorder {
	r := &recorder{req: req, clock: clock, order: make([]int, len(req.Units))}
	for i := range r.order {
		r.order[i] = i
	}
	slices.SortFunc(r.order, func(i, j int) int {
		a, b := unitKey(&req.Units[i]), unitKey(&req.Units[j])
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.EventID, b.EventID))
	})
	return r
}

func unitKey(u *storage.Unit) storage.EventKey {
	if u.Receipt != nil {
		return storage.EventKey{Tenant: u.Receipt.Tenant, EventID: u.Receipt.ReceiptID}
	}
	return storage.EventKey{Tenant: u.Entries[0].Event.Tenant, EventID: u.Entries[0].Event.EventID}
}

// run does the whole work between BEGIN and COMMIT. The writer lock stands for
// the shared side of the route lock: nothing else writes meanwhile.
func (r *recorder) run(ctx context.Context, c *conn) (storage.RecordResult, error) {
	stale, err := r.begin(c)
	if err != nil {
		return r.res, err
	}
	if stale != nil {
		return storage.RecordResult{Stale: stale}, errUndo
	}
	if err := fault.Point(ctx, "r2"); err != nil {
		return r.res, err
	}
	if err := r.writeEvents(c); err != nil {
		return r.res, err
	}
	if err := fault.Point(ctx, "r3"); err != nil {
		return r.res, err
	}
	if r.req.Mode == storage.Atomic && r.dropOthers() {
		return r.res, errUndo
	}
	if err := fault.Point(ctx, "r4"); err != nil {
		return r.res, err
	}
	if err := r.writeDeltas(c); err != nil {
		return r.res, err
	}
	if err := fault.Point(ctx, "r5"); err != nil {
		return r.res, err
	}
	if err := r.writeItems(c); err != nil {
		stale, err := staleItems(err)
		return storage.RecordResult{Stale: stale}, err
	}
	return r.res, fault.Point(ctx, "r6")
}

// begin starts anew and checks what the request assumed.
func (r *recorder) begin(c *conn) (*storage.Stale, error) {
	r.now = r.clock().UTC().Truncate(time.Microsecond)
	r.counted = nil
	r.deltas, r.counts, r.items = newDeltas(), countDeltas{}, r.items[:0]
	r.res = storage.RecordResult{Units: make([]storage.UnitResult, len(r.req.Units))}
	var err error
	if r.tombstones, err = c.bind(qTombstonesExist).one(func(*row) {}); err != nil {
		return nil, err
	}
	return r.checkRevisions(c)
}

func (r *recorder) writeDeltas(c *conn) error {
	if len(r.deltas.totals) == 0 {
		return nil
	}
	all, err := generations(c)
	if err != nil {
		return err
	}
	if err := r.deltas.write(c, all...); err != nil {
		return err
	}
	return r.counted.write(c)
}

// writeEvents records the units in the order of their identities.
func (r *recorder) writeEvents(c *conn) error {
	if _, err := c.bind(qLastEvent).one(func(row *row) { r.lastSeq = row.int() }); err != nil {
		return err
	}
	before := r.lastSeq
	for _, i := range r.order {
		if err := r.unit(c, i); err != nil {
			return err
		}
	}
	if r.lastSeq == before {
		return nil
	}
	_, err := c.bind(qLastEventSet).int(r.lastSeq).run()
	return err
}

// dropOthers reports whether there is a conflict, and leaves only conflicts in
// the result.
func (r *recorder) dropOthers() (found bool) {
	for i := range r.res.Units {
		if r.res.Units[i].Outcome == storage.Conflict {
			found = true
		}
	}
	for i := range r.res.Units {
		if found && r.res.Units[i].Outcome != storage.Conflict {
			r.res.Units[i] = storage.UnitResult{}
		}
	}
	return found
}

func (r *recorder) checkRevisions(c *conn) (*storage.Stale, error) {
	var stale storage.Stale
	var revision int64
	if _, err := c.bind(qRoutesRevision).one(func(row *row) { revision = row.int() }); err != nil {
		return nil, err
	}
	stale.Routes = revision != r.req.RoutesRevision
	for _, s := range r.req.Subscriptions {
		var got int64 // zero: the tenant has none
		if _, err := c.bind(qSubscriptionRevision).text(s.Tenant).one(func(row *row) { got = row.int() }); err != nil {
			return nil, err
		}
		if got != s.Revision {
			stale.Tenants = append(stale.Tenants, s.Tenant)
		}
	}
	if stale.Routes || len(stale.Tenants) > 0 {
		return &stale, nil
	}
	return nil, nil
}

// unit records unit i and notes its outcome.
func (r *recorder) unit(c *conn, i int) (err error) {
	u := &r.req.Units[i]
	out := &r.res.Units[i]
	if r.conflicts[i] {
		out.Outcome = storage.Conflict
		return nil
	}
	if u.Receipt == nil {
		e, err := r.entry(c, &u.Entries[0], "")
		*out = storage.UnitResult{Outcome: e.outcome, Entries: e.results()}
		return err
	}
	known, err := r.receipt(c, u.Receipt)
	if err != nil {
		return err
	}
	if known != nil {
		*out = *known
		return nil
	}
	seqs := make([]int64, 0, len(u.Entries))
	for j := range u.Entries {
		e, err := r.entry(c, &u.Entries[j], u.Receipt.ReceiptID)
		if err != nil {
			return err
		}
		if e.outcome == storage.Conflict {
			// Rows of this unit are in already: without it, from the start.
			if r.conflicts == nil {
				r.conflicts = map[int]bool{}
			}
			r.conflicts[i] = true
			return errRedo
		}
		seqs = append(seqs, e.result.Seq)
		out.Entries = append(out.Entries, e.result)
	}
	out.Outcome = storage.Inserted
	return r.insertReceipt(c, u.Receipt, seqs)
}

// entryOutcome is what became of one event.
type entryOutcome struct {
	outcome storage.Outcome
	result  storage.EntryResult
}

func (e entryOutcome) results() []storage.EntryResult {
	if e.outcome == storage.Conflict || e.outcome == "" {
		return nil
	}
	return []storage.EntryResult{e.result}
}

// entry inserts an event and takes note of its totals and items; an identity
// that exists, or that retention left a tombstone of, is compared instead.
func (r *recorder) entry(c *conn, e *storage.Entry, receipt string) (entryOutcome, error) {
	ev := &e.Event
	if r.tombstones {
		if out, err := r.compare(c, qTombstone, ev); err != nil || out.outcome != "" {
			return out, err
		}
	}
	seq := r.lastSeq + 1
	n, err := r.insertEvent(c, ev, seq, receipt)
	if err != nil {
		return entryOutcome{}, err
	}
	if n == 0 {
		out, err := r.compare(c, qEventDedupe, ev)
		if err == nil && out.outcome == "" {
			err = conflictUnresolved()
		}
		return out, err
	}
	r.lastSeq = seq
	if err := r.deltas.entry(c, e, seq); err != nil {
		return entryOutcome{}, err
	}
	if e.Counted {
		r.counted.add(ev, ev.Quantity)
	}
	for k := range e.Items {
		r.items = append(r.items, itemOf{new: &e.Items[k], seq: seq, feature: ev.Feature, at: ev.OccurredAt})
	}
	return entryOutcome{
		outcome: storage.Inserted,
		result:  storage.EntryResult{EventID: ev.EventID, Feature: ev.Feature, Seq: seq},
	}, nil
}

// compare reads what is stored under an identity; the zero outcome is nothing.
func (r *recorder) compare(c *conn, q query, ev *storage.Event) (entryOutcome, error) {
	out := entryOutcome{outcome: storage.Duplicate, result: storage.EntryResult{EventID: ev.EventID}}
	var dedupe storage.Hash
	found, err := c.bind(q).text(ev.Tenant).text(ev.EventID).one(func(row *row) {
		out.result.Seq, out.result.Feature, dedupe = row.int(), row.text(), row.hash()
	})
	switch {
	case err != nil || !found:
		return entryOutcome{}, err
	case dedupe != ev.DedupeHash:
		return entryOutcome{outcome: storage.Conflict}, nil
	}
	return out, nil
}

// conflictUnresolved: skipped, yet not there. Neither duplicate nor conflict
// can be claimed without proof.
func conflictUnresolved() error {
	return sdk.Unavailable("conflict_unresolved", errors.New("an identity exists and cannot be read"))
}
