package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// scan adds what the events up to the watermark sum to. It reports true if it
// ended because of MaxBatches.
func (r *replay) scan(ctx context.Context) (bool, error) {
	for r.at.Cursor < r.at.Watermark {
		if r.options.MaxBatches > 0 && r.at.Batches >= r.options.MaxBatches {
			return true, nil
		}
		next := r.send
		if r.fold != nil {
			next = r.foldNext
		}
		done, err := next(ctx)
		if err != nil {
			return false, err
		}
		r.at.Cursor = done.Cursor
		r.at.Scanned += done.Events
		r.at.Batches++
		r.tell()
	}
	return false, nil
}

// foldNext lets the store add the next events up.
func (r *replay) foldNext(ctx context.Context) (storage.ProjectionFolded, error) {
	f := storage.ProjectionFold{
		Generation: r.at.Generation, After: r.at.Cursor, Limit: r.options.BatchSize,
		Signed: r.engine.signedFeatures(r.routes), Buckets: make(map[string][]string, len(r.built.Features)),
	}
	for name, b := range r.built.Features {
		f.Buckets[name] = b.Dimensions
	}
	done, err := bounded(ctx, r, func(ctx context.Context) (storage.ProjectionFolded, error) {
		return r.fold.FoldProjection(ctx, f)
	})
	if err != nil {
		return done, r.explain(ctx, fmt.Errorf("fold: %w", err))
	}
	return done, nil
}

// send reads the next events and writes what they add up to.
func (r *replay) send(ctx context.Context) (storage.ProjectionFolded, error) {
	events, err := r.read(ctx)
	if err != nil {
		return storage.ProjectionFolded{}, err
	}
	batch := r.add(events)
	_, err = bounded(ctx, r, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.store.WriteProjection(ctx, batch)
	})
	if err != nil {
		return storage.ProjectionFolded{}, r.explain(ctx, fmt.Errorf("write: %w", err))
	}
	return storage.ProjectionFolded{Cursor: batch.Cursor, Events: int64(len(events))}, nil
}

// read returns the next events to scan, one at least. A store shows no event
// while an earlier one may still commit, so there may be nothing to see for as
// long as a transaction is open. // B36, B-T14.
func (r *replay) read(ctx context.Context) ([]storage.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		events, err := r.page(ctx)
		if err != nil || len(events) > 0 {
			return events, err
		}
		select {
		case <-ctx.Done():
			return nil, sdk.Unavailable("stream_behind", errors.New("a transaction that began before keeps later events from being read"))
		case <-time.After(wait):
		}
	}
}

// page reads at most one batch of the events that are visible.
func (r *replay) page(ctx context.Context) ([]storage.Event, error) {
	var events []storage.Event
	cursor := r.at.Cursor
	for len(events) < r.options.BatchSize {
		page, err := r.stream.StreamEvents(ctx, storage.StreamQuery{
			After: cursor, Limit: min(replayPageSize, r.options.BatchSize-len(events)),
		})
		if err != nil {
			return nil, fmt.Errorf("stream events: %w", err)
		}
		for _, ev := range page.Events {
			if ev.Seq > r.at.Watermark {
				return events, nil // recorded since: in both generations already
			}
			events = append(events, ev)
		}
		if !page.More {
			return events, nil
		}
		cursor = page.Next
	}
	return events, nil
}

// totalKey is one row of totals.
type totalKey struct {
	tenant, feature string
	start           int64 // microseconds since 1970
}

// add computes what events sum to. // B41, B44.
func (r *replay) add(events []storage.Event) storage.ProjectionBatch {
	b := storage.ProjectionBatch{Generation: r.at.Generation, After: r.at.Cursor, Cursor: events[len(events)-1].Seq}
	at := map[totalKey]int{}
	for _, ev := range events {
		k := totalKey{ev.Tenant, ev.Feature, ev.PeriodStart.UnixMicro()}
		i, ok := at[k]
		if !ok {
			i = len(b.Totals)
			at[k] = i
			b.Totals = append(b.Totals, storage.TotalDelta{
				Tenant: ev.Tenant, Feature: ev.Feature, PeriodStart: ev.PeriodStart, PeriodEnd: ev.PeriodEnd,
				Signed: r.engine.signed(r.routes, ev.Feature),
			})
		}
		t := &b.Totals[i]
		t.Quantity = t.Quantity.Add(ev.Effect)
		t.Events++
		t.Count += countOf(ev)
		if f, ok := r.built.Features[ev.Feature]; ok {
			b.Buckets = append(b.Buckets, bucketDelta(f, ev))
		}
	}
	return b
}

// countOf is what an event adds to the net count.
func countOf(ev storage.Event) int64 {
	switch {
	case ev.Kind == storage.Usage:
		return 1
	case ev.Reverses:
		return -1
	}
	return 0
}

func bucketDelta(f builtFeature, ev storage.Event) storage.BucketDelta {
	d := storage.BucketDelta{
		Tenant: ev.Tenant, Feature: ev.Feature, Seq: ev.Seq, Sum: ev.Effect, Count: countOf(ev),
		Key:      *bucketOf(storage.Feature{Name: ev.Feature, Buckets: f.Dimensions}, ev),
		Reversed: ev.Kind == storage.Correction,
	}
	if ev.Kind == storage.Usage {
		d.Min, d.Max = &ev.Quantity, &ev.Quantity
	}
	return d
}

// signedFeatures names the features that take negative quantities.
func (e *Engine) signedFeatures(routes *routeView) []string {
	var names []string
	for name, f := range routes.features {
		if f.Signed {
			names = append(names, name)
		}
	}
	for name, f := range e.cfg.Features {
		if _, stored := routes.features[name]; !stored && f.Signed {
			names = append(names, name)
		}
	}
	return names
}
