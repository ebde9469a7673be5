package postgres

import (
	"context"
	"errors"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qCorrectBegin       query = "correct_begin"
	qCorrectLock        query = "correct_lock"
	qCorrectSum         query = "correct_sum"
	qCorrectInsert      query = "correct_insert"
	qCorrectRemaining   query = "correct_remaining"
	qGenerationsWritten query = "generations_written"
	qItemsOfSeq         query = "items_of_seq"
)

var (
	_ storage.CorrectionStore = (*Adapter)(nil)
	_ storage.CorrectionStore = BoundStore{}
)

var correctFaults = faults{commit: "c6", committed: "c7"}

// LoadCorrectable returns an event with the sum of its corrections and its
// items, superseded ones left out, or not_found. A correction is returned as it
// is: that it cannot be corrected is for RecordCorrection to say.
func (s store) LoadCorrectable(ctx context.Context, original storage.EventKey) (found storage.Correctable, err error) {
	err = s.run.snapshot(ctx, "load correctable", func(ctx context.Context, t *tx) error {
		found = storage.Correctable{Items: []storage.Item{}}
		err := t.row(ctx, qEventByID, eventInto(&found.Original), original.Tenant, original.EventID)
		if errors.Is(err, pgx.ErrNoRows) {
			return notFound("an event")
		}
		if err != nil {
			return err
		}
		if err := t.row(ctx, qCorrectSum, []any{decimalInto{&found.Corrected}}, original.Tenant, original.EventID); err != nil {
			return err
		}
		return t.each(ctx, qItemsOfSeq, func(rows pgx.Rows) error {
			var it storage.Item
			if err := rows.Scan(itemInto(&it)...); err != nil {
				return err
			}
			found.Items = append(found.Items, it)
			return nil
		}, found.Original.Seq)
	})
	if err != nil {
		return storage.Correctable{}, err
	}
	return found, nil
}

// RecordCorrection writes one correction; see [storage.CorrectRequest] for the
// order, which is that of the steps here.
func (s store) RecordCorrection(ctx context.Context, req storage.CorrectRequest) (storage.CorrectResult, error) {
	var c *corrector
	w := writing{lock: lockShared, faults: correctFaults}
	err := s.run.write(ctx, "record correction", w, func(ctx context.Context, t *tx) error {
		c = &corrector{t: t, req: req, event: &req.Event}
		return c.run(ctx)
	})
	if err != nil {
		return storage.CorrectResult{}, err
	}
	return c.res, nil
}

// corrector is the state of one RecordCorrection, inside its transaction, which
// holds the shared side of the route lock.
type corrector struct {
	t     *tx
	req   storage.CorrectRequest
	event *storage.Event
	res   storage.CorrectResult

	original storage.Event
	left     decimal.Decimal // after this correction
}

// errDecided ends the steps: the result stands, and nothing was written.
var errDecided = errors.New("decided")

