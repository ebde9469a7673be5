package engine_test

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// O18, Q4: an event that cannot be sent is staged with its reason, never
// dropped; what an exporter ignores leads to nothing.
func TestWhatBecomesOfAnEventAtItsExporter(t *testing.T) {
	t.Parallel()
	f := open(t, func(c *engine.Config) { c.Features = map[string]engine.Feature{"tokens": {Signed: true}} })
	p := plan(map[string]string{"tokens": "llm_tokens", "half": ""})
	p.Ignore = []string{"debug"}
	f.routes(p)
	f.subscribe("acme", "cus_1")
	f.subscribe("poor", "")
	for name, tc := range map[string]struct {
		change func(*engine.Event)
		state  storage.ItemState
		reason string
	}{
		"may be sent":         {func(*engine.Event) {}, storage.Pending, ""},
		"negative may be":     {func(e *engine.Event) { e.Quantity = e.Quantity.Neg() }, storage.Pending, ""},
		"unmapped":            {func(e *engine.Event) { e.Feature = "images" }, storage.Quarantined, "feature_unmapped"},
		"mapped incompletely": {func(e *engine.Event) { e.Feature = "half" }, storage.Quarantined, "feature_unmapped"},
		"no customer":         {func(e *engine.Event) { e.Tenant = "poor" }, storage.Quarantined, "no_customer"},
		"no subscription":     {func(e *engine.Event) { e.Tenant = "stranger" }, storage.Quarantined, "no_customer"},
		"too old":             {func(e *engine.Event) { e.Time = noon.Add(-35*24*time.Hour - time.Microsecond) }, storage.Quarantined, "timestamp_window"},
		"just young enough":   {func(e *engine.Event) { e.Time = noon.Add(-35 * 24 * time.Hour) }, storage.Pending, ""},
		"too many digits":     {func(e *engine.Event) { e.Quantity = plain("", "1234567890.123456").Quantity }, storage.Quarantined, "value_domain"},
		"ignored":             {func(e *engine.Event) { e.Feature = "debug" }, "", ""},
	} {
		e := plain(name, "12.5")
		tc.change(&e)
		f.want(f.each(e), "inserted")
		var found []storage.Item
		for _, it := range f.items() {
			d, err := f.store.LoadItem(t.Context(), it.ItemID)
			if err != nil {
				t.Fatal(err)
			}
			if d.Event != nil && d.Event.EventID == name {
				found = append(found, it)
			}
		}
		switch {
		case tc.state == "" && len(found) != 0:
			t.Errorf("%s: %d items, want none", name, len(found))
		case tc.state != "" && len(found) != 1:
			t.Errorf("%s: %d items, want one", name, len(found))
		case tc.state != "" && (found[0].State != tc.state || found[0].QuarantineReason != tc.reason):
			t.Errorf("%s: %s %q, want %s %q", name, found[0].State, found[0].QuarantineReason, tc.state, tc.reason)
		}
	}
	if n := len(f.events()); n != 10 {
		t.Errorf("%d events, want all 10", n)
	}
}

// Q3, Q4: a changed mapping is a new route for what comes later; what exists
// keeps the mapping it was made with. The same content is the same mapping.
func TestMappingVersions(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.subscribe("acme", "cus_1")
	first := f.routes(plan(map[string]string{"tokens": "v1"}))
	f.want(f.each(plain("a", "1")), "inserted")
	if again := f.routes(plan(map[string]string{"tokens": "v1"})); again.Revision != first.Revision {
		t.Errorf("the same plan moved the revision from %d to %d", first.Revision, again.Revision)
	}
	relabelled := plan(map[string]string{"tokens": "v1"})
	relabelled.Label = "2"
	noted := f.routes(relabelled)
	if len(noted.Routes) != len(first.Routes) {
		t.Error("a label alone made a new route")
	}
	if again := f.routes(relabelled); again.Revision != noted.Revision {
		t.Error("a label is noted twice")
	}
	second := f.routes(plan(map[string]string{"tokens": "v2"}))
	if retired, live := split(second, "tokens"); len(retired) != 1 || len(live) != 1 || retired[0].MappingVersion == live[0].MappingVersion {
		t.Fatalf("retired %+v, in force %+v; want one each, of different mappings", retired, live)
	}
	f.want(f.each(plain("b", "1"), plain("a", "1")), "inserted duplicate")
	items := f.items()
	if len(items) != 2 || items[0].Identity.MappingVersion == items[1].Identity.MappingVersion {
		t.Errorf("items %+v, want two of different mappings", items)
	}
	// A host of the old release that starts again does not turn it back; who asks
	// for that gives the mapping a new version.
	if held := f.routes(plan(map[string]string{"tokens": "v1"})); held.Revision != second.Revision {
		t.Errorf("the old plan moved the revision from %d to %d", second.Revision, held.Revision)
	}
	asked := plan(map[string]string{"tokens": "v1"})
	asked.Label = "3"
	back := f.routes(asked)
	if _, live := split(back, "tokens"); len(live) != 1 || live[0].MappingVersion != items[0].Identity.MappingVersion {
		t.Errorf("in force %+v, want the first mapping again", live)
	}
	if len(back.Mappings) != 5 { // two, and what is noted of three labels
		t.Errorf("%d mappings, want 5", len(back.Mappings))
	}
	late := plan(map[string]string{"tokens": "v2"})
	late.Label = "4"
	f.routes(late)
	if held := f.routes(asked); len(held.Routes) != len(back.Routes)+1 {
		t.Errorf("%d routes: a label that asked for a return once asked again", len(held.Routes))
	}
}

