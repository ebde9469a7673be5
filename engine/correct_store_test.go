package engine_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/internal/pgtest"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/postgres"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// backend is what these tests ask of a store beside the engine.
type backend interface {
	storage.Adapter
	storage.EventStore
	storage.OutboxStore
	storage.RouteStore
	storage.CorrectionStore
}

// onStores runs a test on every kind of store, each time on a fresh one.
func onStores(t *testing.T, test func(t *testing.T, st backend)) {
	t.Helper()
	for name, open := range openers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

var openers = map[string]func(*testing.T) backend{
	"sqlite": func(t *testing.T) backend {
		t.Helper()
		st, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "fencepost.db"), Migrate: true, Now: atNoon, LockWait: -1})
		if err != nil {
			t.Fatal(err)
		}
		return closing(t, st)
	},
	"postgres": func(t *testing.T) backend {
		t.Helper()
		dsn, _ := pgtest.Schema(t)
		st, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn, Migrate: true, MaxConns: 4})
		if err != nil {
			t.Fatal(err)
		}
		return closing(t, st)
	},
}

func closing(t *testing.T, st backend) backend {
	t.Helper()
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return st
}

// record records events one by one and fails the test unless all are inserted.
func record(t *testing.T, e *engine.Engine, events ...engine.Event) {
	t.Helper()
	res, err := e.Record(t.Context(), events...)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range res {
		if r.Outcome != engine.Inserted {
			t.Fatalf("%s: %s", r.ID, r.Outcome)
		}
	}
}

// totals are the totals of one feature of acme, "quantity/events/count" each.
func totals(t *testing.T, st backend, feature string) []string {
	t.Helper()
	all, err := st.LoadTotals(t.Context(), storage.TotalsQuery{Tenant: "acme", Feature: feature})
	if err != nil {
		t.Fatal(err)
	}
	out := make([]string, len(all))
	for i, total := range all {
		out[i] = fmt.Sprintf("%s/%d/%d", total.Quantity, total.Events, total.Count)
	}
	return out
}

func loadEvent(t *testing.T, st backend, id string) storage.Event {
	t.Helper()
	ev, err := st.LoadEvent(t.Context(), storage.EventKey{Tenant: "acme", EventID: id})
	if err != nil {
		t.Fatalf("%s: %v", id, err)
	}
	return ev
}

// B23, B30, B31: a correction is a row of its own that has what its original
// has, whatever the tenant's plan and calendar are now; the original stays as
// it was, and the total of its period moves.
func TestCorrectionInheritsItsOriginal(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, st backend) {
		e := over(t, st)
		put := func(plan string, day int) {
			_, err := e.PutSubscription(t.Context(), storage.Subscription{Tenant: "acme", Plan: plan, PlanVersion: "1", Anchor: time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC)})
			if err != nil {
				t.Fatal(err)
			}
		}
		put("pro", 1)
		ev := plain("req_1", "10")
		ev.Time, ev.Dimensions = noon.AddDate(0, -2, 0), map[string]string{"model": "m1"}
		record(t, e, ev)
		before := loadEvent(t, st, "req_1")
		put("free", 17)
		res, err := e.Correct(t.Context(), take("c1", "2.5"))
		if err != nil || res.Remaining.String() != "7.5" {
			t.Fatalf("%+v, %v", res, err)
		}
		if diff := cmp.Diff(before, loadEvent(t, st, "req_1"), exactly); diff != "" {
			t.Errorf("the original changed:\n%s", diff)
		}
		got := loadEvent(t, st, "c1")
		want := before // feature, times, period, plan and dimensions
		want.EventID, want.Kind, want.OriginalEventID = "c1", storage.Correction, "req_1"
		want.Quantity, want.Effect = decimal.MustParse("2.5"), decimal.MustParse("-2.5")
		want.PayloadHash, want.DedupeHash, want.Seq, want.RecordedAt = got.PayloadHash, got.DedupeHash, res.Seq, got.RecordedAt
		if diff := cmp.Diff(want, got, exactly); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if got := totals(t, st, "tokens"); len(got) != 1 || got[0] != "7.5/2/1" {
			t.Errorf("totals %v, want one period with 7.5/2/1", got)
		}
		if _, err := e.Correct(t.Context(), take("c2", "")); err != nil {
			t.Fatal(err)
		}
		if got := totals(t, st, "tokens"); got[0] != "0/3/0" {
			t.Errorf("totals %v, want 0/3/0", got)
		}
		if c := loadEvent(t, st, "c2"); !c.Reverses || got.Reverses {
			t.Errorf("only the correction that left nothing reverses: %v, %v", got.Reverses, c.Reverses)
		}
	})
}

