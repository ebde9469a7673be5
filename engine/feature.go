package engine

import "github.com/fencepost/fencepost/engine/meter"

// Feature is how one feature is measured. The zero value is a feature whose
// usage is recorded as events, never negative, added up, and without buckets.
type Feature struct {
	// Buffered: its usage is counted by [Engine.Track] and not recorded.
	Buffered bool
	// Signed: it takes negative quantities.
	Signed bool
	// Aggregation is what a number of its usage means. Empty: a sum.
	Aggregation meter.Aggregation
	// Unique names the dimension that holds the value of a feature whose
	// aggregation counts distinct values. Empty: "value".
	Unique string
	// Buckets: sums over five minutes are kept for it, by these dimensions.
	Buckets          bool
	BucketDimensions []string
}

// feature returns the settings of a feature; one that nobody configured has the
// zero value.
func (c Config) feature(name string) Feature { return c.Features[name] }
