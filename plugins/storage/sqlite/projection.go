package sqlite

import (
	"cmp"
	"context"
	"slices"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/fault"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// maxSettings bounds the text that the engine keeps with a build.
const maxSettings = 64 << 10

// maxSlice is the largest slice of a seed, and of a generation that goes.
const maxSlice = 10_000

// Fault points. p2 and p3 are around the commit of a batch, p4 is before a
// slice of the seed is drained and p5 after it was subtracted and before it is
// deleted.
var (
	beginFaults    = faults{committed: "p1"}
	projectFaults  = faults{commit: "p2", committed: "p3"}
	drainFaults    = faults{begin: "p4"}
	activateFaults = faults{commit: "p6", committed: "p7"}
)

func projectionConflict(code, rule string) error {
	return &sdk.Error{Tag: sdk.TagConflict, Code: code, Field: "generation", Rule: rule}
}

// ProjectionState reads the state, in one snapshot.
func (a *Adapter) ProjectionState(ctx context.Context) (state storage.ProjectionState, err error) {
	err = a.read(ctx, "projection state", func(c *conn) (err error) {
		state, err = projectionState(c)
		return err
	})
	return state, err
}

func projectionState(c *conn) (s storage.ProjectionState, err error) {
	_, err = c.bind(qProjectionState).one(func(r *row) {
		s.Active, s.Building, s.Previous = r.int(), r.int(), r.int()
		if seeded := r.bool(); seeded {
			s.Seed = -s.Building
		}
		s.Watermark, s.Cursor, s.Paused = r.int(), r.int(), r.bool()
		s.ActiveSettings, s.BuildingSettings = r.text(), r.text()
		s.BegunAt, s.ActivatedAt = r.time(), r.time()
	})
	return s, err
}

// BeginProjection announces a build: the totals of the active generation are
// copied twice, into the building one and into the seed, and what retention
// removed is added to the building one. The writer lock is the exclusive lock:
// no record is in flight, so that the last event is the watermark. Not the last
// seq that was given: retention may have removed that event, and a scan would
// never come to it.
func (a *Adapter) BeginProjection(ctx context.Context, settings string) (state storage.ProjectionState, err error) {
	err = a.writeAt(ctx, "begin projection", beginFaults, func(_ context.Context, c *conn) error {
		if len(settings) > maxSettings {
			return sdk.Invalid("settings", "at most 64 KiB")
		}
		var err error
		if state, err = projectionState(c); err != nil {
			return err
		}
		if state.Building != 0 {
			state.Resumed = true
			return nil
		}
		var watermark int64
		if _, err := c.bind(qWatermark).one(func(r *row) { watermark = r.int() }); err != nil {
			return err
		}
		if _, err := c.bind(qProjectionBegin).int(watermark).text(settings).time(a.now()).run(); err != nil {
			return err
		}
		if state, err = projectionState(c); err != nil {
			return err
		}
		if err := seedProjection(c, state.Active, state.Building); err != nil {
			return err
		}
		state, err = projectionState(c)
		return err
	})
	return state, err
}

func seedProjection(c *conn, active, building int64) error {
	for _, to := range []int64{building, -building} {
		if _, err := c.bind(qProjectionCopy).int(active).int(to).run(); err != nil {
			return err
		}
	}
	if _, err := c.bind(qProjectionPruned).int(prunedGeneration).int(building).run(); err != nil {
		return err
	}
	pruned, err := totalsOf(c, prunedGeneration, -1)
	if err != nil {
		return err
	}
	for _, t := range pruned {
		if err := addTotal(c, building, t.key, &t.totalDelta); err != nil {
			return err
		}
	}
	return nil
}

// keyedTotal is a row of the totals.
type keyedTotal struct {
	key totalKey
	totalDelta
}

// totalsOf reads at most limit totals of a generation, in order; all for a
// negative limit.
func totalsOf(c *conn, generation int64, limit int) (all []keyedTotal, err error) {
	err = c.bind(qTotalsOf).int(generation).int(int64(limit)).each(func(r *row) error {
		t := keyedTotal{key: totalKey{tenant: r.text(), feature: r.text(), start: r.int()}}
		t.end, t.quantity, t.events, t.count, t.signed = r.time(), r.total(), r.int(), r.int(), r.bool()
		all = append(all, t)
		return nil
	})
	return all, err
}

// WriteProjection adds what a slice of events comes to, and moves the cursor
// with it.
func (a *Adapter) WriteProjection(ctx context.Context, b storage.ProjectionBatch) error {
	return a.writeAt(ctx, "write projection", projectFaults, func(_ context.Context, c *conn) error {
		state, err := buildOf(c, b.Generation)
		switch {
		case err != nil:
			return err
		case b.After != state.Cursor:
			return projectionConflict("cursor", "the cursor where the batch begins")
		case b.Cursor < b.After || b.Cursor > state.Watermark:
			return sdk.Invalid("cursor", "from where the batch begins to the watermark")
		}
		d := newDeltas()
		for _, t := range b.Totals {
			d.total(totalKey{t.Tenant, t.Feature, t.PeriodStart.UnixMicro()},
				totalDelta{end: t.PeriodEnd, quantity: t.Quantity, events: t.Events, count: t.Count, signed: t.Signed})
		}
		for i := range b.Buckets {
			if err := d.bucket(c, &b.Buckets[i]); err != nil {
				return err
			}
		}
		if err := d.write(c, b.Generation); err != nil {
			return err
		}
		_, err = c.bind(qProjectionCursor).int(b.Cursor).run()
		return err
	})
}

// buildOf answers the state if the generation is being built and written to.
func buildOf(c *conn, generation int64) (storage.ProjectionState, error) {
	state, err := projectionState(c)
	switch {
	case err != nil:
		return state, err
	case generation == 0 || state.Building != generation:
		return state, projectionConflict("not_building", "the generation that is being built")
	case state.Paused:
		return state, projectionConflict("paused", "a build that is not paused")
	}
	return state, nil
}

// DrainSeed takes a slice of the seed from the building generation. A row of
// the seed goes in the transaction that subtracts it, so none is subtracted
// twice (B42).
func (a *Adapter) DrainSeed(ctx context.Context, generation int64, limit int) (n int, err error) {
	err = a.writeAt(ctx, "drain seed", drainFaults, func(ctx context.Context, c *conn) error {
		if limit < 1 || limit > maxSlice {
			return sdk.Invalid("limit", "1 to 10,000")
		}
		state, err := buildOf(c, generation)
		if err != nil {
			return err
		}
		if state.Cursor < state.Watermark {
			return projectionConflict("cursor", "a build that has scanned up to its watermark")
		}
		slice, err := totalsOf(c, -generation, limit)
		if err != nil {
			return err
		}
		for _, t := range slice {
			t.quantity, t.events, t.count = t.quantity.Neg(), -t.events, -t.count
			if err := addTotal(c, generation, t.key, &t.totalDelta); err != nil {
				return err
			}
		}
		if err := fault.Point(ctx, "p5"); err != nil {
			return err
		}
		n, err = c.bind(qTotalsPrune).int(-generation).int(int64(limit)).run()
		return err
	})
	return n, err
}

// ActivateProjection makes a drained generation the one that is read: one row
// changes, which every statement that reads totals or buckets reads itself.
func (a *Adapter) ActivateProjection(ctx context.Context, generation int64) (state storage.ProjectionState, err error) {
	err = a.writeAt(ctx, "activate projection", activateFaults, func(_ context.Context, c *conn) error {
		var err error
		if state, err = projectionState(c); err != nil || state.Active == generation {
			return err
		}
		if state, err = buildOf(c, generation); err != nil {
			return err
		}
		if state.Cursor < state.Watermark || state.Seed != 0 {
			return projectionConflict("not_drained", "a build whose seed is used up")
		}
		if _, err := c.bind(qProjectionActivate).time(a.now()).run(); err != nil {
			return err
		}
		state, err = projectionState(c)
		return err
	})
	return state, err
}

// CompareProjections lists totals that differ, and counts all. It holds no more
// than twice the limit.
func (a *Adapter) CompareProjections(ctx context.Context, active, built int64, limit int) (diff storage.ProjectionDiff, err error) {
	err = a.read(ctx, "compare projections", func(c *conn) error {
		if limit < 1 || limit > maxSlice {
			return sdk.Invalid("limit", "1 to 10,000")
		}
		diff = storage.ProjectionDiff{Differences: []storage.TotalDifference{}}
		if err := differ(c, active, built, limit, &diff); err != nil {
			return err
		}
		// What the active one lacks, seen from the other side.
		var lacks storage.ProjectionDiff
		if err := differ(c, built, active, -limit, &lacks); err != nil {
			return err
		}
		for _, d := range lacks.Differences {
			d.Active, d.Built = d.Built, d.Active
			diff.Differences = append(diff.Differences, d)
		}
		diff.Total += lacks.Total
		slices.SortFunc(diff.Differences, func(a, b storage.TotalDifference) int {
			return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Feature, b.Feature), a.PeriodStart.Compare(b.PeriodStart))
		})
		diff.Differences = diff.Differences[:min(limit, len(diff.Differences))]
		return nil
	})
	return diff, err
}

