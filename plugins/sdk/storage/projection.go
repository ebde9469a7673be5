package storage

import (
	"context"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// ProjectionStore is the part of the capability projection_generations that
// builds totals and buckets anew beside those in use.
//
// During a build every record and correction writes its delta to the active and
// to the building generation. A build starts as a copy of the active totals, so
// that building(key) = active(key) + what was scanned holds throughout and a
// correction is refused by the building generation exactly when the active one
// would refuse it. The copy is frozen as the seed (generation -building) and is
// subtracted at the end. Buckets start empty: nothing constrains them.
type ProjectionStore interface {
	// BeginProjection announces a build under the exclusive side of the route
	// lock, in one transaction: reads the watermark (the highest seq), seeds
	// the new generation, publishes it. What retention pruned is added to the
	// build as if scanned. While a build exists it answers that build, with
	// Resumed set, and writes nothing. It waits at most 250 ms for the lock
	// in a row and comes back to it, so that recording never queues long
	// behind it; in the end the deadline of ctx decides. // Q26
	//
	// settings is a text of the engine's, at most 64 KiB, that says how it
	// will build the buckets. It is kept with the build and becomes that of
	// the active generation when the build is activated. A build that exists
	// keeps its own.
	BeginProjection(ctx context.Context, settings string) (ProjectionState, error)
	// ProjectionState reads the state without taking a lock.
	ProjectionState(ctx context.Context) (ProjectionState, error)
	// WriteProjection adds deltas to a building generation and moves its
	// cursor, in one transaction. It never sets an absolute value. A cursor
	// that is not at b.After, or a generation that is not building, is a
	// conflict, and a paused one is conflict "paused"; nothing is written
	// then.
	WriteProjection(ctx context.Context, b ProjectionBatch) error
	// DrainSeed subtracts at most limit rows of the seed from the generation
	// it seeded and deletes them, in one transaction. It returns how many
	// there were: fewer than limit means that the seed is used up. A cursor
	// below the watermark is a conflict.
	DrainSeed(ctx context.Context, generation int64, limit int) (int, error)
	// ActivateProjection makes a drained generation the one that is read,
	// under the exclusive side of the route lock as BeginProjection takes it,
	// and atomically for readers. A generation that is active already is
	// left so; one that is not drained is a conflict.
	ActivateProjection(ctx context.Context, generation int64) (ProjectionState, error)
}

// ProjectionFolder is a part of projection_generations that an adapter may lack:
// it adds events up where they are, instead of sending each of them to be added
// up. A caller asks for it by type assertion, and scans with StreamEvents and
// WriteProjection where it is missing.
type ProjectionFolder interface {
	// FoldProjection adds the events after f.After, at most f.Limit of them
	// and none beyond the watermark, to the building generation and moves its
	// cursor, in one transaction. The build is then as WriteProjection leaves
	// it that was given the deltas of these events, and is refused for the
	// same reasons. When there are fewer than f.Limit the cursor goes to the
	// watermark: that was read while nothing was in flight, so no event can
	// appear below it any more.
	FoldProjection(ctx context.Context, f ProjectionFold) (ProjectionFolded, error)
}

// ProjectionFold says which events to add up, and how.
type ProjectionFold struct {
	Generation int64
	// After is where the cursor must be, and below the watermark.
	After int64
	// Limit is 1 to 100000.
	Limit int
	// Signed names the features whose totals may be below zero.
	Signed []string
	// Buckets names the features that have buckets, and of each the
	// dimensions that its buckets keep, in any order.
	Buckets map[string][]string
}

// ProjectionFolded says where the cursor went and how many events it passed.
type ProjectionFolded struct {
	Cursor int64
	Events int64
}

// ProjectionKeeper is the part of projection_generations that looks after what
// was built.
type ProjectionKeeper interface {
	// CompareProjections lists keys whose totals differ between two
	// generations, at most limit, in key order, and counts all.
	CompareProjections(ctx context.Context, active, built int64, limit int) (ProjectionDiff, error)
	// PauseProjection stops a build from being written to, or lets it go on.
	PauseProjection(ctx context.Context, generation int64, paused bool) (ProjectionState, error)
	// PruneProjection deletes at most limit rows of a generation that is not
	// active and returns how many: fewer than limit means that none is left.
	// A building generation is abandoned by it: the build ends, its seed and
	// cursor go too, and it becomes the previous one where there is none. The
	// previous one is that until its last row is gone, so that what a process
	// that was killed has left is found. The active one is a conflict.
	PruneProjection(ctx context.Context, generation int64, limit int) (int, error)
}

// ProjectionState says which generations there are. Zero means none.
type ProjectionState struct {
	Active   int64
	Building int64
	// Previous was in use before, or was abandoned, and has rows left.
	Previous int64
	// Seed is -Building while the seed holds rows.
	Seed int64
	// Watermark is the highest seq to scan, Cursor the highest scanned.
	Watermark int64
	Cursor    int64
	Paused    bool
	// ActiveSettings and BuildingSettings are what the generations were begun
	// with; empty for the first active one and without a build.
	ActiveSettings   string
	BuildingSettings string
	// Resumed is set by BeginProjection when the build existed before.
	Resumed     bool
	BegunAt     time.Time
	ActivatedAt time.Time
}

// ProjectionBatch is what a slice of events adds up to.
type ProjectionBatch struct {
	Generation int64
	// After is where the cursor must be, Cursor where it goes.
	After, Cursor int64
	Totals        []TotalDelta
	Buckets       []BucketDelta
}

// TotalDelta is what to add to one total. It may be negative by itself.
type TotalDelta struct {
	Tenant      string
	Feature     string
	PeriodStart time.Time
	PeriodEnd   time.Time
	Quantity    decimal.Decimal
	Events      int64
	Count       int64
	Signed      bool
}

// BucketDelta is what one event adds to its bucket. The adapter puts it into
// the generation in which the event was counted when it was recorded: one more
// than the number of seals that cover the bucket and were made before Seq. Only
// the adapter knows the seals, so deltas of several events are not folded.
type BucketDelta struct {
	Tenant   string
	Feature  string
	Key      BucketKey
	Seq      int64 // of the event
	Sum      decimal.Decimal
	Count    int64
	Min, Max *decimal.Decimal
	Reversed bool
}

// ProjectionDiff lists differences.
type ProjectionDiff struct {
	Differences []TotalDifference
	// Total counts all keys that differ.
	Total int64
}

// TotalDifference is one key in two generations; an absent row is zero.
type TotalDifference struct {
	Tenant      string
	Feature     string
	PeriodStart time.Time
	Active      TotalDelta
	Built       TotalDelta
}
