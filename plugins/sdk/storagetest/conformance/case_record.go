package conformance

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func decimalInt(i int) string { return strconv.Itoa(i) }

func recordCases() []Case {
	durable := caps(storage.DurableEvents)
	return []Case{
		define("record/names-are-not-patterns", "B-T15", caps(storage.DurableEvents), namesAreNotPatterns),
		define("record/inserted", "B11 B14 S1", durable, recordInserted),
		define("record/duplicate-is-answered", "B11 B15 B16", durable, duplicateIsAnswered),
		define("record/duplicate-by-dedupe-hash", "Q1 B15", durable, duplicateByDedupeHash),
		define("record/conflict-atomic-writes-nothing", "B17 B-T2 S6", durable, conflictAtomic),
		define("record/conflict-each-records-the-rest", "S6 B15 B17", durable, conflictEach),
		define("record/results-in-input-order", "B11 B-T2", durable, resultsInInputOrder),
		define("record/round-trip", "S1 B-T11 B-T16", durable, roundTrip),
		define("record/unicode", "S3 S1", durable, unicodeRoundTrip),
		define("record/identity-per-tenant", "S2 B14", durable, identityPerTenant),
		define("record/large-batch", "B35 B11", durable, largeBatch),
		define("record/load-missing", "B48", durable, func(r *run) { r.absent("an event that never was", r.tenant("a"), "none") }),
		define("record/stale-subscription", "S4 B12", caps(storage.DurableEvents, storage.Subscriptions), staleSubscription),
		define("record/stale-routes", "Q4 B12", caps(storage.DurableEvents, storage.Outbox), staleRoutes),
	}
}

func recordInserted(r *run) {
	t := r.tenant("a")
	e := usage(t, "1", "2.5")
	res := r.put(e)[0]
	if res.EventID != "1" || res.Feature != "tokens" || res.Seq <= 0 {
		r.errorf("result %s, want the id, the feature and a seq", text(res))
	}
	got := r.load(t, "1")
	r.same("the event", plainEvent(got), plainEvent(withEffect(e)))
	r.same("its seq", got.Seq, res.Seq)
	if got.RecordedAt.IsZero() || got.RecordedAt.Location() != time.UTC {
		r.errorf("recorded at %v, want a time in UTC", got.RecordedAt)
	}
	r.totalIs("one event", t, "2.5", 1, 1)
}

// withEffect fills in what the store assigns to usage.
func withEffect(e storage.Event) storage.Event {
	e.Effect = e.Quantity
	return e
}

func duplicateIsAnswered(r *run) {
	t := r.tenant("a")
	first := r.put(usage(t, "1", "2"), usage(t, "2", "3"))
	for _, mode := range []storage.RecordMode{storage.Atomic, storage.Each} {
		got := r.record(mode, units(usage(t, "2", "3"), usage(t, "1", "2"))...)
		r.same(string(mode)+" repeat", got, []storage.UnitResult{
			{Outcome: storage.Duplicate, Entries: first[1:2]}, {Outcome: storage.Duplicate, Entries: first[:1]},
		})
	}
	r.totalIs("after repeats", t, "5", 2, 2)
}

// Equal dedupe hashes are the same fact, even if the stored form would differ:
// a caller who gives no time sends another one with each try.
func duplicateByDedupeHash(r *run) {
	t := r.tenant("a")
	first := usage(t, "1", "2")
	r.put(first)
	again := first
	again.OccurredAt = first.OccurredAt.Add(time.Minute)
	again.PayloadHash = hash("another")
	r.same("the repeat", outcomes(r.record(storage.Atomic, units(again)...)), []storage.Outcome{storage.Duplicate})
	r.same("the stored event", plainEvent(r.load(t, "1")), plainEvent(withEffect(first)))
	other := first
	other.DedupeHash = hash("another")
	r.same("equal payload, other dedupe hash", outcomes(r.record(storage.Each, units(other)...)), []storage.Outcome{storage.Conflict})
}

