package storage

import (
	"context"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// ReportStore is the part of the capability outbox that reports buffered
// counters in windows, and says which periods belong to them. It is asked for
// only if the adapter declares counters too (O7, O22, O23, Q20, Q21).
type ReportStore interface {
	// ReportBounds returns a page of bounds in key order.
	ReportBounds(ctx context.Context, q BoundQuery) (BoundPage, error)
	// StageWindow stages a window and its item in one transaction: a bound that
	// is absent is created with acked zero; then, where staged_to is absent and
	// acked equals From, staged_to becomes To and the item is inserted. Where
	// the bound moved meanwhile nothing is written and Staged is false. An item
	// whose identity or sendable subject exists is a conflict, code
	// "window_exists". Takes the shared side of the route lock and checks
	// RoutesRevision (conflict, code "routes_moved").
	StageWindow(ctx context.Context, w WindowStage) (WindowResult, error)
	// SettleWindow ends a staged window, where its item is the given one, is in
	// one of the given states and, if Settled is set, settled: acknowledged and
	// written off windows move acked to staged_to, restaged ones leave it; all
	// clear staged_to and item.
	SettleWindow(ctx context.Context, s WindowSettle) (WindowResult, error)
	// DecideCutovers stores the start of durable ownership for each (tenant,
	// feature) that has none, and answers what is stored, in order.
	DecideCutovers(ctx context.Context, list []Cutover) ([]Cutover, error)
	// Cutovers returns a page in key order (tenant, feature), at most limit.
	Cutovers(ctx context.Context, after Cutover, limit int) ([]Cutover, error)
}

// BoundKey names the reporting of one counter to one destination.
type BoundKey struct {
	Exporter    string
	Account     string
	Mode        string
	Tenant      string
	Feature     string
	PeriodStart time.Time
}

// Bound is how far a counter has been reported. Readings are of the counter.
type Bound struct {
	BoundKey
	PeriodEnd time.Time
	Acked     decimal.Decimal
	StagedTo  *decimal.Decimal // nil: nothing is on its way
	ItemID    int64            // of the staged window; zero without
	// ItemState and ItemSettled are those of the item, read with the bound.
	ItemState   ItemState
	ItemSettled bool
	UpdatedAt   time.Time
}

// BoundQuery selects bounds with a key above After in the order of the fields
// of BoundKey, at most Limit (1 to 1000). Empty filters select everything.
type BoundQuery struct {
	After    BoundKey
	Limit    int
	Exporter string
	Tenant   string
	Feature  string
	// Staged selects those with a window on its way.
	Staged bool
	// Keys selects exactly these, at most 1000, whatever else is set, in key
	// order; those that do not exist are left out.
	Keys []BoundKey
}

// BoundPage is a page of bounds.
type BoundPage struct {
	Bounds []Bound
	Next   BoundKey
	More   bool
}

// WindowStage asks for one window. Item is of kind usage_window with a payload.
type WindowStage struct {
	Key            BoundKey
	PeriodEnd      time.Time
	From           decimal.Decimal // what acked must be
	To             decimal.Decimal
	Item           NewItem
	RoutesRevision int64
}

// WindowDisposition is what becomes of a window.
type WindowDisposition string

// The dispositions.
const (
	WindowAcknowledged WindowDisposition = "acknowledged"
	WindowWrittenOff   WindowDisposition = "write_off"
	WindowRestage      WindowDisposition = "restage"
)

// WindowSettle ends a staged window.
type WindowSettle struct {
	Key         BoundKey
	ItemID      int64
	States      []ItemState
	Settled     bool
	Disposition WindowDisposition
	Action      *Action // appended if the bound changed
}

// WindowResult answers both: whether the bound changed, the bound now, and the
// item that was inserted.
type WindowResult struct {
	Changed bool
	Bound   Bound
	ItemID  int64
}

// Cutover is the first period of a feature that durable events report for a
// tenant. Earlier periods belong to the counter. It never changes.
type Cutover struct {
	Tenant      string
	Feature     string
	DurableFrom time.Time
}
