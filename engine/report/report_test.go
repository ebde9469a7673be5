package report_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/report"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// O22: windows follow each other without gap and overlap, the bound moves only
// when one was taken, there is at most one on its way, and none of nothing.
func TestWindows(t *testing.T) { //nolint:paralleltest // in on
	on(t, func(r *rig) {
		r.pass(0, 0)
		r.add("acme", "10.5")
		r.pass(1, 0)
		r.add("acme", "2")
		r.pass(0, 0) // one on its way
		if got := r.deliver(storage.Accepted); got != "10.5" {
			r.t.Errorf("reported %s", got)
		}
		r.pass(1, 1)
		if got := r.deliver(storage.Accepted); got != "2" {
			r.t.Errorf("reported %s", got)
		}
		r.pass(0, 1)
		r.pass(0, 0) // never a window of zero
		// A-T17: the counter was corrected down.
		r.add("acme", "-5")
		r.pass(1, 0)
		if got := r.deliver(storage.Accepted); got != "-5" {
			r.t.Errorf("reported %s", got)
		}
		r.pass(0, 1)
		if got := r.charged(); got.String() != "7.5" {
			r.t.Errorf("charged %s", got)
		}
	})
}

// A window that was here before, as the counter went up and down between the same
// two readings, ends somewhere else: its identity would be one that the provider
// knows.
func TestCountersThatGoUpAndDown(t *testing.T) { //nolint:paralleltest // in on
	on(t, func(r *rig) {
		r.add("acme", "10")
		r.pass(1, 0)
		r.deliver(storage.Accepted)
		for range 5 {
			for _, by := range []string{"-3", "3", "0.000000000001", "-0.000000000001"} {
				r.add("acme", by)
				for range 8 {
					if _, err := r.engine.Reporter(engine.Reporting{}).Once(r.t.Context()); err != nil {
						r.t.Fatal(err)
					}
					r.deliver(storage.Accepted)
				}
				counter, err := r.store.LoadCounter(r.t.Context(), storage.CounterKey{Tenant: "acme", Feature: "calls", PeriodStart: start})
				if err != nil {
					r.t.Fatal(err)
				}
				// The smallest step there is cannot be split: it waits,
				// visibly, until the counter goes on.
				if got := r.charged().Sub(counter.Value).Abs(); got.Cmp(decimal.MustParse("0.000000000001")) > 0 {
					r.t.Errorf("charged %s too much or too little of %s", got, counter.Value)
				}
			}
		}
		r.add("acme", "1")
		for range 8 {
			if _, err := r.engine.Reporter(engine.Reporting{}).Once(r.t.Context()); err != nil {
				r.t.Fatal(err)
			}
			r.deliver(storage.Accepted)
		}
		if got := r.charged(); got.String() != "11" {
			r.t.Errorf("charged %s", got)
		}
		identifiers := map[storage.Hash]bool{}
		page, err := r.store.ListItems(r.t.Context(), storage.ItemQuery{Limit: 1000})
		if err != nil {
			r.t.Fatal(err)
		}
		for _, it := range page.Items {
			if identifiers[it.Digest] {
				r.t.Errorf("item %d has the identity of another", it.ItemID)
			}
			identifiers[it.Digest] = true
		}
	})
}

// O22: a window that was refused, or that cannot be sent, blocks its counter where
// people see it, and nothing else.
func TestBlockedWindows(t *testing.T) { //nolint:paralleltest // in on
	on(t, func(r *rig) {
		r.add("acme", "1234567890.1234567") // 17 digits
		r.add("nobody", "1")
		if sum := r.pass(2, 0); sum.Blocked != 0 {
			r.t.Errorf("%+v", sum)
		}
		if got := r.reasons(); got != "value_domain no_customer" {
			r.t.Errorf("reasons %s", got)
		}
		r.add("acme", "1")
		if sum := r.pass(0, 0); sum.Blocked != 2 {
			r.t.Errorf("%+v", sum)
		}
		if _, err := r.engine.PutSubscription(r.t.Context(), storage.Subscription{Tenant: "globex", Customers: map[string]string{"stripe": "cus_2"}}); err != nil {
			r.t.Fatal(err)
		}
		r.add("globex", "7")
		r.pass(1, 0)
		r.deliver(storage.Rejected)
		r.add("globex", "1")
		if sum := r.pass(0, 0); sum.Blocked != 3 {
			r.t.Errorf("%+v", sum)
		}
		// A person gives the refused window up, and says that it is to be
		// reported again. // Q20
		page, err := r.store.ReportBounds(r.t.Context(), storage.BoundQuery{Tenant: "globex", Limit: 1})
		if err != nil || len(page.Bounds) != 1 {
			r.t.Fatal(page, err)
		}
		b := page.Bounds[0]
		res, err := r.store.SettleWindow(r.t.Context(), storage.WindowSettle{
			Key: b.BoundKey, ItemID: b.ItemID, States: []storage.ItemState{storage.Rejected}, Disposition: storage.WindowRestage,
		})
		if err != nil || !res.Changed {
			r.t.Fatal(res, err)
		}
		r.pass(1, 0)
		if got := r.deliver(storage.Accepted); got != "8" {
			r.t.Errorf("reported %s", got)
		}
	})
}

