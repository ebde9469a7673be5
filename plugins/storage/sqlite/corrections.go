package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/fault"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

var correctFaults = faults{commit: "c6", committed: "c7"}

// LoadCorrectable returns an event with the sum of its corrections and its
// items, superseded ones left out, or not_found. A correction is returned as it
// is: that it cannot be corrected is for RecordCorrection to say.
func (a *Adapter) LoadCorrectable(ctx context.Context, original storage.EventKey) (found storage.Correctable, err error) {
	err = a.read(ctx, "load correctable", func(c *conn) (err error) {
		found, err = loadCorrectable(c, original)
		return err
	})
	return found, err
}

func loadCorrectable(c *conn, original storage.EventKey) (found storage.Correctable, err error) {
	if found.Original, err = loadEvent(c, original); err != nil {
		return storage.Correctable{}, err
	}
	if found.Corrected, err = corrected(c, original); err != nil {
		return storage.Correctable{}, err
	}
	found.Items = []storage.Item{}
	err = c.bind(qItemsOfSeq).int(found.Original.Seq).each(func(r *row) error {
		found.Items = append(found.Items, r.item())
		return nil
	})
	return found, err
}

// corrected is the sum of the magnitudes of an event's corrections.
func corrected(c *conn, original storage.EventKey) (sum decimal.Decimal, err error) {
	err = c.bind(qCorrections).text(original.Tenant).text(original.EventID).each(func(r *row) error {
		sum = sum.Add(r.total())
		return nil
	})
	return sum, err
}

// RecordCorrection writes one correction; see [storage.CorrectRequest]. The
// writer lock stands for the lock of the original and for that of the routes:
// nobody else writes between the sum and the insert.
func (a *Adapter) RecordCorrection(ctx context.Context, req storage.CorrectRequest) (storage.CorrectResult, error) {
	cor := newCorrector(a.now, req)
	err := a.writeAt(ctx, "record correction", correctFaults, cor.run)
	if err != nil && !errors.Is(err, errUndo) {
		return storage.CorrectResult{}, err
	}
	return cor.res, nil
}

// correctIn is RecordCorrection inside a transaction that is already open. What
// is refused leaves the transaction as it was (B33).
func correctIn(ctx context.Context, c *conn, now func() time.Time, req storage.CorrectRequest) (storage.CorrectResult, error) {
	cor := newCorrector(now, req)
	err := c.savepoint(func() error { return cor.run(ctx, c) })
	if err != nil && !errors.Is(err, errUndo) {
		return storage.CorrectResult{}, err
	}
	return cor.res, nil
}

// corrector is the state of one RecordCorrection. It records with the means of
// a recorder, whose request holds the replacement if there is one.
type corrector struct {
	req storage.CorrectRequest
	rec *recorder
	res storage.CorrectResult
}

func newCorrector(now func() time.Time, req storage.CorrectRequest) *corrector {
	record := storage.RecordRequest{
		Mode: storage.Atomic, RoutesRevision: req.RoutesRevision, Subscriptions: req.Subscriptions,
	}
	if req.Replacement != nil {
		record.Units = []storage.Unit{{Entries: []storage.Entry{*req.Replacement}}}
	}
	return &corrector{req: req, rec: newRecorder(now, record)}
}

// run does the work between BEGIN and COMMIT. With errUndo the result stands
// and nothing is written.
func (r *corrector) run(ctx context.Context, c *conn) error {
	stale, err := r.rec.begin(c)
	if err != nil {
		return err
	}
	if stale != nil {
		r.res = storage.CorrectResult{Stale: stale}
		return errUndo
	}
	known, err := r.known(c, &r.req.Event)
	if err != nil {
		return err
	}
	// One look is both: the lock was held before the first.
	for _, label := range []string{"c1", "c2", "c3"} {
		if err := fault.Point(ctx, label); err != nil {
			return err
		}
	}
	if known.outcome != "" {
		if err := r.repeated(c, known); err != nil {
			return err
		}
		return errUndo
	}
	original, left, err := r.decide(c)
	if err != nil {
		return err
	}
	if err := fault.Point(ctx, "c4"); err != nil {
		return err
	}
	return r.write(ctx, c, original, left)
}

// known compares an identity with what is stored, or was once.
func (r *corrector) known(c *conn, ev *storage.Event) (entryOutcome, error) {
	out, err := r.rec.compare(c, qEventDedupe, ev)
	if err == nil && out.outcome == "" && r.rec.tombstones {
		out, err = r.rec.compare(c, qTombstone, ev)
	}
	return out, err
}

// repeated answers a correction whose id exists.
func (r *corrector) repeated(c *conn, known entryOutcome) error {
	res := storage.CorrectResult{Outcome: known.outcome, Correction: known.result}
	if res.Outcome == storage.Duplicate && r.req.Replacement != nil {
		with, err := r.known(c, &r.req.Replacement.Event)
		if err != nil {
			return err
		}
		switch with.outcome {
		case storage.Duplicate:
			res.Replacement = &with.result
		case storage.Conflict:
			res.Outcome = storage.Conflict
		default: // the correction was made without this replacement
		}
	}
	if res.Outcome == storage.Conflict {
		r.res = storage.CorrectResult{Outcome: storage.Conflict}
		return nil
	}
	var err error
	res.Remaining, err = remaining(c, known.result.Seq)
	r.res = res
	return err
}

// remaining is what is left of the original of a stored correction; zero when
// retention removed either.
func remaining(c *conn, seq int64) (left decimal.Decimal, err error) {
	var ev storage.Event
	found, err := c.bind(qEventBySeq).int(seq).one(func(row *row) { ev = row.event() })
	if err != nil || !found || ev.OriginalEventID == "" {
		return left, err
	}
	key := storage.EventKey{Tenant: ev.Tenant, EventID: ev.OriginalEventID}
	if found, err = c.bind(qEventByID).text(key.Tenant).text(key.EventID).one(func(row *row) { ev = row.event() }); err != nil || !found {
		return left, err
	}
	sum, err := corrected(c, key)
	return ev.Quantity.Abs().Sub(sum), err
}