func conflictAtomic(r *run) {
	t := r.tenant("a")
	r.put(usage(t, "m", "1"))
	got := r.record(storage.Atomic, units(usage(t, "z", "5"), usage(t, "m", "7"), usage(t, "a", "9"))...)
	r.same("outcomes", outcomes(got), []storage.Outcome{"", storage.Conflict, ""})
	r.absent("before the conflict", t, "z")
	r.absent("after the conflict", t, "a")
	r.totalIs("after a conflict", t, "1", 1, 1)
	r.same("the first content stands", r.load(t, "m").Quantity, dec("1"))
}

func conflictEach(r *run) {
	t := r.tenant("a")
	r.put(usage(t, "m", "1"))
	got := r.record(storage.Each, units(usage(t, "z", "5"), usage(t, "m", "7"), usage(t, "a", "9"), usage(t, "m2", "2"))...)
	r.same("outcomes", outcomes(got), []storage.Outcome{storage.Inserted, storage.Conflict, storage.Inserted, storage.Inserted})
	r.totalIs("the rest", t, "17", 4, 4)
}

func resultsInInputOrder(r *run) {
	t := r.tenant("a")
	r.put(usage(t, "b", "1"), usage(t, "d", "1"))
	ids := strings.Fields("f d a c b e")
	events := make([]storage.Event, len(ids))
	for i, id := range ids {
		events[i] = usage(t, id, "1")
	}
	got := r.record(storage.Each, units(events...)...)
	want := []storage.Outcome{storage.Inserted, storage.Duplicate, storage.Inserted, storage.Inserted, storage.Duplicate, storage.Inserted}
	r.same("outcomes", outcomes(got), want)
	for i, u := range got {
		if len(u.Entries) != 1 || u.Entries[0].EventID != ids[i] {
			r.errorf("result %d is about %s, want %s", i, text(u.Entries), ids[i])
			continue
		}
		r.same("seq of "+ids[i], r.load(t, ids[i]).Seq, u.Entries[0].Seq)
	}
}

func roundTrip(r *run) {
	t := r.tenant("a")
	zone := time.FixedZone("far", 5*3600+1800)
	full := storage.Event{
		Tenant: t, EventID: "full", Feature: "calls", Quantity: dec("12.000000000001"), Kind: storage.Usage,
		OccurredAt:  time.Date(2026, 10, 31, 23, 59, 59, 999999000, time.UTC).In(zone),
		PeriodStart: time.Date(2026, 10, 14, 22, 0, 0, 0, time.UTC), PeriodEnd: time.Date(2026, 11, 14, 23, 0, 0, 0, time.UTC),
		PeriodSource: storage.FromSubscription, Plan: "pro", PlanVersion: "3",
		Dimensions:  map[string]string{"model": "m1", "empty": "", "a.b": "c", "region": "eu"},
		Metadata:    json.RawMessage(`{"z":1,"a":{"n":null,"t":true,"list":[1,2.50,"x"]},"text":"a\"b\\c"}`),
		PayloadHash: hash("p"), DedupeHash: hash("d"),
	}
	bare := usage(t, "bare", "1")
	early := usage(t, "early", "1")
	early.OccurredAt = time.Date(1969, 7, 20, 20, 17, 40, 1000, time.UTC)
	early.PeriodStart, early.PeriodEnd = early.OccurredAt, early.OccurredAt.Add(time.Hour)
	r.put(full, bare, early)
	for _, e := range []storage.Event{full, bare, early} {
		got := r.load(t, e.EventID)
		r.same("event "+e.EventID, plainEvent(got), plainEvent(withEffect(e)))
		for what, at := range map[string]time.Time{"occurred": got.OccurredAt, "period start": got.PeriodStart, "period end": got.PeriodEnd} {
			if at.Location() != time.UTC {
				r.errorf("%s of %s is in %s, want UTC", what, e.EventID, at.Location())
			}
		}
	}
}

