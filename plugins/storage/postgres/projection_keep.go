package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qProjectionCompare      query = "projection_compare"
	qProjectionPause        query = "projection_pause"
	qProjectionAbandon      query = "projection_abandon"
	qProjectionForget       query = "projection_forget"
	qProjectionPruneTotals  query = "projection_prune_totals"
	qProjectionPruneBuckets query = "projection_prune_buckets"
)

// CompareProjections lists keys whose totals differ between two generations, in
// one snapshot: what is recorded meanwhile is in both or in neither.
func (s store) CompareProjections(ctx context.Context, active, built int64, limit int) (storage.ProjectionDiff, error) {
	const op = "compare projections"
	if limit < 1 || limit > maxRows {
		return storage.ProjectionDiff{}, fmt.Errorf("%s: %w", op, sdk.Invalid("limit", "1 to 100000"))
	}
	var diff storage.ProjectionDiff
	err := s.run.read(ctx, op, func(ctx context.Context, t *tx) error {
		diff = storage.ProjectionDiff{Differences: []storage.TotalDifference{}}
		return t.each(ctx, qProjectionCompare, func(r pgx.Rows) error {
			var d storage.TotalDifference
			a, b := &d.Active, &d.Built
			err := r.Scan(&d.Tenant, &d.Feature, utcInto{&d.PeriodStart},
				utcInto{&a.PeriodEnd}, decimalInto{&a.Quantity}, &a.Events, &a.Count, &a.Signed,
				utcInto{&b.PeriodEnd}, decimalInto{&b.Quantity}, &b.Events, &b.Count, &b.Signed, &diff.Total)
			for _, side := range [...]*storage.TotalDelta{a, b} {
				side.Tenant, side.Feature, side.PeriodStart = d.Tenant, d.Feature, d.PeriodStart
			}
			diff.Differences = append(diff.Differences, d)
			return err
		}, active, built, limit)
	})
	if err != nil {
		return storage.ProjectionDiff{}, err
	}
	return diff, nil
}

// PauseProjection stops a build from being written to, or lets it go on. A
// batch that is being written is finished first.
func (a *Adapter) PauseProjection(ctx context.Context, generation int64, paused bool) (storage.ProjectionState, error) {
	var st storage.ProjectionState
	err := a.run.write(ctx, "pause projection", writing{}, func(ctx context.Context, t *tx) error {
		n, err := t.exec(ctx, qProjectionPause, generation, paused)
		if err == nil && n == 0 {
			err = moved("not_building", "a generation that is being built")
		}
		if err == nil {
			st, err = projectionState(ctx, t)
		}
		return err
	})
	if err != nil {
		return storage.ProjectionState{}, err
	}
	return st, nil
}

// PruneProjection deletes rows of a generation that is not active. A build is
// ended first, under the exclusive side of the route lock: a record that read
// of the build before would write to it after its rows were gone.
func (a *Adapter) PruneProjection(ctx context.Context, generation int64, limit int) (int, error) {
	const op = "prune projection"
	if generation < 1 {
		return 0, fmt.Errorf("%s: %w", op, sdk.Invalid("generation", "above 0"))
	}
	if limit < 1 || limit > maxRows {
		return 0, fmt.Errorf("%s: %w", op, sdk.Invalid("limit", "1 to 100000"))
	}
	st, err := a.ProjectionState(ctx)
	if err != nil {
		return 0, err
	}
	if st.Building == generation {
		err := a.run.write(ctx, op, writing{lock: lockExclusive}, func(ctx context.Context, t *tx) error {
			_, err := t.exec(ctx, qProjectionAbandon, generation)
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	var gone int64
	err = a.run.write(ctx, op, writing{}, func(ctx context.Context, t *tx) (err error) {
		gone, err = pruneProjection(ctx, t, generation, int64(limit))
		return err
	})
	if err != nil {
		return 0, err
	}
	return int(gone), nil
}

func pruneProjection(ctx context.Context, t *tx, generation, limit int64) (int64, error) {
	b, err := holdBuild(ctx, t)
	if err != nil {
		return 0, err
	}
	if generation == b.active || generation == b.building {
		return 0, moved("in_use", "a generation that is neither read nor built")
	}
	gone, err := t.exec(ctx, qProjectionPruneTotals, generation, limit)
	if err != nil || gone == limit {
		return gone, err
	}
	buckets, err := t.exec(ctx, qProjectionPruneBuckets, generation, limit-gone)
	if gone += buckets; err != nil || gone == limit {
		return gone, err
	}
	// Not before: whoever is killed meanwhile leaves the number of what remains.
	_, err = t.exec(ctx, qProjectionForget, generation)
	return gone, err
}
