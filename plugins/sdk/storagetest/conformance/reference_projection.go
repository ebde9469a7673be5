package conformance

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// BeginProjection announces a build.
func (s *Reference) BeginProjection(ctx context.Context, settings string) (storage.ProjectionState, error) {
	if err := s.begin(ctx); err != nil {
		return storage.ProjectionState{}, err
	}
	defer s.mu.Unlock()
	p := &s.projection
	if p.Building != 0 {
		state := s.state()
		state.Resumed = true
		return state, nil
	}
	s.lastGen++
	p.Building, p.Watermark, p.Cursor, p.Paused, p.BegunAt = s.lastGen, 0, 0, false, s.clock()
	if n := len(s.events); n > 0 { // the newest may have been removed
		p.Watermark = s.events[n-1].Seq
	}
	p.BuildingSettings = settings
	for _, k := range s.totalKeys(p.Active) {
		t := s.totals[k]
		k.generation = p.Building
		s.totals[k] = t
		k.generation = -p.Building
		s.totals[k] = t
	}
	if s.flaws.has(flawSeedForgotten) {
		maps.DeleteFunc(s.totals, func(k totalKey, _ storage.Total) bool { return k.generation == -p.Building })
	}
	for _, t := range s.pruned {
		s.addTotal(p.Building, storage.TotalDelta{
			Tenant: t.Tenant, Feature: t.Feature, PeriodStart: t.PeriodStart, PeriodEnd: t.PeriodEnd,
			Quantity: t.Quantity, Events: t.Events, Count: t.Count,
		})
	}
	for _, ev := range s.gone {
		if b := ev.bucket; b != nil {
			s.addBucket(p.Building, bucketDelta(&ev.Event, *b))
		}
	}
	return s.state(), nil
}

func (s *Reference) state() storage.ProjectionState {
	state := s.projection
	if state.Building != 0 && len(s.totalKeys(-state.Building)) > 0 {
		state.Seed = -state.Building
	}
	return state
}

// ProjectionState reads the state.
func (s *Reference) ProjectionState(ctx context.Context) (storage.ProjectionState, error) {
	if err := s.begin(ctx); err != nil {
		return storage.ProjectionState{}, err
	}
	defer s.mu.Unlock()
	return s.state(), nil
}

// WriteProjection adds deltas.
func (s *Reference) WriteProjection(ctx context.Context, b storage.ProjectionBatch) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	switch {
	case b.Generation == 0 || b.Generation != s.projection.Building:
		return clash("not_building")
	case s.projection.Paused:
		return clash("paused")
	case b.After != s.projection.Cursor:
		return clash("cursor")
	}
	for _, d := range b.Totals {
		if s.flaws.has(flawAbsoluteProjection) {
			delete(s.totals, totalKey{d.Tenant, d.Feature, d.PeriodStart.UnixMicro(), b.Generation})
		}
		s.addTotal(b.Generation, d)
	}
	for _, d := range b.Buckets {
		s.addBucket(b.Generation, d)
	}
	s.projection.Cursor = b.Cursor
	return nil
}

// DrainSeed subtracts a slice of the seed.
func (s *Reference) DrainSeed(ctx context.Context, generation int64, limit int) (int, error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	if generation == 0 || generation != s.projection.Building {
		return 0, clash("not_building")
	}
	if s.projection.Cursor < s.projection.Watermark {
		return 0, clash("cursor")
	}
	keys := s.totalKeys(-generation)
	keys = keys[:min(limit, len(keys))]
	for _, k := range keys {
		t := s.totals[k]
		s.addTotal(generation, storage.TotalDelta{
			Tenant: t.Tenant, Feature: t.Feature, PeriodStart: t.PeriodStart, PeriodEnd: t.PeriodEnd,
			Quantity: t.Quantity.Neg(), Events: -t.Events, Count: -t.Count,
		})
		if s.flaws.has(flawDrainsTwice) && t.Events > 0 {
			t.Events = 0 // it stays once more
			s.totals[k] = t
			continue
		}
		delete(s.totals, k)
	}
	return len(keys), nil
}

