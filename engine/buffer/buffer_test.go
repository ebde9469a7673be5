package buffer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/engine/buffer"
	"github.com/fencepost/fencepost/engine/period"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Sums are exact whatever the lanes, past 2^63 of the smallest unit and down to
// twelve decimals (P5, F59).
func TestSumsAreExact(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		quantities []string
		want       string
	}{
		"whole":           {[]string{"1", "2", "39"}, "42"},
		"tenths":          {[]string{"0.1", "0.2"}, "0.3"},
		"six decimals":    {[]string{"0.000001", "1.5", "2.25"}, "3.750001"},
		"twelve decimals": {[]string{"0.000000000001", "0.1", "3"}, "3.100000000001"},
		"widest": {
			[]string{"99999999999999999999999999.999999999999", "99999999999999999999999999.999999999999", "0.000000000002"},
			"200000000000000000000000000",
		},
		"past 2^53":            {[]string{"9007199254740993", "2"}, "9007199254740995"},
		"past 2^63":            {[]string{"9223372036854775807", "9223372036854775807", "1"}, "18446744073709551615"},
		"at the lane's limit":  {[]string{"1099511627776", "1099511627776", "1099511627777"}, "3298534883329"},
		"micro at the limit":   {[]string{"1099511.627776", "1099511.6277", "1099512.5"}, "3298535.755476"},
		"zero":                 {[]string{"0", "5"}, "5"},
		"twelve past the lane": {[]string{"1099511627776.000001"}, "1099511627776.000001"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			for _, q := range tc.quantities {
				r.track(t, "acme", "calls", q)
			}
			if got := r.Unflushed("acme", "calls"); len(got) != 1 || got[time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)].String() != tc.want {
				t.Errorf("unflushed %v, want %s", got, tc.want)
			}
			r.flush(t)
			r.holds(t, "acme", "calls", tc.want)
			if got := r.Unflushed("acme", "calls"); len(got) != 0 {
				t.Errorf("unflushed after the flush: %v", got)
			}
		})
	}
}

// A lane is emptied long before it overflows.
func TestLanesDoNotOverflow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	most := decimal.MustParse("1099511627776") // 2^40
	const n = 1 << 23                          // 2^63 in all
	for range n {
		if err := r.Track(t.Context(), "acme", "calls", most); err != nil {
			t.Fatal(err)
		}
	}
	r.flush(t)
	r.holds(t, "acme", "calls", "9223372036854775808")
}

func TestTrackRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	wide := decimal.MustParse("99999999999999999999999999").Add(decimal.One)
	for name, tc := range map[string]struct {
		feature string
		q       decimal.Decimal
	}{
		"not buffered":      {"events", decimal.One},
		"negative":          {"calls", decimal.MustParse("-1")},
		"negative and wide": {"calls", decimal.MustParse("-0.0000001")},
		"27 digits":         {"calls", wide},
	} {
		for range 2 { // the second time a cell exists
			if err := r.Track(t.Context(), "acme", tc.feature, tc.q); !errors.Is(err, sdk.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
			r.track(t, "acme", "calls", "0")
		}
	}
	r.track(t, "acme", "signed", "-2.5")
	r.track(t, "acme", "signed", "1")
	r.flush(t)
	r.holds(t, "acme", "calls", "0")
	r.holds(t, "acme", "signed", "-1.5")
}

// A batch whose outcome is unknown keeps its id and content until the store
// answers, and counts once whether it had been applied or not. // B3, B4, B-T12.
func TestUnknownOutcomes(t *testing.T) {
	t.Parallel()
	for name, applied := range map[string]bool{"applied, answer lost": true, "not applied": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			down := func(storage.FlushBatch) error { return errDown }
			if applied {
				r.ledger.late = down
			} else {
				r.ledger.answer = down
			}
			r.track(t, "acme", "calls", "3")
			for range 3 {
				if err := r.Flush(t.Context()); !errors.Is(err, sdk.ErrUnavailable) {
					t.Fatalf("flush: %v", err)
				}
				r.track(t, "acme", "calls", "1") // goes on meanwhile
			}
			if got := r.Unflushed("acme", "calls"); len(got) != 1 {
				t.Errorf("unflushed %v", got)
			}
			r.ledger.answer, r.ledger.late = nil, nil
			r.flush(t)
			r.holds(t, "acme", "calls", "6")
			calls := r.ledger.calls
			if len(calls) != 5 || calls[4].ID == calls[3].ID {
				t.Fatalf("%d calls", len(calls))
			}
			for _, b := range calls[1:4] {
				if diff := cmp.Diff(calls[0], b, cmp.Comparer(decimal.Decimal.Equal)); diff != "" {
					t.Errorf("the repeated batch differs:\n%s", diff)
				}
			}
		})
	}
}

