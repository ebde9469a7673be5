package conformance

import (
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func projecting(more ...storage.Capability) []storage.Capability {
	return append(caps(storage.DurableEvents, storage.EventStreaming, storage.ProjectionGenerations), more...)
}

func projectionCases() []Case {
	return []Case{
		fresh("projection/announcement-is-idempotent", "B38 B39 B40", projecting(), announcement),
		fresh("projection/build-keeps-the-totals", "B20 B38 B41 B43 B44", projecting(), buildKeepsTotals),
		fresh("projection/batches-add", "B41 B45", projecting(), batchesAdd),
		fresh("projection/cursor-decides", "B41", projecting(), cursorDecides),
		fresh("projection/pause-stops-the-build", "B41", projecting(), pauseStops),
		fresh("projection/drain-consumes-the-seed-once", "B42 B44 B-T7", projecting(), drainOnce),
		fresh("projection/activation-needs-the-drain", "B43", projecting(), activationNeeds),
		fresh("projection/compare-lists-differences", "B44", projecting(), compareLists),
		fresh("projection/abandoned-and-pruned", "B37 B40", projecting(), abandoned),
		fresh("projection/what-remains-is-found", "B37 B40", projecting(), remainsFound),
		fresh("projection/correction-of-an-unscanned-event", "B44 B24 B34", projecting(storage.Corrections), unscannedCorrection),
		fresh("projection/buckets-are-rebuilt", "Q27 B44", projecting(storage.Buckets), bucketsRebuilt),
	}
}

func announcement(r *run) {
	t := r.tenant("a")
	last := r.put(usage(t, "1", "10"))[0].Seq
	before := r.projectionState()
	s := r.beginBuild()
	if s.Watermark < last || s.Cursor >= last || s.Active != before.Active || s.Seed != -s.Building || s.BegunAt.IsZero() || s.Paused {
		r.errorf("begun: %s; the last seq is %d, the state before %s", text(s), last, text(before))
	}
	r.same("settings", s.BuildingSettings, r.prefix)
	r.put(usage(t, "2", "5"))
	again, err := r.projection().BeginProjection(r.ctx, "other settings")
	r.must("begin again", err)
	want := s
	want.Resumed = true
	r.same("begun again", again, want)
	want.Resumed = false
	r.same("the state", r.projectionState(), want)
	r.totalIs("readers see nothing of it", t, "15", 2, 2)
	r.build(s.Building)
	end := r.projectionState()
	r.same("in the end", []any{end.Active, end.Building, end.Previous, end.Seed, end.ActiveSettings, end.BuildingSettings},
		[]any{s.Building, 0, s.Active, 0, r.prefix, ""})
	r.same("activated again", r.activate(s.Building).Previous, s.Active)
	r.totalIs("with the new generation", t, "15", 2, 2)
}

// Records before, during and after a build, over several totals: the totals
// that readers see are right at every step, and stay when the new generation
// takes over.
func buildKeepsTotals(r *run) {
	t := r.tenant("a")
	n := 0
	put := func() {
		e := usage(t, "e"+decimalInt(n), "1.5")
		if n%3 == 0 {
			e.Feature, e.EventID = "calls", "c"+decimalInt(n)
		}
		r.put(e)
		n++
		q, rows := dec("0"), int64(0)
		for _, total := range r.totals(t) {
			q, rows = q.Add(total.Quantity), rows+total.Events
		}
		r.same("after event "+decimalInt(n), []any{q, rows}, []any{dec(decimalInt(15*n) + "e-1"), n})
	}
	for range 2 { // a build over what another build made
		for range 7 {
			put()
		}
		s := r.beginBuild()
		put()
		for r.scan(3, nil) {
			put()
		}
		put()
		r.drain(s.Building, 3)
		put()
		diff, err := r.keeper().CompareProjections(r.ctx, s.Active, s.Building, 10)
		r.must("compare", err)
		r.same("differences after the drain", diff.Total, 0)
		r.activate(s.Building)
		put()
	}
}

// What is written is added, also where one batch is negative by itself.
func batchesAdd(r *run) {
	t := r.tenant("a")
	r.put(usage(t, "1", "10"))
	r.put(usage(r.tenant("b"), "1", "1"))
	s := r.beginBuild()
	r.same("begun, it is a copy", r.built(t), (*sum)(nil))
	write := func(after, cursor int64, quantity string, events, count int64) {
		r.must("write", r.projection().WriteProjection(r.ctx, storage.ProjectionBatch{
			Generation: s.Building, After: after, Cursor: cursor,
			Totals: []storage.TotalDelta{{
				Tenant: t, Feature: "tokens", PeriodStart: period, PeriodEnd: period.AddDate(0, 1, 0),
				Quantity: dec(quantity), Events: events, Count: count,
			}},
		}))
	}
	half := s.Watermark - 1
	write(s.Cursor, half, "-4", 1, -1)
	r.same("a negative batch", r.built(t), &sum{dec("6"), 2, 0})
	write(half, s.Watermark, "14", 2, 2)
	r.same("another one", r.built(t), &sum{dec("20"), 4, 2})
	r.totalIs("the active generation", t, "10", 1, 1)
	r.drain(s.Building, 10)
	r.same("the seed is subtracted", r.built(t), &sum{dec("10"), 3, 1})
	r.abandon(s.Building)
}

func cursorDecides(r *run) {
	t := r.tenant("a")
	r.put(usage(t, "1", "10"), usage(t, "2", "10"))
	s := r.beginBuild()
	batch := storage.ProjectionBatch{
		Generation: s.Building, After: s.Cursor, Cursor: s.Watermark,
		Totals: []storage.TotalDelta{{
			Tenant: t, Feature: "tokens", PeriodStart: period, PeriodEnd: period.AddDate(0, 1, 0), Quantity: dec("1"), Events: 1, Count: 1,
		}},
	}
	for what, edit := range map[string]func(*storage.ProjectionBatch){
		"a cursor that is not there yet": func(b *storage.ProjectionBatch) { b.After++ },
		"a generation that is not built": func(b *storage.ProjectionBatch) { b.Generation++ },
		"the active generation":          func(b *storage.ProjectionBatch) { b.Generation = s.Active },
	} {
		b := batch
		edit(&b)
		r.tagIs(what, r.projection().WriteProjection(r.ctx, b), sdk.TagConflict, "")
	}
	r.same("nothing was written", r.built(t), (*sum)(nil))
	r.must("the right one", r.projection().WriteProjection(r.ctx, batch))
	r.tagIs("the same one again", r.projection().WriteProjection(r.ctx, batch), sdk.TagConflict, "")
	r.same("written once", r.built(t), &sum{dec("21"), 3, 3})
	r.same("the cursor", r.projectionState().Cursor, s.Watermark)
	r.abandon(s.Building)
}

func pauseStops(r *run) {
	t := r.tenant("a")
	r.put(usage(t, "1", "10"))
	s := r.beginBuild()
	paused, err := r.keeper().PauseProjection(r.ctx, s.Building, true)
	r.must("pause", err)
	r.same("paused", paused.Paused, true)
	err = r.projection().WriteProjection(r.ctx, storage.ProjectionBatch{Generation: s.Building, After: s.Cursor, Cursor: s.Watermark})
	r.tagIs("write to a paused build", err, sdk.TagConflict, "paused")
	r.same("the cursor", r.projectionState().Cursor, s.Cursor)
	r.put(usage(t, "2", "5")) // recording goes on
	on, err := r.keeper().PauseProjection(r.ctx, s.Building, false)
	r.must("go on", err)
	r.same("paused", on.Paused, false)
	r.build(s.Building)
	r.totalIs("built", t, "15", 2, 2)
}

// The seed is subtracted once, however often the drain is interrupted, and not
// before everything was scanned.
func drainOnce(r *run) {
	t := r.tenant("a")
	for i := range 7 {
		e := usage(t, "e"+decimalInt(i), "3")
		e.Feature = "f" + decimalInt(i)
		r.put(e)
	}
	s := r.beginBuild()
	_, err := r.projection().DrainSeed(r.ctx, s.Building, 10)
	r.tagIs("drain before the scan", err, sdk.TagConflict, "")
	for r.scan(1000, nil) {
		continue
	}
	for range 3 { // and then the process dies, and another one goes on
		n, err := r.projection().DrainSeed(r.ctx, s.Building, 2)
		r.must("drain", err)
		if n != 2 {
			r.errorf("drained %d of a limit of 2 with more to come", n)
		}
	}
	r.same("the seed is not used up", r.projectionState().Seed, -s.Building)
	r.drain(s.Building, 2)
	for range 2 {
		n, err := r.projection().DrainSeed(r.ctx, s.Building, 2)
		r.must("drain what is drained", err)
		r.same("drained", n, 0)
	}
	r.same("the seed", r.projectionState().Seed, 0)
	diff, err := r.keeper().CompareProjections(r.ctx, s.Active, s.Building, 10)
	r.must("compare", err)
	r.same("differences", diff.Total, 0)
	r.activate(s.Building)
	for _, total := range r.totals(t) {
		r.same("total of "+total.Feature, []any{total.Quantity, total.Events, total.Count}, []any{dec("3"), 1, 1})
	}
}

func activationNeeds(r *run) {
	t := r.tenant("a")
	r.put(usage(t, "1", "10"))
	s := r.beginBuild()
	try := func(what string, generation int64) {
		_, err := r.projection().ActivateProjection(r.ctx, generation)
		r.tagIs(what, err, sdk.TagConflict, "")
	}
	try("activate before the scan", s.Building)
	try("activate what never was", s.Building+1000)
	for r.scan(1000, nil) {
		continue
	}
	try("activate before the drain", s.Building)
	r.totalIs("meanwhile", t, "10", 1, 1)
	r.drain(s.Building, 1000)
	r.activate(s.Building)
	r.totalIs("activated", t, "10", 1, 1)
}

func compareLists(r *run) {
	a, b := r.tenant("a"), r.tenant("b")
	r.put(usage(a, "1", "10"), usage(b, "1", "20"))
	s := r.beginBuild()
	delta := storage.TotalDelta{Feature: "tokens", PeriodStart: period, PeriodEnd: period.AddDate(0, 1, 0), Quantity: dec("1"), Events: 1, Count: 1}
	batch := storage.ProjectionBatch{Generation: s.Building, After: s.Cursor, Cursor: s.Watermark}
	for _, t := range []string{a, b, r.tenant("only built")} {
		delta.Tenant = t
		batch.Totals = append(batch.Totals, delta)
	}
	r.must("write", r.projection().WriteProjection(r.ctx, batch))
	diff, err := r.keeper().CompareProjections(r.ctx, s.Active, s.Building, 2)
	r.must("compare", err)
	r.same("all that differ", diff.Total, 3)
	if len(diff.Differences) != 2 {
		r.fatalf("%d listed, limit 2", len(diff.Differences))
	}
	d := diff.Differences[0]
	r.same("the first, in key order", []any{d.Tenant, d.Feature, d.PeriodStart.UTC(), d.Active.Quantity, d.Active.Events, d.Built.Quantity, d.Built.Events},
		[]any{a, "tokens", period, dec("10"), 1, dec("11"), 2})
	r.same("the second", diff.Differences[1].Tenant, b)
	r.abandon(s.Building)
}

func abandoned(r *run) {
	t := r.tenant("a")
	r.put(usage(t, "1", "10"))
	s := r.beginBuild()
	_, err := r.keeper().PruneProjection(r.ctx, s.Active, 1000)
	r.tagIs("prune the active generation", err, sdk.TagConflict, "")
	r.scan(1, nil)
	r.abandon(s.Building)
	state := r.projectionState()
	r.same("no build", []any{state.Building, state.Seed, state.Active, state.BuildingSettings}, []any{0, 0, s.Active, ""})
	r.put(usage(t, "2", "5"))
	r.totalIs("recording goes on", t, "15", 2, 2)
	next := r.beginBuild()
	if next.Building == s.Building {
		r.errorf("a new build has the number of the abandoned one, %d", s.Building)
	}
	r.build(next.Building)
	r.totalIs("built anew", t, "15", 2, 2)
	r.abandon(s.Active) // the previous generation is nobody's any more
	r.totalIs("after the old one is gone", t, "15", 2, 2)
}

// A process that is killed while it removes a generation, one that was abandoned
// or one that was in use, leaves its number until its last row is gone.
func remainsFound(r *run) {
	t := r.tenant("a")
	for i := range 3 {
		e := usage(t, decimalInt(i), "1")
		e.Feature = "f" + decimalInt(i)
		r.put(e)
	}
	if p := r.projectionState().Previous; p != 0 {
		r.abandon(p)
	}
	remove := func(what string, generation int64) {
		n, err := r.keeper().PruneProjection(r.ctx, generation, 1)
		r.must("prune", err)
		s := r.projectionState()
		r.same(what+", of which one row is gone: rows, previous, building", []any{n, s.Previous, s.Building}, []any{1, generation, 0})
		r.abandon(generation)
		r.same(what+", all of it gone: previous", r.projectionState().Previous, 0)
	}
	s := r.beginBuild()
	r.scan(1, nil)
	remove("an abandoned build", s.Building)
	s = r.beginBuild()
	r.build(s.Building)
	remove("what was in use", s.Active)
	for i, total := range r.totals(t) {
		r.same("total "+decimalInt(i), []any{total.Quantity, total.Events}, []any{dec("1"), 1})
	}
}

// An event below the watermark that was not scanned yet is corrected: the
// build must not refuse it, lose it or take it twice.
func unscannedCorrection(r *run) {
	t := r.tenant("a")
	e, f := usage(t, "1", "10"), usage(t, "2", "10")
	r.put(e, f)
	s := r.beginBuild()
	r.corrects(correction(&e, "c1", "10"), "0")
	r.corrects(correction(&f, "c2", "4"), "6")
	r.totalIs("corrected during the build", t, "6", 4, 1)
	r.refuses(r.correctRequest(correction(&f, "c3", "7")), storage.RefusedExceedsOriginal)
	r.put(usage(t, "3", "1"))
	for r.scan(1, nil) {
		continue
	}
	r.corrects(correction(&f, "c4", "6"), "0")
	r.drain(s.Building, 3)
	diff, err := r.keeper().CompareProjections(r.ctx, s.Active, s.Building, 10)
	r.must("compare", err)
	r.same("differences", diff.Total, 0)
	r.activate(s.Building)
	r.totalIs("with the new generation", t, "1", 6, 1)
}

// ownBucket is the bucket of events that [bucketed] made.
func (r *run) ownBucket(e *storage.Event) *storage.BucketKey {
	if !strings.HasPrefix(e.Tenant, r.prefix) {
		return nil
	}
	k := storage.BucketKey{Start: e.OccurredAt.UTC().Truncate(storage.BucketLength)}
	if m, ok := e.Dimensions["model"]; ok {
		k.Dimensions = map[string]string{"model": m}
	}
	return &k
}

// Sealed generations are what was billed: a rebuild puts every event into the
// one it was counted in.
func bucketsRebuilt(r *run) {
	t := r.tenant("a")
	r.putUnits(bucketed(t, "1", "2", 0, "m1"), bucketed(t, "2", "3", 1, "m1"), bucketed(t, "3", "4", 1, ""))
	_, err := r.bucketStore().SealBuckets(r.ctx, storage.Seal{Tenant: t, Feature: "tokens", Before: period.Add(storage.BucketLength)})
	r.must("seal", err)
	r.putUnits(bucketed(t, "4", "50", 0, "m1"))
	s := r.beginBuild()
	r.putUnits(bucketed(t, "5", "7", 1, "m1"))
	for r.scan(2, r.ownBucket) {
		continue
	}
	r.putUnits(bucketed(t, "6", "1", 0, "m1"))
	want := r.buckets(storage.BucketQuery{Tenant: t})
	r.drain(s.Building, 1000)
	r.same("meanwhile", bucketLines(r.buckets(storage.BucketQuery{Tenant: t})), bucketLines(want))
	r.activate(s.Building)
	r.same("rebuilt", bucketLines(r.buckets(storage.BucketQuery{Tenant: t})), bucketLines(want))
	r.same("as recorded", bucketLines(want), []string{
		"0 m1 g1 sum 2 count 1 min 2 max 2 sealed", "0 m1 g2 sum 51 count 2 min 1 max 50",
		"1  g1 sum 4 count 1 min 4 max 4", "1 m1 g1 sum 10 count 2 min 3 max 7",
	})
}