// ActivateProjection swaps.
func (s *Reference) ActivateProjection(ctx context.Context, generation int64) (storage.ProjectionState, error) {
	if err := s.begin(ctx); err != nil {
		return storage.ProjectionState{}, err
	}
	defer s.mu.Unlock()
	p := &s.projection
	if generation == p.Active {
		return s.state(), nil
	}
	undrained := p.Cursor < p.Watermark || len(s.totalKeys(-generation)) > 0
	if generation != p.Building || (undrained && !s.flaws.has(flawActivatesUndrained)) {
		return storage.ProjectionState{}, clash("not_drained")
	}
	p.Previous, p.Active, p.Building, p.ActivatedAt = p.Active, generation, 0, s.clock()
	p.ActiveSettings, p.BuildingSettings = p.BuildingSettings, ""
	return s.state(), nil
}

// CompareProjections lists differences.
func (s *Reference) CompareProjections(ctx context.Context, active, built int64, limit int) (storage.ProjectionDiff, error) {
	if err := s.begin(ctx); err != nil {
		return storage.ProjectionDiff{}, err
	}
	defer s.mu.Unlock()
	keys := map[totalKey]bool{}
	for k := range s.totals {
		if k.generation == active || k.generation == built {
			k.generation = 0
			keys[k] = true
		}
	}
	diff := storage.ProjectionDiff{Differences: []storage.TotalDifference{}}
	for _, k := range slices.SortedFunc(maps.Keys(keys), totalKey.compare) {
		a, b := k, k
		a.generation, b.generation = active, built
		x, y := s.totals[a], s.totals[b]
		if x.Quantity.Equal(y.Quantity) && x.Events == y.Events && x.Count == y.Count {
			continue
		}
		if diff.Total++; len(diff.Differences) < limit {
			diff.Differences = append(diff.Differences, storage.TotalDifference{
				Tenant: k.tenant, Feature: k.feature, PeriodStart: timeOf(x, y), Active: deltaOf(x), Built: deltaOf(y),
			})
		}
	}
	return diff, nil
}

// PauseProjection stops a build or lets it go on.
func (s *Reference) PauseProjection(ctx context.Context, generation int64, paused bool) (storage.ProjectionState, error) {
	if err := s.begin(ctx); err != nil {
		return storage.ProjectionState{}, err
	}
	defer s.mu.Unlock()
	if generation == 0 || generation != s.projection.Building {
		return storage.ProjectionState{}, clash("not_building")
	}
	s.projection.Paused = paused
	return s.state(), nil
}

// PruneProjection deletes rows of a generation that nobody reads.
func (s *Reference) PruneProjection(ctx context.Context, generation int64, limit int) (int, error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	p := &s.projection
	if generation == p.Active {
		return 0, clash("active")
	}
	if generation == p.Building {
		p.Building, p.Watermark, p.Cursor, p.Paused, p.BuildingSettings = 0, 0, 0, false, ""
		if p.Previous == 0 {
			p.Previous = generation
		}
	}
	n := 0
	for k := range s.totals {
		if (k.generation == generation || k.generation == -generation) && n < limit {
			delete(s.totals, k)
			n++
		}
	}
	for k := range s.buckets {
		if k.projection == generation && n < limit {
			delete(s.buckets, k)
			n++
		}
	}
	if p.Previous == generation && (n < limit || s.flaws.has(flawRemainsForgotten)) {
		p.Previous = 0
	}
	return n, nil
}

func deltaOf(t storage.Total) storage.TotalDelta {
	return storage.TotalDelta{
		Tenant: t.Tenant, Feature: t.Feature, PeriodStart: t.PeriodStart, PeriodEnd: t.PeriodEnd,
		Quantity: t.Quantity, Events: t.Events, Count: t.Count,
	}
}

func timeOf(a, b storage.Total) time.Time {
	if a.PeriodStart.IsZero() {
		return b.PeriodStart
	}
	return a.PeriodStart
}