// run goes through the steps. What is refused is committed, with nothing in
// it: a failure here would be one of the caller's transaction (B33).
func (c *corrector) run(ctx context.Context) error {
	for _, step := range []struct {
		do    func(context.Context) error
		label string
	}{
		{c.assumptions, ""},
		{c.known, "c1"}, // B26
		{c.lock, "c2"},  // B27
		{c.known, "c3"}, // B28
		{c.bound, "c4"}, // B29
		{c.dependencies, ""},
		{c.insert, "c5"},
		{c.items, ""},
		{c.replacement, ""},
		{c.deltas, ""},
		{c.counted, ""},
	} {
		err := step.do(ctx)
		if err == nil {
			err = point(ctx, step.label)
		}
		if errors.Is(err, errDecided) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *corrector) assumptions(ctx context.Context) error {
	moved := false
	err := c.t.row(ctx, qCorrectBegin, []any{&moved}, c.req.RoutesRevision)
	if err == nil && moved {
		return c.decide(storage.CorrectResult{Stale: &storage.Stale{Routes: true}})
	}
	return err
}

func (c *corrector) decide(res storage.CorrectResult) error {
	c.res = res
	return errDecided
}

// known ends with a duplicate or a conflict when the id exists.
func (c *corrector) known(ctx context.Context) error {
	stored, err := c.stored(ctx, c.event)
	if err != nil || stored == nil {
		return err
	}
	if !stored.same {
		return c.decide(storage.CorrectResult{Outcome: storage.Conflict})
	}
	res := storage.CorrectResult{
		Outcome:    storage.Duplicate,
		Correction: storage.EntryResult{EventID: c.event.EventID, Feature: stored.feature, Seq: stored.seq},
	}
	if c.req.Replacement != nil {
		with, err := c.stored(ctx, &c.req.Replacement.Event)
		switch {
		case err != nil:
			return err
		case with == nil: // the correction was made without this replacement
		case !with.same:
			return c.decide(storage.CorrectResult{Outcome: storage.Conflict})
		default:
			ev := c.req.Replacement.Event
			res.Replacement = &storage.EntryResult{EventID: ev.EventID, Feature: with.feature, Seq: with.seq}
		}
	}
	err = c.t.row(ctx, qCorrectRemaining, []any{decimalInto{&res.Remaining}}, stored.seq)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	return c.decide(res)
}

// stored looks an identity up, among what retention removed too; nil: it is
// new.
func (c *corrector) stored(ctx context.Context, ev *storage.Event) (found *known, err error) {
	none := []string{}
	err = c.t.each(ctx, qRecordKnown, func(rows pgx.Rows) error {
		found = &known{}
		return rows.Scan(&found.event, &found.ord, &found.seq, &found.feature, &found.same)
	}, []string{ev.Tenant}, []string{ev.EventID}, [][]byte{ev.DedupeHash[:]}, none, none, [][]byte{})
	return found, err
}

// lock waits until it is alone with the original.
func (c *corrector) lock(ctx context.Context) error {
	err := c.t.row(ctx, qCorrectLock, eventInto(&c.original), c.event.Tenant, c.event.OriginalEventID)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // refused below, where the order says so
	}
	return err
}

// bound sums the corrections in a statement that begins after the lock was
// granted, and decides.
func (c *corrector) bound(ctx context.Context) error {
	var sum decimal.Decimal
	if err := c.t.row(ctx, qCorrectSum, []any{decimalInto{&sum}}, c.event.Tenant, c.event.OriginalEventID); err != nil {
		return err
	}
	if e := c.req.ExpectCorrected; e != nil && !e.Equal(sum) {
		return c.decide(storage.CorrectResult{Stale: &storage.Stale{}})
	}
	before := c.original.Quantity.Abs().Sub(sum)
	c.left = before.Sub(c.event.Quantity)
	refused := ""
	switch {
	case c.original.Seq == 0:
		refused, before = storage.RefusedNotFound, decimal.Decimal{}
	case c.original.Kind != storage.Usage:
		refused = storage.RefusedNotUsage
	case c.event.Quantity.Sign() <= 0:
		refused = storage.RefusedNothingRemaining
	case c.left.Sign() < 0:
		refused = storage.RefusedExceedsOriginal
	case c.req.WholeOnly && c.left.Sign() > 0:
		refused = storage.RefusedPartial
	}
	if refused != "" {
		return c.decide(storage.CorrectResult{Refused: refused, Remaining: before})
	}
	return nil
}

// dependencies holds what the items depend on as it is: after the row of the
// original, in item order.
func (c *corrector) dependencies(ctx context.Context) error {
	same, err := dependencies(ctx, c.t, c.req.Items)
	if err == nil && !same {
		return c.decide(storage.CorrectResult{Stale: &storage.Stale{Items: true}})
	}
	return err
}

// insert writes the correction. An id that exists by now was taken by something
// that the lock does not exclude: it is answered as the record of usage would
// answer it (B15 to B19).
func (c *corrector) insert(ctx context.Context) error {
	ev := c.event
	ev.Reverses = c.left.IsZero()
	var seq int64
	err := c.t.row(ctx, qCorrectInsert, []any{&seq, decimalInto{&ev.Effect}},
		ev.Tenant, ev.OriginalEventID, ev.EventID, ev.Quantity.String(), ev.Reverses,
		optText(string(ev.Metadata)), ev.PayloadHash[:], ev.DedupeHash[:])
	if errors.Is(err, pgx.ErrNoRows) {
		if err := c.known(ctx); err != nil {
			return err
		}
		return conflictUnresolved()
	}
	if err != nil {
		return err
	}
	c.res = storage.CorrectResult{
		Outcome:    storage.Inserted,
		Correction: storage.EntryResult{EventID: ev.EventID, Feature: c.original.Feature, Seq: seq},
		Remaining:  c.left,
	}
	return nil
}

