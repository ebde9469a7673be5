package storage

import (
	"context"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// ReconcileStore is the part of the capability outbox that compares what was
// reported with what a provider says (O25, Q24).
type ReconcileStore interface {
	// SumItems returns, for each (customer, feature, mapping version), the sums
	// of the items of a destination whose usage lies in a stretch of time, in
	// that order.
	SumItems(ctx context.Context, q SumQuery) (SumPage, error)
	// ConfirmSum moves every accepted item of one sum to confirmed (T7, settled,
	// confirmed_by as given) in one transaction, and answers how many. Nothing
	// is written, and the answer is zero, unless the sum still is what Expect
	// says, nothing of it is open or disputed, and every accepted item has an
	// acceptance time.
	ConfirmSum(ctx context.Context, c SumConfirm) (int64, error)
	// SaveReconciliation stores a run and appends NewLines, numbered on from
	// the last one; a run of an id that exists is replaced, its lines kept, as
	// long as it is unfinished, else a conflict, code "reconciliation_finished".
	SaveReconciliation(ctx context.Context, r Reconciliation) error
	// Reconciliations returns runs, latest first, without lines.
	Reconciliations(ctx context.Context, q ReconciliationQuery) ([]Reconciliation, error)
	// ReconciliationLines returns the lines of one run in order.
	ReconciliationLines(ctx context.Context, run string, after int64, limit int) ([]ReconciliationLine, error)
}

// SumKey names a sum.
type SumKey struct {
	Customer       string
	Feature        string
	MappingVersion string
}

// SumQuery selects items of one destination whose usage (an event's time, the
// original's for a correction, the timestamp of a window) is in [From, To).
// Left out are superseded items, and those that are quarantined because a counter
// reports their usage (period_buffered, feature_buffered), with the corrections
// of these that are quarantined as original_ineligible: the windows have it.
// Limit is 1 to 1000.
type SumQuery struct {
	Exporter string
	Account  string
	Mode     string
	From     time.Time
	To       time.Time
	Customer string // empty: all
	Feature  string // empty: all
	// Lag: items accepted less than so long ago, by the store's clock, count as
	// Fresh. Zero: none does.
	Lag   time.Duration
	After SumKey
	Limit int
}

// ItemSum is what the items of one key add up to. Values are what the provider
// was told: negative for a correction. A correction that cancels counts as the
// negative of what it took back.
type ItemSum struct {
	SumKey
	Recorded      decimal.Decimal // of all items
	Reported      decimal.Decimal // of those accepted or confirmed and not disputed
	ReportedItems int64
	Confirmed     int64           // of ReportedItems
	Fresh         int64           // of ReportedItems: the provider may not show them yet
	FreshValue    decimal.Decimal // theirs
	Open          int64           // pending, leased or uncertain
	OpenValue     decimal.Decimal // theirs
	Held          int64           // quarantined or rejected
	HeldValue     decimal.Decimal
	Disputed      int64
	DisputedValue decimal.Decimal
}

// SumPage is a page of sums.
type SumPage struct {
	Sums []ItemSum
	Next SumKey
	More bool
}

// SumConfirm confirms one sum. Query names the stretch; Customer and Feature of
// it are those of Key.
type SumConfirm struct {
	Query       SumQuery
	Key         SumKey
	Expect      ItemSum // Reported, ReportedItems, Open and Disputed are compared
	ConfirmedBy string
	Action      Action
}

// Reconciliation is one comparison with one destination.
type Reconciliation struct {
	ID         string
	Exporter   string
	Account    string
	Mode       string
	From       time.Time
	To         time.Time
	StartedAt  time.Time
	FinishedAt time.Time // zero: under way or broken off
	Error      string
	Lines      int64
	Differing  int64
	Confirmed  int64 // items
	// NewLines are appended by SaveReconciliation, and never returned by it.
	NewLines []ReconciliationLine
}

// ReconciliationLine is one (customer, feature, stretch).
type ReconciliationLine struct {
	Line       int64
	Customer   string
	Feature    string
	Meter      string // the provider's name
	From       time.Time
	To         time.Time
	Recorded   decimal.Decimal
	Reported   decimal.Decimal
	Provider   *decimal.Decimal // nil: it did not say
	Difference *decimal.Decimal // provider less reported
	Cause      string           // a code
	Confirmed  int64
}

// ReconciliationQuery selects runs that started before Before (zero: any), at
// most Limit (1 to 1000).
type ReconciliationQuery struct {
	Exporter string
	Before   time.Time
	ID       string
	Limit    int
}
