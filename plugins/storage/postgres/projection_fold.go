package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qProjectionFold        query = "projection_fold"
	qProjectionFoldBuckets query = "projection_fold_buckets"
)

var _ storage.ProjectionFolder = (*Adapter)(nil)

// FoldProjection adds the next events up in the server and writes the sums as
// WriteProjection does (B41). Everything up to the watermark was committed when
// it was read, so unlike a stream it need not look who is recording (B-T14).
func (a *Adapter) FoldProjection(ctx context.Context, f storage.ProjectionFold) (done storage.ProjectionFolded, err error) {
	const op = "fold projection"
	if f.Limit < 1 || f.Limit > maxRows {
		return done, fmt.Errorf("%s: %w", op, sdk.Invalid("limit", "1 to 100000"))
	}
	w := writing{faults: faults{commit: "p2", committed: "p3"}}
	err = a.run.write(ctx, op, w, func(ctx context.Context, t *tx) error {
		held, err := holdBuild(ctx, t)
		if err != nil {
			return err
		}
		switch err := held.writable(f.Generation); {
		case err != nil:
			return err
		case held.cursor != f.After:
			return moved("cursor_moved", "the cursor where the batch begins")
		case held.cursor >= held.watermark:
			return sdk.Invalid("after", "below the watermark")
		}
		done, err = foldEvents(ctx, t, f, held.watermark)
		if err != nil {
			return err
		}
		_, err = t.exec(ctx, qProjectionAdvance, done.Cursor)
		return err
	})
	if err != nil {
		return storage.ProjectionFolded{}, err
	}
	return done, nil
}

// foldEvents adds a page of events to the build and answers where it ends.
func foldEvents(ctx context.Context, t *tx, f storage.ProjectionFold, watermark int64) (storage.ProjectionFolded, error) {
	done := storage.ProjectionFolded{Cursor: f.After}
	var totals []storage.TotalDelta
	err := t.each(ctx, qProjectionFold, func(r pgx.Rows) error {
		var d storage.TotalDelta
		var last int64
		err := r.Scan(&d.Tenant, &d.Feature, utcInto{&d.PeriodStart}, utcInto{&d.PeriodEnd}, decimalInto{&d.Quantity},
			&d.Events, &d.Count, &d.Signed, &last)
		totals = append(totals, d)
		done.Events += d.Events
		done.Cursor = max(done.Cursor, last)
		return err
	}, f.After, watermark, f.Limit, noNil(f.Signed))
	if err != nil {
		return done, err
	}
	if done.Events < int64(f.Limit) {
		done.Cursor = watermark
	}
	if err := totalColumnsOf(totals).write(ctx, t, f.Generation); err != nil {
		return done, err
	}
	if done.Events == 0 || len(f.Buckets) == 0 {
		return done, nil
	}
	f.Limit = int(done.Events)
	deltas, err := foldBuckets(ctx, t, f, done.Cursor)
	if err != nil {
		return done, err
	}
	buckets, err := bucketColumnsOf(deltas)
	if err != nil {
		return done, err
	}
	return done, buckets.write(ctx, t, f.Generation)
}

// foldBuckets answers what the events up to last add to buckets.
func foldBuckets(ctx context.Context, t *tx, f storage.ProjectionFold, last int64) ([]storage.BucketDelta, error) {
	features := slices.Sorted(maps.Keys(f.Buckets))
	names := make([]string, len(features))
	for i, feature := range features {
		text, err := json.Marshal(noNil(f.Buckets[feature]))
		if err != nil {
			return nil, err
		}
		names[i] = string(text)
	}
	var all []storage.BucketDelta
	err := t.each(ctx, qProjectionFoldBuckets, func(r pgx.Rows) error {
		var d storage.BucketDelta
		var kept []*string
		err := r.Scan(&d.Tenant, &d.Feature, utcInto{&d.Key.Start}, &kept, &d.Seq, decimalInto{&d.Sum}, &d.Count,
			optDecimalInto{&d.Min}, optDecimalInto{&d.Max}, &d.Reversed)
		for i, value := range kept {
			if value == nil {
				continue
			}
			if d.Key.Dimensions == nil {
				d.Key.Dimensions = make(map[string]string, len(kept))
			}
			d.Key.Dimensions[f.Buckets[d.Feature][i]] = *value
		}
		all = append(all, d)
		return err
	}, f.After, last, f.Limit, features, names)
	return all, err
}

// noNil binds an empty array for nil, which would be NULL.
func noNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}