// differ lists the totals of one generation that differ from those of another;
// with a negative limit only those that the other one lacks.
func differ(c *conn, one, other int64, limit int, diff *storage.ProjectionDiff) error {
	return c.bind(qTotalsDiffer).int(one).int(other).bool(limit < 0).each(func(r *row) error {
		if diff.Total++; len(diff.Differences) < max(limit, -limit) {
			diff.Differences = append(diff.Differences, r.difference())
		}
		return nil
	})
}

func (r *row) difference() (d storage.TotalDifference) {
	d.Tenant, d.Feature, d.PeriodStart = r.text(), r.text(), r.time()
	for _, side := range []*storage.TotalDelta{&d.Active, &d.Built} {
		*side = storage.TotalDelta{
			Tenant: d.Tenant, Feature: d.Feature, PeriodStart: d.PeriodStart, PeriodEnd: r.time(),
			Quantity: r.total(), Events: r.int(), Count: r.int(), Signed: r.bool(),
		}
	}
	return d
}

// PauseProjection stops a build from being written to, or lets it go on.
func (a *Adapter) PauseProjection(ctx context.Context, generation int64, paused bool) (state storage.ProjectionState, err error) {
	err = a.write(ctx, "pause projection", func(_ context.Context, c *conn) error {
		var err error
		if state, err = projectionState(c); err != nil {
			return err
		}
		if generation == 0 || state.Building != generation {
			return projectionConflict("not_building", "the generation that is being built")
		}
		state.Paused = paused
		_, err = c.bind(qProjectionPause).bool(paused).run()
		return err
	})
	return state, err
}