// Text comes back byte for byte: no normalisation, no trimming, no folding of
// case, and an order of bytes.
func unicodeRoundTrip(r *run) {
	t := r.tenant("ünï—日本\U0001F600")
	ids := []string{"é", "e\u0301", "E", "e", " e", "e ", "'; DROP TABLE x; --", "%_\\", "a\tb", "\u202eabc", "ａ", "𝒳", `{"a":1}`, "$1"}
	for _, id := range ids {
		e := usage(t, id, "1")
		e.Dimensions = map[string]string{id: id, "n": "ﬁ\u00a0"}
		e.Plan, e.PlanVersion = id, "版"
		e.Metadata = json.RawMessage(`{"ключ":"зна\u0301чение","emoji":"\ud83d\ude00"}`)
		r.put(e)
		r.same("event with id "+strconv.Quote(id), plainEvent(r.load(t, id)), plainEvent(withEffect(e)))
	}
	n := int64(len(ids))
	r.totalIs("each text is an id of its own", t, decimalInt(len(ids)), n, n)
}

func identityPerTenant(r *run) {
	a, b := r.tenant("a"), r.tenant("b")
	r.put(usage(a, "1", "2"))
	r.same("another tenant's event of the same id",
		outcomes(r.record(storage.Atomic, units(usage(b, "1", "40"))...)), []storage.Outcome{storage.Inserted})
	r.totalIs("the first tenant", a, "2", 1, 1)
	r.totalIs("the second tenant", b, "40", 1, 1)
	r.same("the first tenant's event", r.load(a, "1").Quantity, dec("2"))
	r.same("the second tenant's event", r.load(b, "1").Quantity, dec("40"))
}

func largeBatch(r *run) {
	const n = 1000
	t := r.tenant("a")
	events := make([]storage.Event, n)
	for i := range events {
		events[i] = usage(t, "e"+decimalInt((i*7919)%n), "0.001")
	}
	first := r.put(events...)
	r.totalIs("one call", t, "1", n, n)
	got := r.record(storage.Atomic, units(events...)...)
	for i, u := range got {
		if u.Outcome != storage.Duplicate || len(u.Entries) != 1 || u.Entries[0] != first[i] {
			r.fatalf("repeat of event %d: %s, want a duplicate of %s", i, text(u), text(first[i]))
		}
	}
	r.totalIs("repeated", t, "1", n, n)
}

func staleSubscription(r *run) {
	t := r.tenant("a")
	subs := use[storage.SubscriptionStore](r, storage.Subscriptions)
	req := r.request(units(usage(t, "1", "1")), storage.Atomic)
	_, err := subs.PutSubscription(r.ctx, subscriptionOf(t))
	r.must("put a subscription", err)
	res, err := r.eventStore().RecordEvents(r.ctx, req)
	r.must("record", err)
	r.same("what is stale", res.Stale, &storage.Stale{Tenants: []string{t}})
	r.absent("after a stale answer", t, "1")
	r.same("totals", len(r.totals(t)), 0)
	r.put(usage(t, "1", "1")) // with the revision as it is
}

func staleRoutes(r *run) {
	t := r.tenant("a")
	for _, d := range []int64{-1, 1} {
		req := r.request(units(usage(t, "1", "1")), storage.Each)
		req.RoutesRevision += d
		res, err := r.eventStore().RecordEvents(r.ctx, req)
		r.must("record", err)
		if res.Stale == nil || !res.Stale.Routes || len(res.Units) != 0 {
			r.errorf("routes of another revision: %s, want stale routes", text(res))
		}
	}
	r.absent("after a stale answer", t, "1")
}

func receiptCases() []Case {
	durable := caps(storage.DurableEvents)
	return []Case{
		define("receipt/feeds-features", "Q1 S2", durable, receiptFeeds),
		define("receipt/first-delivery-settles-features", "Q1", durable, receiptSettles),
		define("receipt/unmatched-is-settled-too", "Q1", durable, receiptUnmatched),
		define("receipt/conflict-writes-nothing", "Q1 B17", durable, receiptConflict),
		define("receipt/entry-conflict-refuses-the-unit", "Q1 S6", durable, receiptEntryConflict),
	}
}

// delivery is a CloudEvent that feeds features.
func delivery(tenant, id, content string, features ...string) storage.Unit {
	u := storage.Unit{Receipt: &storage.Receipt{
		Tenant: tenant, ReceiptID: "4:/src" + id, Source: "/src", ID: id, Type: "done", OccurredAt: period.Add(time.Hour),
		DedupeHash: hash("cloudevent", tenant, id, content), Features: features,
		Body: json.RawMessage(`{"data":{"n":` + content + `},"id":"` + id + `"}`),
	}}
	for _, f := range features {
		e := usage(tenant, "4:/src"+id+":"+f, content)
		e.Feature, e.DedupeHash = f, u.Receipt.DedupeHash
		u.Entries = append(u.Entries, entry(e))
	}
	return u
}

