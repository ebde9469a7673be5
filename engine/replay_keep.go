package engine

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// ReplayState says which generations of totals there are.
func (e *Engine) ReplayState(ctx context.Context) (storage.ProjectionState, error) {
	st, err := need[storage.ProjectionStore](e.cfg.Store, storage.ProjectionGenerations)
	if err != nil {
		return storage.ProjectionState{}, err
	}
	state, err := st.ProjectionState(ctx)
	if err != nil {
		return state, fmt.Errorf("read projections: %w", err)
	}
	return state, nil
}

// CheckReplay reports whether Replay would refuse at once, by its options or by
// the build that exists. It changes nothing, and another host may.
func (e *Engine) CheckReplay(ctx context.Context, o ReplayOptions) error {
	if err := o.Check(); err != nil {
		return err
	}
	state, err := e.ReplayState(ctx)
	if err != nil {
		return err
	}
	return refuseExisting(state, o.Resume)
}

func refuseExisting(state storage.ProjectionState, resume bool) error {
	switch {
	case state.Building != 0 && state.Paused:
		return pausedError()
	case state.Building != 0 && !resume:
		return existsError()
	}
	return nil
}

// PauseReplay stops the build from being written to, or lets it go on. A replay
// that is running ends with a conflict, code "paused", at its next step. Records
// go on in both generations. It is a conflict, code "no_replay", if there is no
// build.
func (e *Engine) PauseReplay(ctx context.Context, paused bool) (storage.ProjectionState, error) {
	keep, state, err := e.building(ctx)
	if err != nil {
		return state, err
	}
	if state, err = keep.PauseProjection(ctx, state.Building, paused); err != nil {
		return state, fmt.Errorf("pause: %w", err)
	}
	e.cfg.Logger.InfoContext(ctx, "replay: pause", "generation", state.Building, "paused", paused)
	return state, nil
}

// AbandonReplay ends the build and removes it. The totals in use stay as they
// are.
func (e *Engine) AbandonReplay(ctx context.Context) (storage.ProjectionState, error) {
	keep, state, err := e.building(ctx)
	if err != nil {
		return state, err
	}
	e.cfg.Logger.InfoContext(ctx, "replay: abandoned", "generation", state.Building)
	return e.removeGeneration(ctx, keep, state.Building)
}

// PruneReplay removes the generation that was in use before the last replay, if
// it is still there.
func (e *Engine) PruneReplay(ctx context.Context) (storage.ProjectionState, error) {
	keep, err := need[storage.ProjectionKeeper](e.cfg.Store, storage.ProjectionGenerations)
	if err != nil {
		return storage.ProjectionState{}, err
	}
	state, err := e.ReplayState(ctx)
	if err != nil || state.Previous == 0 {
		return state, err
	}
	return e.removeGeneration(ctx, keep, state.Previous)
}

func (e *Engine) removeGeneration(ctx context.Context, keep storage.ProjectionKeeper, generation int64) (storage.ProjectionState, error) {
	o, err := ReplayOptions{}.withDefaults()
	if err != nil {
		return storage.ProjectionState{}, err
	}
	r := &replay{engine: e, options: o, keep: keep}
	if err := r.remove(ctx, generation); err != nil {
		return storage.ProjectionState{}, tagged(ctx, err)
	}
	return e.ReplayState(ctx)
}

// building returns the build that exists.
func (e *Engine) building(ctx context.Context) (storage.ProjectionKeeper, storage.ProjectionState, error) {
	keep, err := need[storage.ProjectionKeeper](e.cfg.Store, storage.ProjectionGenerations)
	if err != nil {
		return nil, storage.ProjectionState{}, err
	}
	state, err := e.ReplayState(ctx)
	if err == nil && state.Building == 0 {
		err = &sdk.Error{Tag: sdk.TagConflict, Code: "no_replay", Rule: "a replay that was begun and is not finished", Hint: "fencepost replay start begins one"}
	}
	return keep, state, err
}

// freshRoutes reads the stored routes and features, whatever is remembered.
func (e *Engine) freshRoutes(ctx context.Context) (*routeView, error) {
	e.subjects.routes.Store(nil)
	return e.subjects.routeSet(ctx)
}
