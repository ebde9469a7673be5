package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Compare says what a difference between the totals in use and those rebuilt
// does.
type Compare string

// The ways to compare.
const (
	// RequireMatch refuses to activate totals that differ. The zero value.
	RequireMatch Compare = "require_match"
	// Report activates them and lists what differs.
	Report Compare = "report"
)

// ReplayPhase is a step of a replay.
type ReplayPhase string

// The phases of a replay, in order.
const (
	ReplayAnnounce ReplayPhase = "announce"
	ReplayScan     ReplayPhase = "scan"
	ReplayDrain    ReplayPhase = "drain"
	ReplayCompare  ReplayPhase = "compare"
	ReplayActivate ReplayPhase = "activate"
	ReplayPrune    ReplayPhase = "prune"
	ReplayDone     ReplayPhase = "done"
)

// ReplayOptions steer a replay. The zero value rebuilds, compares and activates.
type ReplayOptions struct {
	// BatchSize is the number of events of one transaction, 1 to 5000, and of
	// rows of a slice of the seed. Zero: 5000.
	BatchSize int
	// Compare is RequireMatch unless said otherwise.
	Compare Compare
	// WithoutActivation ends before the rebuilt totals are used.
	WithoutActivation bool
	// Resume goes on with a build that exists, which is refused otherwise. It
	// begins one if there is none.
	Resume bool
	// MaxBatches ends the scan after so many transactions; zero: no bound. A
	// later replay resumes it.
	MaxBatches int
	// Timeout bounds each step, of which a replay has many. Zero: 60 s.
	Timeout time.Duration
	// Progress is told after each step. Nil: nobody is. It must not block.
	Progress func(ReplayProgress)
}

// ReplayProgress says how far a replay is. Scanned and Drained count since it
// was begun or resumed.
type ReplayProgress struct {
	Phase      ReplayPhase
	Generation int64
	Resumed    bool
	Scanned    int64
	Batches    int
	Cursor     int64
	Watermark  int64
	Drained    int64
	// Diff is what comparing found, at most 1000 differences listed.
	Diff storage.ProjectionDiff
	// Activated: the rebuilt totals are those that are read.
	Activated bool
}

const (
	replayBatch    = 5000
	replayListed   = 1000
	replayTimeout  = time.Minute
	replayPageSize = 1000
)

// Replay rebuilds totals and buckets from the events that are stored, beside
// those in use and while recording goes on, compares them and puts them in use.
// It reports nothing to anybody and makes no items.
//
// Nothing is lost when it ends anywhere, by a kill or by ctx: a later call with
// Resume goes on where it was. Two replays at once are safe, and one of them
// ends with a conflict.
//
// # Errors
//
// Invalid: an option breaks a rule. Unsupported: the store cannot stream events
// or build generations. Conflict: a build exists and Resume is not set
// ("replay_exists"); it is paused ("paused"); another replay moved it
// ("replay_moved"); the totals differ and Compare requires a match
// ("totals_differ"), and the build stays. Unavailable: the outcome of a step is
// unknown; resume.
func (e *Engine) Replay(ctx context.Context, o ReplayOptions) (ReplayProgress, error) {
	o, err := o.withDefaults()
	if err != nil {
		return ReplayProgress{}, err
	}
	r, err := e.newReplay(o)
	if err != nil {
		return ReplayProgress{}, err
	}
	for _, step := range []struct {
		phase ReplayPhase
		run   func(context.Context) (bool, error)
	}{
		{ReplayAnnounce, r.announce},
		{ReplayScan, r.scan},
		{ReplayDrain, r.drain},
		{ReplayCompare, r.compare},
		{ReplayActivate, r.activate},
		{ReplayPrune, r.prune},
	} {
		r.at.Phase = step.phase
		r.tell()
		done, err := step.run(ctx)
		if err != nil {
			return r.at, fmt.Errorf("replay, %s: %w", step.phase, tagged(ctx, err))
		}
		if done {
			return r.at, nil
		}
	}
	r.at.Phase = ReplayDone
	r.tell()
	return r.at, nil
}

// Check reports what Replay would refuse of the options themselves.
func (o ReplayOptions) Check() error {
	_, err := o.withDefaults()
	return err
}

