package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func counterOf(tenant, feature, value string) storage.Counter {
	return storage.Counter{
		CounterKey: storage.CounterKey{Tenant: tenant, Feature: feature, PeriodStart: november},
		PeriodEnd:  november.AddDate(0, 1, 0), Value: decimal.MustParse(value),
	}
}

func stepAt(tenant string, n int, value string) storage.HistoryPoint {
	return storage.HistoryPoint{
		HistoryKey: storage.HistoryKey{Tenant: tenant, Feature: "calls", Start: november.Add(time.Duration(n) * storage.HistoryStep)},
		Value:      decimal.MustParse(value),
	}
}

// The operations on counters set, add, read one and page through all (B2).
func TestCounters(t *testing.T) {
	t.Parallel()
	a := open(t)
	ctx := t.Context()
	// One key twice in a call: the last one is set, both are added.
	must(t, a.UpsertCounters(ctx, []storage.Counter{
		counterOf("t2", "calls", "5"), counterOf("t1", "calls", "7"), counterOf("t2", "calls", "6.5"),
	}))
	must(t, a.AddCounters(ctx, []storage.Counter{
		counterOf("t2", "calls", "0.25"), counterOf("t1", "tokens", "-3"), counterOf("t2", "calls", "0.25"),
	}))
	must(t, a.AddCounters(ctx, nil))
	got, err := a.LoadCounter(ctx, counterOf("t2", "calls", "0").CounterKey)
	must(t, err)
	want := counterOf("t2", "calls", "7")
	if diff := cmp.Diff(want, got, decimals); diff != "" {
		t.Error(diff)
	}
	absent := storage.CounterKey{Tenant: "t9", Feature: "calls", PeriodStart: november}
	got, err = a.LoadCounter(ctx, absent)
	must(t, err)
	if diff := cmp.Diff(storage.Counter{CounterKey: absent}, got, decimals); diff != "" {
		t.Errorf("absent: %s", diff)
	}

	var all []storage.Counter
	q := storage.CounterQuery{Limit: 2}
	for {
		page, err := a.StreamCounters(ctx, q)
		must(t, err)
		all = append(all, page.Counters...)
		if q.After = page.Next; !page.More {
			break
		}
	}
	wantAll := []storage.Counter{counterOf("t1", "calls", "7"), counterOf("t1", "tokens", "-3"), want}
	if diff := cmp.Diff(wantAll, all, decimals); diff != "" {
		t.Error(diff)
	}
	page, err := a.StreamCounters(ctx, storage.CounterQuery{Limit: 9, Tenant: "t1", Feature: "tokens"})
	must(t, err)
	if diff := cmp.Diff(wantAll[1:2], page.Counters, decimals); diff != "" {
		t.Error(diff)
	}
	if _, err := a.StreamCounters(ctx, storage.CounterQuery{}); !errors.Is(err, sdk.ErrInvalid) {
		t.Errorf("no limit: %v", err)
	}
}

// The operations on history set, add, read one and read a range (B2).
func TestHistory(t *testing.T) {
	t.Parallel()
	a := open(t)
	ctx := t.Context()
	must(t, a.UpsertHistory(ctx, []storage.HistoryPoint{stepAt("t1", 3, "1"), stepAt("t1", 1, "2"), stepAt("t1", 3, "4")}))
	must(t, a.AddHistory(ctx, []storage.HistoryPoint{stepAt("t1", 2, "0.5"), stepAt("t1", 3, "0.000000000001"), stepAt("t2", 1, "9")}))
	point, err := a.LoadHistory(ctx, stepAt("t1", 3, "0").HistoryKey)
	must(t, err)
	if diff := cmp.Diff(stepAt("t1", 3, "4.000000000001"), point, decimals); diff != "" {
		t.Error(diff)
	}
	point, err = a.LoadHistory(ctx, stepAt("t1", 7, "0").HistoryKey)
	must(t, err)
	if diff := cmp.Diff(stepAt("t1", 7, "0"), point, decimals); diff != "" {
		t.Errorf("absent: %s", diff)
	}
	q := storage.HistoryQuery{Tenant: "t1", Feature: "calls", From: stepAt("t1", 1, "0").Start, To: stepAt("t1", 3, "0").Start, Limit: 10}
	points, err := a.LoadHistoryRange(ctx, q)
	must(t, err)
	if diff := cmp.Diff([]storage.HistoryPoint{stepAt("t1", 1, "2"), stepAt("t1", 2, "0.5")}, points, decimals); diff != "" {
		t.Error(diff) // half-open
	}
	q.Limit = 1
	if points, err = a.LoadHistoryRange(ctx, q); err != nil || len(points) != 1 || !points[0].Start.Equal(q.From) {
		t.Errorf("limited: %v, %v", points, err)
	}
	q.Feature = "nothing"
	if points, err = a.LoadHistoryRange(ctx, q); err != nil || points == nil || len(points) != 0 {
		t.Errorf("nothing: %#v, %v", points, err) // B-T16
	}
}

