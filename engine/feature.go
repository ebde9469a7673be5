package engine

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Feature is how one feature is measured. The zero value is a feature whose
// usage is recorded as events, never negative, added up, and without buckets.
type Feature struct {
	// Buffered: its usage is counted by [Engine.Track] and not recorded.
	Buffered bool
	// Cutover is when events take over from its counter: of each tenant the
	// periods that begin before the tenant's first boundary at or after it are
	// reported from the counter, to which recording adds, too. It is decided
	// for each tenant once. Zero: the feature was never buffered, or still is.
	Cutover time.Time
	// Signed: it takes negative quantities. It cannot change once the feature
	// has events.
	Signed bool
	// Aggregation is what a number of its usage means. Empty: what its meters
	// say, or a sum.
	Aggregation meter.Aggregation
	// Unique names the dimension that holds the value of a feature whose
	// aggregation counts distinct values. Empty: "value".
	Unique string
	// Buckets: sums over five minutes are kept for it, by these dimensions.
	Buckets          bool
	BucketDimensions []string
}

// feature returns the settings of a feature, its Aggregation and Unique filled
// in. One that nobody configured has the zero value otherwise.
func (c Config) feature(name string) Feature {
	f := c.Features[name]
	if f.Aggregation == "" {
		f.Aggregation = c.Meters.Aggregation(name)
	}
	if f.Unique == "" {
		f.Unique = meter.ValueDimension
	}
	return f
}

// stored is what the store keeps of a feature's settings.
func (f Feature) stored(name string) storage.Feature {
	s := storage.Feature{Name: name, Signed: f.Signed}
	if f.Buckets {
		s.Buckets = slices.Sorted(slices.Values(f.BucketDimensions))
		s.Buckets = append([]string{}, slices.Compact(s.Buckets)...) // none is not nil: buckets without dimensions
	}
	return s
}

// rules are the limits on what comes in at a time.
func (e *Engine) rules(now time.Time) meter.Rules {
	return meter.Rules{Now: now, Feature: e.cfg.rulesOf}
}

func (c Config) rulesOf(name string) meter.FeatureRules {
	f := c.feature(name)
	rules := meter.FeatureRules{Signed: f.Signed, Buffered: f.Buffered}
	if f.Aggregation == meter.Unique {
		rules.Required = f.Unique
	}
	return rules
}

// featureChanges adds to change what brings the stored settings of features to
// the configured ones. Features that are not configured are left alone: another
// host may measure them, and a command that only reads configures none.
func (e *Engine) featureChanges(set storage.RouteSet, change *storage.RouteChange) {
	stored := byName(set.Features)
	for _, name := range slices.Sorted(maps.Keys(e.cfg.Features)) {
		f := e.cfg.Features[name]
		if f.Buffered {
			continue // has no events
		}
		want := f.stored(name)
		if have := stored[name]; have.Signed != want.Signed || !sameBuckets(have.Buckets, want.Buckets) {
			change.Features = append(change.Features, want)
		}
	}
}

// noteBuckets says which features keep other buckets from now on.
func (e *Engine) noteBuckets(ctx context.Context, set storage.RouteSet, changed []storage.Feature) {
	stored := byName(set.Features)
	for _, f := range changed {
		if !sameBuckets(stored[f.Name].Buckets, f.Buckets) {
			e.cfg.Logger.WarnContext(ctx, "the buckets of a feature changed: they hold what is recorded from now on, and a replay rebuilds them from all events",
				"feature", f.Name, "dimensions", strings.Join(f.Buckets, " "), "kept", f.Buckets != nil)
		}
	}
}

// signedInUse names the features that a refused change would have made to take,
// or no longer take, negative quantities. // Q7.
func signedInUse(set storage.RouteSet, changed []storage.Feature) error {
	stored := byName(set.Features)
	var names []string
	for _, f := range changed {
		if stored[f.Name].Signed != f.Signed {
			names = append(names, f.Name)
		}
	}
	err := &sdk.Error{
		Tag: sdk.TagConflict, Code: codeSignedInUse, Field: "features",
		Rule: "signed stays what it was when the first event of the feature was recorded",
		Hint: "set it back, or measure under the name of a new feature",
	}
	if len(names) > 0 {
		err.Field = "features." + names[0] + ".signed"
	}
	if len(names) > 1 {
		err.Rule += "; one of " + strings.Join(names, ", ") + " has events"
	}
	return err
}

const codeSignedInUse = "signed_in_use"

func byName(list []storage.Feature) map[string]storage.Feature {
	out := make(map[string]storage.Feature, len(list))
	for _, f := range list {
		out[f.Name] = f
	}
	return out
}

// sameBuckets tells no buckets from buckets without dimensions.
func sameBuckets(a, b []string) bool { return (a == nil) == (b == nil) && slices.Equal(a, b) }

// bucketOf returns the bucket that an event counts in, by the stored settings
// of its feature; nil if it has none. // Q27.
func bucketOf(f storage.Feature, ev storage.Event) *storage.BucketKey {
	if f.Buckets == nil {
		return nil
	}
	key := &storage.BucketKey{Start: ev.OccurredAt.UTC().Truncate(storage.BucketLength)}
	for _, name := range f.Buckets {
		if value, ok := ev.Dimensions[name]; ok {
			if key.Dimensions == nil {
				key.Dimensions = make(map[string]string, len(f.Buckets))
			}
			key.Dimensions[name] = value
		}
	}
	return key
}

// signed reports whether a feature takes negative quantities: as stored, which
// is the same on every host, or as configured where nothing was stored.
func (e *Engine) signed(routes *routeView, feature string) bool {
	if f, ok := routes.features[feature]; ok {
		return f.Signed
	}
	return e.cfg.feature(feature).Signed
}
