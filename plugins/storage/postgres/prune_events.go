package postgres

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qPrunePlanner query = "prune_planner"
	qPrunePage    query = "prune_page"
	qPruneLook    query = "prune_look"
	qPruneHold    query = "prune_hold"
	qPruneEvents  query = "prune_events"
	qPruneNote    query = "prune_note"
	qPruneRemove  query = "prune_remove"
	qPruneBodies  query = "prune_bodies"
)

// prunePage is how many events are looked at at a time.
const prunePage = 1000

// pruneSlice is how many are removed at a time: recording waits that long. A
// correction is behind its original, so what is gone after any slice is whole.
const pruneSlice = 500

// prunedGeneration of totals and buckets holds what retention removed.
const prunedGeneration = 0

// pruneEvents looks for events that may go, then removes those of them that
// still may under the lock.
func (a *Adapter) pruneEvents(ctx context.Context, op string, req storage.PruneRequest) (storage.PruneResult, error) {
	var found *eventPruner
	err := a.run.snapshot(ctx, op, func(ctx context.Context, t *tx) error {
		found = &eventPruner{t: t, req: req}
		return found.find(ctx)
	})
	if err != nil {
		return storage.PruneResult{}, err
	}
	res := found.res
	if req.DryRun || len(found.going) == 0 {
		return res, nil
	}
	res.Removed = 0
	for slice := range slices.Chunk(found.going, pruneSlice) {
		var again *eventPruner
		err = a.run.write(ctx, op, writing{lock: lockExclusive}, func(ctx context.Context, t *tx) error {
			again = &eventPruner{t: t, req: req}
			return again.remove(ctx, slice)
		})
		if err != nil {
			return storage.PruneResult{}, err
		}
		res.Removed += again.res.Removed
		res.Kept += again.res.Kept
	}
	return res, nil
}

// eventPruner is the state of one look, or of one removal.
type eventPruner struct {
	t   *tx
	req storage.PruneRequest
	res storage.PruneResult

	going []int64 // in order
	keys  map[storage.EventKey]bool
	// enough: the next event is young, or more than the limit may go.
	enough bool
}

// find looks at events in order until it has enough.
func (p *eventPruner) find(ctx context.Context) error {
	if _, err := p.t.exec(ctx, qPrunePlanner); err != nil {
		return err
	}
	st, err := projectionState(ctx, p.t)
	if err != nil {
		return err
	}
	b := build{building: st.Building, cursor: st.Cursor, watermark: st.Watermark}
	for after := int64(0); !p.enough; {
		var page []int64
		err := p.t.each(ctx, qPrunePage, func(rows pgx.Rows) error {
			err := rows.Scan(&after)
			page = append(page, after)
			return err
		}, after, prunePage)
		if err != nil || len(page) == 0 {
			return err
		}
		if err := p.look(ctx, page, b); err != nil {
			return err
		}
	}
	return nil
}

// look decides about events, given in order. It is the one predicate, of a dry
// run and of a removal.
func (p *eventPruner) look(ctx context.Context, seqs []int64, b build) error {
	if p.keys == nil {
		p.keys = map[storage.EventKey]bool{}
	}
	var from, to int64 // not scanned by the build
	if b.building != 0 {
		from, to = b.cursor, b.watermark
	}
	return p.t.each(ctx, qPruneLook, func(rows pgx.Rows) error {
		var seq int64
		var key storage.EventKey
		var original string
		var young, stays, bound bool
		if err := rows.Scan(&seq, &key.EventID, &key.Tenant, &original, &young, &stays, &bound); err != nil {
			return err
		}
		switch {
		case p.enough:
		case young:
			p.enough = true
		case stays || bound && !p.keys[storage.EventKey{Tenant: key.Tenant, EventID: original}]:
			p.res.Kept++
		case len(p.going) == p.req.Limit:
			p.enough, p.res.More = true, true
		default:
			p.going = append(p.going, seq)
			p.keys[key] = true
			p.res.Removed++
		}
		return nil
	}, seqs, p.req.Age, from, to)
}