// decide answers the original and what is left of it after this correction, or
// errUndo with the result set.
func (r *corrector) decide(c *conn) (original storage.Event, left decimal.Decimal, err error) {
	key := storage.EventKey{Tenant: r.req.Event.Tenant, EventID: r.req.Event.OriginalEventID}
	found, err := c.bind(qEventByID).text(key.Tenant).text(key.EventID).one(func(row *row) { original = row.event() })
	if err != nil {
		return original, left, err
	}
	sum, err := corrected(c, key)
	if err != nil {
		return original, left, err
	}
	if e := r.req.ExpectCorrected; e != nil && !e.Equal(sum) {
		r.res = storage.CorrectResult{Stale: &storage.Stale{}}
		return original, left, errUndo
	}
	before := original.Quantity.Abs().Sub(sum)
	left = before.Sub(r.req.Event.Quantity)
	var reason string
	switch {
	case !found:
		reason, before = storage.RefusedNotFound, decimal.Decimal{}
	case original.Kind != storage.Usage:
		reason = storage.RefusedNotUsage
	case r.req.Event.Quantity.IsZero():
		reason = storage.RefusedNothingRemaining
	case left.Sign() < 0:
		reason = storage.RefusedExceedsOriginal
	case r.req.WholeOnly && left.Sign() > 0:
		reason = storage.RefusedPartial
	}
	if reason != "" {
		r.res = storage.CorrectResult{Refused: reason, Remaining: before}
		return original, left, errUndo
	}
	return original, left, nil
}

// write inserts the correction, and the replacement, and moves what they move.
func (r *corrector) write(ctx context.Context, c *conn, original storage.Event, left decimal.Decimal) error {
	rec := r.rec
	if _, err := c.bind(qLastEvent).one(func(row *row) { rec.lastSeq = row.int() }); err != nil {
		return err
	}
	rec.lastSeq++
	seq := rec.lastSeq
	entry := storage.Entry{Event: derive(r.req.Event, &original), Items: r.req.Items, Signed: r.req.Signed, Bucket: r.req.Bucket}
	entry.Event.Reverses = left.IsZero()
	n, err := insertCorrection(c, &entry.Event, seq, rec.now)
	if err != nil {
		return err
	}
	if n == 0 {
		return conflictUnresolved()
	}
	if err := fault.Point(ctx, "c5"); err != nil {
		return err
	}
	if err := rec.deltas.entry(c, &entry, seq); err != nil {
		return err
	}
	if r.req.Counted {
		rec.counted.add(&entry.Event, entry.Event.Effect)
	}
	for k := range entry.Items {
		rec.items = append(rec.items, itemOf{new: &entry.Items[k], seq: seq, feature: entry.Event.Feature, at: entry.Event.OccurredAt})
	}
	r.res = storage.CorrectResult{
		Outcome:    storage.Inserted,
		Correction: storage.EntryResult{EventID: entry.Event.EventID, Feature: entry.Event.Feature, Seq: seq},
		Remaining:  left,
	}
	if err := r.replace(c); err != nil {
		return err
	}
	if _, err := c.bind(qLastEventSet).int(rec.lastSeq).run(); err != nil {
		return err
	}
	if err := rec.writeDeltas(c); err != nil {
		return err
	}
	if err := rec.writeItems(c); err != nil {
		r.res.Stale, err = staleItems(err)
		if r.res.Stale != nil {
			r.res = storage.CorrectResult{Stale: r.res.Stale}
		}
		return err
	}
	return nil
}

// replace records the event that takes the original's place. One that is there
// already has a place of its own.
func (r *corrector) replace(c *conn) error {
	if r.req.Replacement == nil {
		return nil
	}
	out, err := r.rec.entry(c, r.req.Replacement, "")
	if err != nil {
		return err
	}
	if out.outcome != storage.Inserted {
		r.res = storage.CorrectResult{Outcome: storage.Conflict}
		return errUndo
	}
	r.res.Replacement = &out.result
	return nil
}

// derive fills in what a correction has from its original (B30).
func derive(ev storage.Event, original *storage.Event) storage.Event {
	ev.Kind = storage.Correction
	ev.Feature, ev.OccurredAt = original.Feature, original.OccurredAt
	ev.PeriodStart, ev.PeriodEnd, ev.PeriodSource = original.PeriodStart, original.PeriodEnd, original.PeriodSource
	ev.Plan, ev.PlanVersion, ev.Dimensions = original.Plan, original.PlanVersion, original.Dimensions
	ev.Effect = ev.Quantity
	if original.Quantity.Sign() > 0 {
		ev.Effect = ev.Quantity.Neg()
	}
	return ev
}

func insertCorrection(c *conn, ev *storage.Event, seq int64, now time.Time) (int, error) {
	dimensions, err := eventDimensions(ev)
	if err != nil {
		return 0, err
	}
	return c.bind(qCorrectionInsert).int(seq).
		text(ev.Tenant).text(ev.EventID).text(ev.Feature).decimal(ev.Quantity).decimal(ev.Effect).
		bool(ev.Reverses).text(ev.OriginalEventID).time(ev.OccurredAt).time(ev.PeriodStart).time(ev.PeriodEnd).
		text(string(ev.PeriodSource)).optText(ev.Plan).optText(ev.PlanVersion).json(dimensions).
		json(ev.Metadata).hash(&ev.PayloadHash).hash(&ev.DedupeHash).time(now).run()
}
