package conformance

import (
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func reconcileCases() []Case {
	return []Case{
		define("reconcile/sums", "O25 Q24", correcting(), sumsOf),
		define("reconcile/sums-of-windows", "O25 O22", reporting(), windowSums),
		define("reconcile/sums-in-pages", "O25", exporting(), sumPages),
		define("reconcile/confirms-a-sum", "Q24 O25", exporting(), confirmsSum),
		define("reconcile/runs", "O25", exporting(), reconcileRuns),
	}
}

// sumQuery selects the items of this case's destination.
func (r *run) sumQuery() storage.SumQuery {
	return storage.SumQuery{
		Exporter: r.exporter(), Account: "acct", Mode: "test", From: period, To: period.AddDate(0, 1, 0), Limit: 1000,
	}
}

func (r *run) sums(q storage.SumQuery) []storage.ItemSum {
	page, err := r.reconciler().SumItems(r.ctx, q)
	r.must("sums", err)
	return page.Sums
}

func (r *run) key(customer string) storage.SumKey {
	return storage.SumKey{Customer: customer, Feature: "tokens", MappingVersion: r.mappingVersion("1")}
}

// putItem records an event of a quantity with an item.
func (r *run) putItem(t, id, quantity string, route int64, edit func(*storage.Event, *storage.NewItem)) storage.Item {
	e := usage(t, id, quantity)
	n := r.item(&e, route)
	if edit != nil {
		edit(&e, &n)
	}
	r.putUnits(storage.Unit{Entries: []storage.Entry{entry(e, n)}})
	return r.only(storage.ItemQuery{Tenant: t, SubjectRef: id})
}

func sumsOf(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	e := usage(t, "e", "10.000000000001")
	r.putUnits(storage.Unit{Entries: []storage.Entry{entry(e, r.item(&e, route))}})
	original := r.only(storage.ItemQuery{Tenant: t})
	original = r.accepted(route, original.ItemID, nil)
	back := r.takeBack(&e, "c", &original, nil)
	r.accepted(route, back.ItemID, nil)
	why := "meter_error"
	disputed := r.putItem(t, "disputed", "3", route, nil)
	r.accepted(route, disputed.ItemID, func(m *storage.Transition) { m.Set.Disputed = &why })
	r.putItem(t, "pending", "2", route, nil)
	r.putItem(t, "held", "0.5", route, func(_ *storage.Event, n *storage.NewItem) { n.QuarantineReason = "no_account" })
	// What a counter reports is in its windows, and so is what was taken back of it.
	counted := r.putItem(t, "counted", "40", route, func(_ *storage.Event, n *storage.NewItem) { n.QuarantineReason = "period_buffered" })
	inWindow := usage(t, "counted", "40")
	r.takeBack(&inWindow, "c-counted", &counted, func(n *storage.NewItem) { n.QuarantineReason, n.DependsOn.Wait = "original_ineligible", false })
	r.putItem(t, "of-a-counter", "9", route, func(_ *storage.Event, n *storage.NewItem) { n.QuarantineReason = "feature_buffered" })
	old := r.putItem(t, "old", "70", route, func(_ *storage.Event, n *storage.NewItem) { n.QuarantineReason = "no_account" })
	r.supersedes(old, nil)
	r.putItem(t, "early", "500", route, func(e *storage.Event, _ *storage.NewItem) { e.OccurredAt = period.Add(-time.Microsecond) })
	r.putItem(t, "late", "500", route, func(e *storage.Event, _ *storage.NewItem) { e.OccurredAt = period.AddDate(0, 1, 0) })
	r.putItem(t, "first", "1", route, func(e *storage.Event, n *storage.NewItem) { e.OccurredAt, n.Customer = period, "cus_2" })
	sums := r.sums(r.sumQuery())
	if len(sums) != 3 {
		r.fatalf("sums: %s, want three", text(sums))
	}
	r.same("of the customer", sums[0], storage.ItemSum{
		SumKey: r.key("cus_1"), Recorded: dec("14.500000000001"), Reported: dec("9.000000000001"), ReportedItems: 2,
		Open: 1, OpenValue: dec("2"), Held: 1, HeldValue: dec("0.5"), Disputed: 1, DisputedValue: dec("3"),
	})
	next := r.key("cus_1")
	next.MappingVersion = r.mappingVersion("2")
	r.same("of another mapping", sums[1], storage.ItemSum{
		SumKey: next, Recorded: dec("70"), Open: 1, OpenValue: dec("70"),
	})
	r.same("of another customer", sums[2], storage.ItemSum{SumKey: r.key("cus_2"), Recorded: dec("1"), Open: 1, OpenValue: dec("1")})
	for name, edit := range map[string]func(*storage.SumQuery){
		"customer": func(q *storage.SumQuery) { q.Customer = "cus_3" }, "feature": func(q *storage.SumQuery) { q.Feature = "calls" },
		"exporter": func(q *storage.SumQuery) { q.Exporter += "-x" }, "account": func(q *storage.SumQuery) { q.Account = "acct2" },
		"mode": func(q *storage.SumQuery) { q.Mode = "live" },
	} {
		q := r.sumQuery()
		edit(&q)
		r.same("sums of another "+name, len(r.sums(q)), 0)
	}
}

// A window counts where its frozen payload says, with the sign that it was sent
// with.
func windowSums(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	settle := func(item int64) {
		res, err := r.reports().SettleWindow(r.ctx, storage.WindowSettle{
			Key: r.boundOf(t), ItemID: item, States: []storage.ItemState{storage.Accepted}, Disposition: storage.WindowAcknowledged,
		})
		r.must("settle", err)
		r.same("settled", res.Changed, true)
	}
	up := r.stageWindow(t, "0", "5.5").ItemID
	r.accepted(route, up, nil)
	settle(up)
	down := r.stageWindow(t, "5.5", "4").ItemID
	r.accepted(route, down, nil)
	settle(down)
	r.stageWindow(t, "4", "6")
	r.same("sums", r.sums(r.sumQuery()), []storage.ItemSum{{
		SumKey: r.key("cus_1"), Recorded: dec("6"), Reported: dec("4"), ReportedItems: 2, Open: 1, OpenValue: dec("2"),
	}})
	q := r.sumQuery()
	q.From = period.Add(48 * time.Hour)
	r.same("of a later stretch", len(r.sums(q)), 0)
}

func sumPages(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	for i := range 5 {
		r.putItem(t, "e"+decimalInt(i), "1", route, func(_ *storage.Event, n *storage.NewItem) { n.Customer = "cus_" + decimalInt(4-i) })
		r.putItem(t, "f"+decimalInt(i), "2", route, func(_ *storage.Event, n *storage.NewItem) { n.Customer = "cus_" + decimalInt(i) })
	}
	q := r.sumQuery()
	q.Limit = 2
	var got []string
	for {
		page, err := r.reconciler().SumItems(r.ctx, q)
		r.must("sums", err)
		for _, s := range page.Sums {
			got = append(got, s.Customer+" "+s.Recorded.String())
		}
		if !page.More || len(page.Sums) == 0 {
			break
		}
		q.After = page.Next
	}
	r.same("in pages", got, []string{"cus_0 3", "cus_1 3", "cus_2 3", "cus_3 3", "cus_4 3"})
}

// A sum is confirmed as a whole, as long as it is what was compared.
func confirmsSum(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	first, second := r.putItem(t, "1", "10", route, nil), r.putItem(t, "2", "5", route, nil)
	r.accepted(route, first.ItemID, nil)
	confirm := func(edit func(*storage.ItemSum)) int64 {
		sum := r.sums(r.sumQuery())[0]
		if edit != nil {
			edit(&sum)
		}
		n, err := r.reconciler().ConfirmSum(r.ctx, storage.SumConfirm{
			Query: r.sumQuery(), Key: r.key("cus_1"), Expect: sum, ConfirmedBy: "aggregate", Action: *r.actionOf(storage.ActionConfirm),
		})
		r.must("confirm", err)
		return n
	}
	r.same("while one is pending", confirm(nil), int64(0))
	r.same("whatever was expected", confirm(func(s *storage.ItemSum) { s.Open = 0 }), int64(0))
	why, none, no, yes := "meter_error", "", false, true
	r.accepted(route, second.ItemID, nil)
	dispute := func(code *string, settled *bool) {
		r.moves(storage.Transition{ItemID: second.ItemID, Expect: storage.Expect{State: storage.Accepted}, Set: storage.Change{
			State: storage.Accepted, Disputed: code, Settled: settled,
		}})
	}
	dispute(&why, &no)
	r.same("while one is disputed", confirm(nil), int64(0))
	dispute(&none, &yes)
	r.same("another sum", confirm(func(s *storage.ItemSum) { s.Reported = dec("16") }), int64(0))
	r.same("another number", confirm(func(s *storage.ItemSum) { s.ReportedItems++ }), int64(0))
	r.actionsAre("nothing done", 0)
	r.statsAre("counts", map[storage.ItemState][2]int64{storage.Accepted: {2, 0}})
	r.same("as it is", confirm(nil), int64(2))
	for _, id := range []int64{first.ItemID, second.ItemID} {
		d := r.now(id)
		r.same("an item", []any{d.State, d.ConfirmedBy, d.ConfirmedAt.IsZero(), d.SettledAt.IsZero()},
			[]any{storage.Confirmed, "aggregate", false, false})
	}
	r.statsAre("counts", map[storage.ItemState][2]int64{storage.Confirmed: {2, 0}})
	r.actionsAre("once", 0, r.actionOf(storage.ActionConfirm))
	r.same("again", confirm(nil), int64(0))
	sum := r.sums(r.sumQuery())[0]
	q := r.sumQuery()
	q.Lag = time.Hour
	lagging := r.sums(q)[0]
	r.same("accepted of late", []any{lagging.Fresh, lagging.FreshValue, sum.Fresh}, []any{2, dec("15"), 0})
	r.same("afterwards", []any{sum.ReportedItems, sum.Confirmed, sum.Reported}, []any{2, 2, dec("15")})
}

func reconcileRuns(r *run) {
	p, d := dec("9.5"), dec("-0.5")
	line := func(customer string) storage.ReconciliationLine {
		return storage.ReconciliationLine{
			Customer: customer, Feature: "tokens", Meter: "llm", From: period, To: period.Add(time.Hour), Recorded: dec("11"),
			Reported: dec("10"), Provider: &p, Difference: &d, Cause: "lag", Confirmed: 3,
		}
	}
	run := storage.Reconciliation{
		ID: r.prefix + "-1", Exporter: r.exporter(), Account: "acct", Mode: "test", From: period, To: period.Add(time.Hour),
		StartedAt: period.Add(2 * time.Hour), NewLines: []storage.ReconciliationLine{line("a"), line("b")},
	}
	save := func(x storage.Reconciliation) { r.must("save", r.reconciler().SaveReconciliation(r.ctx, x)) }
	save(run)
	silent := line("c")
	silent.Provider, silent.Difference, silent.Cause = nil, nil, "no_answer"
	run.NewLines, run.Lines, run.Differing, run.Confirmed = []storage.ReconciliationLine{silent}, 3, 2, 9
	run.FinishedAt = period.Add(3 * time.Hour)
	save(run)
	r.tagIs("a finished run", r.reconciler().SaveReconciliation(r.ctx, run), sdk.TagConflict, "reconciliation_finished")
	other := run
	other.ID, other.StartedAt, other.FinishedAt, other.NewLines, other.Error = r.prefix+"-2", period.Add(4*time.Hour), time.Time{}, nil, "broken off"
	save(other)
	list := func(q storage.ReconciliationQuery) []storage.Reconciliation {
		q.Exporter, q.Limit = r.exporter(), 10
		all, err := r.reconciler().Reconciliations(r.ctx, q)
		r.must("list", err)
		for i := range all {
			x := &all[i]
			x.From, x.To, x.StartedAt, x.FinishedAt = x.From.UTC(), x.To.UTC(), x.StartedAt.UTC(), x.FinishedAt.UTC()
		}
		return all
	}
	run.NewLines = nil
	r.same("latest first", list(storage.ReconciliationQuery{}), []storage.Reconciliation{other, run})
	r.same("before", list(storage.ReconciliationQuery{Before: other.StartedAt}), []storage.Reconciliation{run})
	r.same("by id", list(storage.ReconciliationQuery{ID: other.ID}), []storage.Reconciliation{other})
	lines := func(after int64, limit int) []storage.ReconciliationLine {
		all, err := r.reconciler().ReconciliationLines(r.ctx, run.ID, after, limit)
		r.must("lines", err)
		for i := range all {
			all[i].From, all[i].To = all[i].From.UTC(), all[i].To.UTC()
		}
		return all
	}
	want := []storage.ReconciliationLine{line("a"), line("b"), silent}
	for i := range want {
		want[i].Line = int64(i + 1)
	}
	r.same("all lines", lines(0, 10), want)
	r.same("a page", lines(1, 1), want[1:2])
}