func receiptFeeds(r *run) {
	t := r.tenant("a")
	u := delivery(t, "1", "5", "tokens", "calls")
	r.putUnits(u)
	got, err := r.eventStore().LoadReceipt(r.ctx, storage.ReceiptKey{Tenant: t, ReceiptID: u.Receipt.ReceiptID})
	r.must("load the receipt", err)
	if got.RecordedAt.IsZero() {
		r.errorf("the receipt has no time of recording")
	}
	want := *u.Receipt
	got.RecordedAt, got.Body, want.Body = time.Time{}, plainJSON(got.Body), plainJSON(want.Body)
	r.same("the receipt", got, want)
	for _, e := range u.Entries {
		r.same("event", plainEvent(r.load(t, e.Event.EventID)), plainEvent(withEffect(e.Event)))
	}
	r.same("totals", len(r.totals(t)), 2)
	_, err = r.eventStore().LoadReceipt(r.ctx, storage.ReceiptKey{Tenant: r.tenant("b"), ReceiptID: u.Receipt.ReceiptID})
	r.tagIs("another tenant's receipt", err, sdk.TagNotFound, "")
}

// A redelivery is the same fact, whatever the meters have become.
func receiptSettles(r *run) {
	t := r.tenant("a")
	first := r.putUnits(delivery(t, "1", "5", "tokens", "calls"))
	for _, again := range []storage.Unit{delivery(t, "1", "5", "tokens", "calls"), delivery(t, "1", "5", "bytes"), delivery(t, "1", "5")} {
		got := r.record(storage.Atomic, again)
		r.same("a redelivery", got, []storage.UnitResult{{Outcome: storage.Duplicate, Entries: first}})
	}
	r.absent("a feature that came later", t, "4:/src1:bytes")
	r.same("totals", len(r.totals(t)), 2)
}

func receiptUnmatched(r *run) {
	t := r.tenant("a")
	r.putUnits(delivery(t, "1", "5"))
	got := r.record(storage.Atomic, delivery(t, "1", "5", "tokens"))
	r.same("redelivery after a meter was added", outcomes(got), []storage.Outcome{storage.Duplicate})
	if len(got[0].Entries) != 0 {
		r.errorf("entries %s, want none", text(got[0].Entries))
	}
	r.same("totals", len(r.totals(t)), 0)
}

func receiptConflict(r *run) {
	t := r.tenant("a")
	r.putUnits(delivery(t, "1", "5", "tokens"))
	got := r.record(storage.Each, delivery(t, "1", "6", "tokens"), delivery(t, "2", "1", "tokens"))
	r.same("outcomes", outcomes(got), []storage.Outcome{storage.Conflict, storage.Inserted})
	got = r.record(storage.Atomic, delivery(t, "3", "1", "tokens"), delivery(t, "1", "6", "calls"))
	r.same("outcomes, atomic", outcomes(got), []storage.Outcome{"", storage.Conflict})
	r.totalIs("after conflicts", t, "6", 2, 2)
}

// One entry in conflict refuses the whole CloudEvent: half of it is no fact.
func receiptEntryConflict(r *run) {
	t := r.tenant("a")
	u := delivery(t, "1", "5", "tokens", "calls")
	r.put(usage(t, u.Entries[1].Event.EventID, "77"))
	got := r.record(storage.Each, u, delivery(t, "2", "1", "tokens"))
	r.same("outcomes", outcomes(got), []storage.Outcome{storage.Conflict, storage.Inserted})
	r.absent("the other entry", t, u.Entries[0].Event.EventID)
	_, err := r.eventStore().LoadReceipt(r.ctx, storage.ReceiptKey{Tenant: t, ReceiptID: u.Receipt.ReceiptID})
	r.tagIs("the receipt", err, sdk.TagNotFound, "")
	r.totalIs("what is left", t, "78", 2, 2)
}