// A store forgets after a day which batches it has applied; until then a batch is
// written again, and after that it is named and kept out of the way.
func TestBatchesAreNotBelievedForEver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.ledger.answer = func(storage.FlushBatch) error { return errDown }
	r.track(t, "acme", "calls", "5")
	_ = r.Flush(t.Context())
	r.set(noon.Add(23*time.Hour - time.Second))
	_ = r.Flush(t.Context())
	if n := len(r.ledger.calls); n != 2 {
		t.Fatalf("written %d times", n)
	}
	r.ledger.answer = nil
	r.set(noon.Add(23 * time.Hour))
	r.track(t, "acme", "calls", "1")
	r.flush(t)
	r.holds(t, "acme", "calls", "1")
	if n := r.log.count("quantity=5"); n != 1 {
		t.Errorf("named %d times", n)
	}
	if got := r.Unflushed("acme", "calls"); len(got) != 1 {
		t.Errorf("unflushed %v", got)
	}
}

// A refusal that follows an unknown outcome says nothing about it: the batch is
// not taken apart, keeps its id, and counts once. Names beside it go on. // B3, B4.
func TestRefusedAfterUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.ledger.late = func(storage.FlushBatch) error { return errDown }
	r.track(t, "acme", "calls", "1")
	r.track(t, "zeta", "calls", "1")
	_ = r.Flush(t.Context())
	r.ledger.late = nil
	first := r.ledger.calls[0].ID
	r.ledger.answer = func(b storage.FlushBatch) error {
		if b.ID == first {
			return &sdk.Error{Tag: sdk.TagInvalid, Code: "authentication"}
		}
		return nil
	}
	for range 3 {
		r.track(t, "acme", "calls", "1")
		r.track(t, "other", "calls", "1")
		if err := r.Flush(t.Context()); err == nil {
			t.Fatal("a refused batch is no error")
		}
	}
	r.holds(t, "acme", "calls", "1")
	r.holds(t, "other", "calls", "3")
	r.ledger.answer = nil
	r.flush(t)
	r.holds(t, "acme", "calls", "4")
	r.holds(t, "zeta", "calls", "1")
}

// The time after which a batch is not written again begins with the first
// unknown outcome. One that was only refused is kept for as long as it takes. // B4.
func TestRefusedForDays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.ledger.answer = func(storage.FlushBatch) error { return &sdk.Error{Tag: sdk.TagInvalid, Code: "no_privilege"} }
	r.track(t, "acme", "calls", "1")
	_ = r.Flush(t.Context())
	r.set(noon.Add(72 * time.Hour))
	_ = r.Flush(t.Context())
	if n := r.log.count("no_privilege"); n < 2 {
		t.Errorf("the log says %d times what is wrong", n)
	}
	r.ledger.answer, r.ledger.late = nil, func(storage.FlushBatch) error { return errDown }
	_ = r.Flush(t.Context())
	r.set(noon.Add(72*time.Hour + 23*time.Hour - time.Second))
	r.ledger.late = nil
	r.flush(t)
	r.holds(t, "acme", "calls", "1")
	if got := r.Unflushed("acme", "calls"); len(got) != 0 {
		t.Errorf("unflushed %v", got)
	}
}

