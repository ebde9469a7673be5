package engine

import (
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// valueOf is what a row means under an aggregation; nil: nothing.
func valueOf(agg meter.Aggregation, a storage.AggregateRow) *decimal.Decimal {
	switch agg {
	case meter.Sum:
	case meter.Count:
		return whole(a.Count)
	case meter.Unique:
		return whole(a.Unique)
	case meter.Min:
		return a.Min
	case meter.Max:
		return a.Max
	case meter.Latest:
		return a.Latest
	case meter.Avg:
		if a.Count <= 0 {
			return nil
		}
		mean := a.Sum.Mean(a.Count)
		return &mean
	}
	return &a.Sum
}

func whole(n int64) *decimal.Decimal {
	d := decimal.FromScaled(n, 0)
	return &d
}
