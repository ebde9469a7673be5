package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// remembering is a store that shows what routes and events are asked of it.
type remembering struct {
	*sqlite.Adapter
	features []storage.Feature
	refuse   error
	changes  []storage.RouteChange
	entries  []storage.Entry
}

func (r *remembering) Routes(ctx context.Context) (storage.RouteSet, error) {
	set, err := r.Adapter.Routes(ctx)
	set.Features = r.features
	return set, err
}

func (r *remembering) ChangeRoutes(ctx context.Context, c storage.RouteChange) (storage.RouteSet, error) {
	r.changes = append(r.changes, c)
	if r.refuse != nil {
		return storage.RouteSet{}, r.refuse
	}
	r.features = append(r.features, c.Features...)
	c.Features = nil
	set, err := r.Adapter.ChangeRoutes(ctx, c)
	set.Features = r.features
	return set, err
}

func (r *remembering) RecordEvents(ctx context.Context, req storage.RecordRequest) (storage.RecordResult, error) {
	for _, u := range req.Units {
		r.entries = append(r.entries, u.Entries...)
		for i := range u.Entries {
			u.Entries[i].Bucket = nil
		}
	}
	return r.Adapter.RecordEvents(ctx, req)
}

func withFeatures(fs map[string]engine.Feature) func(*engine.Config) {
	return func(c *engine.Config) { c.Features = fs }
}

