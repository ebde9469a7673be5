package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qProjectionState       query = "projection_state"
	qProjectionHold        query = "projection_hold"
	qProjectionBegin       query = "projection_begin"
	qProjectionSeed        query = "projection_seed"
	qProjectionCopy        query = "projection_copy"
	qProjectionCopyBuckets query = "projection_copy_buckets"
	qProjectionDrain       query = "projection_drain"
	qProjectionDrained     query = "projection_drained"
	qProjectionActivate    query = "projection_activate"
)

var (
	_ storage.ProjectionStore  = (*Adapter)(nil)
	_ storage.ProjectionKeeper = (*Adapter)(nil)
)

// maxSettings is the largest text that BeginProjection keeps.
const maxSettings = 64 << 10

// ProjectionState reads the state without taking a lock.
func (s store) ProjectionState(ctx context.Context) (st storage.ProjectionState, err error) {
	err = s.run.read(ctx, "projection state", func(ctx context.Context, t *tx) (err error) {
		st, err = projectionState(ctx, t)
		return err
	})
	return st, err
}

func projectionState(ctx context.Context, t *tx) (st storage.ProjectionState, err error) {
	err = t.row(ctx, qProjectionState, []any{
		&st.Active, &st.Building, &st.Previous, &st.Seed, &st.Watermark, &st.Cursor, &st.Paused,
		&st.ActiveSettings, &st.BuildingSettings, utcInto{&st.BegunAt}, utcInto{&st.ActivatedAt},
	})
	return st, err
}

// BeginProjection announces a build. The watermark is read after the lock was
// granted: a seq is drawn before its event commits, and only when nobody else
// records is the highest one of the table the highest there will be below the
// next (B-T4).
//
// Recording waits while the totals are copied.
func (a *Adapter) BeginProjection(ctx context.Context, settings string) (storage.ProjectionState, error) {
	const op = "begin projection"
	if len(settings) > maxSettings {
		return storage.ProjectionState{}, fmt.Errorf("%s: %w", op, sdk.Invalid("settings", "at most 64 KiB"))
	}
	// A build that exists is answered without stopping anybody.
	if st, err := a.ProjectionState(ctx); err != nil || st.Building != 0 {
		st.Resumed = err == nil
		return st, err
	}
	var st storage.ProjectionState
	w := writing{lock: lockExclusive, faults: faults{committed: "p1"}}
	err := a.run.write(ctx, op, w, func(ctx context.Context, t *tx) error {
		begun, err := beginProjection(ctx, t, settings)
		if err != nil {
			return err
		}
		st, err = projectionState(ctx, t)
		st.Resumed = !begun
		return err
	})
	if err != nil {
		return storage.ProjectionState{}, err
	}
	return st, nil
}

// beginProjection answers false when there is a build.
func beginProjection(ctx context.Context, t *tx, settings string) (bool, error) {
	var active, building int64
	err := t.row(ctx, qProjectionBegin, []any{&active, &building}, settings)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, q := range [...]query{qProjectionSeed, qProjectionCopy} {
		if _, err := t.exec(ctx, q, active, building); err != nil {
			return false, err
		}
	}
	_, err = t.exec(ctx, qProjectionCopyBuckets, building)
	return true, err
}

// build is the row that guards a build. Who writes to a build, drains its seed
// or ends it holds the row; records only read it.
type build struct {
	active, building, watermark, cursor int64
	paused, drained                     bool
}

func holdBuild(ctx context.Context, t *tx) (b build, err error) {
	err = t.row(ctx, qProjectionHold, []any{&b.active, &b.building, &b.watermark, &b.cursor, &b.paused, &b.drained})
	return b, err
}

// writable answers why the build cannot be written to.
func (b build) writable(generation int64) error {
	switch {
	case b.building == 0 || b.building != generation:
		return moved("not_building", "a generation that is being built")
	case b.paused:
		return moved("paused", "a build that is not paused")
	}
	return nil
}

// moved is the conflict of a caller that assumes what is not so (any more).
func moved(code, rule string) error {
	return &sdk.Error{Tag: sdk.TagConflict, Code: code, Rule: rule}
}

// DrainSeed takes a slice of the seed out of the build (B42).
func (a *Adapter) DrainSeed(ctx context.Context, generation int64, limit int) (int, error) {
	const op = "drain seed"
	if limit < 1 || limit > maxRows {
		return 0, fmt.Errorf("%s: %w", op, sdk.Invalid("limit", "1 to 100000"))
	}
	var gone int
	w := writing{faults: faults{begin: "p4", commit: "p5"}}
	err := a.run.write(ctx, op, w, func(ctx context.Context, t *tx) (err error) {
		gone, err = drainSeed(ctx, t, generation, limit)
		return err
	})
	if err != nil {
		return 0, err
	}
	return gone, nil
}

func drainSeed(ctx context.Context, t *tx, generation int64, limit int) (gone int, err error) {
	b, err := holdBuild(ctx, t)
	if err != nil {
		return 0, err
	}
	if err := b.writable(generation); err != nil {
		return 0, err
	}
	if b.cursor < b.watermark {
		return 0, moved("not_scanned", "a build that was scanned to its watermark")
	}
	if b.drained {
		return 0, nil
	}
	var left int
	if err := t.row(ctx, qProjectionDrain, []any{&gone, &left}, generation, limit); err != nil {
		return 0, err
	}
	if gone != left {
		return 0, sdk.Unavailable("corrupt", errors.New("the seed holds a row that the build lacks"))
	}
	if gone < limit {
		_, err = t.exec(ctx, qProjectionDrained)
	}
	return gone, err
}

// ActivateProjection makes a drained generation the one that is read. Readers
// find the generation in the statement that reads its rows, so that each sees
// the whole of one (B43).
func (a *Adapter) ActivateProjection(ctx context.Context, generation int64) (storage.ProjectionState, error) {
	const op = "activate projection"
	// What need not stop the recording of others does not.
	st, err := a.ProjectionState(ctx)
	if err != nil || st.Active == generation {
		return st, err
	}
	if err := activatable(st, generation); err != nil {
		return storage.ProjectionState{}, fmt.Errorf("%s: %w", op, err)
	}
	w := writing{lock: lockExclusive, faults: faults{commit: "p6", committed: "p7"}}
	err = a.run.write(ctx, op, w, func(ctx context.Context, t *tx) error {
		n, err := t.exec(ctx, qProjectionActivate, generation)
		if err != nil {
			return err
		}
		if st, err = projectionState(ctx, t); err != nil || n == 1 || st.Active == generation {
			return err
		}
		return activatable(st, generation)
	})
	if err != nil {
		return storage.ProjectionState{}, err
	}
	return st, nil
}

// activatable answers why a generation that is not active cannot become so.
func activatable(st storage.ProjectionState, generation int64) error {
	switch {
	case st.Building == 0 || st.Building != generation:
		return moved("not_building", "a generation that is being built")
	case st.Paused:
		return moved("paused", "a build that is not paused")
	case st.Cursor < st.Watermark:
		return moved("not_scanned", "a build that was scanned to its watermark")
	case st.Seed != 0:
		return moved("not_drained", "a build whose seed was drained")
	}
	return nil
}