// remove takes out those of the events that still may go.
func (p *eventPruner) remove(ctx context.Context, seqs []int64) error {
	for _, q := range []query{qPruneAllow, qPrunePlanner} {
		if _, err := p.t.exec(ctx, q); err != nil {
			return err
		}
	}
	// The build, and the items, stay as they are from here on.
	b, err := holdBuild(ctx, p.t)
	if err != nil {
		return err
	}
	if err := p.t.row(ctx, qPruneHold, []any{nil}, seqs); err != nil {
		return err
	}
	if err := p.look(ctx, seqs, b); err != nil || len(p.going) == 0 {
		return err
	}
	var d prunedDeltas
	err = p.t.each(ctx, qPruneEvents, func(rows pgx.Rows) error {
		var ev storage.Event
		var signed bool
		var buckets []string
		var revision int64
		if err := rows.Scan(append(eventInto(&ev), &signed, &buckets, &revision)...); err != nil {
			return err
		}
		d.revisions = append(d.revisions, revision)
		d.add(&ev, signed, buckets)
		return nil
	}, p.going)
	if err != nil {
		return err
	}
	if err := d.write(ctx, p.t); err != nil {
		return err
	}
	n, err := p.t.exec(ctx, qPruneRemove, p.going)
	if err == nil && n != int64(len(p.going)) {
		return errGone
	}
	if err != nil {
		return err
	}
	_, err = p.t.exec(ctx, qPruneBodies, d.first, d.last)
	return err
}

var errGone = errors.New("an event vanished while it was held")

// prunedDeltas is what removed events added up to, and when they occurred.
type prunedDeltas struct {
	totals            []storage.TotalDelta
	buckets           []storage.BucketDelta
	tenants, features []string
	occurred          []time.Time
	revisions         []int64   // of the settings of buckets; -1 without
	first, last       time.Time // recorded
}

func (d *prunedDeltas) add(ev *storage.Event, signed bool, buckets []string) {
	total := storage.TotalDelta{
		Tenant: ev.Tenant, Feature: ev.Feature, PeriodStart: ev.PeriodStart, PeriodEnd: ev.PeriodEnd,
		Quantity: ev.Effect, Events: 1, Signed: signed,
	}
	bucket := storage.BucketDelta{
		Tenant: ev.Tenant, Feature: ev.Feature, Seq: ev.Seq, Sum: ev.Effect,
		Key: storage.BucketKey{Start: ev.OccurredAt.Truncate(storage.BucketLength), Dimensions: map[string]string{}},
	}
	switch {
	case ev.Kind == storage.Usage:
		total.Count = 1
		bucket.Min, bucket.Max = new(ev.Quantity), new(ev.Quantity)
	case ev.Reverses:
		total.Count = -1
		bucket.Reversed = true
	default:
		bucket.Reversed = true
	}
	bucket.Count = total.Count
	d.totals = append(d.totals, total)
	if buckets != nil {
		for _, name := range buckets {
			if v, ok := ev.Dimensions[name]; ok {
				bucket.Key.Dimensions[name] = v
			}
		}
		d.buckets = append(d.buckets, bucket)
	}
	d.tenants, d.features = append(d.tenants, ev.Tenant), append(d.features, ev.Feature)
	d.occurred = append(d.occurred, ev.OccurredAt)
	if d.first.IsZero() || ev.RecordedAt.Before(d.first) {
		d.first = ev.RecordedAt
	}
	if ev.RecordedAt.After(d.last) {
		d.last = ev.RecordedAt
	}
}

func (d *prunedDeltas) write(ctx context.Context, t *tx) error {
	if err := totalColumnsOf(d.totals).write(ctx, t, prunedGeneration); err != nil {
		return err
	}
	buckets, err := bucketColumnsOf(d.buckets)
	if err != nil {
		return err
	}
	if err := buckets.write(ctx, t, prunedGeneration); err != nil {
		return err
	}
	_, err = t.exec(ctx, qPruneNote, d.tenants, d.features, d.occurred, d.revisions)
	return err
}
