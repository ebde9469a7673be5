package conformance

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// bucketKey identifies one generation of a bucket in one projection.
type bucketKey struct {
	tenant, feature string
	start           int64
	dimensions      string
	generation      int
	projection      int64
}

func (k bucketKey) compare(l bucketKey) int {
	return cmp.Or(cmp.Compare(k.start, l.start), cmp.Compare(k.dimensions, l.dimensions), cmp.Compare(k.generation, l.generation))
}

// flat writes names and values so that no two sets look the same.
func flat(m map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&b, "%q=%q,", k, m[k])
	}
	return b.String()
}

// bucketDelta is what an event adds to its bucket.
func bucketDelta(ev *storage.Event, key storage.BucketKey) storage.BucketDelta {
	d := storage.BucketDelta{
		Tenant: ev.Tenant, Feature: ev.Feature, Key: key, Seq: ev.Seq,
		Sum: ev.Effect, Count: netCount(ev), Reversed: ev.Kind == storage.Correction,
	}
	if ev.Kind == storage.Usage {
		q := ev.Quantity
		d.Min, d.Max = &q, &q
	}
	return d
}

// sealRow is a seal and the highest seq at the time.
type sealRow struct {
	storage.Seal
	seq int64
}

// sealsOver counts the seals that cover a bucket and were made before seq.
func (s *Reference) sealsOver(tenant, feature string, start time.Time, seq int64) int {
	n := 0
	for _, seal := range s.seals[[2]string{tenant, feature}] {
		if seal.Before.After(start) && seal.seq < seq {
			n++
		}
	}
	return n
}

func (s *Reference) addBucket(projection int64, d storage.BucketDelta) {
	k := bucketKey{
		tenant: d.Tenant, feature: d.Feature, start: d.Key.Start.UnixMicro(), dimensions: flat(d.Key.Dimensions),
		generation: 1 + s.sealsOver(d.Tenant, d.Feature, d.Key.Start, d.Seq), projection: projection,
	}
	if s.flaws.has(flawSealedBucketMoves) {
		k.generation = 1
	}
	b := s.buckets[k]
	b.Tenant, b.Feature, b.Start, b.Generation = d.Tenant, d.Feature, d.Key.Start.UTC(), k.generation
	b.Dimensions = maps.Clone(d.Key.Dimensions)
	b.Sum = b.Sum.Add(d.Sum)
	b.Count += d.Count
	b.Min, b.Max = least(b.Min, d.Min), most(b.Max, d.Max)
	b.Reversed = b.Reversed || d.Reversed
	s.buckets[k] = b
}

func least(a, b *decimal.Decimal) *decimal.Decimal {
	if a == nil || (b != nil && b.Cmp(*a) < 0) {
		return b
	}
	return a
}

func most(a, b *decimal.Decimal) *decimal.Decimal {
	if a == nil || (b != nil && b.Cmp(*a) > 0) {
		return b
	}
	return a
}

// bucketsOf returns the buckets of a feature in order.
func (s *Reference) bucketsOf(tenant, feature string, from, to time.Time) []storage.Bucket {
	var keys []bucketKey
	for k, b := range s.buckets {
		if k.projection == s.projection.Active && k.tenant == tenant && k.feature == feature && within(b.Start, from, to) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, bucketKey.compare)
	all := make([]storage.Bucket, 0, len(keys))
	for _, k := range keys {
		b := s.buckets[k]
		b.Sealed = b.Generation <= s.sealsOver(tenant, feature, b.Start, math.MaxInt64)
		all = append(all, b)
	}
	return all
}

// LoadBuckets returns a page of buckets.
func (s *Reference) LoadBuckets(ctx context.Context, q storage.BucketQuery) (storage.BucketPage, error) {
	if err := s.begin(ctx); err != nil {
		return storage.BucketPage{}, err
	}
	defer s.mu.Unlock()
	page := storage.BucketPage{Buckets: []storage.Bucket{}}
	at := 0
	for _, b := range s.bucketsOf(q.Tenant, q.Feature, q.From, q.To) {
		if q.Unsealed && b.Sealed {
			continue
		}
		if at++; at <= q.Position {
			continue
		}
		if len(page.Buckets) == q.Limit {
			page.More = true
			break
		}
		page.Buckets = append(page.Buckets, b)
	}
	return page, nil
}

// SealBuckets ends a generation.
func (s *Reference) SealBuckets(ctx context.Context, seal storage.Seal) (storage.Seal, error) {
	if err := s.begin(ctx); err != nil {
		return storage.Seal{}, err
	}
	defer s.mu.Unlock()
	k := [2]string{seal.Tenant, seal.Feature}
	for _, old := range s.seals[k] {
		if !old.Before.Before(seal.Before) {
			if s.flaws.has(flawSealRepeatsCredits) {
				s.settled.credits = append(s.settled.credits, seal.Credits...)
			}
			return old.Seal, nil
		}
	}
	if err := s.sealCredits(&seal); err != nil {
		return storage.Seal{}, err
	}
	seal.Generation, seal.SealedAt, seal.Credits = len(s.seals[k])+1, s.clock(), nil
	s.seals[k] = append(s.seals[k], sealRow{seal, s.lastSeq})
	return seal, nil
}

// AggregateBuckets answers from buckets.
func (s *Reference) AggregateBuckets(ctx context.Context, q storage.AggregateQuery) (storage.Aggregates, error) {
	if q.Unique != "" {
		return storage.Aggregates{}, &sdk.Error{Tag: sdk.TagUnsupported, Code: "unique"}
	}
	if err := s.begin(ctx); err != nil {
		return storage.Aggregates{}, err
	}
	defer s.mu.Unlock()
	g := newGroups(&q)
	for _, b := range s.bucketsOf(q.Tenant, q.Feature, q.Edges[0], q.Edges[len(q.Edges)-1]) {
		row := g.row(b.Start, b.Dimensions)
		if row == nil {
			continue
		}
		if q.Extremes && b.Reversed {
			return storage.Aggregates{}, &sdk.Error{Tag: sdk.TagUnsupported, Code: "reversed"}
		}
		row.Sum = row.Sum.Add(b.Sum)
		row.Count += b.Count
		if q.Extremes {
			row.Min, row.Max = least(row.Min, b.Min), most(row.Max, b.Max)
		}
	}
	return g.answer(), nil
}
