package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qProjectionAdvance query = "projection_advance"
	qProjectionEnsure  query = "projection_ensure"
	qProjectionMove    query = "projection_move"
	qProjectionBuckets query = "projection_buckets"
)

// WriteProjection adds deltas to a build and moves its cursor (B41).
func (a *Adapter) WriteProjection(ctx context.Context, b storage.ProjectionBatch) error {
	const op = "write projection"
	idle := len(b.Totals) == 0 && len(b.Buckets) == 0
	if b.Cursor < b.After || (b.Cursor == b.After && !idle) {
		return fmt.Errorf("%s: %w", op, sdk.Invalid("cursor", "beyond where the batch begins"))
	}
	buckets, err := bucketColumnsOf(b.Buckets)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	totals := totalColumnsOf(b.Totals)
	w := writing{faults: faults{commit: "p2", committed: "p3"}}
	return a.run.write(ctx, op, w, func(ctx context.Context, t *tx) error {
		held, err := holdBuild(ctx, t)
		if err != nil {
			return err
		}
		switch err := held.writable(b.Generation); {
		case err != nil:
			return err
		case held.cursor != b.After:
			return moved("cursor_moved", "the cursor where the batch begins")
		case b.Cursor > held.watermark:
			return sdk.Invalid("cursor", "at most the watermark")
		}
		if err := totals.write(ctx, t, b.Generation); err != nil {
			return err
		}
		if err := buckets.write(ctx, t, b.Generation); err != nil {
			return err
		}
		_, err = t.exec(ctx, qProjectionAdvance, b.Cursor)
		return err
	})
}

// totalColumns are deltas of totals by column, each key once, in the order of
// keys: that in which records lock the same rows (B35).
type totalColumns struct {
	tenants, features []string
	starts, ends      []time.Time
	quantities        []string
	events, counts    []int64
	signed            []bool
}

func totalColumnsOf(deltas []storage.TotalDelta) (c totalColumns) {
	for _, d := range foldTotals(deltas) {
		c.tenants, c.features = append(c.tenants, d.Tenant), append(c.features, d.Feature)
		c.starts, c.ends = append(c.starts, d.PeriodStart), append(c.ends, d.PeriodEnd)
		c.quantities = append(c.quantities, d.Quantity.String())
		c.events, c.counts = append(c.events, d.Events), append(c.counts, d.Count)
		c.signed = append(c.signed, d.Signed)
	}
	return c
}

func foldTotals(deltas []storage.TotalDelta) []storage.TotalDelta {
	keyOf := func(d storage.TotalDelta) counterKey {
		return counterKey{d.Tenant, d.Feature, d.PeriodStart.UnixMicro()}
	}
	all := make([]storage.TotalDelta, 0, len(deltas))
	at := make(map[counterKey]int, len(deltas))
	for _, d := range deltas {
		i, ok := at[keyOf(d)]
		if !ok {
			at[keyOf(d)] = len(all)
			all = append(all, d)
			continue
		}
		t := &all[i]
		t.Quantity = t.Quantity.Add(d.Quantity)
		t.Events, t.Count = t.Events+d.Events, t.Count+d.Count
		t.Signed = t.Signed || d.Signed
	}
	slices.SortFunc(all, func(a, b storage.TotalDelta) int { return keyOf(a).compare(keyOf(b)) })
	return all
}

// write makes the rows exist at zero, then moves them: the check on a total
// sees what an upsert proposes, and a delta may be negative by itself (B45).
func (c totalColumns) write(ctx context.Context, t *tx, generation int64) error {
	if len(c.tenants) == 0 {
		return nil
	}
	if err := c.ensure(ctx, t, generation); err != nil {
		return err
	}
	return c.move(ctx, t, generation)
}

func (c totalColumns) ensure(ctx context.Context, t *tx, generation int64) error {
	_, err := t.exec(ctx, qProjectionEnsure, generation, c.tenants, c.features, c.starts, c.ends, c.signed)
	return err
}

func (c totalColumns) move(ctx context.Context, t *tx, generation int64) error {
	n, err := t.exec(ctx, qProjectionMove, generation, c.tenants, c.features, c.starts,
		c.quantities, c.events, c.counts, c.signed)
	if err == nil && n != int64(len(c.tenants)) {
		err = sdk.Unavailable("corrupt", errors.New("a total vanished while it was moved"))
	}
	return err
}

// bucketColumns are deltas of buckets by column.
type bucketColumns struct {
	tenants, features []string
	starts            []time.Time
	dimensions        []string
	seqs              []int64
	sums              []string
	counts            []int64
	mins, maxs        []*string
	reversed          []bool
}

func bucketColumnsOf(deltas []storage.BucketDelta) (c bucketColumns, err error) {
	for _, d := range deltas {
		dims, err := bucketDimensions(d.Key.Dimensions)
		if err != nil {
			return bucketColumns{}, err
		}
		c.tenants, c.features = append(c.tenants, d.Tenant), append(c.features, d.Feature)
		c.starts, c.dimensions = append(c.starts, d.Key.Start), append(c.dimensions, dims)
		c.seqs = append(c.seqs, d.Seq)
		c.sums, c.counts = append(c.sums, d.Sum.String()), append(c.counts, d.Count)
		c.mins, c.maxs = append(c.mins, optDecimal(d.Min)), append(c.maxs, optDecimal(d.Max))
		c.reversed = append(c.reversed, d.Reversed)
	}
	return c, nil
}

// optDecimal binds NULL for nil.
func optDecimal(d *decimal.Decimal) *string {
	if d == nil {
		return nil
	}
	s := d.String()
	return &s
}

func (c bucketColumns) write(ctx context.Context, t *tx, generation int64) error {
	if len(c.tenants) == 0 {
		return nil
	}
	_, err := t.exec(ctx, qProjectionBuckets, generation, c.tenants, c.features, c.starts, c.dimensions,
		c.seqs, c.sums, c.counts, c.mins, c.maxs, c.reversed)
	return err
}