// Windows are dated within their period, and what comes too late for the provider
// is quarantined: usage as timestamp_window, a credit as correction_late. // Q20.
func TestWindowsOfPeriodsThatEnded(t *testing.T) { //nolint:paralleltest // in on
	on(t, func(r *rig) {
		r.add("acme", "10")
		r.now = end.Add(3 * 24 * time.Hour)
		r.pass(1, 0)
		page, err := r.store.ListItems(r.t.Context(), storage.ItemQuery{Limit: 10})
		if err != nil {
			r.t.Fatal(err)
		}
		d, err := r.store.LoadItem(r.t.Context(), page.Items[0].ItemID)
		if err != nil {
			r.t.Fatal(err)
		}
		if want := `"timestamp":"2026-11-30T23:59:59Z"`; !strings.Contains(string(d.Payload), want) {
			r.t.Errorf("payload %s lacks %s", d.Payload, want)
		}
		r.deliver(storage.Accepted)
		r.pass(0, 1)
		r.now = end.Add(36 * 24 * time.Hour)
		r.add("acme", "-4")
		r.pass(1, 0)
		if got := r.reasons(); got != "correction_late" {
			r.t.Errorf("reasons %s", got)
		}
	})
}

// Q21: the last window of a period waits until every host that lives has flushed
// past its end; a host that is gone from the list, or that says nothing for an
// hour, holds nothing up.
func TestLastWindowWaitsForEveryHost(t *testing.T) { //nolint:paralleltest // in on
	on(t, func(r *rig) {
		r.add("acme", "10")
		hosts := []storage.HostRow{{Host: "a", FlushedThrough: end}, {Host: "b", FlushedThrough: end.Add(-time.Microsecond)}, {Host: "c"}}
		reporter := r.engine.Reporter(engine.Reporting{Hosts: func(context.Context) ([]storage.HostRow, error) { return slices.Clone(hosts), nil }})
		staged := func(at time.Time) int {
			r.t.Helper()
			r.now = at
			sum, err := reporter.Once(r.t.Context())
			if err != nil {
				r.t.Fatal(err)
			}
			return sum.Staged
		}
		if staged(end.Add(-time.Second)) != 1 { // while it lasts nobody waits
			r.t.Error("nothing staged within the period")
		}
		r.deliver(storage.Accepted)
		r.add("acme", "1")
		if staged(end) != 0 || staged(end.Add(flushWait-time.Second)) != 0 {
			r.t.Error("the last window did not wait")
		}
		hosts[1].FlushedThrough = end
		if staged(end.Add(time.Minute)) != 1 {
			r.t.Error("nothing staged")
		}
		r.deliver(storage.Accepted)
		hosts[1].FlushedThrough = start
		r.add("acme", "2") // written late
		if staged(end.Add(2*time.Minute)) != 0 || staged(end.Add(flushWait)) != 1 {
			r.t.Error("a host that is stuck holds the report up for ever")
		}
		r.deliver(storage.Accepted)
		hosts = hosts[:1]
		r.add("acme", "4")
		if staged(end.Add(3*time.Minute)) != 1 {
			r.t.Error("a host that is gone holds the report up")
		}
		r.deliver(storage.Accepted)
		if got := r.charged(); got.String() != "17" {
			r.t.Errorf("charged %s", got)
		}
	})
}

// flushWait is what the reporter waits for a host.
const flushWait = time.Hour

