package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk"
)

// Feature says where a feature's usage comes from and what is kept of it.
type Feature struct {
	// Source is events, which is the default, or buffered.
	Source string `yaml:"source"`
	Signed bool   `yaml:"signed"` // allows negative quantities
	// Cutover is when events take over from the feature's counter, an instant
	// in RFC 3339. Empty: never.
	Cutover string `yaml:"cutover"`
	// Buckets is true for sums over five minutes, or a mapping whose
	// dimensions lists the dimensions that they keep apart. Absent or false:
	// none.
	Buckets any `yaml:"buckets"`
}

// Buffered reports whether the feature's usage is tracked and not recorded.
func (f Feature) Buffered() bool { return f.Source == "buffered" }

// CutoverTime returns when events take over from the counter; zero: never. It is
// meant for a feature that Validate accepts.
func (f Feature) CutoverTime() time.Time {
	at, err := time.Parse(time.RFC3339, f.Cutover)
	if err != nil {
		return time.Time{}
	}
	return at.UTC()
}

// maxBucketDimensions bounds how many rows an event of five minutes can lead to.
const maxBucketDimensions = 8

// BucketDimensions returns the dimensions that the buckets keep, and whether
// there are buckets at all. It is meant for a feature that Validate accepts.
func (f Feature) BucketDimensions() (dimensions []string, kept bool) {
	dimensions, kept, _ = f.buckets("")
	return dimensions, kept
}

func (f Feature) buckets(path string) ([]string, bool, error) {
	const rule = "true, false, or a mapping with dimensions"
	switch v := f.Buckets.(type) {
	case nil:
		return nil, false, nil
	case bool:
		return nil, v, nil
	case map[string]any:
		for key := range v {
			if key != "dimensions" {
				return nil, false, sdk.Invalid(path, "no unknown keys: "+rule)
			}
		}
		dimensions, err := bucketDimensions(path+".dimensions", v["dimensions"])
		return dimensions, true, err
	}
	return nil, false, sdk.Invalid(path, rule)
}

func bucketDimensions(path string, v any) ([]string, error) {
	list, ok := v.([]any)
	if v != nil && !ok {
		return nil, sdk.Invalid(path, "a list of names of dimensions")
	}
	if len(list) > maxBucketDimensions {
		return nil, sdk.Invalid(path, fmt.Sprintf("at most %d dimensions", maxBucketDimensions))
	}
	names := make([]string, len(list))
	for i, item := range list {
		name, ok := item.(string)
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case !ok || name == "" || len(name) > meter.MaxDimensionKey || strings.ContainsFunc(name, unicode.IsControl):
			return nil, sdk.Invalid(at, fmt.Sprintf("the name of a dimension, 1 to %d bytes without control characters", meter.MaxDimensionKey))
		case slices.Contains(names[:i], name):
			return nil, sdk.Invalid(at, "no dimension twice")
		}
		names[i] = name
	}
	return names, nil
}

func (f Feature) validate(path string) error {
	_, kept, err := f.buckets(path + ".buckets")
	switch {
	case f.Source != "" && f.Source != "events" && !f.Buffered():
		return sdk.Invalid(path+".source", "events or buffered")
	case f.Cutover != "" && f.Buffered():
		return sdk.Invalid(path+".cutover", "absent while the source is buffered: it says when events take over")
	case f.Cutover != "" && f.CutoverTime().IsZero():
		return sdk.Invalid(path+".cutover", "a time such as 2027-01-01T00:00:00Z")
	case err != nil:
		return err
	case kept && f.Buffered():
		return sdk.Invalid(path+".buckets", "absent: buckets are kept of events, and a buffered feature has none")
	}
	return nil
}

// validateFeatures checks each feature, and what meters and mappings ask of it.
func (c Config) validateFeatures(meters meter.Set) error {
	for _, name := range sortedKeys(c.Features) {
		if !meter.ValidFeature(name) {
			return sdk.Invalid("features", "names of features: "+meter.FeatureRule)
		}
		if err := c.Features[name].validate("features." + name); err != nil {
			return err
		}
	}
	for i, m := range c.Meters {
		if c.Features[m.Feature].Buffered() {
			return sdk.Invalid(fmt.Sprintf("meters[%d].feature", i), "a feature with source events: a meter makes events of usage")
		}
	}
	for i, e := range c.Exporters {
		for _, name := range sortedKeys(e.Mapping.Features) {
			at := fmt.Sprintf("exporters[%d].mapping.features.%s", i, name)
			if a := meters.Aggregation(name); !a.Exportable() {
				err := unsupported(at, "a feature that adds up (sum or count), not "+string(a))
				err.Hint = "list it under mapping.ignore"
				return err
			}
		}
	}
	return nil
}
