package conformance

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func (m *lockstep) loadOne() {
	e := m.usageOf(m.rng.IntN(pool), 0)
	key := storage.EventKey{Tenant: e.Tenant, EventID: []string{e.EventID, "k" + e.EventID[1:], "r" + e.EventID[1:]}[m.rng.IntN(3)]}
	got, gotErr := m.eventStore().LoadEvent(m.ctx, key)
	want, wantErr := m.ref.LoadEvent(m.ctx, key)
	if wantErr != nil {
		m.tagIs("load "+key.EventID, gotErr, sdk.TagNotFound, "")
		return
	}
	m.both("load "+key.EventID, gotErr, nil)
	m.same("event "+key.EventID, plainEvent(got), plainEvent(want))
}

func (m *lockstep) compareTotals() {
	for _, t := range []string{m.tenant("a"), m.tenant("b")} {
		want, err := m.ref.LoadTotals(m.ctx, storage.TotalsQuery{Tenant: t})
		m.must("totals of the reference", err)
		m.same("totals of "+t, m.totals(t), want)
	}
}

func (m *lockstep) aggregateOnce() {
	q := randomQuery(m.rng, m.tenant([]string{"a", "b"}[m.rng.IntN(2)]))
	q.Feature = []string{"tokens", "net"}[m.rng.IntN(2)]
	want, err := m.ref.Aggregate(m.ctx, q)
	m.must("aggregate of the reference", err)
	got := m.aggregate(q)
	m.same("answer to "+text(q), rowLines(got.Rows), rowLines(want.Rows))
	m.same("more", got.More, want.More)
}

// compareStream compares what both sides hold: the order within one call is
// the adapter's.
func (m *lockstep) compareStream() {
	for _, t := range []string{m.tenant("a"), m.tenant("b")} {
		got, _ := m.stream(storage.StreamQuery{Tenant: t, Limit: 1 + m.rng.IntN(50)})
		page, err := m.ref.StreamEvents(m.ctx, storage.StreamQuery{Tenant: t, Limit: 1_000_000})
		m.must("stream of the reference", err)
		m.same("events of "+t, sortedEvents(got), sortedEvents(page.Events))
	}
}

func sortedEvents(all []storage.Event) []storage.Event {
	out := make([]storage.Event, len(all))
	for i := range all {
		out[i] = plainEvent(all[i])
	}
	slices.SortFunc(out, func(a, b storage.Event) int { return cmp.Compare(a.EventID, b.EventID) })
	return out
}

func (m *lockstep) subscribeOne() {
	s := subscriptionOf(m.tenant([]string{"a", "b"}[m.rng.IntN(2)]))
	s.Plan = decimalInt(m.rng.IntN(9))
	want, err := m.ref.PutSubscription(m.ctx, s)
	m.must("subscription of the reference", err)
	got := m.putSubscription(s)
	m.same("subscription", []any{plainSubscription(got), got.Revision}, []any{plainSubscription(want), want.Revision})
}

// countSome flushes a batch that may have been flushed before.
func (m *lockstep) countSome() {
	t := m.tenant("a")
	b := storage.FlushBatch{ID: m.prefix + decimalInt(m.rng.IntN(40)), Owner: "host"}
	for _, f := range m.rng.Perm(5)[:1+m.rng.IntN(4)] {
		b.Counters = append(b.Counters, counterOf(t, "f"+decimalInt(f), decimalInt(m.rng.IntN(100))+".001"))
	}
	b.History = append(b.History, pointOf(t, m.rng.IntN(6), decimalInt(m.rng.IntN(9))))
	got, gotErr := m.counters().FlushBatch(m.ctx, b)
	want, wantErr := m.ref.FlushBatch(m.ctx, b)
	m.both("flush", gotErr, wantErr)
	for i := range got.Counters {
		got.Counters[i].PeriodStart, got.Counters[i].PeriodEnd = got.Counters[i].PeriodStart.UTC(), got.Counters[i].PeriodEnd.UTC()
	}
	m.same("flush", got, want)
	q := storage.HistoryQuery{Tenant: t, Feature: "f", From: period, To: period.Add(time.Hour), Limit: 100}
	steps, gotErr := m.run.history().LoadHistoryRange(m.ctx, q)
	refSteps, wantErr := m.ref.LoadHistoryRange(m.ctx, q)
	m.both("history", gotErr, wantErr)
	m.same("history", steps, refSteps)
}

func (m *lockstep) compareBuckets() {
	for _, t := range []string{m.tenant("a"), m.tenant("b")} {
		q := storage.BucketQuery{Tenant: t, Feature: "tokens", From: period, To: period.AddDate(0, 2, 0), Limit: 1000}
		page, err := m.ref.LoadBuckets(m.ctx, q)
		m.must("buckets of the reference", err)
		m.same("buckets of "+t, sortedBuckets(m.buckets(q)), sortedBuckets(page.Buckets))
	}
}

// sortedBuckets are lines in an order of our own: how dimensions are ordered
// is the adapter's.
func sortedBuckets(all []storage.Bucket) []string {
	lines := make([]string, len(all))
	for i := range all {
		lines[i] = all[i].Start.UTC().Format(time.RFC3339) + " " + text(all[i].Dimensions) + " " + bucketLine(all[i])
	}
	slices.Sort(lines)
	return lines
}

