package meter

import "slices"

// Aggregation says what the usage of a feature adds up to.
type Aggregation string

// The aggregations.
const (
	Sum    Aggregation = "sum"    // adds the number at Value
	Count  Aggregation = "count"  // adds 1 for each event
	Max    Aggregation = "max"    // the greatest number at Value
	Min    Aggregation = "min"    // the least number at Value
	Avg    Aggregation = "avg"    // the mean of the numbers at Value
	Latest Aggregation = "latest" // the number at Value of the latest event
	// Unique counts the distinct texts at Value. An event of it has quantity 1
	// and its text as the dimension [ValueDimension].
	Unique Aggregation = "unique"
)

var aggregations = [...]Aggregation{Sum, Count, Max, Min, Avg, Latest, Unique}

const aggregationRule = "one of sum, count, max, min, avg, latest, unique"

// ValueDimension is the dimension that holds what a unique feature counts.
const ValueDimension = "value"

// Valid reports whether a is one of the constants.
func (a Aggregation) Valid() bool { return slices.Contains(aggregations[:], a) }

// Exportable reports whether a provider that adds up what it is sent, event by
// event, arrives at this aggregation. // Q8.
func (a Aggregation) Exportable() bool { return a == "" || a == Sum || a == Count }

// WholeOnly reports whether an event of this aggregation can only be taken back
// as a whole: a greatest, least, latest or distinct value has no parts. // Q8.
func (a Aggregation) WholeOnly() bool {
	return a == Max || a == Min || a == Latest || a == Unique
}

// Aggregation returns what the usage of a feature adds up to: what its meters
// say, and [Sum] for a feature that no meter feeds.
func (s Set) Aggregation(feature string) Aggregation {
	if a, ok := s.byFeature[feature]; ok {
		return a
	}
	return Sum
}

// Features returns the features that some meter feeds, in order.
func (s Set) Features() []string { return sortedKeys(s.byFeature) }

// unite notes that a feature is measured by a, and reports whether that agrees
// with its other meters. Counting is adding ones, so the two go together.
func (s Set) unite(feature string, a Aggregation) bool {
	old, seen := s.byFeature[feature]
	switch {
	case !seen || old == a:
		s.byFeature[feature] = a
	case old.Exportable() && a.Exportable():
		s.byFeature[feature] = Sum
	default:
		return false
	}
	return true
}
