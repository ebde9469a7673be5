package storage

import (
	"context"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// HistoryStep is the length of one step of a counter's history. A step starts
// at a multiple of it since 1970 in UTC.
const HistoryStep = 5 * time.Minute

// CounterStore is the part of the capability counters that holds the buffered
// counters: sums of usage that was counted in memory and flushed.
//
// Multi-row writes are sorted by key. Every write is one transaction.
type CounterStore interface {
	// UpsertCounters sets counters to absolute values.
	UpsertCounters(ctx context.Context, counters []Counter) error
	// AddCounters adds to counters, creating those that are absent.
	AddCounters(ctx context.Context, deltas []Counter) error
	// LoadCounter returns one counter; zero when absent, with a zero
	// PeriodEnd.
	LoadCounter(ctx context.Context, key CounterKey) (Counter, error)
	// StreamCounters returns a page of counters in key order.
	StreamCounters(ctx context.Context, q CounterQuery) (CounterPage, error)
	// FlushBatch applies a batch once: its receipt, its counter deltas and
	// its history deltas in one transaction. A batch whose id was applied
	// before changes nothing. Either way the answer holds the current
	// counters.
	FlushBatch(ctx context.Context, b FlushBatch) (FlushResult, error)
}

// HistoryStore is the part of the capability counters that says when a counter
// moved.
type HistoryStore interface {
	// UpsertHistory sets steps to absolute values.
	UpsertHistory(ctx context.Context, points []HistoryPoint) error
	// AddHistory adds to steps, creating those that are absent.
	AddHistory(ctx context.Context, deltas []HistoryPoint) error
	// LoadHistory returns one step; zero when absent.
	LoadHistory(ctx context.Context, key HistoryKey) (HistoryPoint, error)
	// LoadHistoryRange returns the steps that exist in [q.From, q.To), in
	// order, at most q.Limit.
	LoadHistoryRange(ctx context.Context, q HistoryQuery) ([]HistoryPoint, error)
}

// CounterKey names a counter.
type CounterKey struct {
	Tenant      string
	Feature     string
	PeriodStart time.Time
}

// Counter is a counter's value, or what to add to it.
type Counter struct {
	CounterKey
	PeriodEnd time.Time
	Value     decimal.Decimal
}

// CounterQuery selects counters with a key greater than After in the order
// (tenant, feature, period start), at most Limit (1 to 1000).
type CounterQuery struct {
	After   CounterKey
	Limit   int
	Tenant  string
	Feature string
}

// CounterPage is a page of counters. Next is the key to go on from.
type CounterPage struct {
	Counters []Counter
	Next     CounterKey
	More     bool
}

// HistoryKey names one step of a feature's history.
type HistoryKey struct {
	Tenant  string
	Feature string
	Start   time.Time
}

// HistoryPoint is what was counted in one step, or what to add to it.
type HistoryPoint struct {
	HistoryKey
	Value decimal.Decimal
}

// HistoryQuery selects the steps of one feature, at most Limit (1 to 100,000).
type HistoryQuery struct {
	Tenant  string
	Feature string
	From    time.Time
	To      time.Time
	Limit   int
}

// FlushBatch is what one host counted since its last flush. ID is unique over
// all hosts and is kept until the batch is known to be applied.
type FlushBatch struct {
	ID       string
	Owner    string // the host
	Counters []Counter
	History  []HistoryPoint
}

// FlushResult answers FlushBatch.
type FlushResult struct {
	// Applied is false when the batch had been applied before.
	Applied bool
	// Counters are the current values, in the order of the batch.
	Counters []Counter
}