var exactly = cmp.Comparer(func(a, b decimal.Decimal) bool { return a.Equal(b) })

// B24, B26, B29, F02, Q7: the bound holds to the last digit; a repeat is a
// duplicate with the same answer when nothing is left, also of "what is left";
// the same id for something else is a conflict. Refusals write nothing.
func TestCorrectionsAreBoundedAndRepeatable(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, st backend) {
		e := over(t, st, withFeatures(map[string]engine.Feature{"credits": {Signed: true}}))
		down := plain("req_1", "-10")
		down.Feature = "credits"
		record(t, e, down)
		for _, tc := range []struct {
			c         engine.Correction
			outcome   engine.Outcome
			taken     string
			remaining string
			code      string
		}{
			{take("c1", "4"), engine.Inserted, "4", "6", ""},
			{take("c2", "6.000000000001"), "", "", "", "exceeds_original"},
			{take("c3", ""), engine.Inserted, "6", "0", ""},
			{take("c3", ""), engine.Duplicate, "6", "0", ""},
			{take("c1", "4.0"), engine.Duplicate, "4", "0", ""},
			{take("c1", "5"), "", "", "", "payload_differs"},
			{take("c3", "6"), "", "", "", "payload_differs"},
			{take("c4", ""), "", "", "", "nothing_remaining"},
			{take("c4", "0.000000000001"), "", "", "", "exceeds_original"},
		} {
			res, err := e.Correct(t.Context(), tc.c)
			if tc.code != "" {
				var tagged *sdk.Error
				if !errors.As(err, &tagged) || tagged.Code != tc.code {
					t.Errorf("%s: %v, want %s", tc.c.ID, err, tc.code)
				}
				continue
			}
			if err != nil || res.Outcome != tc.outcome || res.Quantity.String() != tc.taken || res.Remaining.String() != tc.remaining {
				t.Errorf("%s: %+v, %v; want %s, %s taken, %s left", tc.c.ID, res, err, tc.outcome, tc.taken, tc.remaining)
			}
		}
		if got := totals(t, st, "credits"); len(got) != 1 || got[0] != "0/3/0" {
			t.Errorf("totals %v, want 0/3/0", got)
		}
		of := take("c5", "1")
		of.EventID = "c1"
		_, err := e.Correct(t.Context(), of)
		tagIs(t, err, sdk.TagInvalid, "not_usage")
		of.EventID = "nope"
		_, err = e.Correct(t.Context(), of)
		tagIs(t, err, sdk.TagNotFound, "original")
		of.EventID, of.Tenant = "req_1", "other"
		_, err = e.Correct(t.Context(), of)
		tagIs(t, err, sdk.TagNotFound, "original")
	})
}

// B24, B27, B29, F58: many correctors of one event at once take back exactly
// what it was, whether they name a part or what is left; identical ones count
// once.
func TestConcurrentCorrectors(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, st backend) {
		e := over(t, st)
		record(t, e, plain("req_1", "10"))
		var (
			wg     sync.WaitGroup
			mu     sync.Mutex
			counts = map[string]int{}
			taken  decimal.Decimal
		)
		for i := range 32 {
			c := take(fmt.Sprint("c", i%24), "0.75") // eight of them twice
			if i == 31 {
				c = take("rest", "")
			}
			wg.Go(func() {
				res, err := e.Correct(context.Background(), c)
				key := string(res.Outcome)
				if tagged, ok := errors.AsType[*sdk.Error](err); ok {
					key = tagged.Code
				}
				mu.Lock()
				defer mu.Unlock()
				counts[key]++
				if res.Outcome == engine.Inserted {
					taken = taken.Add(res.Quantity)
				}
			})
		}
		wg.Wait()
		for key := range counts {
			switch key {
			case "inserted", "duplicate", "exceeds_original", "nothing_remaining":
			default:
				t.Errorf("%d times %q", counts[key], key)
			}
		}
		found, err := e.Correctable(t.Context(), storage.EventKey{Tenant: "acme", EventID: "req_1"})
		if err != nil || !found.Corrected.Equal(taken) || taken.Cmp(decimal.MustParse("9.75")) < 0 || taken.Cmp(decimal.MustParse("10")) > 0 {
			t.Errorf("%v: answered %s, stored %s, %v", err, taken, found.Corrected, counts)
		}
		want := decimal.MustParse("10").Sub(taken).String()
		if got := totals(t, st, "tokens"); len(got) != 1 || got[0][:len(want)+1] != want+"/" {
			t.Errorf("totals %v, want %s", got, want)
		}
	})
}

