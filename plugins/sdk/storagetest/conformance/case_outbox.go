package conformance

import (
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func exporting() []storage.Capability { return caps(storage.DurableEvents, storage.Outbox) }

// exporter is the name of this case's destination: nobody else's items are on
// its routes.
func (r *run) exporter() string { return r.prefix + "-x" }

func (r *run) mappingVersion(n string) string { return r.prefix + "-m" + n }

// change applies a change to the routes as they are.
func (r *run) change(change storage.RouteChange) (storage.RouteSet, error) {
	routes := use[storage.RouteStore](r, storage.Outbox)
	var err error
	for range retries {
		change.Revision = r.revision()
		var set storage.RouteSet
		set, err = routes.ChangeRoutes(r.ctx, change)
		if e, ok := tagged(err); !ok || e.Tag != sdk.TagConflict || e.Code != "routes_changed" {
			return set, err //nolint:wrapcheck // the case looks at it
		}
	}
	return storage.RouteSet{}, err //nolint:wrapcheck // the case looks at it
}

// addRoute adds a route of this case for a feature, with mapping "1".
func (r *run) addRoute(feature string) int64 {
	set, err := r.change(storage.RouteChange{
		Mappings: []storage.Mapping{{Version: r.mappingVersion("1"), Label: "1", Content: []byte(`{"event_name":"llm"}`)}},
		Add: []storage.Route{{
			Exporter: r.exporter(), Account: "acct", Mode: "test", Feature: feature,
			Disposition: storage.RouteExport, MappingVersion: r.mappingVersion("1"),
		}},
	})
	r.must("add a route", err)
	for _, route := range set.Routes {
		if route.Exporter == r.exporter() && route.Feature == feature && route.RetiredAt.IsZero() {
			return route.ID
		}
	}
	r.fatalf("the route that was added is not in the answer: %s", text(set))
	return 0
}

// item is an item for an event on a route of this case.
func (r *run) item(e *storage.Event, route int64) storage.NewItem {
	id := storage.Identity{
		Tenant: e.Tenant, SubjectKind: storage.SubjectEvent, SubjectRef: e.EventID, Exporter: r.exporter(),
		Account: "acct", Mode: "test", MappingVersion: r.mappingVersion("1"),
	}
	return storage.NewItem{
		Identity: id, Digest: hash("digest", text(id)), SubjectKey: hash("subject", e.Tenant, e.EventID, r.exporter()),
		RouteID: route, Customer: "cus_1", AttemptBudget: 3,
	}
}

// stage records n events with an item each, all new.
func (r *run) stage(tenant string, route int64, n int, edit func(i int, it *storage.NewItem)) {
	all := make([]storage.Unit, n)
	for i := range all {
		e := usage(tenant, "e"+decimalInt(100+i), "1")
		it := r.item(&e, route)
		if edit != nil {
			edit(i, &it)
		}
		all[i] = storage.Unit{Entries: []storage.Entry{entry(e, it)}}
	}
	r.putUnits(all...)
}

func (r *run) items(q storage.ItemQuery) []storage.Item {
	q.Limit = 1000
	page, err := r.outbox().ListItems(r.ctx, q)
	r.must("list items", err)
	return page.Items
}

func (r *run) detail(id int64) storage.ItemDetail {
	d, err := r.outbox().LoadItem(r.ctx, id)
	r.must("load an item", err)
	return d
}

func outboxCases() []Case {
	return []Case{
		define("outbox/items-of-inserted-events-only", "S4 B21 B16", exporting(), itemsOfInserted),
		define("outbox/item-round-trip", "O1 O2 Q2", exporting(), itemRoundTrip),
		define("outbox/one-item-per-subject", "Q5 O1", exporting(), oneItemPerSubject),
		define("outbox/list-pages-and-filters", "O28", exporting(), itemList),
		define("outbox/stats", "O28 Q25", exporting(), outboxStats),
	}
}

func itemsOfInserted(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	r.stage(t, route, 3, nil)
	unit := func(id, q string) storage.Unit {
		e := usage(t, id, q)
		return storage.Unit{Entries: []storage.Entry{entry(e, r.item(&e, route))}}
	}
	got := r.record(storage.Each, unit("e100", "1"), unit("e101", "9"), unit("new", "1"))
	r.same("outcomes", outcomes(got), []storage.Outcome{storage.Duplicate, storage.Conflict, storage.Inserted})
	got = r.record(storage.Atomic, unit("lost", "1"), unit("e101", "9"))
	r.same("outcomes", outcomes(got), []storage.Outcome{"", storage.Conflict})
	var refs []string
	for _, it := range r.items(storage.ItemQuery{Tenant: t}) {
		refs = append(refs, it.Identity.SubjectRef)
	}
	slices.Sort(refs)
	r.same("subjects of the items", refs, strings.Fields("e100 e101 e102 new"))
}

func itemRoundTrip(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	e := richEvent(t, "10.5")
	pending, held, settled := r.item(&e, route), r.item(&e, route), r.item(&e, route)
	pending.SerialKey, pending.Customer, pending.AttemptBudget = "serial-é", "cus_ü", 20
	held.Identity.Account, held.QuarantineReason, held.Customer = "acct2", "no_customer", ""
	settled.Identity.Account, settled.QuarantineReason, settled.Settled = "acct3", "period_buffered", true
	for _, it := range []*storage.NewItem{&held, &settled} {
		it.Digest, it.SubjectKey = hash("digest", text(it.Identity)), hash("subject", text(it.Identity))
	}
	held.Payload = []byte(`{"value":"10.5"}`)
	r.putUnits(storage.Unit{Entries: []storage.Entry{entry(e, pending, held, settled)}})
	all := r.items(storage.ItemQuery{Tenant: t})
	r.same("number of items", len(all), 3)
	for _, n := range []storage.NewItem{pending, held, settled} {
		i := slices.IndexFunc(all, func(it storage.Item) bool { return it.Digest == n.Digest })
		if i < 0 {
			r.fatalf("an item is missing: %s", text(n.Identity))
		}
		d := r.detail(all[i].ItemID)
		r.same("as listed", d.Item, all[i])
		want := storage.Item{
			ItemID: d.Item.ItemID, Identity: n.Identity, Digest: n.Digest, RouteID: route, Feature: "calls", Customer: n.Customer,
			SerialKey: n.SerialKey, State: storage.Pending, AttemptBudget: n.AttemptBudget, QuarantineReason: n.QuarantineReason,
			NextAttemptAt: d.Item.NextAttemptAt, SettledAt: d.Item.SettledAt, CreatedAt: d.Item.CreatedAt,
		}
		if n.QuarantineReason != "" {
			want.State = storage.Quarantined
		}
		r.same("the item", d.Item, want)
		if d.Item.SettledAt.IsZero() == n.Settled || d.Item.CreatedAt.IsZero() || d.Item.NextAttemptAt.IsZero() == (n.QuarantineReason == "") {
			r.errorf("times of %s", text(d.Item))
		}
		if d.Event == nil || len(d.Attempts) != 0 {
			r.fatalf("detail %s: want the event and no attempts", text(d))
		}
		r.same("its event", plainEvent(*d.Event), plainEvent(withEffect(e)))
		r.same("its mapping", d.Mapping.Version, n.Identity.MappingVersion)
		r.same("its payload", string(plainJSON(d.Payload)), string(n.Payload))
	}
	_, err := r.outbox().LoadItem(r.ctx, 1<<60)
	r.tagIs("an item that never was", err, sdk.TagNotFound, "")
}

// Two mappings of one subject are two charges: the second is not inserted, and
// is counted.
func oneItemPerSubject(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	e, f := usage(t, "1", "1"), usage(t, "2", "1")
	first := r.item(&e, route)
	second := r.item(&f, route)
	second.SubjectKey = first.SubjectKey
	r.putUnits(storage.Unit{Entries: []storage.Entry{entry(e, first)}})
	res, err := r.try([]storage.Unit{{Entries: []storage.Entry{entry(f, second)}}}, storage.Atomic)
	r.must("record", err)
	r.same("the event itself", outcomes(res.Units), []storage.Outcome{storage.Inserted})
	r.same("superseded", res.Superseded, 1)
	r.same("items", len(r.items(storage.ItemQuery{Tenant: t})), 1)
	g := usage(t, "3", "1")
	third := r.item(&g, route)
	third.Identity, third.Digest, third.SubjectKey = first.Identity, first.Digest, first.SubjectKey
	res, err = r.try([]storage.Unit{{Entries: []storage.Entry{entry(g, third)}}}, storage.Atomic)
	r.must("record", err)
	r.same("the very same item is not counted", res.Superseded, 0)
	r.same("items", len(r.items(storage.ItemQuery{Tenant: t})), 1)
}

func itemList(r *run) {
	a, b := r.tenant("a"), r.tenant("b")
	route := r.addRoute("tokens")
	hold := func(i int, it *storage.NewItem) {
		if i%2 == 0 {
			it.QuarantineReason = "no_customer"
		}
	}
	r.stage(a, route, 6, hold)
	r.stage(b, route, 3, nil)
	var got []storage.Item
	q := storage.ItemQuery{Exporter: r.exporter(), Limit: 2}
	for {
		page, err := r.outbox().ListItems(r.ctx, q)
		r.must("list", err)
		if len(page.Items) > q.Limit || (page.More && page.Next <= q.After) {
			r.fatalf("a page %s after %d, limit %d", text(page), q.After, q.Limit)
		}
		got = append(got, page.Items...)
		if !page.More {
			break
		}
		q.After = page.Next
	}
	r.same("all in pages", got, r.items(storage.ItemQuery{Exporter: r.exporter()}))
	if len(got) != 9 || !slices.IsSortedFunc(got, func(x, y storage.Item) int { return int(x.ItemID - y.ItemID) }) {
		r.errorf("%d items, want 9 in the order of ids", len(got))
	}
	for want, q := range map[int]storage.ItemQuery{
		6: {Tenant: a}, 3: {Tenant: a, State: storage.Quarantined}, 2: {Exporter: r.exporter(), SubjectRef: "e100"},
		1: {Tenant: b, SubjectRef: "e101"}, 0: {Tenant: b, State: storage.Quarantined}, 9: {Exporter: r.exporter(), Feature: "tokens"},
	} {
		r.same("items that "+text(q)+" selects", len(r.items(q)), want)
	}
	r.same("by reason", len(r.items(storage.ItemQuery{Tenant: a, Reason: "no_customer"})), 3)
	r.same("by reason, of nobody", len(r.items(storage.ItemQuery{Tenant: b, Reason: "no_customer"})), 0)
}

func outboxStats(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	r.stage(t, route, 5, func(i int, it *storage.NewItem) {
		if i < 2 {
			it.QuarantineReason, it.Settled = "period_buffered", i == 0
		}
	})
	r.statsAre("staged", map[storage.ItemState][2]int64{storage.Pending: {3, 3}, storage.Quarantined: {2, 1}})
	claim := r.claim(storage.ClaimRequest{Routes: []int64{route}, Limit: 2})
	r.statsAre("claimed", map[storage.ItemState][2]int64{storage.Pending: {1, 1}, storage.Leased: {2, 2}, storage.Quarantined: {2, 1}})
	settled := true
	r.moves(storage.Transition{
		ItemID: claim.Items[0].ItemID, Expect: leasedBy(claim.Items[0].LeaseToken),
		Set: storage.Change{State: storage.Accepted, AcceptedNow: true, Settled: &settled},
	})
	r.statsAre("accepted", map[storage.ItemState][2]int64{
		storage.Pending: {1, 1}, storage.Leased: {1, 1}, storage.Accepted: {1, 0}, storage.Quarantined: {2, 1},
	})
}

// statsAre compares the counts of this case's exporter: items and open ones.
func (r *run) statsAre(what string, want map[storage.ItemState][2]int64) {
	stats, err := r.outbox().OutboxStats(r.ctx)
	r.must("stats", err)
	got := map[storage.ItemState][2]int64{}
	for _, c := range stats.Counts {
		if c.Exporter == r.exporter() && c.Items != 0 {
			got[c.State] = [2]int64{got[c.State][0] + c.Items, got[c.State][1] + c.Open}
		}
	}
	r.same(what, got, want)
	if want[storage.Pending][0] > 0 && (stats.OldestPending < 0 || stats.OldestPending > 1000*time.Hour) {
		r.errorf("%s: oldest pending %s", what, stats.OldestPending)
	}
}
