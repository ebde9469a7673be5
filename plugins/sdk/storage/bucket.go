package storage

import (
	"context"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// BucketLength is the length of a bucket. A bucket starts at a multiple of it
// since 1970 in UTC.
const BucketLength = 5 * time.Minute

// BucketKey says which bucket of its tenant and feature an event counts in:
// the bucket of its time, with the dimensions that the feature's buckets keep.
// A dimension that the event lacks is absent.
type BucketKey struct {
	Start      time.Time
	Dimensions map[string]string
}

// BucketStore is the capability buckets: sums over five minutes, written in the
// transaction that records, as a projection like the totals. // Q27
//
// A bucket has generations of its own. Late usage of a bucket that was sealed
// goes to the next generation; a sealed generation never changes; the sum over
// the generations is the bucket. The generation that an event counts in is one
// more than the number of seals of its tenant and feature that cover the
// bucket.
type BucketStore interface {
	// LoadBuckets returns buckets in the order (start, dimensions,
	// generation).
	LoadBuckets(ctx context.Context, q BucketQuery) (BucketPage, error)
	// AggregateBuckets answers as [Aggregator].Aggregate does, from buckets.
	// All edges are bucket starts, and q names only dimensions that the
	// buckets keep. Latest and Unique are not available and are refused as
	// unsupported; so are Min and Max, code "reversed", where an event of a
	// selected bucket was corrected. With Extremes, Latest is left nil.
	// PrunedBefore is set for what retention removed while the feature had
	// no buckets, or other settings of them than it has now: the buckets
	// lack it, or hold it without the dimensions of now.
	AggregateBuckets(ctx context.Context, q AggregateQuery) (Aggregates, error)
	// SealBuckets seals every bucket of one tenant and feature that starts
	// before a time, under the exclusive side of the route lock, and appends
	// the seal's credits in the same transaction. Sealing up to a time that
	// is sealed already changes nothing, and answers with the seal that did.
	SealBuckets(ctx context.Context, s Seal) (Seal, error)
}

// Seal is the end of a generation for the buckets that start before Before.
type Seal struct {
	Tenant  string
	Feature string
	Before  time.Time
	// Generation is the one that was sealed, 1 for the first seal. SealedAt
	// is the store's time. Both are the adapter's.
	Generation int
	SealedAt   time.Time
	// Credits are those with which the new period begins, of the seal's
	// tenant. An answer has none.
	Credits []Credit
}

// Bucket is one generation of one bucket.
type Bucket struct {
	Tenant     string
	Feature    string
	Start      time.Time
	Dimensions map[string]string
	Generation int
	Sealed     bool
	Sum        decimal.Decimal
	// Count is the net count: usage events less those fully reversed.
	Count int64
	// Min and Max are over the usage events; nil if there is none. They are
	// not to be relied on when Reversed is set: an event was corrected, in
	// part or whole.
	Min, Max *decimal.Decimal
	Reversed bool
}

// BucketQuery selects buckets of one feature with a start in [From, To).
// Position is where the page begins, zero for the first; Limit is 1 to 1000.
type BucketQuery struct {
	Tenant   string
	Feature  string
	From     time.Time
	To       time.Time
	Unsealed bool // only generations that are not sealed
	Position int
	Limit    int
}

// BucketPage is a page of buckets.
type BucketPage struct {
	Buckets []Bucket
	More    bool
}
