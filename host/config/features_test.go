package config_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/host/config"
)

// Every way to ask for buckets, and to ask for none.
func TestBuckets(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		dimensions []string
		kept       bool
	}{
		"source: events":                         {nil, false},
		"buckets: false":                         {nil, false},
		"buckets: null":                          {nil, false},
		"buckets: true":                          {nil, true},
		"buckets: {}":                            {nil, true},
		"buckets: {dimensions: []}":              {nil, true},
		"buckets: {dimensions: [model]}":         {[]string{"model"}, true},
		"buckets: {dimensions: [region, model]}": {[]string{"region", "model"}, true},
		"buckets: &b {dimensions: [a]}":          {[]string{"a"}, true},
	} {
		c, err := config.Parse([]byte("features: {tokens: {" + text + "}}"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		dimensions, kept := c.Features["tokens"].BucketDimensions()
		if diff := cmp.Diff(append([]string{}, want.dimensions...), append([]string{}, dimensions...)); diff != "" || kept != want.kept {
			t.Errorf("%s: kept %v (-want +got):\n%s", text, kept, diff)
		}
	}
}

// What is known of features may go together: a buffered one that is mapped and one
// that is not, a maximum that is ignored, a count that is mapped, and one whose
// events take over.
func TestFeaturesThatGoTogether(t *testing.T) {
	t.Parallel()
	c, err := config.Parse([]byte(`
meters:
  - {feature: peak, event_type: load, aggregation: max, value: $.cpu}
  - {feature: calls, event_type: call, aggregation: count}
  - {feature: users, event_type: call, aggregation: unique, value: $.user}
features:
  seats: {source: buffered, signed: true}
  bytes: {source: buffered}
  calls: {source: events, cutover: 2027-01-01T01:00:00+01:00, buckets: {dimensions: [model]}}
exporters:
  - {name: stripe, plugin: "builtin:stripe", mapping: {features: {calls: {event_name: c}, bytes: {event_name: b}}, ignore: [peak, users, seats]}}
`))
	if err != nil {
		t.Fatal(err)
	}
	if want := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC); c.Features["calls"].CutoverTime() != want || !c.Features["seats"].CutoverTime().IsZero() {
		t.Errorf("cutover %s", c.Features["calls"].CutoverTime())
	}
	if !c.Features["seats"].Buffered() || c.Features["calls"].Buffered() {
		t.Errorf("%+v", c.Features)
	}
}