// Q18, B32, A49: the items of a correction go where its original's went, also
// when routes have moved since; none is handed out to be sent, and each says why.
func TestCorrectionItemsWait(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, st backend) {
		e := over(t, st)
		apply := func(p engine.RoutePlan) storage.RouteSet {
			set, err := e.ApplyRoutes(t.Context(), []engine.RoutePlan{p})
			if err != nil {
				t.Fatal(err)
			}
			return set
		}
		put := func(customer string) {
			if _, err := e.PutSubscription(t.Context(), storage.Subscription{Tenant: "acme", Customers: map[string]string{"stripe": customer}}); err != nil {
				t.Fatal(err)
			}
		}
		apply(plan(map[string]string{"tokens": "old"}))
		put("cus_old")
		record(t, e, plain("req_1", "10"))
		set := apply(plan(map[string]string{"tokens": "new"}))
		put("cus_new")
		if _, err := e.Correct(t.Context(), take("c1", "2.5")); err != nil {
			t.Fatal(err)
		}
		page, err := st.ListItems(t.Context(), storage.ItemQuery{Limit: 10})
		if err != nil || len(page.Items) != 2 {
			t.Fatalf("%+v, %v", page, err)
		}
		of, cor := page.Items[0], page.Items[1]
		if cor.Identity.SubjectKind != storage.SubjectCorrection || cor.Identity.SubjectRef != "c1" || cor.Identity.MappingVersion != of.Identity.MappingVersion ||
			cor.Customer != "cus_old" || cor.RouteID != of.RouteID || cor.State != storage.Pending || cor.QuarantineReason != "" || !cor.SettledAt.IsZero() || !cor.Waits || cor.DependsOn != of.ItemID {
			t.Errorf("%+v", cor)
		}
		detail, err := st.LoadItem(t.Context(), cor.ItemID)
		if err != nil {
			t.Fatal(err)
		}
		if item, err := outbox.Payload(storage.ClaimedItem{Identity: detail.Item.Identity, Payload: detail.Payload, Mapping: detail.Mapping}); err != nil ||
			item.Value != "-2.5" || !item.Timestamp.Equal(plain("", "1").Time) || item.Mapping["event_name"] != "old" {
			t.Errorf("%+v, %v", item, err)
		}
		var routes []int64
		for _, r := range set.Routes {
			routes = append(routes, r.ID)
		}
		claim, err := st.Claim(t.Context(), storage.ClaimRequest{Owner: "w", Routes: routes, Limit: 10, Lease: time.Minute})
		if err != nil || len(claim.Items) != 1 || claim.Items[0].Identity.SubjectKind != storage.SubjectEvent {
			t.Errorf("%+v, %v; want only the event's item", claim, err)
		}
		// A repeat leads to no second item.
		if _, err := e.Correct(t.Context(), take("c1", "2.5")); err != nil {
			t.Fatal(err)
		}
		if page, err = st.ListItems(t.Context(), storage.ItemQuery{Limit: 10}); err != nil || len(page.Items) != 2 {
			t.Errorf("%d items, %v", len(page.Items), err)
		}
	})
}

// Q8: of a maximum no part is taken back; of a mean it is.
func TestPartsOfWhatHasNone(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, st backend) {
		e := over(t, st, withMeters(t,
			meter.Meter{Feature: "tokens", EventType: "a", Aggregation: meter.Max, Value: "$.v"},
			meter.Meter{Feature: "mean", EventType: "a", Aggregation: meter.Avg, Value: "$.v"}))
		mean := plain("mean", "10")
		mean.Feature = "mean"
		record(t, e, plain("req_1", "10"), mean)
		_, err := e.Correct(t.Context(), take("c1", "9"))
		tagIs(t, err, sdk.TagUnsupported, "partial")
		for _, c := range []engine.Correction{take("c1", "10"), {ID: "c2", Tenant: "acme", EventID: "mean", Quantity: &decimal.One}} {
			if _, err := e.Correct(t.Context(), c); err != nil {
				t.Errorf("%s: %v", c.ID, err)
			}
		}
	})
}