// One counter that the store refuses keeps no other from being written, and is
// not forgotten.
func TestRefusedCounters(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	refuse := func(b storage.FlushBatch) error {
		for _, k := range b.Counters {
			if k.Tenant == "t13" {
				return sdk.Invalid("value", "a total that fits")
			}
		}
		return nil
	}
	r.ledger.answer = refuse
	for range 3 {
		for i := range 40 {
			r.track(t, fmt.Sprint("t", i), "calls", "1")
		}
		if err := r.Flush(t.Context()); err == nil {
			t.Fatal("a refused counter is no error")
		}
	}
	for i := range 40 {
		want := "3"
		if i == 13 {
			want = "0"
		}
		r.holds(t, fmt.Sprint("t", i), "calls", want)
	}
	r.ledger.answer = nil
	r.flush(t)
	r.holds(t, "t13", "calls", "3")
}

// Steps of five minutes and periods begin at their boundary: the start is in,
// the end is out.
func TestStepsAndPeriods(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	budapest, err := period.New(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), storage.Month, "Europe/Budapest")
	if err != nil {
		t.Fatal(err)
	}
	r.calendars[0] = budapest // a boundary at 01:00 on the 1st, local
	end := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	for i, at := range []time.Time{end.Add(-5 * time.Minute), end.Add(-1), end, end.Add(5*time.Minute - 1), end.Add(5 * time.Minute)} {
		r.set(at)
		r.track(t, "acme", "calls", strconv.Itoa(1+i*i*i)) // 1, 2, 9, 28, 65
	}
	// A clock that steps back counts where it shows.
	r.set(end.Add(-1))
	r.track(t, "acme", "calls", "100")
	r.set(end.Add(6 * time.Minute))
	r.flush(t)
	november := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for start, want := range map[time.Time]string{november: "103", end: "102"} {
		if got := r.ledger.counters[storage.CounterKey{Tenant: "acme", Feature: "calls", PeriodStart: start}].String(); got != want {
			t.Errorf("period from %v: %s, want %s", start, got, want)
		}
	}
	for start, want := range map[time.Time]string{end.Add(-5 * time.Minute): "103", end: "37", end.Add(5 * time.Minute): "65"} {
		if got := r.ledger.history[storage.HistoryKey{Tenant: "acme", Feature: "calls", Start: start}].String(); got != want {
			t.Errorf("step from %v: %s, want %s", start, got, want)
		}
	}
	if n := len(r.ledger.history); n != 3 {
		t.Errorf("%d steps", n)
	}
}

// A subscription that another host changed applies from the next flush on; what
// was counted before stays where it was counted.
func TestChangedSubscription(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	mid, err := period.New(time.Date(2026, 1, 15, 0, 0, 0, 0, time.UTC), storage.Month, "UTC")
	if err != nil {
		t.Fatal(err)
	}
	r.calendars = append(r.calendars, mid)
	r.track(t, "acme", "calls", "1")
	r.revision.Store(1)
	r.track(t, "acme", "calls", "2")
	r.flush(t)
	r.track(t, "acme", "calls", "4")
	r.flush(t)
	want := map[time.Time]string{time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC): "3", time.Date(2026, 11, 15, 0, 0, 0, 0, time.UTC): "4"}
	got := map[time.Time]string{}
	for k, v := range r.ledger.counters {
		got[k.PeriodStart] = v.String()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Memory is bounded, and what is idle is given back.
func TestOverloaded(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *buffer.Config) { c.Max = 3 })
	for i := range 3 {
		r.track(t, fmt.Sprint("t", i), "calls", "1")
	}
	err := r.Track(t.Context(), "t3", "calls", decimal.One)
	var e *sdk.Error
	if !errors.As(err, &e) || e.Tag != sdk.TagUnavailable || e.Code != "overloaded" {
		t.Fatalf("the fourth: %v", err)
	}
	r.track(t, "t0", "calls", "1") // those that exist go on
	r.set(noon.Add(storage.HistoryStep))
	r.flush(t)
	for i := range 3 {
		r.track(t, fmt.Sprint("u", i), "calls", "1")
	}
	r.flush(t)
	r.holds(t, "t0", "calls", "2")
	r.holds(t, "u2", "calls", "1")
}