func (m *lockstep) sealOnce() {
	s := storage.Seal{
		Tenant: m.tenant("a"), Feature: "tokens", Before: period.Add(time.Duration(m.rng.IntN(20)) * storage.BucketLength),
	}
	got, gotErr := m.bucketStore().SealBuckets(m.ctx, s)
	_, wantErr := m.ref.SealBuckets(m.ctx, s)
	m.both("seal", gotErr, wantErr)
	m.note("seal before %s: %s", s.Before, text(got))
	m.compareBuckets()
}

// claimSome takes everything that is due, on both sides.
func (m *lockstep) claimSome() {
	claim := func(s storage.OutboxStore, route int64) storage.Claim {
		c, err := s.Claim(m.ctx, storage.ClaimRequest{Owner: "w", Routes: []int64{route}, Limit: 1000, Lease: time.Hour})
		m.must("claim", err)
		return c
	}
	got, want := claim(m.outbox(), m.routes[0]), claim(m.ref, m.routes[1])
	m.same("exhausted", len(got.Exhausted), len(want.Exhausted))
	m.same("claimed", claimLines(got), claimLines(want))
	for _, a := range got.Items {
		for _, b := range want.Items {
			if a.Digest == b.Digest {
				m.leases[a.Digest] = [2]storage.ClaimedItem{a, b}
			}
		}
	}
}

func claimLines(c storage.Claim) []string {
	lines := make([]string, len(c.Items))
	for i, it := range c.Items {
		lines[i] = it.Identity.Tenant + " " + it.Identity.SubjectRef + " " + text(plainEvent(it.Event)) + " " +
			text([]any{it.Attempts, it.AttemptBudget, it.Unresolved, it.Customer, it.Mapping.Version})
	}
	slices.Sort(lines)
	return lines
}

// moveSome applies a transition to a lease, current or not.
func (m *lockstep) moveSome() {
	digests := make([]storage.Hash, 0, len(m.leases))
	for d := range m.leases {
		digests = append(digests, d)
	}
	if len(digests) == 0 {
		return
	}
	slices.SortFunc(digests, func(a, b storage.Hash) int { return bytes.Compare(a[:], b[:]) })
	pair := m.leases[digests[m.rng.IntN(len(digests))]]
	zero, yes, no, why := time.Duration(0), true, false, "meter_error"
	method := []string{"cancel", "negative"}[m.rng.IntN(2)]
	set := []storage.Change{
		{State: storage.Accepted, AcceptedNow: true, Settled: &yes},
		{State: storage.Pending, NextAttemptAfter: &zero},
		{State: storage.Pending, NextAttemptAfter: &zero, MarkUnresolved: true},
		{State: storage.Pending, NextAttemptAfter: &zero, ReturnAttempt: true},
		{State: storage.Uncertain, MarkUnresolved: true, LastError: &storage.ItemError{Code: "c"}},
		{State: storage.Leased, Method: &method, AddBudget: 1},
		{State: storage.Pending, NextAttemptAfter: &zero, Method: &method},
		{State: storage.Accepted, AcceptedNow: true, Settled: &yes, Disputed: &why},
	}[m.rng.IntN(8)]
	stale, attempts := m.rng.IntN(5) == 0, 1+m.rng.IntN(2)
	expect := []storage.Expect{{}, {}, {Attempts: &attempts}, {Settled: &no}}[m.rng.IntN(4)]
	move := func(s storage.OutboxStore, it storage.ClaimedItem) int {
		token := it.LeaseToken
		if stale {
			token--
		}
		t := storage.Transition{ItemID: it.ItemID, Expect: expect, Set: set}
		t.Expect.State, t.Expect.LeaseToken = storage.Leased, &token
		t.Attempt = &storage.Attempt{LeaseToken: token, Owner: "w", Evidence: "host", Decided: set.State}
		res, err := s.Transition(m.ctx, []storage.Transition{t})
		m.must("transition", err)
		return res[0].Rows
	}
	m.same("rows", move(m.outbox(), pair[0]), move(m.ref, pair[1]))
}

func (m *lockstep) compareItems() {
	for _, t := range []string{m.tenant("a"), m.tenant("b")} {
		page, err := m.ref.ListItems(m.ctx, storage.ItemQuery{Tenant: t, Limit: 1_000_000})
		m.must("items of the reference", err)
		m.same("items of "+t, m.itemLines(m.outbox(), m.items(storage.ItemQuery{Tenant: t})), m.itemLines(m.ref, page.Items))
	}
}

func (m *lockstep) itemLines(s storage.OutboxStore, all []storage.Item) []string {
	lines := make([]string, len(all))
	for i, it := range all {
		d, err := s.LoadItem(m.ctx, it.ItemID)
		m.must("load an item", err)
		lines[i] = it.Identity.SubjectRef + " " + text([]any{
			it.Identity, it.State, it.Attempts, it.Unresolved, it.LastError, it.SettledAt.IsZero(), it.AcceptedAt.IsZero(),
			it.LeaseOwner, len(d.Attempts), it.Method, it.Disputed, it.AttemptBudget,
		})
	}
	slices.Sort(lines)
	return lines
}
