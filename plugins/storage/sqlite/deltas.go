package sqlite

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// prunedGeneration holds what retention removed; see the schema.
const prunedGeneration = 0

// deltas are what one transaction adds to totals and buckets, collected in
// memory so that each row is touched once. They are written in the order of
// their keys.
type deltas struct {
	totals  map[totalKey]*totalDelta
	buckets map[bucketKey]*bucketDelta
	seals   map[featureKey]sealed
}

func newDeltas() deltas {
	return deltas{totals: map[totalKey]*totalDelta{}}
}

// totalKey identifies a total within a generation.
type totalKey struct {
	tenant, feature string
	start           int64 // µs
}

func (k totalKey) compare(o totalKey) int {
	return cmp.Or(cmp.Compare(k.tenant, o.tenant), cmp.Compare(k.feature, o.feature), cmp.Compare(k.start, o.start))
}

type totalDelta struct {
	end           time.Time
	quantity      decimal.Decimal
	events, count int64
	signed        bool
}

// entry adds one event to its total and, with a key, to its bucket.
func (d *deltas) entry(c *conn, e *storage.Entry, seq int64) error {
	ev := &e.Event
	effect, count := ev.Quantity, int64(1)
	if ev.Kind == storage.Correction {
		if effect, count = ev.Effect, 0; ev.Reverses {
			count = -1
		}
	}
	d.total(totalKey{ev.Tenant, ev.Feature, ev.PeriodStart.UnixMicro()},
		totalDelta{end: ev.PeriodEnd, quantity: effect, events: 1, count: count, signed: e.Signed})
	if e.Bucket == nil {
		return nil
	}
	b := storage.BucketDelta{Tenant: ev.Tenant, Feature: ev.Feature, Key: *e.Bucket, Seq: seq, Sum: effect, Count: count}
	if ev.Kind == storage.Usage {
		b.Min, b.Max = &ev.Quantity, &ev.Quantity
	} else {
		b.Reversed = true
	}
	return d.bucket(c, &b)
}

func (d *deltas) total(key totalKey, add totalDelta) {
	t := d.totals[key]
	if t == nil {
		t = &totalDelta{end: add.end}
		d.totals[key] = t
	}
	t.quantity = t.quantity.Add(add.quantity)
	t.events += add.events
	t.count += add.count
	t.signed = add.signed
}

// write adds everything to the given generations.
func (d *deltas) write(c *conn, generations ...int64) error {
	keys := slices.SortedFunc(maps.Keys(d.totals), totalKey.compare)
	for _, g := range generations {
		for _, k := range keys {
			if err := addTotal(c, g, k, d.totals[k]); err != nil {
				return err
			}
		}
		if err := d.writeBuckets(c, g); err != nil {
			return err
		}
	}
	return nil
}

// addTotal moves one total, creating it. The check of a total is made on the
// row that an upsert proposes, so what is below zero by itself moves a row that
// exists (B34, B45).
func addTotal(c *conn, generation int64, k totalKey, t *totalDelta) error {
	if t.signed || t.quantity.Sign() >= 0 {
		_, err := c.bind(qTotalAdd).int(generation).text(k.tenant).text(k.feature).int(k.start).
			time(t.end).decimal(t.quantity).int(t.events).int(t.count).bool(t.signed).run()
		return err
	}
	if _, err := c.bind(qTotalExist).int(generation).text(k.tenant).text(k.feature).int(k.start).
		time(t.end).bool(t.signed).run(); err != nil {
		return err
	}
	_, err := c.bind(qTotalMove).int(generation).text(k.tenant).text(k.feature).int(k.start).
		decimal(t.quantity).int(t.events).int(t.count).bool(t.signed).run()
	return err
}

type featureKey struct{ tenant, feature string }

// bucketKey identifies one generation of a bucket within a projection.
type bucketKey struct {
	totalKey          // start is that of the bucket
	dimensions string // see dimensionsText
	generation int64
}

func (k bucketKey) compare(o bucketKey) int {
	return cmp.Or(k.totalKey.compare(o.totalKey), cmp.Compare(k.dimensions, o.dimensions), cmp.Compare(k.generation, o.generation))
}

