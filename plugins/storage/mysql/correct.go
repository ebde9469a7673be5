package mysql

import (
	"context"
	"errors"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// sumCorrections is exact: the sum of DECIMALs is one.
const sumCorrections = "SELECT COALESCE(SUM(quantity), 0) FROM fencepost_events WHERE original_key = ?"

// LoadCorrectable implements [storage.CorrectionStore].
func (a *Adapter) LoadCorrectable(ctx context.Context, original storage.EventKey) (found storage.Correctable, err error) {
	found.Items = []storage.Item{}
	err = a.scan(ctx, "load correctable", func(t *tx) error {
		r, err := t.queries(eventByKey(original), read(sumCorrections, eventKey(original)))
		if err != nil {
			return err
		}
		ev, known, err := oneEvent(r[0])
		if err == nil && !known {
			err = notFound("an event")
		}
		if err != nil {
			return err
		}
		found.Original = ev
		if err := r[1].each(func(r *row) { found.Corrected = r.decimal() }); err != nil {
			return err
		}
		return t.query(func(r *row) { found.Items = append(found.Items, r.item().Item) },
			selectItems+"event_seq = ? AND superseded_by = 0 ORDER BY item LIMIT ?", ev.Seq, maxPage)
	})
	if err != nil {
		return storage.Correctable{}, err
	}
	return found, nil
}

// RecordCorrection implements [storage.CorrectionStore]. The sum of the
// corrections is read after the lock was granted.
func (a *Adapter) RecordCorrection(ctx context.Context, req storage.CorrectRequest) (res storage.CorrectResult, err error) {
	c := &corrector{req: &req}
	record := storage.RecordRequest{Mode: storage.Atomic, RoutesRevision: req.RoutesRevision, Subscriptions: req.Subscriptions}
	err = checkBucket(req.Bucket)
	if e := req.Replacement; err == nil && e != nil {
		record.Units = []storage.Unit{{Entries: []storage.Entry{*e}}}
		err = checkRecord(&record)
	}
	if err != nil {
		return res, err
	}
	keys := keysOf(&record)
	keys.parts = nil
	keys.entry(&req.Event, req.Items)
	keys.split()
	original := storage.EventKey{Tenant: req.Event.Tenant, EventID: req.Event.OriginalEventID}
	first := append(keys.statements(), eventByKey(original), read(sumCorrections, eventKey(original)))
	err = a.writeAfter(ctx, "record correction", first, func(t *tx, r []result) error {
		c.recorder = newRecorder(t, &record)
		c.res = storage.CorrectResult{}
		n := len(keys.parts)
		if err := c.known.read(keys, r[:n]); err != nil {
			return err
		}
		var err error
		if c.original, c.found, err = oneEvent(r[n]); err != nil {
			return err
		}
		if err := r[n+1].each(func(r *row) { c.sum = r.decimal() }); err != nil {
			return err
		}
		return c.run()
	})
	if err != nil {
		return storage.CorrectResult{}, err
	}
	return c.res, nil
}

// corrector is the state of one correction between the lock and the commit.
type corrector struct {
	*recorder
	req      *storage.CorrectRequest
	original storage.Event
	found    bool
	sum      decimal.Decimal
	res      storage.CorrectResult
}

// answer ends the call with nothing written.
func (c *corrector) answer(res storage.CorrectResult) error {
	c.res = res
	return errUndo
}

func (c *corrector) run() error {
	if s := c.stale(); s != nil {
		return c.answer(storage.CorrectResult{Stale: s})
	}
	ev := &c.req.Event
	if stored, ok := c.known.events[key(ev.Tenant, ev.EventID)]; ok {
		return c.repeated(stored)
	}
	if e := c.req.ExpectCorrected; e != nil && !e.Equal(c.sum) {
		return c.answer(storage.CorrectResult{Stale: &storage.Stale{}})
	}
	before := c.original.Quantity.Abs().Sub(c.sum)
	left := before.Sub(ev.Quantity)
	if reason := c.refused(left); reason != "" {
		if !c.found {
			before = decimal.Decimal{}
		}
		return c.answer(storage.CorrectResult{Refused: reason, Remaining: before})
	}
	if e := c.req.Replacement; e != nil {
		if _, ok := c.known.events[key(e.Event.Tenant, e.Event.EventID)]; ok {
			return c.answer(storage.CorrectResult{Outcome: storage.Conflict})
		}
	}
	return c.insertBoth(left)
}

func (c *corrector) refused(left decimal.Decimal) string {
	switch {
	case !c.found:
		return storage.RefusedNotFound
	case c.original.Kind != storage.Usage:
		return storage.RefusedNotUsage
	case c.req.Event.Quantity.IsZero():
		return storage.RefusedNothingRemaining
	case left.Sign() < 0:
		return storage.RefusedExceedsOriginal
	case c.req.WholeOnly && left.Sign() > 0:
		return storage.RefusedPartial
	}
	return ""
}

// repeated answers a correction whose id exists.
func (c *corrector) repeated(stored knownEvent) error {
	if stored.hash != c.req.Event.DedupeHash {
		return c.answer(storage.CorrectResult{Outcome: storage.Conflict})
	}
	res := storage.CorrectResult{Outcome: storage.Duplicate, Correction: stored.EntryResult}
	if c.found {
		res.Remaining = c.original.Quantity.Abs().Sub(c.sum)
	}
	if e := c.req.Replacement; e != nil {
		with, ok := c.known.events[key(e.Event.Tenant, e.Event.EventID)]
		if ok && with.hash != e.Event.DedupeHash {
			return c.answer(storage.CorrectResult{Outcome: storage.Conflict})
		}
		if ok {
			res.Replacement = &with.EntryResult
		}
	}
	return c.answer(res)
}

// insertBoth keeps the correction, what replaces what it took back, and what
// both move.
func (c *corrector) insertBoth(left decimal.Decimal) error {
	ev, of := c.req.Event, &c.original
	ev.Kind, ev.Feature, ev.OccurredAt = storage.Correction, of.Feature, of.OccurredAt
	ev.PeriodStart, ev.PeriodEnd, ev.PeriodSource = of.PeriodStart, of.PeriodEnd, of.PeriodSource
	ev.Plan, ev.PlanVersion, ev.Dimensions = of.Plan, of.PlanVersion, of.Dimensions
	if ev.Effect = ev.Quantity; of.Quantity.Sign() > 0 {
		ev.Effect = ev.Quantity.Neg()
	}
	ev.Reverses = left.IsZero()
	c.res = storage.CorrectResult{Outcome: storage.Inserted, Correction: c.event(ev, c.req.Signed, c.req.Items), Remaining: left}
	c.count(c.req.Counted, &ev)
	if e := c.req.Replacement; e != nil {
		usage := e.Event
		usage.Effect = usage.Quantity
		done := c.event(usage, e.Signed, e.Items)
		c.count(e.Counted, &usage)
		c.res.Replacement = &done
	}
	err := c.finish()
	if errors.Is(err, errItemsMoved) {
		return c.answer(storage.CorrectResult{Stale: &storage.Stale{Items: true}})
	}
	return err
}
