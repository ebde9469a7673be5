package conformance

import (
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// A renamed exporter has the routes, retired ones too, and how far they
// reported; what was made under the old name keeps its identity.
func renameRoute(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	r.stage(t, route, 1, nil)
	if r.manifest.Has(storage.Counters) {
		r.stageWindow(t, "0", "1")
	}
	to := r.exporter() + "-new"
	a := r.actionOf(storage.ActionRoute)
	_, err := r.change(storage.RouteChange{Rename: &storage.RouteRename{From: r.exporter() + "-none", To: to}, Action: a})
	r.tagIs("an unknown name", err, sdk.TagNotFound, "")
	r.actionsAre("nothing done", 0)
	set, err := r.change(storage.RouteChange{Rename: &storage.RouteRename{From: r.exporter(), To: to}, Action: a})
	r.must("rename", err)
	for _, rt := range set.Routes {
		if rt.ID == route && rt.Exporter != to || rt.ID != route && rt.Exporter == r.exporter() {
			r.errorf("a route after the rename: %s", text(rt))
		}
	}
	r.actionsAre("renamed", 0, a)
	r.same("the identity of an item", r.only(storage.ItemQuery{Tenant: t, SubjectRef: "e100"}).Identity.Exporter, r.exporter())
	for _, name := range []string{to, r.exporter()} { // nobody has the old one
		r.same("an item by the name "+name, r.only(storage.ItemQuery{Tenant: t, SubjectRef: "e100", Exporter: name}).RouteID, route)
	}
	if r.manifest.Has(storage.Counters) {
		page, err := r.reports().ReportBounds(r.ctx, storage.BoundQuery{Tenant: t, Limit: 10})
		r.must("bounds", err)
		if len(page.Bounds) != 1 || page.Bounds[0].Exporter != to {
			r.errorf("bounds after the rename: %s", text(page.Bounds))
		}
	}
	r.addRoute("calls")
	r.same("items by a name that somebody else has now", len(r.items(storage.ItemQuery{Exporter: r.exporter()})), 0)
	_, err = r.change(storage.RouteChange{Rename: &storage.RouteRename{From: r.exporter(), To: to}})
	r.tagIs("a name that is taken", err, sdk.TagConflict, "route_exists")
}

func retireIdle(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	r.stage(t, route, 1, nil)
	retire := storage.RouteChange{Retire: []int64{route}, Idle: true, Action: r.actionOf(storage.ActionRoute)}
	_, err := r.change(retire)
	r.tagIs("with an open item", err, sdk.TagConflict, "route_open")
	r.actionsAre("nothing done", 0)
	r.accepted(route, r.only(storage.ItemQuery{Tenant: t}).ItemID, nil)
	set, err := r.change(retire)
	r.must("retire", err)
	for _, rt := range set.Routes {
		if rt.ID == route && rt.RetiredAt.IsZero() {
			r.errorf("not retired: %s", text(rt))
		}
	}
	r.actionsAre("retired", 0, retire.Action)

	// A mapping that is replaced leaves items under the route that it replaced.
	old := r.addRoute("calls")
	t = r.tenant("b")
	r.stage(t, old, 1, nil)
	_, err = r.change(storage.RouteChange{Retire: []int64{old}})
	r.must("replace a mapping", err)
	retire = storage.RouteChange{Retire: []int64{r.addRoute("calls")}, IdleAlso: []int64{old}}
	_, err = r.change(retire)
	r.tagIs("with an open item of a route that was replaced", err, sdk.TagConflict, "route_open")
	r.accepted(old, r.only(storage.ItemQuery{Tenant: t}).ItemID, nil)
	_, err = r.change(retire)
	r.must("retire with nothing open", err)
}
