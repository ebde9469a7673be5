package conformance

import (
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func subscriptionOf(tenant string) storage.Subscription {
	return storage.Subscription{
		Tenant: tenant, Plan: "pro", PlanVersion: "2", Anchor: time.Date(2024, 2, 29, 23, 30, 0, 0, time.UTC),
		Interval: storage.Month, Timezone: "Europe/Budapest", Customers: map[string]string{"stripe": "cus_é"},
	}
}

func subscriptionCases() []Case {
	needs := caps(storage.Subscriptions)
	return []Case{
		define("subscription/round-trip", "B5", needs, subscriptionRoundTrip),
		define("subscription/revision-rises", "B5 S4", needs, subscriptionRevision),
		define("subscription/unknown-is-absent", "B5", needs, subscriptionUnknown),
		define("subscription/keyset-pages", "B5", needs, subscriptionPages),
	}
}

func (r *run) subscriptions() storage.SubscriptionStore {
	return use[storage.SubscriptionStore](r, storage.Subscriptions)
}

func (r *run) putSubscription(s storage.Subscription) storage.Subscription {
	got, err := r.subscriptions().PutSubscription(r.ctx, s)
	r.must("put a subscription", err)
	return got
}

// plainSubscription leaves out what the store assigns.
func plainSubscription(s storage.Subscription) storage.Subscription {
	s.Revision, s.UpdatedAt, s.Anchor = 0, time.Time{}, s.Anchor.UTC()
	if len(s.Customers) == 0 {
		s.Customers = nil
	}
	return s
}

func subscriptionRoundTrip(r *run) {
	t := r.tenant("a")
	for _, s := range []storage.Subscription{
		subscriptionOf(t),
		{Tenant: t, Anchor: time.Date(2000, 1, 1, 0, 0, 0, 1000, time.UTC), Interval: storage.Day, Timezone: "UTC"},
		{
			Tenant: t, Plan: "プラン", PlanVersion: "’", Anchor: period, Interval: storage.Year, Timezone: "Asia/Kolkata",
			Customers: map[string]string{"stripe": "cus_1", "other": ""},
		},
	} {
		put := r.putSubscription(s)
		r.same("as stored", plainSubscription(put), plainSubscription(s))
		got, err := r.subscriptions().Subscriptions(r.ctx, []string{t})
		r.must("read", err)
		r.same("as read", got, []storage.Subscription{put})
		if put.UpdatedAt.IsZero() {
			r.errorf("no time of the change")
		}
	}
}

func subscriptionRevision(r *run) {
	t := r.tenant("a")
	for want := int64(1); want <= 3; want++ {
		s := subscriptionOf(t)
		s.Revision = 77 // ignored
		r.same("revision", r.putSubscription(s).Revision, want)
	}
	got := make([]int64, 8)
	r.together(len(got), func(i int) {
		s, err := r.subscriptions().PutSubscription(r.ctx, subscriptionOf(t))
		if err != nil {
			r.errorf("put a subscription: %v", err)
		}
		got[i] = s.Revision
	})
	slices.Sort(got)
	r.same("revisions of concurrent changes", got, []int64{4, 5, 6, 7, 8, 9, 10, 11})
}

func subscriptionUnknown(r *run) {
	a, b := r.tenant("a"), r.tenant("b")
	r.putSubscription(subscriptionOf(b))
	got, err := r.subscriptions().Subscriptions(r.ctx, []string{a, b, r.tenant("%"), ""})
	r.must("read", err)
	if len(got) != 1 || got[0].Tenant != b {
		r.errorf("got %s, want the one that exists", text(got))
	}
	got, err = r.subscriptions().Subscriptions(r.ctx, nil)
	r.must("read none", err)
	r.same("none", len(got), 0)
}

func subscriptionPages(r *run) {
	var want []string
	for i := range 11 {
		want = append(want, r.tenant("t"+decimalInt(10+i)))
	}
	want = append(want, r.tenant("tZ"), r.tenant("ta"), r.tenant("té"))
	shuffled := slices.Clone(want)
	slices.Reverse(shuffled)
	for _, t := range shuffled {
		r.putSubscription(subscriptionOf(t))
	}
	for _, limit := range []int{1, 4, 1000} {
		var got []string
		for after := r.tenant(""); ; {
			page, err := r.subscriptions().ListSubscriptions(r.ctx, after, limit)
			r.must("list", err)
			if len(page) > limit {
				r.fatalf("a page of %d, limit %d", len(page), limit)
			}
			for _, s := range page {
				if strings.HasPrefix(s.Tenant, r.prefix) {
					got = append(got, s.Tenant)
				}
				after = s.Tenant
			}
			if len(page) < limit || !strings.HasPrefix(after, r.prefix) {
				break
			}
		}
		r.same("tenants in order, in pages of "+decimalInt(limit), got, want)
	}
}

func counterCases() []Case {
	needs := caps(storage.Counters)
	return []Case{
		define("counter/upsert-sets", "B2", needs, counterUpsert),
		define("counter/add-creates-and-adds", "B2", needs, counterAdd),
		define("counter/stream-by-key", "B2", needs, counterStream),
		define("counter/history", "B2", needs, historyOps),
		define("counter/flush-applies-once", "B3 B4 B-T12", needs, flushOnce),
		define("counter/flush-is-one-transaction", "B3", needs, flushWhole),
		define("race/flush-of-one-batch", "B3 B4", needs, flushRace),
		define("race/counters-add-up", "B35 B2", needs, counterRace),
	}
}

func (r *run) counters() storage.CounterStore {
	return use[storage.CounterStore](r, storage.Counters)
}

func (r *run) history() storage.HistoryStore {
	return use[storage.HistoryStore](r, storage.Counters)
}

func counterOf(tenant, feature, value string) storage.Counter {
	return storage.Counter{
		CounterKey: storage.CounterKey{Tenant: tenant, Feature: feature, PeriodStart: period},
		PeriodEnd:  period.AddDate(0, 1, 0), Value: dec(value),
	}
}

func pointOf(tenant string, step int, value string) storage.HistoryPoint {
	return storage.HistoryPoint{
		HistoryKey: storage.HistoryKey{Tenant: tenant, Feature: "f", Start: period.Add(time.Duration(step) * storage.HistoryStep)},
		Value:      dec(value),
	}
}

func (r *run) counterIs(what, tenant, feature, value string) {
	c, err := r.counters().LoadCounter(r.ctx, counterOf(tenant, feature, "0").CounterKey)
	r.must("load a counter", err)
	r.same(what, c.Value, dec(value))
	if value != "0" && !c.PeriodEnd.Equal(period.AddDate(0, 1, 0)) {
		r.errorf("%s: period end %s", what, c.PeriodEnd)
	}
}

func counterUpsert(r *run) {
	t := r.tenant("a")
	c, err := r.counters().LoadCounter(r.ctx, counterOf(t, "f", "0").CounterKey)
	r.must("load a counter that never was", err)
	if !c.Value.IsZero() || !c.PeriodEnd.IsZero() {
		r.errorf("a counter that never was: %s, want zero without a period end", text(c))
	}
	r.must("upsert", r.counters().UpsertCounters(r.ctx, []storage.Counter{counterOf(t, "g", "2"), counterOf(t, "f", "1")}))
	r.must("upsert", r.counters().UpsertCounters(r.ctx, []storage.Counter{counterOf(t, "f", "99999999999999999999999999.000000000001")}))
	r.counterIs("set twice", t, "f", "99999999999999999999999999.000000000001")
	r.counterIs("set once", t, "g", "2")
	r.counterIs("another tenant", r.tenant("b"), "f", "0")
	r.must("upsert nothing", r.counters().UpsertCounters(r.ctx, nil))
}

func counterAdd(r *run) {
	t := r.tenant("a")
	for _, v := range []string{"0.1", "0.2", "-0.05"} {
		r.must("add", r.counters().AddCounters(r.ctx, []storage.Counter{counterOf(t, "f", v), counterOf(t, "g", "1")}))
	}
	r.counterIs("sum", t, "f", "0.25")
	r.counterIs("sum of ones", t, "g", "3")
	later := counterOf(t, "f", "7")
	later.PeriodStart = later.PeriodEnd
	r.must("add", r.counters().AddCounters(r.ctx, []storage.Counter{later}))
	r.counterIs("another period does not move it", t, "f", "0.25")
}

func counterStream(r *run) {
	var all []storage.Counter
	for _, tenant := range []string{r.tenant("a"), r.tenant("b")} {
		for _, feature := range []string{"f", "g"} {
			for m := range 3 {
				c := counterOf(tenant, feature, "1")
				c.PeriodStart, c.PeriodEnd = period.AddDate(0, m, 0), period.AddDate(0, m+1, 0)
				all = append(all, c)
			}
		}
	}
	shuffled := slices.Clone(all)
	slices.Reverse(shuffled)
	r.must("upsert", r.counters().UpsertCounters(r.ctx, shuffled))
	list := func(q storage.CounterQuery) []storage.Counter {
		var got []storage.Counter
		for {
			page, err := r.counters().StreamCounters(r.ctx, q)
			r.must("stream counters", err)
			if len(page.Counters) > q.Limit {
				r.fatalf("a page of %d, limit %d", len(page.Counters), q.Limit)
			}
			got = append(got, page.Counters...)
			if !page.More {
				return got
			}
			q.After = page.Next
		}
	}
	for i := range all {
		all[i].PeriodStart, all[i].PeriodEnd = all[i].PeriodStart.UTC(), all[i].PeriodEnd.UTC()
	}
	r.same("one tenant in pages", list(storage.CounterQuery{Tenant: r.tenant("a"), Limit: 2}), all[:6])
	r.same("one feature", list(storage.CounterQuery{Tenant: r.tenant("b"), Feature: "g", Limit: 2}), all[9:])
	r.same("after a key", list(storage.CounterQuery{Tenant: r.tenant("a"), After: all[3].CounterKey, Limit: 10}), all[4:6])
}

func historyOps(r *run) {
	t := r.tenant("a")
	r.must("upsert", r.history().UpsertHistory(r.ctx, []storage.HistoryPoint{pointOf(t, 3, "9"), pointOf(t, 0, "1")}))
	r.must("upsert", r.history().UpsertHistory(r.ctx, []storage.HistoryPoint{pointOf(t, 3, "4")}))
	r.must("add", r.history().AddHistory(r.ctx, []storage.HistoryPoint{pointOf(t, 3, "0.5"), pointOf(t, 7, "2")}))
	for step, want := range map[int]string{0: "1", 3: "4.5", 5: "0", 7: "2"} {
		p, err := r.history().LoadHistory(r.ctx, pointOf(t, step, "0").HistoryKey)
		r.must("load a step", err)
		r.same("step "+decimalInt(step), p.Value, dec(want))
	}
	q := storage.HistoryQuery{Tenant: t, Feature: "f", From: period, To: period.Add(7 * storage.HistoryStep), Limit: 10}
	got, err := r.history().LoadHistoryRange(r.ctx, q)
	r.must("load a range", err)
	r.same("a half-open range, in order", got, []storage.HistoryPoint{pointOf(t, 0, "1"), pointOf(t, 3, "4.5")})
	q.Limit, q.To = 1, period.AddDate(0, 1, 0)
	got, err = r.history().LoadHistoryRange(r.ctx, q)
	r.must("load a range", err)
	r.same("a limit", got, []storage.HistoryPoint{pointOf(t, 0, "1")})
}

func (r *run) flush(b storage.FlushBatch) storage.FlushResult {
	res, err := r.counters().FlushBatch(r.ctx, b)
	r.must("flush", err)
	return res
}

// The answer of a redelivery is the counters of today.
func flushOnce(r *run) {
	t := r.tenant("a")
	b := storage.FlushBatch{
		ID: t + "-1", Owner: "host", Counters: []storage.Counter{counterOf(t, "g", "2"), counterOf(t, "f", "1")},
		History: []storage.HistoryPoint{pointOf(t, 0, "3")},
	}
	values := func(res storage.FlushResult) []string {
		var all []string
		for _, c := range res.Counters {
			all = append(all, c.Feature+"="+c.Value.String())
		}
		return all
	}
	res := r.flush(b)
	r.same("applied", res.Applied, true)
	r.same("values in the order of the batch", values(res), []string{"g=2", "f=1"})
	r.must("add", r.counters().AddCounters(r.ctx, []storage.Counter{counterOf(t, "f", "10")}))
	res = r.flush(b)
	r.same("applied again", res.Applied, false)
	r.same("values of today", values(res), []string{"g=2", "f=11"})
	p, err := r.history().LoadHistory(r.ctx, pointOf(t, 0, "0").HistoryKey)
	r.must("load a step", err)
	r.same("history", p.Value, dec("3"))
	b.ID = t + "-2"
	res = r.flush(b)
	r.same("another batch", values(res), []string{"g=4", "f=12"})
	empty := storage.FlushBatch{ID: t + "-3", Owner: "host"}
	r.same("an empty batch", r.flush(empty).Applied, true)
	r.same("an empty batch again", r.flush(empty).Applied, false)
}

// An id that was used is used, whatever comes under it later.
func flushWhole(r *run) {
	t := r.tenant("a")
	r.flush(storage.FlushBatch{ID: t, Owner: "host", Counters: []storage.Counter{counterOf(t, "f", "1")}})
	res := r.flush(storage.FlushBatch{
		ID: t, Owner: "other", Counters: []storage.Counter{counterOf(t, "f", "5")}, History: []storage.HistoryPoint{pointOf(t, 1, "5")},
	})
	r.same("applied", res.Applied, false)
	r.counterIs("the counter", t, "f", "1")
	p, err := r.history().LoadHistory(r.ctx, pointOf(t, 1, "0").HistoryKey)
	r.must("load a step", err)
	r.same("the history", p.Value, dec("0"))
}

func flushRace(r *run) {
	t := r.tenant("a")
	for round := range r.opts.Rounds {
		applied := make([]bool, 6)
		r.together(len(applied), func(i int) {
			res, err := r.counters().FlushBatch(r.ctx, storage.FlushBatch{
				ID: t + decimalInt(round), Owner: "host", Counters: []storage.Counter{counterOf(t, "f", "1"), counterOf(t, "g", "1")},
			})
			if err != nil {
				r.errorf("flush: %v", err)
			}
			applied[i] = res.Applied
		})
		n := 0
		for _, a := range applied {
			if a {
				n++
			}
		}
		r.same("how often a batch was applied", n, 1)
	}
	r.counterIs("each batch once", t, "f", decimalInt(r.opts.Rounds))
}

func counterRace(r *run) {
	t := r.tenant("a")
	const workers = 6
	r.together(workers, func(w int) {
		for range r.opts.Rounds {
			var deltas []storage.Counter
			for f := range 12 {
				deltas = append(deltas, counterOf(t, "f"+decimalInt(f), "0.1"))
			}
			if w%2 == 1 {
				slices.Reverse(deltas)
			}
			if err := r.counters().AddCounters(r.ctx, deltas); err != nil {
				r.errorf("add: %v", err)
			}
		}
	})
	want := dec(decimalInt(workers*r.opts.Rounds) + "e-1").String()
	for f := range 12 {
		r.counterIs("sum", t, "f"+decimalInt(f), want)
	}
}