// An exporter that moves to another account reports there what it has not
// reported before, and a mapping that changes changes nothing of it. // Q4, Q20.
func TestMovedDestinations(t *testing.T) { //nolint:paralleltest // in on
	on(t, func(r *rig) {
		r.add("acme", "10")
		r.pass(1, 0)
		r.deliver(storage.Accepted)
		r.pass(0, 1)
		r.routes("acct_1", "another_name")
		r.pass(0, 0)
		r.add("acme", "5")
		r.pass(1, 0) // on its way to the first account
		r.routes("acct_2", "another_name")
		r.add("acme", "2")
		r.pass(1, 0)
		if got := r.deliver(storage.Accepted); got != "5 2" {
			r.t.Errorf("reported %s", got)
		}
		r.pass(0, 2)
		r.routes("acct_1", "api_calls")
		r.add("acme", "1")
		r.pass(1, 0)
		if got := r.deliver(storage.Accepted); got != "1" {
			r.t.Errorf("reported %s", got)
		}
		if got := r.charged(); got.String() != "18" {
			r.t.Errorf("charged %s", got)
		}
	})
}

// broken is a store that fails at one of its calls, before or after it did what
// it was asked for: what a kill between any two steps leaves behind.
type broken struct {
	store
	at    int // which call
	after bool
	calls int
}

var errKilled = errors.New("killed")

func (b *broken) step(do func() error) error {
	b.calls++
	if b.calls == b.at && !b.after {
		return sdk.Unavailable("killed", errKilled)
	}
	if err := do(); err != nil {
		return err
	}
	if b.calls == b.at {
		return sdk.Unavailable("killed", errKilled)
	}
	return nil
}

func (b *broken) StageWindow(ctx context.Context, s storage.WindowStage) (res storage.WindowResult, err error) {
	err = b.step(func() error { res, err = b.store.StageWindow(ctx, s); return err })
	return res, err
}

func (b *broken) SettleWindow(ctx context.Context, s storage.WindowSettle) (res storage.WindowResult, err error) {
	err = b.step(func() error { res, err = b.store.SettleWindow(ctx, s); return err })
	return res, err
}

// F03: whatever step a reporter is killed at, before or after it, the next one
// stages the same window or goes on behind it; what is charged is what was
// counted.
func TestKilledAtAnyStep(t *testing.T) { //nolint:paralleltest // in on
	on(t, func(r *rig) {
		for at := 1; at <= 6; at++ {
			for _, after := range []bool{false, true} {
				r.add("acme", strconv.Itoa(at))
				r.add("nobody2", "1")
				for range 3 {
					b := &broken{store: r.store, at: at, after: after}
					_, err := r.over(b).Once(r.t.Context())
					if err != nil && !errors.Is(err, errKilled) {
						r.t.Fatal(err)
					}
					r.deliver(storage.Accepted)
				}
			}
		}
		for range 3 {
			if _, err := r.engine.Reporter(engine.Reporting{}).Once(r.t.Context()); err != nil {
				r.t.Fatal(err)
			}
			r.deliver(storage.Accepted)
		}
		if got := r.charged(); got.String() != "42" { // 2 * (1+…+6)
			r.t.Errorf("charged %s, want 42", got)
		}
	})
}

// over is a reporter on another store of the rig.
func (r *rig) over(st store) *report.Reporter {
	return report.New(report.Config{
		Store: st, Counters: st, Routes: st.Routes, Features: []string{"calls"}, AttemptBudget: 20, Now: func() time.Time { return r.now },
		Customers: func(context.Context, []string) (map[string]map[string]string, error) {
			return map[string]map[string]string{"acme": {"stripe": "cus_1"}}, nil
		},
		Manifests: map[string]exporter.Manifest{"stripe": {Values: exporter.ValueDomain{MaxDecimals: 12, Negative: true}}},
	})
}

// Two reporters at once, while the counter moves and windows are taken, stage
// each window once. // Q20.
func TestReportersAtOnce(t *testing.T) { //nolint:paralleltest // in on
	on(t, func(r *rig) {
		ctx, cancel := context.WithCancel(r.t.Context())
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				reporter := r.over(r.store)
				for ctx.Err() == nil {
					if _, err := reporter.Once(ctx); err != nil && ctx.Err() == nil {
						r.t.Error(err)
						return
					}
				}
			})
		}
		want := decimal.Decimal{}
		for range 60 {
			by := decimal.FromScaled(int64(rand.IntN(9)-3), 1)
			want = want.Add(by)
			r.add("acme", by.String())
			r.deliver(storage.Accepted)
		}
		cancel()
		wg.Wait()
		for range 8 {
			if _, err := r.over(r.store).Once(r.t.Context()); err != nil {
				r.t.Fatal(err)
			}
			r.deliver(storage.Accepted)
		}
		if got := r.charged(); !got.Equal(want) {
			r.t.Errorf("charged %s, counted %s", got, want)
		}
	})
}