func (o ReplayOptions) withDefaults() (ReplayOptions, error) {
	if o.BatchSize == 0 {
		o.BatchSize = replayBatch
	}
	if o.Compare == "" {
		o.Compare = RequireMatch
	}
	if o.Timeout == 0 {
		o.Timeout = replayTimeout
	}
	switch {
	case o.BatchSize < 1 || o.BatchSize > replayBatch:
		return o, sdk.Invalid("batch_size", "1 to 5000")
	case o.Compare != RequireMatch && o.Compare != Report:
		return o, sdk.Invalid("compare", "require_match or report")
	case o.MaxBatches < 0:
		return o, sdk.Invalid("max_batches", "not negative")
	case o.Timeout < time.Millisecond:
		return o, sdk.Invalid("timeout", "at least 1ms")
	}
	return o, nil
}

// replay is one call of Replay on its way.
type replay struct {
	engine  *Engine
	options ReplayOptions
	store   storage.ProjectionStore
	keep    storage.ProjectionKeeper
	stream  storage.EventStreamer
	// fold adds events up in the store; nil where the store cannot.
	fold   storage.ProjectionFolder
	built  buildSettings
	routes *routeView
	at     ReplayProgress
}

func (e *Engine) newReplay(o ReplayOptions) (*replay, error) {
	r := &replay{engine: e, options: o}
	var err error
	if r.store, err = need[storage.ProjectionStore](e.cfg.Store, storage.ProjectionGenerations); err != nil {
		return nil, err
	}
	if r.keep, err = need[storage.ProjectionKeeper](e.cfg.Store, storage.ProjectionGenerations); err != nil {
		return nil, err
	}
	if r.stream, err = need[storage.EventStreamer](e.cfg.Store, storage.EventStreaming); err != nil {
		return nil, err
	}
	r.fold, _ = storage.As[storage.ProjectionFolder](e.cfg.Store)
	return r, nil
}

func (r *replay) tell() {
	if r.options.Progress != nil {
		r.options.Progress(r.at)
	}
}

// bounded runs one step of many within its time.
func bounded[T any](ctx context.Context, r *replay, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	return f(ctx)
}

// announce begins a build or finds the one that exists. That it is paused is
// read before anything is written.
func (r *replay) announce(ctx context.Context) (bool, error) {
	view, err := bounded(ctx, r, r.engine.freshRoutes)
	if err != nil {
		return false, err
	}
	state, err := bounded(ctx, r, r.store.ProjectionState)
	if err != nil {
		return false, fmt.Errorf("read projections: %w", err)
	}
	if err := refuseExisting(state, r.options.Resume); err != nil {
		return false, err
	}
	if state.Building == 0 {
		// What a replay that was killed after its activation has left.
		if err := r.removePrevious(ctx, state); err != nil {
			return false, err
		}
		text, err := settingsOf(view.RouteSet).text()
		if err != nil {
			return false, err
		}
		state, err = bounded(ctx, r, func(ctx context.Context) (storage.ProjectionState, error) {
			return r.store.BeginProjection(ctx, text)
		})
		switch {
		case err != nil:
			return false, fmt.Errorf("begin: %w", err)
		case state.Resumed && !r.options.Resume:
			return false, existsError()
		}
	} else {
		state.Resumed = true
	}
	if r.built, err = readSettings(state.BuildingSettings); err != nil {
		return false, err
	}
	r.routes = view
	r.at.Generation, r.at.Resumed, r.at.Cursor, r.at.Watermark = state.Building, state.Resumed, state.Cursor, state.Watermark
	r.engine.cfg.Logger.InfoContext(ctx, "replay", "generation", state.Building, "resumed", state.Resumed, "cursor", state.Cursor, "watermark", state.Watermark)
	return false, nil
}

func pausedError() error {
	return &sdk.Error{Tag: sdk.TagConflict, Code: "paused", Rule: "a replay that is not paused", Hint: "fencepost replay resume lets it go on"}
}

func existsError() error {
	return &sdk.Error{
		Tag: sdk.TagConflict, Code: "replay_exists", Rule: "no other replay; one was begun and is not finished",
		Hint: "fencepost replay resume goes on with it, fencepost replay prune --abandon ends it",
	}
}

