package conformance

import (
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func (r *run) projection() storage.ProjectionStore {
	return use[storage.ProjectionStore](r, storage.ProjectionGenerations)
}

func (r *run) keeper() storage.ProjectionKeeper {
	return use[storage.ProjectionKeeper](r, storage.ProjectionGenerations)
}

func (r *run) projectionState() storage.ProjectionState {
	s, err := r.projection().ProjectionState(r.ctx)
	r.must("read the projection's state", err)
	return s
}

// beginBuild announces a build, and first ends one that another case left.
func (r *run) beginBuild() storage.ProjectionState {
	if b := r.projectionState().Building; b != 0 {
		r.abandon(b)
	}
	s, err := r.projection().BeginProjection(r.ctx, r.prefix)
	r.must("begin", err)
	if s.Resumed || s.Building == 0 || s.Building == s.Active {
		r.fatalf("begun: %s, want a new generation", text(s))
	}
	return s
}

func (r *run) abandon(generation int64) {
	for n := 1000; n == 1000; {
		var err error
		n, err = r.keeper().PruneProjection(r.ctx, generation, 1000)
		r.must("prune", err)
	}
}

// scan writes at most limit events of this case, and what others recorded
// between them, to the build, and answers whether there are more to scan. keys
// says which bucket an event is in; nil: none has any.
//
// The cursor goes where the stream says and never by itself to the watermark:
// an adapter may hold back what is younger than a transaction in flight.
func (r *run) scan(limit int, keys func(*storage.Event) *storage.BucketKey) bool {
	s := r.projectionState()
	if s.Cursor >= s.Watermark {
		return false
	}
	var page storage.EventPage
	r.until("the stream goes on", func() bool {
		var err error
		page, err = r.streamer().StreamEvents(r.ctx, storage.StreamQuery{After: s.Cursor, Limit: 1000})
		r.must("stream", err)
		return page.Next > s.Cursor
	})
	b := storage.ProjectionBatch{Generation: s.Building, After: s.Cursor, Cursor: min(page.Next, s.Watermark)}
	sums := map[totalKey]int{}
	own := 0
	for i := range page.Events {
		e := &page.Events[i]
		if e.Seq > s.Watermark {
			break
		}
		if own == limit {
			b.Cursor = page.Events[i-1].Seq
			break
		}
		if strings.HasPrefix(e.Tenant, r.prefix) {
			own++
		}
		r.addDelta(&b, sums, e)
		if keys != nil {
			if key := keys(e); key != nil {
				b.Buckets = append(b.Buckets, bucketDelta(e, *key))
			}
		}
	}
	r.must("write a batch", r.projection().WriteProjection(r.ctx, b))
	return b.Cursor < s.Watermark
}

// addDelta folds an event into the totals of a batch.
func (r *run) addDelta(b *storage.ProjectionBatch, sums map[totalKey]int, e *storage.Event) {
	d := totalDelta(e)
	// Of others' features nothing is known but their sums.
	d.Signed = !strings.HasPrefix(e.Tenant, r.prefix) || e.Effect.Sign() < 0 && e.Kind == storage.Usage
	k := totalKey{tenant: d.Tenant, feature: d.Feature, start: d.PeriodStart.UnixMicro()}
	at, known := sums[k]
	if !known {
		sums[k] = len(b.Totals)
		b.Totals = append(b.Totals, d)
		return
	}
	t := &b.Totals[at]
	t.Quantity, t.Events, t.Count = t.Quantity.Add(d.Quantity), t.Events+d.Events, t.Count+d.Count
	t.Signed = t.Signed || d.Signed
}

// drain uses the seed up in slices.
func (r *run) drain(generation int64, limit int) {
	for n := limit; n == limit; {
		var err error
		n, err = r.projection().DrainSeed(r.ctx, generation, limit)
		r.must("drain", err)
		if n > limit {
			r.fatalf("drained %d, limit %d", n, limit)
		}
	}
}

func (r *run) activate(generation int64) storage.ProjectionState {
	s, err := r.projection().ActivateProjection(r.ctx, generation)
	r.must("activate", err)
	r.same("the active generation", s.Active, generation)
	return s
}

// build takes a build from where it is to the end.
func (r *run) build(generation int64) {
	for r.scan(100, nil) {
		continue
	}
	r.drain(generation, 100)
	r.activate(generation)
}

// built is what a tenant's total is in the generation that is built, by
// comparing it with the active one; nil means that they are the same.
func (r *run) built(tenant string) *sum {
	s := r.projectionState()
	diff, err := r.keeper().CompareProjections(r.ctx, s.Active, s.Building, 1000)
	r.must("compare", err)
	for _, d := range diff.Differences {
		if d.Tenant == tenant {
			return &sum{d.Built.Quantity, d.Built.Events, d.Built.Count}
		}
	}
	return nil
}