// PruneProjection deletes a slice of a generation that nobody reads. The first
// slice of a building one ends the build.
func (a *Adapter) PruneProjection(ctx context.Context, generation int64, limit int) (n int, err error) {
	err = a.write(ctx, "prune projection", func(_ context.Context, c *conn) error {
		n = 0
		if limit < 1 || limit > maxSlice {
			return sdk.Invalid("limit", "1 to 10,000")
		}
		state, err := projectionState(c)
		switch {
		case err != nil:
			return err
		case generation == state.Active:
			return projectionConflict("active", "a generation that is not read")
		case generation <= prunedGeneration:
			return sdk.Invalid("generation", "1 or more")
		case generation == state.Building:
			err = c.run(qProjectionAbandon)
		}
		if err != nil {
			return err
		}
		for _, part := range []struct {
			statement  query
			generation int64
		}{{qTotalsPrune, -generation}, {qTotalsPrune, generation}, {qBucketsPrune, generation}} {
			if n < limit {
				rows, err := c.bind(part.statement).int(part.generation).int(int64(limit - n)).run()
				if err != nil {
					return err
				}
				n += rows
			}
		}
		if n < limit { // not before: a kill leaves the number of what remains
			_, err = c.bind(qProjectionForget).int(generation).run()
		}
		return err
	})
	return n, err
}
