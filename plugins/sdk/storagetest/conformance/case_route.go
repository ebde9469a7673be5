package conformance

import (
	"slices"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func routeCases() []Case {
	return []Case{
		define("route/round-trip", "Q4", exporting(), routeRoundTrip),
		define("route/changes-need-the-revision", "Q4", exporting(), routeRevision),
		define("route/retired-once", "Q4", exporting(), routeRetired),
		define("route/mappings-never-change", "Q3", exporting(), mappingsNeverChange),
		define("route/features-are-remembered", "Q7", exporting(), featuresRemembered),
	}
}

func (r *run) ownRoutes(set storage.RouteSet) []storage.Route {
	var own []storage.Route
	for _, route := range set.Routes {
		if route.Exporter == r.exporter() {
			own = append(own, route)
		}
	}
	return own
}

func routeRoundTrip(r *run) {
	last := r.put(usage(r.tenant("a"), "1", "1"))[0].Seq
	m := storage.Mapping{Version: r.mappingVersion("1"), Label: "3", Content: []byte(`{"event_name":"llm","é":"\"x"}`)}
	added := []storage.Route{
		{Exporter: r.exporter(), Account: "acct", Mode: "test", Feature: "tokens", Disposition: storage.RouteExport, MappingVersion: m.Version},
		{Exporter: r.exporter(), Account: "acct", Mode: "live", Feature: storage.AnyFeature, Disposition: storage.RouteQuarantine},
		{Exporter: r.exporter(), Account: "", Mode: "test", Feature: "ключ", Disposition: storage.RouteIgnore},
	}
	before := r.revision()
	set, err := r.change(storage.RouteChange{Mappings: []storage.Mapping{m}, Add: added})
	r.must("change the routes", err)
	if set.Revision <= before {
		r.errorf("revision %d after %d", set.Revision, before)
	}
	read, err := use[storage.RouteStore](r, storage.Outbox).Routes(r.ctx)
	r.must("read the routes", err)
	r.same("as read", r.ownRoutes(read), r.ownRoutes(set))
	own := r.ownRoutes(read)
	r.same("number of routes", len(own), len(added))
	for i, route := range own {
		if route.ID <= 0 || route.AppliesAfter < last || !route.RetiredAt.IsZero() {
			r.errorf("route %s: want an id, in force, applying after %d", text(route), last)
		}
		route.ID, route.AppliesAfter = 0, 0
		if !slices.ContainsFunc(added, func(a storage.Route) bool { return text(a) == text(route) }) {
			r.errorf("route %d is %s", i, text(route))
		}
	}
	i := slices.IndexFunc(read.Mappings, func(o storage.Mapping) bool { return o.Version == m.Version })
	if i < 0 {
		r.fatalf("the mapping is not there")
	}
	r.same("the mapping", []string{read.Mappings[i].Label, string(plainJSON(read.Mappings[i].Content))}, []string{m.Label, string(plainJSON(m.Content))})
}

func routeRevision(r *run) {
	routes := use[storage.RouteStore](r, storage.Outbox)
	stale := r.revision()
	r.addRoute("tokens")
	_, err := routes.ChangeRoutes(r.ctx, storage.RouteChange{Revision: stale, Add: []storage.Route{{
		Exporter: r.exporter(), Account: "acct", Mode: "test", Feature: "late", Disposition: storage.RouteIgnore,
	}}})
	r.tagIs("a change of routes that moved", err, sdk.TagConflict, "")
	got, err := routes.Routes(r.ctx)
	r.must("read the routes", err)
	r.same("routes of this case", len(r.ownRoutes(got)), 1)
	mu := make(chan struct{}, 1)
	in := 0
	revision := r.revision()
	r.together(6, func(i int) {
		_, err := routes.ChangeRoutes(r.ctx, storage.RouteChange{Revision: revision, Add: []storage.Route{{
			Exporter: r.exporter(), Account: "acct", Mode: "test", Feature: "f" + decimalInt(i), Disposition: storage.RouteIgnore,
		}}})
		mu <- struct{}{}
		defer func() { <-mu }()
		if err == nil {
			in++
		} else {
			r.tagIs("one of several changes at once", err, sdk.TagConflict, "")
		}
	})
	r.same("changes of one revision that went in", in, 1)
}

func routeRetired(r *run) {
	id := r.addRoute("tokens")
	set, err := r.change(storage.RouteChange{Retire: []int64{id}})
	r.must("retire", err)
	own := r.ownRoutes(set)
	if len(own) != 1 || own[0].RetiredAt.IsZero() {
		r.errorf("routes %s, want one that is retired", text(own))
	}
	_, err = r.change(storage.RouteChange{Retire: []int64{id}})
	r.tagIs("retire it again", err, sdk.TagConflict, "")
	r.addRoute("tokens") // the place is free
}

func mappingsNeverChange(r *run) {
	m := storage.Mapping{Version: r.mappingVersion("1"), Label: "1", Content: []byte(`{"a":"1"}`)}
	for range 2 {
		_, err := r.change(storage.RouteChange{Mappings: []storage.Mapping{m}})
		r.must("store a mapping", err)
	}
	m.Content = []byte(`{"a":"2"}`)
	_, err := r.change(storage.RouteChange{Mappings: []storage.Mapping{m}})
	r.tagIs("another content under one version", err, sdk.TagConflict, "")
}

func featuresRemembered(r *run) {
	name := r.prefix + "-feature"
	find := func() storage.Feature {
		set, err := use[storage.RouteStore](r, storage.Outbox).Routes(r.ctx)
		r.must("read the routes", err)
		i := slices.IndexFunc(set.Features, func(f storage.Feature) bool { return f.Name == name })
		if i < 0 {
			r.fatalf("the feature is not there: %s", text(set.Features))
		}
		return set.Features[i]
	}
	put := func(f storage.Feature) error {
		_, err := r.change(storage.RouteChange{Features: []storage.Feature{f}})
		return err
	}
	r.must("a new feature", put(storage.Feature{Name: name, Signed: true, Buckets: []string{"b", "a"}, Revision: 1 << 40}))
	r.same("as stored", find(), storage.Feature{Name: name, Signed: true, Buckets: []string{"b", "a"}, Revision: r.revision()})
	r.must("unused, it can change its sign", put(storage.Feature{Name: name, Buckets: []string{}}))
	got := find()
	if got.Signed || got.Buckets == nil || len(got.Buckets) != 0 {
		r.errorf("as stored: %#v, want buckets without dimensions", got)
	}
	e := usage(r.tenant("a"), "1", "1")
	e.Feature = name
	r.put(e)
	r.tagIs("used, it cannot", put(storage.Feature{Name: name, Signed: true}), sdk.TagConflict, "signed_in_use")
	r.must("what else may change", put(storage.Feature{Name: name}))
	if got := find(); got.Signed || got.Buckets != nil {
		r.errorf("as stored: %#v, want no buckets", got)
	}
}
