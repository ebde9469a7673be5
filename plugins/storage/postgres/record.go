package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/fault"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qRecord         query = "record"
	qRecordBegin    query = "record_begin"
	qRecordKnown    query = "record_known"
	qRecordSettings query = "record_settings"
	qSettingsNow    query = "record_settings_now"
)

// recordSettings are jit, enable_nestloop, enable_seqscan and plan_cache_mode
// while the record statement is planned. The planner guesses that an array has
// ten elements and would compare each with each, and that a table which was
// empty still is; and to plan a statement of this size anew costs more than to
// run it for one event.
var recordSettings = [...]any{"off", "off", "off", "force_generic_plan"}

var recordFaults = faults{begin: "r1", locked: "r2", commit: "r7", committed: "r8"}

// recordRounds bounds how often a call is sent again because what stood in its
// way became known only by sending it.
const recordRounds = 4

// RecordEvents writes units, their totals, their buckets and their outbox items
// in one transaction; see [storage.RecordRequest]. In a transaction of the
// adapter's own that is one statement and one round trip, lock included, as
// long as nothing conflicts.
func (s store) RecordEvents(ctx context.Context, req storage.RecordRequest) (storage.RecordResult, error) {
	const op = "record events"
	if err := checkRecord(req); err != nil {
		return storage.RecordResult{}, fmt.Errorf("%s: %w", op, err)
	}
	if s.own != nil && !fault.Enabled && !counts(req) {
		return s.own.record(ctx, op, req)
	}
	// One statement has no points at which to stop: with faults, and in a
	// transaction of the caller's, the steps are round trips. So they are for
	// the few events whose period belongs to a counter.
	var res storage.RecordResult
	err := s.run.write(ctx, op, writing{lock: lockShared, faults: recordFaults}, func(ctx context.Context, t *tx) (err error) {
		res, err = recordIn(ctx, t, req)
		if err == nil && (res.Stale != nil || req.Mode == storage.Atomic && conflicts(res)) {
			return errUndo
		}
		for _, label := range [...]string{"r3", "r4", "r5", "r6"} {
			if err == nil {
				err = fault.Point(ctx, label)
			}
		}
		return err
	})
	if err != nil {
		return storage.RecordResult{}, err
	}
	return res, nil
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
		for _, e := range u.Entries {
			if e.Event.Kind != storage.Usage {
				return sdk.Invalid("kind", "usage").At(i)
			}
		}
	}
	return nil
}

func conflicts(res storage.RecordResult) bool {
	return slices.ContainsFunc(res.Units, func(u storage.UnitResult) bool { return u.Outcome == storage.Conflict })
}

func conflictUnresolved() error {
	return sdk.Unavailable("conflict_unresolved", errors.New("an identity exists and cannot be read"))
}

// record is RecordEvents in one round trip.
func (a *Adapter) record(ctx context.Context, op string, req storage.RecordRequest) (storage.RecordResult, error) {
	caller := ctx
	if err := a.schemaProblem(); err != nil {
		return storage.RecordResult{}, storeError(ctx, op, err)
	}
	ctx, cancel := a.deadline(ctx)
	defer cancel()
	res, err := a.recordRounds(ctx, req)
	if err != nil {
		return storage.RecordResult{}, storeError(cmpContext(caller, ctx), op, err)
	}
	return res, nil
}

// recordRounds sends the request, and when the guard of the statement undid it,
// looks for what is in the way and sends the rest.
func (a *Adapter) recordRounds(ctx context.Context, req storage.RecordRequest) (storage.RecordResult, error) {
	rec, err := newRecorder(req)
	if err != nil {
		return storage.RecordResult{}, err
	}
	rec.guard = true
	for range recordRounds {
		err := a.send(ctx, rec)
		switch state := sqlState(err); {
		case err == nil:
			return a.settle(ctx, rec)
		case state == stateDivisionByZero:
		case state == stateUniqueViolation && !rec.digests:
			// An item of an event that retention removed is here still.
			rec.digests = true
			continue
		default:
			return storage.RecordResult{}, err
		}
		err = ownTx{a}.reading(ctx, "record events", reading{}, rec.findConflicts)
		if err != nil {
			return storage.RecordResult{}, err
		}
		if req.Mode == storage.Atomic && len(rec.excluded) > 0 {
			return rec.onlyConflicts(), nil
		}
	}
	return storage.RecordResult{}, conflictUnresolved()
}

// settle reads the answer. A row that was skipped and not visible is asked for
// once more: whoever inserted it has committed.
func (a *Adapter) settle(ctx context.Context, rec *recorder) (storage.RecordResult, error) {
	if rec.answer.unseen() {
		err := ownTx{a}.reading(ctx, "record events", reading{}, rec.findSkipped)
		if err != nil {
			return storage.RecordResult{}, err
		}
	}
	return rec.result()
}

// send runs the statement behind the lock: one implicit transaction, committed
// when its last answer is read.
func (a *Adapter) send(ctx context.Context, rec *recorder) error {
	text, args, err := rec.statement(a)
	if err != nil {
		return err
	}
	return ownTx{a}.again(ctx, workPool, func() error {
		return ownTx{a}.use(ctx, workPool, func(c *pgxpool.Conn) error {
			b := &pgx.Batch{}
			b.Queue(a.texts[qRecordBegin], append([]any{statementTimeout(ctx)}, recordSettings[:]...)...)
			b.Queue(a.texts[qLockShared], lockClassRoutes, a.target.scope())
			b.Queue(text, args...).QueryRow(rec.scan)
			err := c.SendBatch(ctx, b).Close()
			if _, ok := errors.AsType[*pgconn.PgError](err); err != nil && !ok {
				// No answer: whether it was committed is not known.
				_ = c.Conn().Close(context.WithoutCancel(ctx))
				return unknown{err}
			}
			return err
		})
	})
}

