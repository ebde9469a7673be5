package conformance

import (
	"slices"
	"sync/atomic"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func windowCases() []Case {
	needs := reporting()
	return []Case{
		define("window/is-staged-once", "O7 O22 Q20", needs, stagedOnce),
		define("window/settles", "O22 Q20", needs, windowSettles),
		define("window/refuses-what-exists", "O7 Q20", needs, windowExists),
		define("window/bounds-in-pages", "O22", needs, boundPages),
		define("race/one-window", "Q20 B47", needs, windowRace),
		define("cutover/is-decided-once", "O23 Q21", needs, cutoverOnce),
		define("counter/counted-usage", "Q21 O23", append(needs, storage.Corrections), countedUsage),
	}
}

// boundOf is the reporting of this case's counter.
func (r *run) boundOf(t string) storage.BoundKey {
	return storage.BoundKey{
		Exporter: r.exporter(), Account: "acct", Mode: "test", Tenant: t, Feature: "tokens", PeriodStart: period,
	}
}

// window is a window of a counter on a route of this case.
func (r *run) window(t string, route int64, from, to string) storage.WindowStage {
	value := dec(to).Sub(dec(from)).String()
	id := storage.Identity{
		Tenant: t, SubjectKind: storage.SubjectWindow, SubjectRef: "tokens|" + from + "|" + to, Exporter: r.exporter(),
		Account: "acct", Mode: "test", MappingVersion: r.mappingVersion("1"),
	}
	return storage.WindowStage{
		Key: r.boundOf(t), PeriodEnd: period.AddDate(0, 1, 0), From: dec(from), To: dec(to), RoutesRevision: r.revision(),
		Item: storage.NewItem{
			Identity: id, Digest: hash("digest", text(id)), SubjectKey: hash("subject", text(id)), RouteID: route, Customer: "cus_1",
			AttemptBudget: 3, Payload: []byte(`{"feature":"tokens","value":"` + value + `","timestamp":"2026-10-02T12:00:00Z"}`),
		},
	}
}

// stage stages, and repeats when the routes moved.
func (r *run) stageOf(w storage.WindowStage) (storage.WindowResult, error) {
	for range retries {
		w.RoutesRevision = r.revision()
		res, err := r.reports().StageWindow(r.ctx, w)
		if e, ok := tagged(err); ok && e.Code == "routes_moved" {
			continue
		}
		return res, err //nolint:wrapcheck // the case looks at it
	}
	r.fatalf("stage: the routes moved %d times", retries)
	return storage.WindowResult{}, nil
}

// stageWindow stages a window of this case's route and expects that it went in.
func (r *run) stageWindow(t, from, to string) storage.WindowResult {
	set, err := use[storage.RouteStore](r, storage.Outbox).Routes(r.ctx)
	r.must("routes", err)
	i := slices.IndexFunc(set.Routes, func(rt storage.Route) bool { return rt.Exporter == r.exporter() && rt.Feature == "tokens" })
	if i < 0 {
		r.fatalf("the case has no route")
	}
	res, err := r.stageOf(r.window(t, set.Routes[i].ID, from, to))
	r.must("stage a window", err)
	if !res.Changed || res.ItemID == 0 {
		r.fatalf("window %s to %s: %s, want it staged", from, to, text(res))
	}
	return res
}

// boundIs compares what is stored of this case's counter.
func (r *run) boundIs(what, t, acked, staged string, item int64) {
	page, err := r.reports().ReportBounds(r.ctx, storage.BoundQuery{Keys: []storage.BoundKey{r.boundOf(t)}})
	r.must("bounds", err)
	if len(page.Bounds) != 1 {
		r.fatalf("%s: %d bounds, want 1", what, len(page.Bounds))
	}
	b := page.Bounds[0]
	to := ""
	if b.StagedTo != nil {
		to = b.StagedTo.String()
	}
	r.same(what, []any{b.Acked, to, b.ItemID}, []any{dec(acked), staged, item})
}

func stagedOnce(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	res := r.stageWindow(t, "0", "5.5")
	b := res.Bound
	r.same("the bound", []any{b.BoundKey, b.PeriodEnd.UTC(), b.Acked, *b.StagedTo, b.ItemID, b.ItemState, b.ItemSettled},
		[]any{r.boundOf(t), period.AddDate(0, 1, 0), dec("0"), dec("5.5"), res.ItemID, storage.Pending, false})
	r.boundIs("as stored", t, "0", "5.5", res.ItemID)
	d := r.detail(res.ItemID)
	r.same("the item", []any{d.Item.Identity.SubjectKind, d.Item.Feature, d.Item.State, d.Event == nil, string(plainJSON(d.Payload))},
		[]any{storage.SubjectWindow, "tokens", storage.Pending, true, string(plainJSON(r.window(t, route, "0", "5.5").Item.Payload))})
	for _, bounds := range [][2]string{{"0", "5.5"}, {"0", "7"}, {"5.5", "7"}} {
		again, err := r.stageOf(r.window(t, route, bounds[0], bounds[1]))
		r.must("stage", err)
		r.same("while one is on its way", []any{again.Changed, again.ItemID, again.Bound.ItemID}, []any{false, int64(0), res.ItemID})
	}
	u := r.tenant("b")
	other, err := r.stageOf(r.window(u, route, "3", "7"))
	r.must("stage", err)
	r.same("from a bound that never was", other.Changed, false)
	r.same("items", len(r.items(storage.ItemQuery{Exporter: r.exporter()})), 1)
	page, err := r.reports().ReportBounds(r.ctx, storage.BoundQuery{Tenant: u, Limit: 10})
	r.must("bounds", err)
	r.same("nothing was written", len(page.Bounds), 0)
}

func windowSettles(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	settle := func(item int64, d storage.WindowDisposition, settled bool, states ...storage.ItemState) bool {
		res, err := r.reports().SettleWindow(r.ctx, storage.WindowSettle{
			Key: r.boundOf(t), ItemID: item, States: states, Settled: settled, Disposition: d, Action: of(r.actionOf(storage.ActionAbandon), 0),
		})
		r.must("settle", err)
		return res.Changed
	}
	first := r.stageWindow(t, "0", "5").ItemID
	r.same("not accepted yet", settle(first, storage.WindowAcknowledged, false, storage.Accepted, storage.Confirmed), false)
	r.accepted(route, first, nil)
	r.same("another item", settle(first+1000, storage.WindowAcknowledged, false, storage.Accepted), false)
	r.boundIs("untouched", t, "0", "5", first)
	r.same("acknowledged", settle(first, storage.WindowAcknowledged, false, storage.Accepted, storage.Confirmed), true)
	r.boundIs("acknowledged", t, "5", "", 0)
	r.same("once", settle(first, storage.WindowAcknowledged, false, storage.Accepted), false)

	second := r.stageWindow(t, "5", "9").ItemID
	c, yes := r.take(route, second), true
	r.moves(storage.Transition{ItemID: second, Expect: leasedBy(c.LeaseToken), Set: storage.Change{State: storage.Rejected}})
	r.same("not settled yet", settle(second, storage.WindowRestage, true, storage.Rejected), false)
	r.moves(storage.Transition{ItemID: second, Expect: storage.Expect{State: storage.Rejected}, Set: storage.Change{State: storage.Rejected, Settled: &yes}})
	r.same("restaged", settle(second, storage.WindowRestage, true, storage.Rejected), true)
	r.boundIs("the bound stays", t, "5", "", 0)
	third := r.stageWindow(t, "5", "10").ItemID
	c = r.take(route, third)
	r.moves(storage.Transition{ItemID: third, Expect: leasedBy(c.LeaseToken), Set: storage.Change{State: storage.Rejected, Settled: &yes}})
	r.same("written off", settle(third, storage.WindowWrittenOff, true, storage.Rejected), true)
	r.boundIs("the bound moves", t, "10", "", 0)
	r.stageWindow(t, "10", "8") // what was corrected downward
	a := r.actionOf(storage.ActionAbandon)
	r.actionsAre("one for each change", 0, of(a, first), of(a, second), of(a, third))
	_, err := r.reports().SettleWindow(r.ctx, storage.WindowSettle{Key: r.boundOf(t), ItemID: 1, Disposition: "magic"})
	r.tagIs("an unknown disposition", err, sdk.TagInvalid, "")
}

func windowExists(r *run) {
	t, u := r.tenant("a"), r.tenant("b")
	route := r.addRoute("tokens")
	item := r.stageWindow(t, "0", "5").ItemID
	w := r.window(u, route, "0", "5")
	w.Item = r.window(t, route, "0", "5").Item
	_, err := r.stageOf(w)
	r.tagIs("an item that exists", err, sdk.TagConflict, "window_exists")
	w.Item.Digest = hash("another", w.Item.Identity.SubjectRef)
	_, err = r.stageOf(w)
	r.tagIs("a subject that is sendable", err, sdk.TagConflict, "window_exists")
	fresh := r.window(u, route, "0", "5")
	fresh.RoutesRevision = -1
	_, err = r.reports().StageWindow(r.ctx, fresh)
	r.tagIs("routes that moved", err, sdk.TagConflict, "routes_moved")
	page, err := r.reports().ReportBounds(r.ctx, storage.BoundQuery{Tenant: u, Limit: 10})
	r.must("bounds", err)
	r.same("nothing was written", len(page.Bounds), 0)
	r.boundIs("the other one", t, "0", "5", item)
	r.same("items", len(r.items(storage.ItemQuery{Exporter: r.exporter()})), 1)
}

func boundPages(r *run) {
	route := r.addRoute("tokens")
	var want []string
	var keys []storage.BoundKey
	for i := range 5 {
		t := r.tenant(decimalInt(i))
		r.stageWindow(t, "0", "5")
		want = append(want, t)
		keys = append(keys, r.boundOf(t))
	}
	first := r.only(storage.ItemQuery{Tenant: want[0]}).ItemID
	r.accepted(route, first, nil)
	_, err := r.reports().SettleWindow(r.ctx, storage.WindowSettle{
		Key: keys[0], ItemID: first, States: []storage.ItemState{storage.Accepted}, Disposition: storage.WindowAcknowledged,
	})
	r.must("settle", err)
	var got []string
	q := storage.BoundQuery{Exporter: r.exporter(), Limit: 2}
	for {
		page, err := r.reports().ReportBounds(r.ctx, q)
		r.must("bounds", err)
		for _, b := range page.Bounds {
			got = append(got, b.Tenant)
		}
		if !page.More || len(page.Bounds) == 0 {
			break
		}
		q.After = page.Next
	}
	r.same("in pages", got, want)
	for name, tc := range map[string]struct {
		q    storage.BoundQuery
		want int
	}{
		"staged":  {storage.BoundQuery{Exporter: r.exporter(), Staged: true, Limit: 10}, 4},
		"tenant":  {storage.BoundQuery{Tenant: want[1], Limit: 10}, 1},
		"feature": {storage.BoundQuery{Exporter: r.exporter(), Feature: "calls", Limit: 10}, 0},
		"keys": {storage.BoundQuery{Exporter: "nobody", Staged: true, Keys: []storage.BoundKey{
			keys[4], keys[0], r.boundOf("nobody"),
		}}, 2},
	} {
		page, err := r.reports().ReportBounds(r.ctx, tc.q)
		r.must("bounds", err)
		r.same("bounds by "+name, len(page.Bounds), tc.want)
	}
}

// Whoever reads a counter, one window is on its way.
func windowRace(r *run) {
	route := r.addRoute("tokens")
	for i := range r.opts.Rounds {
		t := r.tenant(decimalInt(i))
		var staged atomic.Int64
		r.together(4, func(n int) {
			res, err := r.reports().StageWindow(r.ctx, r.window(t, route, "0", decimalInt(5+n)))
			if err != nil {
				r.errorf("stage: %v", err)
				return
			}
			if res.Changed {
				staged.Add(1)
			}
		})
		r.same("windows staged", staged.Load(), int64(1))
		r.same("items", len(r.items(storage.ItemQuery{Tenant: t})), 1)
	}
}

func cutoverOnce(r *run) {
	a, b := r.tenant("a"), r.tenant("b")
	decide := func(list ...storage.Cutover) []storage.Cutover {
		got, err := r.reports().DecideCutovers(r.ctx, list)
		r.must("decide", err)
		for i := range got {
			got[i].DurableFrom = got[i].DurableFrom.UTC()
		}
		return got
	}
	first := storage.Cutover{Tenant: b, Feature: "tokens", DurableFrom: period}
	second := storage.Cutover{Tenant: a, Feature: "tokens", DurableFrom: period.AddDate(0, 1, 0)}
	moved := storage.Cutover{Tenant: b, Feature: "tokens", DurableFrom: period.AddDate(0, 3, 0)}
	r.same("decided", decide(first, second), []storage.Cutover{first, second})
	r.same("for good, in the order of the call", decide(second, moved), []storage.Cutover{second, first})
	page, err := r.reports().Cutovers(r.ctx, storage.Cutover{Tenant: a}, 1)
	r.must("list", err)
	r.same("listed", len(page), 1)
	page, err = r.reports().Cutovers(r.ctx, storage.Cutover{Tenant: a, Feature: "tokens"}, 1)
	r.must("list", err)
	if len(page) != 1 || page[0].Tenant != b {
		r.errorf("after %s: %s", a, text(page))
	}
}

// What is recorded of a period that the counter owns is counted there, too, once.
func countedUsage(r *run) {
	t := r.tenant("a")
	e, f := usage(t, "1", "10.5"), usage(t, "2", "2")
	plain := usage(t, "3", "100")
	all := units(e, f, plain)
	all[0].Entries[0].Counted, all[1].Entries[0].Counted = true, true
	r.putUnits(all...)
	key := storage.CounterKey{Tenant: t, Feature: "tokens", PeriodStart: period}
	count := func(what, want string) {
		c, err := r.counters().LoadCounter(r.ctx, key)
		r.must("load a counter", err)
		r.same(what, []any{c.Value, c.PeriodEnd.UTC()}, []any{dec(want), period.AddDate(0, 1, 0)})
	}
	count("recorded", "12.5")
	r.same("again", outcomes(r.record(storage.Each, all...)), []storage.Outcome{storage.Duplicate, storage.Duplicate, storage.Duplicate})
	count("a duplicate counts once", "12.5")
	req := r.correctRequest(correction(&e, "c", "0.5"))
	req.Counted = true
	for range 2 {
		r.correct(req)
	}
	count("corrected once", "12")
	r.totalIs("the totals have it, too", t, "112", 4, 3)
}
