package storage

import (
	"context"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// Aggregator is the part of the capability durable_events that adds events up
// over windows of time.
type Aggregator interface {
	// Aggregate reads the events that q selects at one snapshot, in bounded
	// memory, and returns a row for each window and group that has events, in
	// the order (window, group); in a group nil comes first, text by bytes.
	//
	// Corrections count at the time of their original: Sum adds their effect,
	// Count is net. Min, Max, Latest and Unique are over usage events that
	// are not fully reversed, each with its quantity as corrected.
	Aggregate(ctx context.Context, q AggregateQuery) (Aggregates, error)
}

// AggregateQuery selects events of one feature by their time of occurrence.
type AggregateQuery struct {
	Tenant  string
	Feature string
	// Edges are ascending. Window i is [Edges[i], Edges[i+1]). At least two,
	// at most 100,001.
	Edges []time.Time
	// GroupBy names dimensions, at most 8; none is one group. Names are bound
	// as values. An event that lacks one is in the group with a nil there.
	GroupBy []string
	// Filter selects events whose dimensions have these values.
	Filter map[string]string
	// Extremes asks for Min, Max and Latest.
	Extremes bool
	// Unique names the dimension whose distinct values are counted; empty:
	// none.
	Unique string
	// Limit bounds the rows of the answer, 1 to 100,000.
	Limit int
}

// Aggregates is the answer of an aggregation.
type Aggregates struct {
	Rows []AggregateRow
	// More says that the limit cut rows off.
	More bool
	// PrunedBefore is set when retention has removed events that q selects
	// by tenant, feature and time: windows that start before it are
	// incomplete.
	PrunedBefore time.Time
}

// AggregateRow is one group of one window.
type AggregateRow struct {
	Window int
	Group  []*string // one for each name of GroupBy
	Sum    decimal.Decimal
	Count  int64
	// Min, Max and Latest are nil unless asked for, and without usage.
	// Latest is the event with the highest (time, seq).
	Min, Max, Latest *decimal.Decimal
	Unique           int64
}
