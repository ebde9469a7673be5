package postgres

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
	must(t, err)
	set, err = a.ChangeRoutes(t.Context(), storage.RouteChange{Revision: set.Revision, Features: features})
	must(t, err)
	return set.Revision
}

// Q7: signed cannot change once a feature has events, whether or not anybody
// declared it before; until then it can.
func TestSignedInUse(t *testing.T) {
	t.Parallel()
	a := open(t)
	putFeatures(t, a, storage.Feature{Name: "balance"}, storage.Feature{Name: "tokens"})
	rev := putFeatures(t, a, storage.Feature{Name: "balance", Signed: true, Buckets: []string{}})
	balance, other := tokens("acme", "e1", "-2"), tokens("acme", "e3", "1")
	balance.Feature, other.Feature = "balance", "other"
	signed := plain(balance)
	signed.Entries[0].Signed = true
	record(t, a, storage.RecordRequest{Units: []storage.Unit{signed, plain(tokens("acme", "e2", "1")), plain(other)}, RoutesRevision: rev})
	for _, f := range []storage.Feature{{Name: "balance"}, {Name: "tokens", Signed: true}, {Name: "other", Signed: true}} {
		_, err := a.ChangeRoutes(t.Context(), storage.RouteChange{Revision: rev, Features: []storage.Feature{f}})
		wantFailure(t, err, sdk.TagConflict, "signed_in_use")
	}
	rev = putFeatures(t, a, storage.Feature{Name: "other", Buckets: []string{"model"}})
	set, err := a.Routes(t.Context())
	must(t, err)
	want := []storage.Feature{
		{Name: "balance", Signed: true, Buckets: []string{}, Revision: rev - 1},
		{Name: "other", Buckets: []string{"model"}, Revision: rev},
		{Name: "tokens", Revision: rev - 2},
	}
	if diff := cmp.Diff(want, set.Features); diff != "" {
		t.Error(diff)
	}
}

// Q4: routes are added, retired and never changed, by whoever has the revision
// as it is; a refused change leaves nothing.
func TestChangeRoutes(t *testing.T) {
	t.Parallel()
	a := open(t)
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(tokens("acme", "e1", "1"))}})
	route, rev := routed(t, a)
	set, err := a.Routes(t.Context())
	if err != nil || len(set.Routes) != 1 || set.Routes[0].AppliesAfter != 1 || set.Routes[0].ID != route || rev != 1 {
		t.Errorf("routes %+v, %v", set, err)
	}
	same := set.Routes[0]
	mapping := storage.Mapping{Version: "m1", Label: "1", Content: []byte(`{"event_name":"llm_tokens"}`)}
	for name, test := range map[string]struct {
		change storage.RouteChange
		tag    sdk.Tag
		code   string
	}{
		"old revision":    {storage.RouteChange{Revision: 0}, sdk.TagConflict, "routes_changed"},
		"same again":      {storage.RouteChange{Revision: 1, Mappings: []storage.Mapping{mapping}, Add: []storage.Route{same}}, sdk.TagConflict, "route_exists"},
		"not in force":    {storage.RouteChange{Revision: 1, Retire: []int64{route, 99}}, sdk.TagConflict, "route_not_in_force"},
		"changed mapping": {storage.RouteChange{Revision: 1, Mappings: []storage.Mapping{{Version: "m1", Content: []byte(`{}`)}}}, sdk.TagConflict, "mapping_changed"},
		"empty mapping":   {storage.RouteChange{Revision: 1, Mappings: []storage.Mapping{{}}}, sdk.TagInvalid, ""},
		"no mapping":      {storage.RouteChange{Revision: 1, Add: []storage.Route{{Exporter: "x", Feature: "f", Disposition: storage.RouteExport, MappingVersion: "none"}}}, sdk.TagInvalid, ""},
		"unnamed feature": {storage.RouteChange{Revision: 1, Features: []storage.Feature{{}}}, sdk.TagInvalid, ""},
	} {
		_, err := a.ChangeRoutes(t.Context(), test.change)
		if e := err; e == nil {
			t.Errorf("%s: no error", name)
		}
		wantFailure(t, err, test.tag, test.code)
	}
	if after, err := a.Routes(t.Context()); err != nil || cmp.Diff(set, after) != "" {
		t.Errorf("%v\n%s", err, cmp.Diff(set, after))
	}
	// Retired and added again in one change: retiring comes first.
	set, err = a.ChangeRoutes(t.Context(), storage.RouteChange{Revision: 1, Retire: []int64{route}, Add: []storage.Route{same}})
	if err != nil || len(set.Routes) != 2 || set.Routes[0].RetiredAt.IsZero() || !set.Routes[1].RetiredAt.IsZero() || set.Revision != 2 {
		t.Errorf("routes %+v, %v", set, err)
	}
}

// Keyset listing, unknown tenants, revisions.
func TestSubscriptions(t *testing.T) {
	t.Parallel()
	a := open(t)
	put := func(s storage.Subscription) storage.Subscription {
		stored, err := a.PutSubscription(t.Context(), s)
		must(t, err)
		return stored
	}
	for _, tenant := range []string{"b", "A", "a_b", "aXb", "é"} {
		put(storage.Subscription{Tenant: tenant, Interval: storage.Day, Timezone: "UTC", Anchor: november})
	}
	want := storage.Subscription{
		Tenant: "b", Plan: "pro", PlanVersion: "2", Anchor: november, Interval: storage.Month, Timezone: "Europe/Paris",
		Customers: map[string]string{"stripe": "cus_1"},
	}
	stored := put(want)
	want.Revision, want.UpdatedAt = 2, stored.UpdatedAt
	if diff := cmp.Diff(want, stored); diff != "" {
		t.Error(diff)
	}
	got, err := a.Subscriptions(t.Context(), []string{"b", "nobody"})
	if err != nil || len(got) != 1 || cmp.Diff(want, got[0]) != "" {
		t.Errorf("%+v, %v", got, err)
	}
	var order []string
	for after := ""; ; {
		page, err := a.ListSubscriptions(t.Context(), after, 2)
		must(t, err)
		if len(page) == 0 {
			break
		}
		for _, s := range page {
			order = append(order, s.Tenant)
		}
		after = order[len(order)-1]
	}
	if diff := cmp.Diff([]string{"A", "aXb", "a_b", "b", "é"}, order); diff != "" { // by bytes
		t.Error(diff)
	}
	_, err = a.PutSubscription(t.Context(), storage.Subscription{})
	wantFailure(t, err, sdk.TagInvalid, "")
	_, err = a.ListSubscriptions(t.Context(), "", 1001)
	wantFailure(t, err, sdk.TagInvalid, "")
}
