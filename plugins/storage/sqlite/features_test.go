package sqlite

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// putFeatures declares features and answers the revision of the routes.
func putFeatures(t testing.TB, a *Adapter, features ...storage.Feature) int64 {
	t.Helper()
	set, err := a.Routes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	set, err = a.ChangeRoutes(t.Context(), storage.RouteChange{Revision: set.Revision, Features: features})
	if err != nil {
		t.Fatal(err)
	}
	return set.Revision
}

// Q7: signed cannot change once a feature has events, whether or not anybody
// declared it before; until then it can.
func TestSignedInUse(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	putFeatures(t, a, storage.Feature{Name: "balance"}, storage.Feature{Name: "tokens"})
	rev := putFeatures(t, a, storage.Feature{Name: "balance", Signed: true, Buckets: []string{}})
	balance, tokens, other := event("acme", "e1", "-2"), event("acme", "e2", "1"), event("acme", "e3", "1")
	balance.Feature, other.Feature = "balance", "other"
	signed := plain(balance)
	signed.Entries[0].Signed = true
	record(t, a, storage.RecordRequest{Units: []storage.Unit{signed, plain(tokens), plain(other)}, RoutesRevision: rev})
	for _, f := range []storage.Feature{{Name: "balance"}, {Name: "tokens", Signed: true}, {Name: "other", Signed: true}} {
		_, err := a.ChangeRoutes(t.Context(), storage.RouteChange{Revision: rev, Features: []storage.Feature{f}})
		if e := wantError(t, err, sdk.TagConflict, "signed_in_use"); e == nil || e.Field != "features."+f.Name {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
	putFeatures(t, a, storage.Feature{Name: "other", Buckets: []string{"model"}})
	careless := event("acme", "e4", "1") // its entry does not say that it is signed
	careless.Feature = "careless"
	rev = putFeatures(t, a, storage.Feature{Name: "careless", Signed: true})
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(careless)}, RoutesRevision: rev})
	_, err := a.ChangeRoutes(t.Context(), storage.RouteChange{Revision: rev, Features: []storage.Feature{{Name: "careless"}}})
	wantError(t, err, sdk.TagConflict, "signed_in_use")
	set, err := a.Routes(t.Context())
	want := []storage.Feature{
		{Name: "balance", Signed: true, Buckets: []string{}, Revision: rev - 2},
		{Name: "careless", Signed: true, Revision: rev},
		{Name: "other", Buckets: []string{"model"}, Revision: rev - 1},
		{Name: "tokens", Revision: rev - 3},
	}
	if diff := cmp.Diff(want, set.Features); diff != "" || err != nil {
		t.Errorf("features: %v\n%s", err, diff)
	}
}

// S8: what an unsigned feature adds up to never falls below zero; what a signed
// one does may.
func TestTotalsBackstop(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(event("acme", "e1", "0.5"))}})
	below := plain(event("acme", "e2", "-0.500000000001"))
	_, err := a.RecordEvents(t.Context(), storage.RecordRequest{Units: []storage.Unit{below}, Mode: storage.Each})
	wantError(t, err, sdk.TagInvalid, "constraint")
	if got := totals(t, a, "acme"); got != "tokens 0.5/1" {
		t.Errorf("totals %s", got)
	}
	zero := plain(event("acme", "e3", "-0.5"))
	record(t, a, storage.RecordRequest{Units: []storage.Unit{zero}})
	below.Entries[0].Signed = true
	record(t, a, storage.RecordRequest{Units: []storage.Unit{below}})
	if got := totals(t, a, "acme"); got != "tokens -0.500000000001/3" {
		t.Errorf("totals %s", got)
	}
}