// A batch is applied once; its second delivery changes nothing and answers what
// is there now, not what was there then (B3, B4, B-T12).
func TestFlushBatchOnce(t *testing.T) {
	t.Parallel()
	a := open(t)
	ctx := t.Context()
	b := storage.FlushBatch{
		ID: "b1", Owner: "host-1",
		Counters: []storage.Counter{counterOf("t2", "calls", "2"), counterOf("t1", "calls", "1"), counterOf("t2", "calls", "0.5")},
		History:  []storage.HistoryPoint{stepAt("t1", 1, "1"), stepAt("t1", 1, "2")},
	}
	check := func(applied bool, values ...string) {
		t.Helper()
		res, err := a.FlushBatch(ctx, b)
		must(t, err)
		var got []string
		for _, c := range res.Counters {
			got = append(got, c.Value.String())
		}
		if res.Applied != applied || !slices.Equal(got, values) {
			t.Errorf("applied %t, counters %v, want %t, %v", res.Applied, got, applied, values)
		}
	}
	check(true, "2.5", "1", "2.5")
	check(false, "2.5", "1", "2.5")
	must(t, a.AddCounters(ctx, []storage.Counter{counterOf("t1", "calls", "10")}))
	check(false, "2.5", "11", "2.5")
	point, err := a.LoadHistory(ctx, stepAt("t1", 1, "0").HistoryKey)
	must(t, err)
	if point.Value.String() != "3" {
		t.Errorf("history %s, want 3", point.Value)
	}

	b = storage.FlushBatch{ID: "empty"}
	check(true)
	check(false)
	if _, err := a.FlushBatch(ctx, storage.FlushBatch{}); !errors.Is(err, sdk.ErrInvalid) {
		t.Errorf("no id: %v", err)
	}
}

// A batch that fails in its last part leaves no receipt and no counter: the
// repetition with the same id counts (B3).
func TestFlushBatchIsOneTransaction(t *testing.T) {
	t.Parallel()
	a := open(t)
	ctx := t.Context()
	b := storage.FlushBatch{ID: "b1", Counters: []storage.Counter{counterOf("t1", "calls", "1")}}
	bad := stepAt("", 1, "1") // refused by the table, after receipt and counters
	b.History = []storage.HistoryPoint{bad}
	if _, err := a.FlushBatch(ctx, b); !errors.Is(err, sdk.ErrInvalid) {
		t.Fatalf("a step without a tenant: %v", err)
	}
	c, err := a.LoadCounter(ctx, b.Counters[0].CounterKey)
	must(t, err)
	if !c.Value.IsZero() {
		t.Errorf("half a batch counted: %s", c.Value)
	}
	b.History = nil
	res, err := a.FlushBatch(ctx, b)
	must(t, err)
	if !res.Applied || res.Counters[0].Value.String() != "1" {
		t.Errorf("the repetition: %+v", res)
	}
}

// One batch delivered sixteen times at once counts once, and everybody learns
// the sum (B4).
func TestFlushBatchAtOnce(t *testing.T) {
	t.Parallel()
	a := open(t)
	b := storage.FlushBatch{ID: "b1", Counters: []storage.Counter{counterOf("t1", "calls", "1"), counterOf("t2", "calls", "2")}}
	results := make([]storage.FlushResult, 16)
	together(t, len(results), func(i int) (err error) {
		results[i], err = a.FlushBatch(t.Context(), b)
		return err
	})
	applied := 0
	for i, res := range results {
		if res.Applied {
			applied++
		}
		if res.Counters[0].Value.String() != "1" || res.Counters[1].Value.String() != "2" {
			t.Errorf("delivery %d was answered %s and %s", i, res.Counters[0].Value, res.Counters[1].Value)
		}
	}
	if applied != 1 {
		t.Errorf("applied %d times", applied)
	}
}

// Batches that touch the same counters in opposite orders wait for each other
// and do not lock each other out. In a transaction of the caller's nothing is
// tried again, so that a deadlock would show (B35).
func TestCountersInOppositeOrders(t *testing.T) {
	t.Parallel()
	a := open(t)
	forward := make([]storage.Counter, 60)
	for i := range forward {
		forward[i] = counterOf("t1", "f"+strconv.Itoa(i), "1")
	}
	backward := slices.Clone(forward)
	slices.Reverse(backward)
	steps := []storage.HistoryPoint{stepAt("t1", 1, "1"), stepAt("t1", 2, "1"), stepAt("t1", 3, "1")}
	const workers, rounds = 6, 15
	together(t, workers, func(i int) error {
		batch, points := forward, slices.Clone(steps)
		if i%2 == 1 {
			batch = backward
			slices.Reverse(points)
		}
		for range rounds {
			err := inTx(t.Context(), a, func(s BoundStore) error {
				if err := s.AddCounters(t.Context(), batch); err != nil {
					return err
				}
				return s.AddHistory(t.Context(), points)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	for _, c := range forward {
		got, err := a.LoadCounter(t.Context(), c.CounterKey)
		must(t, err)
		if got.Value.String() != strconv.Itoa(workers*rounds) {
			t.Fatalf("%s is %s, want %d", c.Feature, got.Value, workers*rounds)
		}
	}
}

// inTx runs f in a transaction of the caller's.
func inTx(ctx context.Context, a *Adapter, f func(BoundStore) error) error {
	c, err := a.pools[workPool].Acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error { return f(a.WithTx(tx)) })
}

// together runs f n times at once.
func together(t testing.TB, n int, f func(i int) error) {
	t.Helper()
	errs := make(chan error, n)
	start := make(chan struct{})
	for i := range n {
		go func() {
			<-start
			if err := f(i); err != nil {
				errs <- fmt.Errorf("%d: %w", i, err)
				return
			}
			errs <- nil
		}()
	}
	close(start)
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}