// After Stop nothing is counted, and everything that was counted is written or
// named.
func TestStop(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.track(t, "acme", "calls", "7")
	r.ledger.answer = func(storage.FlushBatch) error { return errDown }
	_ = r.Flush(t.Context())
	r.track(t, "globex", "calls", "8")
	err := r.Stop(t.Context())
	var e *sdk.Error
	if !errors.As(err, &e) || e.Tag != sdk.TagUnavailable || e.Code != "unflushed" {
		t.Fatalf("Stop: %v", err)
	}
	for _, line := range []string{"tenant=acme", "quantity=7", "tenant=globex", "quantity=8", "counters=2"} {
		if r.log.count(line) != 1 {
			t.Errorf("the log says %q %d times", line, r.log.count(line))
		}
	}
	if err := r.Track(t.Context(), "acme", "calls", decimal.One); !errors.Is(err, &sdk.Error{Tag: sdk.TagUnavailable, Code: "closed"}) {
		t.Errorf("Track after Stop: %v", err)
	}
	r.ledger.answer = nil
	for range 2 {
		if err := r.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r.holds(t, "acme", "calls", "7")
	r.holds(t, "globex", "calls", "8")
}

// A context that has ended is an answer, not a wait.
// F06: a stop whose time is used up by something else, and that has nothing to
// write, has lost nothing and says so. Found by a stop that failed in one of two
// runs, because a select takes either of two cases that are ready.
func TestStopWithNothingToWrite(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 {
		if err := newRig(t).Stop(over); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFlushIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	r.ledger.answer = func(storage.FlushBatch) error { close(entered); <-leave; return nil }
	r.track(t, "acme", "calls", "1")
	var wg sync.WaitGroup
	wg.Go(func() { r.flush(t) })
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Flush(ctx); !errors.Is(err, sdk.ErrUnavailable) {
		t.Errorf("a second flush: %v", err)
	}
	close(leave)
	wg.Wait()
	r.holds(t, "acme", "calls", "1")
}

// A store that panics is one that did not answer.
func TestPanickingStore(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.ledger.late = func(storage.FlushBatch) error { panic("store") }
	r.track(t, "acme", "calls", "1")
	if err := r.Flush(t.Context()); !errors.Is(err, sdk.ErrUnavailable) {
		t.Fatalf("flush: %v", err)
	}
	r.ledger.late = nil
	r.flush(t)
	r.holds(t, "acme", "calls", "1")
}

// Nothing is lost and nothing counts twice while many goroutines count, the
// clock moves over steps, flushes fail in every way and the end comes in the
// middle. Run with -race.
func TestConcurrentCounting(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	fail := func(storage.FlushBatch) error {
		switch random.IntN(3) {
		case 0:
			return errDown
		case 1:
			return errors.New("a driver's own error")
		}
		return nil
	}
	r.ledger.answer, r.ledger.late = fail, fail
	quantities := []decimal.Decimal{decimal.One, decimal.MustParse("0.5"), decimal.MustParse("0.000000000001"), decimal.MustParse("12345678901234567890")}
	const goroutines, each = 8, 4000
	sums := make([]map[string]decimal.Decimal, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		sums[g] = map[string]decimal.Decimal{}
		own := rand.New(rand.NewPCG(seed, uint64(g)+2))
		wg.Go(func() {
			for i := range each {
				tenant, q := fmt.Sprint("t", own.IntN(3)), quantities[own.IntN(len(quantities))]
				if i%500 == 499 {
					r.set(r.now.Load().Add(time.Duration(own.IntN(400)-30) * time.Second))
				}
				err := r.Track(t.Context(), tenant, "calls", q)
				switch {
				case err == nil:
					sums[g][tenant] = sums[g][tenant].Add(q)
				case !errors.Is(err, &sdk.Error{Tag: sdk.TagUnavailable, Code: "closed"}):
					t.Error(err)
				}
			}
		})
	}
	for range 300 {
		_ = r.Flush(t.Context())
	}
	_ = r.Stop(t.Context()) // in the middle, and perhaps in vain
	wg.Wait()
	r.ledger.answer, r.ledger.late = nil, nil
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		tenant, want := fmt.Sprint("t", i), decimal.Decimal{}
		for g := range goroutines {
			want = want.Add(sums[g][tenant])
		}
		r.holds(t, tenant, "calls", want.String())
	}
}