// deltas moves the totals and the buckets of the active generation and of the
// building one (B31, B34), for the correction and its replacement together: all
// totals in the order of their keys, then all buckets, as a record does (B35).
// That this goes generation by generation and a record key by key makes no
// circle: who holds a row of the building one alone is the replay, and that
// takes no other.
func (c *corrector) deltas(ctx context.Context) error {
	o := &c.original
	var count int64
	if c.event.Reverses {
		count = -1 // Q8
	}
	totals := []storage.TotalDelta{{
		Tenant: o.Tenant, Feature: o.Feature, PeriodStart: o.PeriodStart, PeriodEnd: o.PeriodEnd,
		Quantity: c.event.Effect, Events: 1, Count: count, Signed: c.req.Signed,
	}}
	var buckets []storage.BucketDelta
	if c.req.Bucket != nil {
		buckets = append(buckets, storage.BucketDelta{
			Tenant: o.Tenant, Feature: o.Feature, Key: *c.req.Bucket, Seq: math.MaxInt64, // every seal counts
			Sum: c.event.Effect, Count: count, Reversed: true,
		})
	}
	if with := c.req.Replacement; with != nil {
		e := &with.Event
		totals = append(totals, storage.TotalDelta{
			Tenant: e.Tenant, Feature: e.Feature, PeriodStart: e.PeriodStart, PeriodEnd: e.PeriodEnd,
			Quantity: e.Quantity, Events: 1, Count: 1, Signed: with.Signed,
		})
		if with.Bucket != nil {
			buckets = append(buckets, storage.BucketDelta{
				Tenant: e.Tenant, Feature: e.Feature, Key: *with.Bucket, Seq: math.MaxInt64,
				Sum: e.Quantity, Count: 1, Min: &e.Quantity, Max: &e.Quantity,
			})
		}
	}
	return c.move(ctx, totals, buckets)
}

func (c *corrector) move(ctx context.Context, t []storage.TotalDelta, b []storage.BucketDelta) error {
	var active, building int64
	if err := c.t.row(ctx, qGenerationsWritten, []any{&active, &building}); err != nil {
		return err
	}
	totals := totalColumnsOf(t)
	buckets, err := bucketColumnsOf(b)
	if err != nil {
		return err
	}
	generations := []int64{active}
	if building != 0 {
		generations = append(generations, building)
	}
	// Totals before buckets, as in every transaction that writes both.
	for _, g := range generations {
		if err := totals.write(ctx, c.t, g); err != nil {
			return err
		}
	}
	for _, g := range generations {
		if err := buckets.write(ctx, c.t, g); err != nil {
			return err
		}
	}
	return nil
}

func (c *corrector) items(ctx context.Context) error {
	items := make([]itemOf, len(c.req.Items))
	for i := range items {
		items[i] = itemOf{new: &c.req.Items[i], seq: c.res.Correction.Seq, feature: c.original.Feature}
	}
	_, err := insertItems(ctx, c.t, items)
	return err
}

// counted adds what the correction and its replacement do to counters that own
// their periods: after the totals and buckets, in the order of keys (Q21).
func (c *corrector) counted(ctx context.Context) error {
	var deltas []storage.Counter
	if o := &c.original; c.req.Counted {
		deltas = append(deltas, countedDelta(o, c.event.Effect))
	}
	if with := c.req.Replacement; with != nil && with.Counted {
		deltas = append(deltas, countedDelta(&with.Event, with.Event.Quantity))
	}
	return writeCounters(ctx, c.t, qCountersAdd, foldCounters(deltas, decimal.Decimal.Add))
}

// replacement records the event that takes the original's place, all but what
// it adds to totals and buckets. That it exists already undoes the correction,
// also with equal content: then it has a place of its own.
func (c *corrector) replacement(ctx context.Context) error {
	if c.req.Replacement == nil {
		return nil
	}
	rec, err := newRecorder(storage.RecordRequest{
		Mode: storage.Atomic, RoutesRevision: c.req.RoutesRevision, Subscriptions: c.req.Subscriptions,
		Units: []storage.Unit{{Entries: []storage.Entry{*c.req.Replacement}}},
	})
	if err != nil {
		return err
	}
	rec.still = true
	res, err := rec.in(ctx, c.t)
	switch {
	case err != nil:
		return err
	case res.Stale != nil:
		c.res = storage.CorrectResult{Stale: res.Stale}
		return errUndo
	case res.Units[0].Outcome != storage.Inserted:
		c.res = storage.CorrectResult{Outcome: storage.Conflict}
		return errUndo
	}
	c.res.Replacement = &res.Units[0].Entries[0]
	return nil
}
