package engine_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Q7, Q27: settings of features outlive the process, and a sign that is in use
// stays.
func TestFeaturesAreRemembered(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, st backend) {
		first := over(t, st, withFeatures(map[string]engine.Feature{
			"credits": {Signed: true}, "tokens": {Buckets: true, BucketDimensions: []string{"model"}}, "calls": {Buckets: true}, "idle": {Signed: true},
		}))
		set, err := first.ApplyRoutes(t.Context(), nil)
		want := []storage.Feature{
			{Name: "calls", Buckets: []string{}}, {Name: "credits", Signed: true}, {Name: "idle", Signed: true}, {Name: "tokens", Buckets: []string{"model"}},
		}
		if diff := cmp.Diff(want, set.Features, cmpRevision); err != nil || diff != "" {
			t.Fatalf("%v (-want +got):\n%s", err, diff)
		}
		down := plain("a", "-1")
		down.Feature = "credits"
		record(t, first, down, plain("b", "1"))
		second := over(t, st, withFeatures(map[string]engine.Feature{"credits": {}}))
		_, err = second.ApplyRoutes(t.Context(), nil)
		tagIs(t, err, sdk.TagConflict, "signed_in_use")
		fieldIs(t, err, "features.credits.signed")
		third := over(t, st, withFeatures(map[string]engine.Feature{"tokens": {Signed: true}}))
		_, err = third.ApplyRoutes(t.Context(), nil)
		tagIs(t, err, sdk.TagConflict, "signed_in_use")
		fourth := over(t, st, withFeatures(map[string]engine.Feature{"idle": {}, "tokens": {}}))
		if set, err = fourth.ApplyRoutes(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		for _, f := range set.Features {
			if (f.Name == "idle" && f.Signed) || (f.Name == "tokens" && f.Buckets != nil) {
				t.Errorf("%+v", f)
			}
		}
	})
}

// What changed a row is the store's business.
var cmpRevision = cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Revision" }, cmp.Ignore())