// drain takes the copy that the build began with out of it again.
func (r *replay) drain(ctx context.Context) (bool, error) {
	for {
		n, err := bounded(ctx, r, func(ctx context.Context) (int, error) {
			return r.store.DrainSeed(ctx, r.at.Generation, r.options.BatchSize)
		})
		if err != nil {
			return false, r.explain(ctx, fmt.Errorf("drain: %w", err))
		}
		r.at.Drained += int64(n)
		r.tell()
		if n < r.options.BatchSize {
			return false, nil
		}
		if err := r.check(ctx); err != nil {
			return false, err
		}
	}
}

// check reads whether the build may go on.
func (r *replay) check(ctx context.Context) error {
	state, err := bounded(ctx, r, r.store.ProjectionState)
	switch {
	case err != nil:
		return fmt.Errorf("read projections: %w", err)
	case state.Building != r.at.Generation:
		return movedError()
	case state.Paused:
		return pausedError()
	}
	return nil
}

func movedError() error {
	return &sdk.Error{
		Tag: sdk.TagConflict, Code: "replay_moved", Rule: "one replay at a time; another has moved or ended this one",
		Hint: "fencepost replay status shows where it is",
	}
}

// explain turns a conflict of the store into one that says what to do.
func (r *replay) explain(ctx context.Context, err error) error {
	if !errors.Is(err, sdk.ErrConflict) {
		return err
	}
	if reason := r.check(ctx); reason != nil {
		return reason
	}
	return movedError()
}

func (r *replay) compare(ctx context.Context) (bool, error) {
	state, err := bounded(ctx, r, r.store.ProjectionState)
	if err != nil {
		return false, fmt.Errorf("read projections: %w", err)
	}
	r.at.Diff, err = bounded(ctx, r, func(ctx context.Context) (storage.ProjectionDiff, error) {
		return r.keep.CompareProjections(ctx, state.Active, r.at.Generation, replayListed)
	})
	if err != nil {
		return false, fmt.Errorf("compare: %w", err)
	}
	if n := r.at.Diff.Total; n > 0 {
		r.engine.cfg.Logger.WarnContext(ctx, "replay: totals differ from the events", "generation", r.at.Generation, "totals", n)
		if r.options.Compare == RequireMatch {
			return false, &sdk.Error{
				Tag: sdk.TagConflict, Code: "totals_differ", Rule: fmt.Sprintf("totals that equal the sum of their events; %d do not", n),
				Hint: "look at the differences; compare=report puts the rebuilt totals in use",
			}
		}
	}
	return r.options.WithoutActivation, nil
}

func (r *replay) activate(ctx context.Context) (bool, error) {
	if err := r.check(ctx); err != nil {
		return false, err
	}
	_, err := bounded(ctx, r, func(ctx context.Context) (storage.ProjectionState, error) {
		return r.store.ActivateProjection(ctx, r.at.Generation)
	})
	if err != nil {
		return false, r.explain(ctx, fmt.Errorf("activate: %w", err))
	}
	r.at.Activated = true
	r.engine.cfg.Logger.InfoContext(ctx, "replay: rebuilt totals are in use", "generation", r.at.Generation, "scanned", r.at.Scanned, "differences", r.at.Diff.Total)
	return false, nil
}

// prune removes the generation that was in use before.
func (r *replay) prune(ctx context.Context) (bool, error) {
	state, err := bounded(ctx, r, r.store.ProjectionState)
	if err != nil {
		return false, fmt.Errorf("read projections: %w", err)
	}
	return false, r.removePrevious(ctx, state)
}

func (r *replay) removePrevious(ctx context.Context, state storage.ProjectionState) error {
	if state.Previous == 0 || state.Previous == state.Active {
		return nil
	}
	return r.remove(ctx, state.Previous)
}

func (r *replay) remove(ctx context.Context, generation int64) error {
	for {
		n, err := bounded(ctx, r, func(ctx context.Context) (int, error) {
			return r.keep.PruneProjection(ctx, generation, r.options.BatchSize)
		})
		if err != nil {
			return fmt.Errorf("prune: %w", err)
		}
		if n < r.options.BatchSize {
			return nil
		}
	}
}
