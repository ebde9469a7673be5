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
	qProjectionNumber      query = "projection_number"
	qProjectionLeft        query = "projection_left"
	qProjectionPatch       query = "projection_patch"
	qProjectionAddPruned   query = "projection_add_pruned"
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
		&st.ActiveSettings, &st.BuildingSettings,
		utcInto{&st.BegunAt},
		utcInto{&st.ActivatedAt},
	})
	return st, err
}

// BeginProjection announces a build. The watermark is read after the lock was
// granted: a seq is drawn before its event commits, and only when nobody else
// records is the highest one of the table the highest there will be below the
// next (B-T4).
//
// Recording waits while this holds the lock, so the copy of the totals is made
// before, for a number that nobody knows of, and under the lock only what moved
// since is copied again.
func (a *Adapter) BeginProjection(ctx context.Context, settings string) (storage.ProjectionState, error) {
	const op = "begin projection"
	if len(settings) > maxSettings {
		return storage.ProjectionState{}, fmt.Errorf("%s: %w", op, sdk.Invalid("settings", "at most 64 KiB"))
	}
	for {
		// A build that exists is answered without stopping anybody.
		st, err := a.ProjectionState(ctx)
		if err != nil {
			return storage.ProjectionState{}, err
		}
		if st.Building != 0 {
			st.Resumed = true
			return st, nil
		}
		c, err := a.copyTotals(ctx, op)
		if err != nil {
			return storage.ProjectionState{}, err
		}
		if c.number == 0 { // somebody else began one
			continue
		}
		st, err = a.announce(ctx, op, c, settings)
		if err != nil {
			return storage.ProjectionState{}, err
		}
		if st.Building == c.number {
			return st, nil
		}
		// Somebody else began one, or activated one: the copy is of no use.
		if err := a.removeCopy(ctx, op, c.number); err != nil {
			return storage.ProjectionState{}, err
		}
	}
}

// totalsCopy is a copy of the active totals under the number of a build that
// may come to be, and under its negative, the seed.
type totalsCopy struct{ active, number int64 }

// copyTotals removes copies of which no build came to be, and makes one. The
// number is zero when there is a build.
func (a *Adapter) copyTotals(ctx context.Context, op string) (c totalsCopy, err error) {
	var left []int64
	err = a.run.write(ctx, op, writing{}, func(ctx context.Context, t *tx) error {
		c, left = totalsCopy{}, nil
		err := t.row(ctx, qProjectionNumber, []any{&c.active, &c.number})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		return t.each(ctx, qProjectionLeft, func(r pgx.Rows) error {
			var number int64
			err := r.Scan(&number)
			left = append(left, number)
			return err
		})
	})
	if err != nil || c.number == 0 {
		return c, err
	}
	for _, number := range left {
		if err := a.removeCopy(ctx, op, number); err != nil {
			return c, err
		}
	}
	return c, a.run.write(ctx, op, writing{}, func(ctx context.Context, t *tx) error {
		_, err := t.exec(ctx, qProjectionCopy, c.active, c.number)
		return err
	})
}

// removeCopy leaves a copy alone of which a build came to be.
func (a *Adapter) removeCopy(ctx context.Context, op string, number int64) error {
	const slice = 5000
	for {
		var gone int64
		err := a.run.write(ctx, op, writing{}, func(ctx context.Context, t *tx) (err error) {
			gone, err = pruneProjection(ctx, t, number, slice)
			return err
		})
		if errors.Is(err, sdk.ErrConflict) {
			return nil
		}
		if err != nil || gone < slice {
			return err
		}
	}
}

// announce publishes a build of the copy. It answers the state as it is when
// there is a build already or another generation is active.
func (a *Adapter) announce(ctx context.Context, op string, c totalsCopy, settings string) (st storage.ProjectionState, err error) {
	w := writing{lock: lockExclusive, faults: faults{committed: "p1"}}
	err = a.run.write(ctx, op, w, func(ctx context.Context, t *tx) error {
		n, err := t.exec(ctx, qProjectionBegin, c.active, c.number, settings)
		if err == nil && n == 1 {
			err = fillBuild(ctx, t, c)
		}
		if err == nil {
			st, err = projectionState(ctx, t)
		}
		return err
	})
	return st, err
}

func fillBuild(ctx context.Context, t *tx, c totalsCopy) error {
	for _, generation := range [...]int64{-c.number, c.number} {
		if _, err := t.exec(ctx, qProjectionPatch, c.active, generation); err != nil {
			return err
		}
	}
	for _, q := range [...]query{qProjectionAddPruned, qProjectionCopyBuckets} {
		if _, err := t.exec(ctx, q, c.number); err != nil {
			return err
		}
	}
	return nil
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
