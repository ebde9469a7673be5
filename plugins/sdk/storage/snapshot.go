package storage

import (
	"context"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// SnapshotStore is the part of the capability buckets that answers outposts:
// what a tenant has used of a feature and may use, and which events that counts.
// // G1 to G5.
type SnapshotStore interface {
	// Snapshot answers one question. See [Snapshot] for what holds.
	Snapshot(ctx context.Context, q SnapshotQuery) (Snapshot, error)
	// AddCredit appends a credit and returns it as it is stored. The same
	// credit again (tenant, meter, id, and all that the caller gave) changes
	// nothing and returns the first; another one of that name is a conflict,
	// code "credit_exists".
	AddCredit(ctx context.Context, c Credit) (Credit, error)
	// Credits returns a page of credits in the order in which they were
	// stored.
	Credits(ctx context.Context, q CreditQuery) (CreditPage, error)
	// LastSeals returns the last seal of the feature of each of the named
	// tenants that has one, in no particular order. At most 1000 tenants.
	LastSeals(ctx context.Context, feature string, tenants []string) ([]Seal, error)
}

// SnapshotQuery is the question of an outpost. The zero ColdFloor asks for none.
type SnapshotQuery struct {
	Tenant  string
	Feature string
	// Reducer names the order of the versions: those of one tenant and reducer
	// rise. 1 to 128 bytes.
	Reducer string
	// Filter selects buckets by dimensions that the feature's buckets keep;
	// empty: all.
	Filter map[string]string
	// Meters are those whose credits are asked for, at most 100.
	Meters []string
	// ColdFloor is the least ColdUntil that the asker can use, the start of a
	// bucket.
	ColdFloor time.Time
	// Bootstrap has the open bucket counted, too: ColdUntil is its end.
	Bootstrap bool
	// Events and Receipts are ids of events and of CloudEvents whose fate is
	// asked for, together at most 1000.
	Events   []string
	Receipts []string
}

// Snapshot is an answer. All but Version are of one moment: whoever committed
// before the question was put is in it (G1), and Events and Receipts are exactly
// what Count, Sum, Min and Max have counted or will never count (G2, G5).
type Snapshot struct {
	// Version is above those of all answers of this tenant and reducer that
	// saw less (G3), after a restore of the store, too.
	Version int64
	// ColdUntil is the start of the store's bucket of now; with Bootstrap its
	// end; no less than the floor. What would need more than that end is a
	// conflict, code "cold_regressed" (G4).
	ColdUntil time.Time
	// WindowStart is where the last seal of the feature ends; zero: none.
	WindowStart time.Time
	AsOf        time.Time // the store's
	// Count, Sum, Min and Max are over the generations that are not sealed of
	// the buckets before ColdUntil. Min and Max are nil where there is none,
	// and go by all usage, corrected or not.
	Count    int64
	Sum      decimal.Decimal
	Min, Max *decimal.Decimal
	// Credited is, for each meter asked for, the sum of its credits since its
	// last reset, that one included.
	Credited []MeterCredit
	// Events and Receipts are those asked for that are stored with a time
	// before ColdUntil, in whatever generation, feature or dimensions.
	Events   []string
	Receipts []string
	// Known reports that the tenant has a subscription, a credit or usage.
	Known bool
}

// MeterCredit is what a meter was credited.
type MeterCredit struct {
	Meter  string
	Amount decimal.Decimal
}

// CreditKind says what a credit does.
type CreditKind string

// The kinds of credits.
const (
	// CreditGrant adds to what is there. A negative amount takes back.
	CreditGrant CreditKind = "grant"
	// CreditReset replaces what is there.
	CreditReset CreditKind = "reset"
)

// Credit is an amount that a tenant may use of a meter. It never changes.
type Credit struct {
	Tenant string
	Meter  string // 1 to 128 bytes
	ID     string // the caller's, unique for a tenant and meter; 1 to 128 bytes
	Kind   CreditKind
	Amount decimal.Decimal
	Reason string // at most 1000 bytes
	// Seq is the order, and CreatedAt the store's time. Both are the adapter's.
	Seq       int64
	CreatedAt time.Time
}

// CreditQuery selects credits with a Seq above After, at most Limit (1 to 1000).
// An empty Meter selects all of the tenant.
type CreditQuery struct {
	Tenant string
	Meter  string
	After  int64
	Limit  int
}

// CreditPage is a page of credits.
type CreditPage struct {
	Credits []Credit
	Next    int64
	More    bool
}