// recordIn records in a transaction that is open and holds the shared side of
// the route lock. A conflict in atomic mode, and stale assumptions, write
// nothing; after an error the caller undoes what was written.
func recordIn(ctx context.Context, t *tx, req storage.RecordRequest) (storage.RecordResult, error) {
	rec, err := newRecorder(req)
	if err != nil {
		return storage.RecordResult{}, err
	}
	res, err := rec.in(ctx, t)
	if err == nil && res.Stale == nil && (req.Mode != storage.Atomic || !conflicts(res)) {
		err = rec.count(ctx, t)
	}
	return res, err
}

// in is [recordIn] of a recorder.
func (r *recorder) in(ctx context.Context, t *tx) (storage.RecordResult, error) {
	r.digests = true // a failed statement would end the transaction
	if err := r.findConflicts(ctx, t); err != nil {
		return storage.RecordResult{}, err
	}
	if r.req.Mode == storage.Atomic && len(r.excluded) > 0 {
		return recordStale(ctx, t, r)
	}
	if err := t.tuned(ctx, r); err != nil {
		return storage.RecordResult{}, err
	}
	if r.answer.unseen() {
		if err := r.findSkipped(ctx, t); err != nil {
			return storage.RecordResult{}, err
		}
	}
	res, err := r.result()
	if err == nil && r.req.Mode == storage.Atomic && conflicts(res) {
		// It came between the two statements. The caller undoes the rest.
		for i, u := range res.Units {
			if u.Outcome == storage.Conflict {
				r.exclude(i)
			}
		}
		return r.onlyConflicts(), nil
	}
	return res, err
}

// recordStale answers a conflict, unless the assumptions of the request do not
// hold: then nothing was compared that counts.
func recordStale(ctx context.Context, t *tx, rec *recorder) (storage.RecordResult, error) {
	res := rec.onlyConflicts()
	rec.empty()
	if err := t.tuned(ctx, rec); err != nil {
		return storage.RecordResult{}, err
	}
	if stale := rec.answer.stale(); stale != nil {
		return storage.RecordResult{Stale: stale}, nil
	}
	return res, nil
}

// tuned runs the record statement with its settings and puts the settings of
// the transaction, which may be the caller's, back as they were.
func (t *tx) tuned(ctx context.Context, rec *recorder) error {
	var before [len(recordSettings)]string
	if err := t.row(ctx, qSettingsNow, []any{&before[0], &before[1], &before[2], &before[3]}); err != nil {
		return err
	}
	text, args, err := rec.statement(t.a)
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	if err := t.queue(b, qRecordSettings, recordSettings[:]...); err != nil {
		return err
	}
	b.Queue(text, args...).QueryRow(rec.scan)
	if err := t.queue(b, qRecordSettings, before[0], before[1], before[2], before[3]); err != nil {
		return err
	}
	return t.q.SendBatch(ctx, b).Close()
}

// slot is one entry of a request.
type slot struct{ unit, entry int }

// recorder is the state of one call.
type recorder struct {
	req storage.RecordRequest
	// guard makes the statement fail where a conflict undoes more than a row.
	guard bool
	// digests makes it look for items whose identity or subject exists.
	digests bool
	// still leaves totals and buckets to the caller.
	still bool
	// excluded are units that are known to conflict.
	excluded map[int]bool

	columns  recordColumns
	entries  []slot // of the events sent, by their order less one
	receipts []int  // units of the receipts sent, likewise
	answer   recordAnswer
}

func newRecorder(req storage.RecordRequest) (*recorder, error) {
	rec := &recorder{req: req, excluded: map[int]bool{}}
	return rec, rec.build()
}

// build lays out what is sent: everything but the excluded units, sorted by
// identity.
func (r *recorder) build() error {
	r.entries, r.receipts = r.entries[:0], r.receipts[:0]
	for i, u := range r.req.Units {
		if r.excluded[i] {
			continue
		}
		if u.Receipt != nil {
			r.receipts = append(r.receipts, i)
		}
		for j := range u.Entries {
			r.entries = append(r.entries, slot{i, j})
		}
	}
	slices.SortFunc(r.receipts, func(i, j int) int {
		a, b := r.req.Units[i].Receipt, r.req.Units[j].Receipt
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.ReceiptID, b.ReceiptID))
	})
	slices.SortFunc(r.entries, func(p, q slot) int {
		a, b := r.event(p), r.event(q)
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.EventID, b.EventID))
	})
	return r.fill()
}

func (r *recorder) entry(p slot) *storage.Entry { return &r.req.Units[p.unit].Entries[p.entry] }
func (r *recorder) event(p slot) *storage.Event { return &r.entry(p).Event }

// empty leaves the assumptions alone to be sent.
func (r *recorder) empty() {
	r.entries, r.receipts, r.columns = nil, nil, recordColumns{}
}

func (r *recorder) exclude(unit int) { r.excluded[unit] = true }

// onlyConflicts is the answer in atomic mode: nothing was written.
func (r *recorder) onlyConflicts() storage.RecordResult {
	res := storage.RecordResult{Units: make([]storage.UnitResult, len(r.req.Units))}
	for i := range r.excluded {
		res.Units[i].Outcome = storage.Conflict
	}
	return res
}