// Settings that decide what is stored are stored themselves, with the routes;
// what is equal is not written again, and what nobody here configures is left
// alone.
func TestFeatureSettingsAreStored(t *testing.T) {
	t.Parallel()
	r := &remembering{Adapter: open(t).store, features: []storage.Feature{{Name: "foreign", Signed: true}, {Name: "same", Signed: true}}}
	e := over(t, r, withFeatures(map[string]engine.Feature{
		"credits": {Signed: true}, "same": {Signed: true}, "plain": {}, "tracked": {Buffered: true, Signed: true},
		"calls": {Buckets: true}, "tokens": {Buckets: true, BucketDimensions: []string{"region", "model", "region"}},
	}))
	set, err := e.ApplyRoutes(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []storage.Feature{
		{Name: "foreign", Signed: true},
		{Name: "same", Signed: true},
		{Name: "calls", Buckets: []string{}},
		{Name: "credits", Signed: true},
		{Name: "tokens", Buckets: []string{"model", "region"}},
	}
	if diff := cmp.Diff(want, set.Features); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	if _, err := e.ApplyRoutes(t.Context(), nil); err != nil || len(r.changes) != 1 {
		t.Errorf("%d changes, %v; want no second one", len(r.changes), err)
	}
}

// Q7: the refusal of another sign names the feature and is no reason to try
// again.
func TestSignedInUseNamesTheFeature(t *testing.T) {
	t.Parallel()
	r := &remembering{Adapter: open(t).store, features: []storage.Feature{{Name: "credits", Signed: true}}}
	r.refuse = &sdk.Error{Tag: sdk.TagConflict, Code: "signed_in_use"}
	e := over(t, r, withFeatures(map[string]engine.Feature{"credits": {}, "tokens": {Buckets: true}}))
	_, err := e.ApplyRoutes(t.Context(), nil)
	tagIs(t, err, sdk.TagConflict, "signed_in_use")
	var tagged *sdk.Error
	if errors.As(err, &tagged); tagged.Field != "features.credits.signed" || tagged.Hint == "" || len(r.changes) != 1 {
		t.Errorf("%v after %d tries", err, len(r.changes))
	}
}

// Q27: an event counts in the five minutes of its time, by the dimensions that
// are stored, whatever this host would configure; Signed is the store's too.
func TestEntriesCarryBucketAndSign(t *testing.T) {
	t.Parallel()
	r := &remembering{Adapter: open(t).store, features: []storage.Feature{
		{Name: "tokens", Buckets: []string{"model", "region"}}, {Name: "calls", Buckets: []string{}}, {Name: "credits", Signed: true}, {Name: "foreign", Signed: true},
	}}
	e := over(t, r, withFeatures(map[string]engine.Feature{
		"tokens": {Buckets: true, BucketDimensions: []string{"user"}}, "local": {Signed: true}, "credits": {Signed: true},
	}))
	at := func(feature, clock string, dimensions map[string]string) engine.Event {
		ev := plain(feature+clock, "1")
		ev.Feature, ev.Dimensions = feature, dimensions
		var err error
		if ev.Time, err = time.Parse(time.RFC3339, "2026-11-30T"+clock); err != nil {
			t.Fatal(err)
		}
		return ev
	}
	_, err := e.Record(t.Context(),
		at("tokens", "11:04:59.999999Z", map[string]string{"model": "m1", "user": "u"}), at("tokens", "11:05:00+00:00", nil),
		at("calls", "11:59:59+05:45", map[string]string{"model": "m1"}), at("credits", "11:00:00Z", nil), at("local", "11:00:00Z", nil),
		at("foreign", "11:00:00Z", nil))
	if err != nil {
		t.Fatal(err)
	}
	var got []storage.Entry
	for _, en := range r.entries {
		got = append(got, storage.Entry{Bucket: en.Bucket, Signed: en.Signed})
	}
	start := func(clock string) time.Time {
		v, _ := time.Parse(time.RFC3339, "2026-11-30T"+clock+"Z")
		return v
	}
	want := []storage.Entry{
		{Bucket: &storage.BucketKey{Start: start("11:00:00"), Dimensions: map[string]string{"model": "m1"}}},
		{Bucket: &storage.BucketKey{Start: start("11:05:00")}},
		{Bucket: &storage.BucketKey{Start: start("06:10:00")}},
		{Signed: true},
		{Signed: true},
		{Signed: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A change of buckets says that a replay rebuilds them.
func TestChangedBucketsAreSaid(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	r := &remembering{Adapter: open(t).store, features: []storage.Feature{{Name: "tokens", Buckets: []string{}}}}
	e := over(t, r, withFeatures(map[string]engine.Feature{"tokens": {}, "credits": {Signed: true}}), func(c *engine.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	if _, err := e.ApplyRoutes(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "replay"); n != 1 || !strings.Contains(log.String(), "feature=tokens") {
		t.Errorf("log: %s", log.String())
	}
}

// Features that are buffered take no events, in any form; a feature that counts
// distinct values needs one.
func TestRecordKeepsToTheFeature(t *testing.T) {
	t.Parallel()
	set, err := meter.NewSet([]meter.Meter{
		{Feature: "tracked", EventType: "tracked", Aggregation: meter.Count},
		{Feature: "users", EventType: "login", Aggregation: meter.Unique, Value: "$.user"},
	})
	if err != nil {
		t.Fatal(err)
	}
	f := open(t, withFeatures(map[string]engine.Feature{"tracked": {Buffered: true}}), func(c *engine.Config) { c.Meters = set })
	event := func(id, feature string, dimensions map[string]string) engine.Event {
		return engine.Event{ID: id, Tenant: "acme", Feature: feature, Quantity: decimal.One, Dimensions: dimensions}
	}
	res := f.each(event("a", "tracked", nil), cloud(t, `{"specversion":"1.0","id":"1","source":"/s","type":"tracked","subject":"acme"}`),
		event("b", "users", nil), event("c", "users", map[string]string{"value": ""}),
		cloud(t, `{"specversion":"1.0","id":"2","source":"/s","type":"login","subject":"acme","data":{"user":"u1"}}`))
	f.want(res, "invalid invalid invalid inserted inserted")
	tagIs(t, res[0].Err, sdk.TagInvalid, "feature_buffered")
	tagIs(t, res[1].Err, sdk.TagInvalid, "feature_buffered")
	if !strings.Contains(res[2].Err.Error(), "dimensions.value") {
		t.Error(res[2].Err)
	}
	for _, ev := range f.events() {
		if !ev.Quantity.Equal(decimal.One) || len(ev.Dimensions) != 1 {
			t.Errorf("%+v", ev)
		}
	}
}

// Q8: what a provider cannot be told event by event is refused before it can be
// told something wrong.
func TestOnlyWhatAddsUpIsMapped(t *testing.T) {
	t.Parallel()
	peak := meter.Meter{Feature: "peak", EventType: "t", Aggregation: meter.Max, Value: "$.v"}
	f := open(t, withMeters(t, peak), withFeatures(map[string]engine.Feature{"tracked": {Buffered: true}}))
	_, err := f.ApplyRoutes(t.Context(), []engine.RoutePlan{plan(map[string]string{"peak": "x"})})
	tagIs(t, err, sdk.TagUnsupported, "not_exportable")
	if !strings.Contains(err.Error(), "mapping.features.peak") {
		t.Error(err)
	}
	if set := f.routes(); len(set.Routes) != 0 {
		t.Errorf("%d routes", len(set.Routes))
	}
	// What is tracked adds up, and is reported from its counter. // O22
	if set := f.routes(plan(map[string]string{"tracked": "x"})); len(set.Routes) == 0 {
		t.Error("no routes")
	}
}