func split(set storage.RouteSet, feature string) (retired, live []storage.Route) {
	for _, r := range set.Routes {
		switch {
		case r.Feature != feature:
		case r.RetiredAt.IsZero():
			live = append(live, r)
		default:
			retired = append(retired, r)
		}
	}
	return retired, live
}

// Q4: an exporter that is added later starts there; one that moves to another
// account leaves its routes retired; one that nobody plans is left alone.
func TestExportersComeAndMove(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.subscribe("acme", "cus_1")
	f.want(f.each(plain("before", "1")), "inserted")
	f.routes(plan(map[string]string{"tokens": "t"}))
	f.want(f.each(plain("first", "1")), "inserted")
	moved := plan(map[string]string{"tokens": "t"})
	moved.Account = "acct_2"
	f.routes(moved)
	f.want(f.each(plain("second", "1")), "inserted")
	if set := f.routes(); len(set.Routes) != 4 {
		t.Errorf("%d routes, want 4", len(set.Routes))
	}
	f.want(f.each(plain("third", "1")), "inserted")
	var accounts []string
	for _, it := range f.items() {
		accounts = append(accounts, it.Identity.Account)
	}
	if len(accounts) != 3 || accounts[0] != "acct_1" || accounts[1] != "acct_2" || accounts[2] != "acct_2" {
		t.Errorf("items went to %v, want acct_1, acct_2, acct_2", accounts)
	}
	f.want(f.each(plain("first", "1")), "duplicate")
	if n := len(f.items()); n != 3 {
		t.Errorf("a duplicate led to an item: %d", n)
	}
}

// Q4: one feature never goes twice to one event of one account, whichever
// exporter reports it, and whether or not the other is retired.
func TestTwoExportersNeverShareADestination(t *testing.T) {
	t.Parallel()
	named := func(name, event string) engine.RoutePlan {
		p := plan(map[string]string{"tokens": event})
		p.Exporter = name
		return p
	}
	f := open(t)
	_, err := f.ApplyRoutes(t.Context(), []engine.RoutePlan{named("a", "x"), named("b", "x")})
	tagIs(t, err, sdk.TagConflict, "route_shared")
	if set := f.routes(); len(set.Routes) != 0 {
		t.Errorf("a refused plan left %d routes", len(set.Routes))
	}
	f.routes(named("a", "x"))
	_, err = f.ApplyRoutes(t.Context(), []engine.RoutePlan{named("renamed", "x")})
	tagIs(t, err, sdk.TagConflict, "route_shared")
	f.routes(named("a", "y")) // x is retired now
	_, err = f.ApplyRoutes(t.Context(), []engine.RoutePlan{named("b", "x")})
	tagIs(t, err, sdk.TagConflict, "route_shared")
	f.routes(named("a", "y"), named("b", "z"))
	other := named("c", "x")
	other.Account = "acct_2"
	f.routes(other)
	live := named("d", "x")
	live.Mode = "live"
	f.routes(live)
	f.routes(named("a", "x")) // its own again
}

func TestReservedMappingKeys(t *testing.T) {
	t.Parallel()
	f := open(t)
	p := plan(map[string]string{"tokens": "t"})
	p.Features["tokens"]["provider"] = "other"
	_, err := f.ApplyRoutes(t.Context(), []engine.RoutePlan{p})
	tagIs(t, err, sdk.TagInvalid, "")
}
