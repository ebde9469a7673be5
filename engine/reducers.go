package engine

import (
	"cmp"
	"encoding/hex"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// CreditMeter is what a tenant has a balance of: credits less what was used of a
// feature.
type CreditMeter struct {
	// Name is how people ask for it. 1 to 128 characters of a-z, 0-9, "_", "-"
	// and ".".
	Name string
	// Feature must have buckets, and an aggregation other than latest and
	// unique.
	Feature string
	// Filter selects usage by dimensions that the feature's buckets keep. Empty:
	// all of it.
	Filter map[string]string
	// Renew is what a tenant's credit is reset to when a billing period of its
	// subscription begins; what was used before then counts no more. Nil: credits
	// and usage are added up for ever. All meters of a feature have one, or none.
	Renew *decimal.Decimal
}

// Reducer is what usage is added up by, of one tenant at a time. Meters that ask
// for the same share one.
type Reducer struct {
	// ID is the same for equal reducers, in whatever configuration.
	ID       string
	Feature  string
	Function meter.Aggregation
	Filter   map[string]string
	Meters   []string // names, in order
}

var meterName = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,127}$`)

// reducers are the configured meters and what they are computed from.
type reducers struct {
	meters  map[string]CreditMeter
	byMeter map[string]string // name of a meter to the id of its reducer
	byID    map[string]Reducer
}

// newReducers checks the meters. Without any, every feature with buckets whose
// aggregation allows it is a meter of its own name.
func newReducers(cfg Config) (reducers, error) {
	r := reducers{meters: map[string]CreditMeter{}, byMeter: map[string]string{}, byID: map[string]Reducer{}}
	list := cfg.CreditMeters
	if len(list) == 0 {
		for _, name := range slices.Sorted(maps.Keys(cfg.Features)) {
			if f := cfg.feature(name); f.Buckets && reducible(f.Aggregation) {
				list = append(list, CreditMeter{Name: name, Feature: name})
			}
		}
	}
	renewed := map[string]bool{}
	for i, m := range list {
		path := "outpost.meters[" + strconv.Itoa(i) + "]"
		f := cfg.feature(m.Feature)
		_, known := r.meters[m.Name]
		renews, others := renewed[m.Feature]
		switch {
		case len(cfg.CreditMeters) > 0 && !meterName.MatchString(m.Name):
			return r, sdk.Invalid(path+".name", "1 to 128 characters of a-z, 0-9, _, - and ., the first a letter or a digit")
		case known:
			return r, sdk.Invalid(path+".name", "a name that no other meter has")
		case !f.Buckets:
			return r, sdk.Invalid(path+".feature", "a feature that has buckets")
		case !reducible(f.Aggregation):
			return r, &sdk.Error{Tag: sdk.TagUnsupported, Code: "aggregation", Field: path + ".feature", Rule: "a feature that adds up by sum, count, avg, min or max"}
		case others && renews != (m.Renew != nil):
			return r, sdk.Invalid(path+".renew", "for all meters of a feature, or for none: a new period begins for all that was used of it")
		}
		for name := range m.Filter {
			if !slices.Contains(f.BucketDimensions, name) {
				return r, sdk.Invalid(path+".filter", "dimensions that the buckets of the feature keep")
			}
		}
		renewed[m.Feature] = m.Renew != nil
		red := Reducer{Feature: m.Feature, Function: f.Aggregation, Filter: maps.Clone(m.Filter)}
		red.ID = red.id()
		if old, ok := r.byID[red.ID]; ok {
			red.Meters = old.Meters
		}
		red.Meters = append(red.Meters, m.Name)
		slices.Sort(red.Meters)
		r.meters[m.Name], r.byMeter[m.Name], r.byID[red.ID] = m, red.ID, red
	}
	return r, nil
}

// reducible reports whether buckets can be added up to a, and a part be taken
// from the sum again. What is distinct or latest cannot.
func reducible(a meter.Aggregation) bool { return a != meter.Latest && a != meter.Unique && a.Valid() }

func (r Reducer) id() string {
	parts := []string{"fencepost-reducer-v1", r.Feature, string(r.Function)}
	for _, name := range slices.Sorted(maps.Keys(r.Filter)) {
		parts = append(parts, name, r.Filter[name])
	}
	sum := canon.Digest(parts...)
	return "r_" + hex.EncodeToString(sum[:16])
}

// Value is what count, sum and extremes add up to: zero where there is nothing.
// The mean has at most twelve decimals, rounded half to even.
func (r Reducer) Value(count int64, sum decimal.Decimal, least, most *decimal.Decimal) decimal.Decimal {
	extreme := func(d *decimal.Decimal) decimal.Decimal {
		if d == nil {
			return decimal.Decimal{}
		}
		return *d
	}
	switch r.Function {
	case meter.Count:
		return decimal.FromScaled(count, 0)
	case meter.Min:
		return extreme(least)
	case meter.Max:
		return extreme(most)
	case meter.Avg:
		if count == 0 {
			return decimal.Decimal{}
		}
		return sum.Mean(count)
	case meter.Sum, meter.Latest, meter.Unique:
	}
	return sum
}

// CreditMeters lists the names of the meters that tenants have balances of, in
// order.
func (e *Engine) CreditMeters() []string { return slices.Sorted(maps.Keys(e.reducers.meters)) }

// Reducers lists what balances are computed from, in the order of their ids.
func (e *Engine) Reducers() []Reducer {
	list := slices.Collect(maps.Values(e.reducers.byID))
	slices.SortFunc(list, func(a, b Reducer) int { return cmp.Compare(a.ID, b.ID) })
	return list
}
