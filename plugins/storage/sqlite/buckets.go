package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// LoadBuckets returns a page of buckets of the active projection.
func (a *Adapter) LoadBuckets(ctx context.Context, q storage.BucketQuery) (page storage.BucketPage, err error) {
	const op = "load buckets"
	if err := checkBuckets(q); err != nil {
		return page, fmt.Errorf("%s: %w", op, err)
	}
	err = a.read(ctx, op, func(c *conn) error {
		page = storage.BucketPage{Buckets: []storage.Bucket{}}
		err := c.bind(qBuckets).text(q.Tenant).text(q.Feature).time(q.From).time(q.To).bool(q.Unsealed).
			int(int64(q.Limit) + 1).int(int64(q.Position)).
			each(func(r *row) error {
				b := r.bucket()
				b.Tenant, b.Feature = q.Tenant, q.Feature
				page.Buckets = append(page.Buckets, b)
				return nil
			})
		if page.More = len(page.Buckets) > q.Limit; page.More {
			page.Buckets = page.Buckets[:q.Limit]
		}
		return err
	})
	return page, err
}

func checkBuckets(q storage.BucketQuery) error {
	switch {
	case q.Tenant == "":
		return sdk.Invalid("tenant", "required")
	case q.Feature == "":
		return sdk.Invalid("feature", "required")
	case q.Position < 0:
		return sdk.Invalid("position", "0 or more")
	}
	return checkLimit(q.Limit)
}

func (r *row) bucket() (b storage.Bucket) {
	b.Start = r.time()
	if members := r.text(); members != "" && r.err == nil {
		r.err = json.Unmarshal([]byte("{"+members+"}"), &b.Dimensions)
	}
	b.Generation, b.Sum, b.Count = int(r.int()), r.total(), r.int()
	b.Min, b.Max = r.ptrTotal(), r.ptrTotal()
	b.Reversed, b.Sealed = r.bool(), r.bool()
	return b
}

// AggregateBuckets answers from buckets what Aggregate answers from events;
// see [storage.BucketStore]. A dimension that the buckets do not keep is
// unsupported, code "dimension".
func (a *Adapter) AggregateBuckets(ctx context.Context, q storage.AggregateQuery) (res storage.Aggregates, err error) {
	const op = "aggregate buckets"
	g, err := newCells(&q)
	if err == nil {
		err = checkBucketQuery(&q)
	}
	if err != nil {
		return res, fmt.Errorf("%s: %w", op, err)
	}
	err = a.read(ctx, op, func(c *conn) error {
		if err := checkKept(c, &q); err != nil {
			return err
		}
		if err := g.buckets(c); err != nil {
			return err
		}
		res = g.answer()
		_, err := c.bind(qBucketsPruned).text(q.Tenant).text(q.Feature).int(g.from()).int(g.to()).
			one(func(r *row) { res.PrunedBefore = r.time() })
		return err
	})
	if err != nil {
		return storage.Aggregates{}, err
	}
	return res, nil
}

func checkBucketQuery(q *storage.AggregateQuery) error {
	if q.Unique != "" {
		return &sdk.Error{Tag: sdk.TagUnsupported, Code: "unique", Field: "unique", Rule: "what buckets can answer"}
	}
	for _, e := range q.Edges {
		if !e.Equal(e.Truncate(storage.BucketLength)) {
			return sdk.Invalid("edges", "starts of buckets")
		}
	}
	return nil
}

// checkKept refuses names that the buckets of a declared feature do not keep:
// they would look as if no event had them.
func checkKept(c *conn, q *storage.AggregateQuery) error {
	f, err := loadFeature(c, q.Feature)
	if err != nil || f.Buckets == nil {
		return err
	}
	names := slices.Clone(q.GroupBy)
	for name := range q.Filter {
		names = append(names, name)
	}
	for _, name := range names {
		if !slices.Contains(f.Buckets, name) {
			return &sdk.Error{
				Tag: sdk.TagUnsupported, Code: "dimension", Field: "dimensions",
				Rule: "dimensions that the buckets of the feature keep",
			}
		}
	}
	return nil
}

func (g *cells) buckets(c *conn) error {
	return c.bind(qBucketsAggregate).text(g.q.Tenant).text(g.q.Feature).int(g.from()).int(g.to()).
		each(func(r *row) error {
			at := r.int()
			s, err := g.selectDimensions("{" + r.text() + "}")
			if err != nil || s.out {
				return err
			}
			to := g.cell(at, s)
			if to == nil {
				return nil
			}
			to.Sum = to.Sum.Add(r.total())
			to.Count += r.int()
			low, high := r.ptrTotal(), r.ptrTotal()
			if reversed := r.bool(); !g.q.Extremes {
				return nil
			} else if reversed {
				return &sdk.Error{
					Tag: sdk.TagUnsupported, Code: "reversed", Rule: "windows without corrections",
					Hint: "ask the events for the extremes of these windows",
				}
			}
			to.Min, to.Max = least(to.Min, low), most(to.Max, high)
			return nil
		})
}

// SealBuckets ends a generation; see [storage.BucketStore]. A time that is
// sealed already answers the first seal that covers it.
func (a *Adapter) SealBuckets(ctx context.Context, s storage.Seal) (sealed storage.Seal, err error) {
	const op = "seal buckets"
	switch {
	case s.Tenant == "":
		err = sdk.Invalid("tenant", "required")
	case s.Feature == "":
		err = sdk.Invalid("feature", "required")
	}
	for i := 0; i < len(s.Credits) && err == nil; i++ {
		if err = checkCredit(&s.Credits[i]); err == nil && s.Credits[i].Tenant != s.Tenant {
			err = sdk.Invalid("credits", "of the tenant whose buckets are sealed").At(i)
		}
	}
	if err != nil {
		return storage.Seal{}, fmt.Errorf("%s: %w", op, err)
	}
	err = a.write(ctx, op, func(_ context.Context, c *conn) error {
		sealed = storage.Seal{Tenant: s.Tenant, Feature: s.Feature, Before: s.Before.UTC().Truncate(time.Microsecond)}
		found, err := c.bind(qSealCovered).text(s.Tenant).text(s.Feature).time(s.Before).one(func(r *row) {
			sealed.Generation, sealed.Before, sealed.SealedAt = int(r.int()), r.time(), r.time()
		})
		if err != nil || found {
			return err
		}
		if _, err := c.bind(qSealLast).text(s.Tenant).text(s.Feature).one(func(r *row) { sealed.Generation = int(r.int()) }); err != nil {
			return err
		}
		sealed.Generation++
		sealed.SealedAt = a.now()
		_, err = c.bind(qSealInsert).text(s.Tenant).text(s.Feature).int(int64(sealed.Generation)).
			time(sealed.Before).time(sealed.SealedAt).run()
		for i := 0; i < len(s.Credits) && err == nil; i++ {
			_, err = addCredit(c, s.Credits[i], sealed.SealedAt)
		}
		return err
	})
	return sealed, err
}