type bucketDelta struct {
	sum      decimal.Decimal
	count    int64
	min, max *decimal.Decimal
	reversed bool
}

// bucket adds one event to its bucket, in the generation in which it counts.
func (d *deltas) bucket(c *conn, add *storage.BucketDelta) error {
	dimensions, err := dimensionsText(add.Key.Dimensions)
	if err != nil {
		return err
	}
	k := bucketKey{totalKey: totalKey{add.Tenant, add.Feature, add.Key.Start.UnixMicro()}, dimensions: dimensions}
	if k.generation, err = d.generation(c, k.totalKey, add.Seq); err != nil {
		return err
	}
	if d.buckets == nil {
		d.buckets = map[bucketKey]*bucketDelta{}
	}
	b := d.buckets[k]
	if b == nil {
		b = &bucketDelta{}
		d.buckets[k] = b
	}
	b.sum = b.sum.Add(add.Sum)
	b.count += add.Count
	b.min, b.max = least(b.min, add.Min), most(b.max, add.Max)
	b.reversed = b.reversed || add.Reversed
	return nil
}

func least(a, b *decimal.Decimal) *decimal.Decimal {
	if a == nil || b != nil && b.Cmp(*a) < 0 {
		return b
	}
	return a
}

func most(a, b *decimal.Decimal) *decimal.Decimal {
	if a == nil || b != nil && b.Cmp(*a) > 0 {
		return b
	}
	return a
}

// dimensionsText is the members of a JSON object, in the order of their names:
// one text for equal dimensions, and what begins another comes before it.
func dimensionsText(dimensions map[string]string) (string, error) {
	if len(dimensions) == 0 {
		return "", nil
	}
	b, err := json.Marshal(dimensions)
	if err != nil {
		return "", err
	}
	return string(b[1 : len(b)-1]), nil
}

func (d *deltas) writeBuckets(c *conn, projection int64) error {
	for _, k := range slices.SortedFunc(maps.Keys(d.buckets), bucketKey.compare) {
		b := d.buckets[k]
		if _, err := c.bind(qBucketAdd).int(projection).text(k.tenant).text(k.feature).int(k.start).
			text(k.dimensions).int(k.generation).decimal(b.sum).int(b.count).ptrDecimal(b.min).
			ptrDecimal(b.max).bool(b.reversed).run(); err != nil {
			return err
		}
	}
	return nil
}

// sealed is the last seal of a feature: buckets from before on are open in
// their first generation.
type sealed struct{ before int64 }

// generation is one more than the number of seals that cover the bucket k and
// were made before the event seq was recorded.
func (d *deltas) generation(c *conn, k totalKey, seq int64) (int64, error) {
	f := featureKey{k.tenant, k.feature}
	last, known := d.seals[f]
	if !known {
		last.before = math.MinInt64
		if _, err := c.bind(qSealLast).text(k.tenant).text(k.feature).one(func(r *row) {
			_, last.before = r.int(), r.int()
		}); err != nil {
			return 0, err
		}
		if d.seals == nil {
			d.seals = map[featureKey]sealed{}
		}
		d.seals[f] = last
	}
	if k.start >= last.before {
		return 1, nil
	}
	var first, newest int64
	if _, err := c.bind(qSealCovering).text(k.tenant).text(k.feature).int(k.start).one(func(r *row) { first = r.int() }); err != nil {
		return 0, err
	}
	if _, err := c.bind(qSealOlder).text(k.tenant).text(k.feature).int(seq).one(func(r *row) { newest = r.int() }); err != nil {
		return 0, err
	}
	if first == 0 {
		return 1, nil
	}
	return 1 + max(newest-first+1, 0), nil
}

// generations answers the generations that a write goes to: the active one and,
// during a build, the building one.
func generations(c *conn) (all []int64, err error) {
	_, err = c.bind(qGeneration).one(func(r *row) {
		all = append(all, r.int())
		if building := r.int(); building != 0 {
			all = append(all, building)
		}
	})
	return all, err
}