// Whatever is corrected in whatever order, the store and a plain account of it
// agree.
func TestCorrectionsAgainstAModel(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, st backend) {
		e := over(t, st, withFeatures(map[string]engine.Feature{"tokens": {Signed: true}}))
		round := 0
		rapid.Check(t, func(r *rapid.T) {
			round++
			tenant := fmt.Sprint("t", round)
			left, was := map[string]decimal.Decimal{}, map[string]decimal.Decimal{}
			made := map[string]string{} // correction → what was asked and answered
			var sum decimal.Decimal
			for range rapid.IntRange(1, 12).Draw(r, "steps") {
				id := rapid.SampledFrom([]string{"a", "b"}).Draw(r, "event")
				if _, ok := was[id]; !ok {
					q := decimal.MustParse(rapid.SampledFrom([]string{"3", "-3", "0.5", "0"}).Draw(r, "quantity"))
					ev := engine.Event{ID: id, Tenant: tenant, Feature: "tokens", Quantity: q}
					if _, err := e.Record(t.Context(), ev); err != nil {
						r.Fatal(err)
					}
					was[id], left[id], sum = q, q.Abs(), sum.Add(q)
					continue
				}
				amount := rapid.SampledFrom([]string{"", "0.5", "1", "3"}).Draw(r, "amount")
				cid := rapid.SampledFrom([]string{"c1", "c2", "c3"}).Draw(r, "correction")
				c := take(cid, amount)
				c.Tenant, c.EventID = tenant, id
				asked := id + "/" + amount
				taken := left[id]
				if amount != "" {
					taken = decimal.MustParse(amount)
				}
				want := "inserted"
				switch old, seen := made[cid]; {
				case seen && old == asked:
					want = "duplicate"
				case seen:
					want = "payload_differs"
				case taken.IsZero():
					want = "nothing_remaining"
				case taken.Cmp(left[id]) > 0:
					want = "exceeds_original"
				}
				res, err := e.Correct(t.Context(), c)
				got := string(res.Outcome)
				if tagged, ok := errors.AsType[*sdk.Error](err); ok {
					got = tagged.Code
				}
				if got != want {
					r.Fatalf("%s %s: %s, want %s (%v)", cid, asked, got, want, err)
				}
				if want == "inserted" {
					made[cid], left[id] = asked, left[id].Sub(taken)
					if was[id].Sign() > 0 {
						taken = taken.Neg()
					}
					sum = sum.Add(taken)
				}
				if err == nil && !res.Remaining.Equal(left[id]) {
					r.Fatalf("%s left of %s, want %s", res.Remaining, id, left[id])
				}
			}
			all, err := st.LoadTotals(t.Context(), storage.TotalsQuery{Tenant: tenant})
			if err != nil || len(all) != 1 || !all[0].Quantity.Equal(sum) || all[0].Events != int64(len(was)+len(made)) {
				r.Fatalf("%+v, %v; want %s of %d", all, err, sum, len(was)+len(made))
			}
		})
	})
}

// B33, seed section 4 item 7: in a caller's transaction a refusal leaves what
// the caller did, a rollback leaves nothing, and a commit all of it.
func TestCorrectInACallersTransaction(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		f := open(t)
		correctWithin(t, f.store, func(work func(engine.Transaction) error) error {
			return f.store.WithTx(t.Context(), func(tx *sqlite.Tx) error { return work(tx.Store()) })
		})
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		dsn, _ := pgtest.Schema(t)
		st, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn, Migrate: true, MaxConns: 4})
		if err != nil {
			t.Fatal(err)
		}
		closing(t, st)
		own, err := pgx.Connect(t.Context(), pgtest.Plain(dsn))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = own.Close(context.WithoutCancel(t.Context())) }()
		correctWithin(t, st, func(work func(engine.Transaction) error) error {
			return pgx.BeginFunc(t.Context(), own, func(tx pgx.Tx) error { return work(st.WithTx(tx)) })
		})
	})
}

// correctWithin corrects in transactions that within begins and ends.
func correctWithin(t *testing.T, st backend, within func(work func(engine.Transaction) error) error) {
	t.Helper()
	e := over(t, st)
	record(t, e, plain("req_1", "10"))
	for _, end := range []error{errRollback, nil} {
		err := within(func(tx engine.Transaction) error {
			b := e.In(tx)
			if _, err := b.Record(t.Context(), plain("mine", "1")); err != nil {
				return err
			}
			refused := []engine.Correction{take("c0", "11"), {ID: "c0", Tenant: "acme", EventID: "nope", Remaining: true}, take("mine", "1")}
			for _, c := range refused {
				if _, err := b.Correct(t.Context(), c); err == nil || errors.Is(err, sdk.ErrUnavailable) {
					t.Errorf("%+v: %v", c, err)
				}
			}
			res, err := b.Correct(t.Context(), take("c1", "4"))
			if err != nil || res.Remaining.String() != "6" {
				t.Errorf("%+v, %v", res, err)
			}
			if res, err = b.Correct(t.Context(), take("c1", "4")); err != nil || res.Outcome != engine.Duplicate {
				t.Errorf("%+v, %v", res, err)
			}
			return end
		})
		if !errors.Is(err, end) {
			t.Fatal(err)
		}
		want := "10/1/1"
		if end == nil {
			want = "7/3/2"
		}
		if got := totals(t, st, "tokens"); len(got) != 1 || got[0] != want {
			t.Errorf("after %v: %v, want %s", end, got, want)
		}
	}
}
