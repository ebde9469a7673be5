package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qBucketsPage      query = "buckets_page"
	qBucketsAggregate query = "buckets_aggregate"
	qBucketsKept      query = "buckets_kept"
	qBucketsPruned    query = "buckets_pruned"
	qBucketsSeal      query = "buckets_seal"
	qBucketsSealed    query = "buckets_sealed"
)

var _ storage.BucketStore = (*Adapter)(nil)

// LoadBuckets returns buckets of the active generation of the projections, in
// the order (start, dimensions, generation).
func (s store) LoadBuckets(ctx context.Context, q storage.BucketQuery) (page storage.BucketPage, err error) {
	const op = "load buckets"
	if err := checkLimit(q.Limit); err != nil {
		return page, fmt.Errorf("%s: %w", op, err)
	}
	if q.Position < 0 {
		return page, fmt.Errorf("%s: %w", op, sdk.Invalid("position", "0 or more"))
	}
	err = s.run.read(ctx, op, func(ctx context.Context, t *tx) error {
		page = storage.BucketPage{Buckets: []storage.Bucket{}}
		return t.each(ctx, qBucketsPage, func(r pgx.Rows) error {
			b := storage.Bucket{Tenant: q.Tenant, Feature: q.Feature}
			var dimensions string
			err := r.Scan(utcInto{&b.Start}, &dimensions, &b.Generation, &b.Sealed, decimalInto{&b.Sum}, &b.Count,
				optDecimalInto{&b.Min}, optDecimalInto{&b.Max}, &b.Reversed)
			if err == nil && dimensions != noDimensions {
				err = json.Unmarshal([]byte(dimensions), &b.Dimensions)
			}
			page.Buckets = append(page.Buckets, b)
			return err
		}, q.Tenant, q.Feature, q.From, q.To, q.Unsealed, q.Limit+1, q.Position)
	})
	if err != nil {
		return storage.BucketPage{}, err
	}
	if page.More = len(page.Buckets) > q.Limit; page.More {
		page.Buckets = page.Buckets[:q.Limit]
	}
	return page, nil
}

// AggregateBuckets answers as Aggregate does, from buckets.
func (s store) AggregateBuckets(ctx context.Context, q storage.AggregateQuery) (storage.Aggregates, error) {
	const op = "aggregate buckets"
	args, err := aggregateArgs(q)
	if err == nil {
		err = bucketEdges(q)
	}
	if err != nil {
		return storage.Aggregates{}, fmt.Errorf("%s: %w", op, err)
	}
	var all storage.Aggregates
	err = s.run.snapshot(ctx, op, func(ctx context.Context, t *tx) error {
		all = storage.Aggregates{Rows: []storage.AggregateRow{}}
		if err := bucketsKeep(ctx, t, q); err != nil {
			return err
		}
		if err := t.row(ctx, qBucketsPruned, []any{utcInto{&all.PrunedBefore}}, q.Tenant, q.Feature, q.Edges[0]); err != nil {
			return err
		}
		return t.each(ctx, qBucketsAggregate, func(r pgx.Rows) error {
			row, err := bucketsRow(r, q)
			all.Rows = append(all.Rows, row)
			return err
		}, args...)
	})
	if err != nil {
		return storage.Aggregates{}, err
	}
	return cutAggregates(all, q.Limit), nil
}

func bucketEdges(q storage.AggregateQuery) error {
	if q.Unique != "" {
		return cannot("unique", "a question that buckets can answer")
	}
	for _, edge := range q.Edges {
		if edge.UnixMicro()%storage.BucketLength.Microseconds() != 0 {
			return sdk.Invalid("edges", "starts of buckets: multiples of five minutes in UTC")
		}
	}
	return nil
}

// cannot is the answer to what buckets do not know.
func cannot(code, rule string) error {
	return &sdk.Error{Tag: sdk.TagUnsupported, Code: code, Rule: rule}
}

// bucketsKeep refuses names of dimensions that the feature's buckets leave out:
// all would be in the group without.
func bucketsKeep(ctx context.Context, t *tx, q storage.AggregateQuery) error {
	if len(q.GroupBy) == 0 && len(q.Filter) == 0 {
		return nil
	}
	var kept []string
	if err := t.row(ctx, qBucketsKept, []any{&kept}, q.Feature); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	for _, name := range q.GroupBy {
		if !slices.Contains(kept, name) {
			return cannot("dimension", "dimensions that the feature's buckets keep")
		}
	}
	for name := range q.Filter {
		if !slices.Contains(kept, name) {
			return cannot("dimension", "dimensions that the feature's buckets keep")
		}
	}
	return nil
}

func bucketsRow(r pgx.Rows, q storage.AggregateQuery) (row storage.AggregateRow, err error) {
	var group [maxGroups]*string
	var reversed bool
	err = r.Scan(&row.Window,
		&group[0], &group[1], &group[2], &group[3], &group[4], &group[5], &group[6], &group[7],
		decimalInto{&row.Sum}, &row.Count, optDecimalInto{&row.Min}, optDecimalInto{&row.Max}, &reversed)
	if err != nil {
		return row, err
	}
	row.Group = append([]*string{}, group[:len(q.GroupBy)]...)
	if !q.Extremes {
		row.Min, row.Max = nil, nil
	} else if reversed {
		return row, cannot("reversed", "extremes of buckets in which nothing was corrected")
	}
	return row, nil
}

// SealBuckets ends a generation. Nobody records meanwhile: what was recorded
// before is in it, what comes after is not.
func (a *Adapter) SealBuckets(ctx context.Context, s storage.Seal) (storage.Seal, error) {
	const op = "seal buckets"
	switch {
	case s.Tenant == "":
		return storage.Seal{}, fmt.Errorf("%s: %w", op, sdk.Invalid("tenant", "required"))
	case s.Feature == "":
		return storage.Seal{}, fmt.Errorf("%s: %w", op, sdk.Invalid("feature", "required"))
	case s.Before.IsZero():
		return storage.Seal{}, fmt.Errorf("%s: %w", op, sdk.Invalid("before", "required"))
	}
	for i := range s.Credits {
		err := checkCredit(&s.Credits[i])
		if err == nil && s.Credits[i].Tenant != s.Tenant {
			err = sdk.Invalid("tenant", "the one whose buckets are sealed")
		}
		if err != nil {
			return storage.Seal{}, fmt.Errorf("%s: credits[%d]: %w", op, i, err)
		}
	}
	sealed := storage.Seal{Tenant: s.Tenant, Feature: s.Feature}
	dest := []any{utcInto{&sealed.Before}, &sealed.Generation, utcInto{&sealed.SealedAt}}
	err := a.run.write(ctx, op, writing{lock: lockExclusive}, func(ctx context.Context, t *tx) error {
		err := t.row(ctx, qBucketsSeal, dest, s.Tenant, s.Feature, s.Before)
		if errors.Is(err, pgx.ErrNoRows) { // sealed already
			return t.row(ctx, qBucketsSealed, dest, s.Tenant, s.Feature, s.Before)
		}
		if err == nil {
			_, err = t.addCredits(ctx, s.Credits)
		}
		return err
	})
	if err != nil {
		return storage.Seal{}, err
	}
	return sealed, nil
}

// noDimensions is how buckets without dimensions are stored.
const noDimensions = "{}"

// bucketDimensions writes dimensions with sorted keys: equal ones have equal
// text.
func bucketDimensions(d map[string]string) (string, error) {
	if len(d) == 0 {
		return noDimensions, nil
	}
	b, err := json.Marshal(d)
	return string(b), err
}
