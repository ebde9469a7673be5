package engine_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/engine/period"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// buffered is a configuration with one buffered feature, flushed by hand.
func buffered(c *engine.Config) {
	c.Features = map[string]engine.Feature{"calls": {Buffered: true}}
	c.Buffer.FlushEvery = -1
}

func track(t *testing.T, e *engine.Engine, tenant, feature, q string) {
	t.Helper()
	if err := e.Track(t.Context(), tenant, feature, decimal.MustParse(q)); err != nil {
		t.Fatalf("Track: %v", err)
	}
}

// What was tracked is said to be unflushed until it is in the store, and is in
// the tenant's billing period; every host sees what is flushed. // B2-B4.
func TestTrack(t *testing.T) {
	t.Parallel()
	now := noon
	f := open(t, buffered, func(c *engine.Config) { c.Now = func() time.Time { return now } })
	_, err := f.PutSubscription(t.Context(), storage.Subscription{
		Tenant: "acme", Anchor: time.Date(2026, 1, 31, 5, 0, 0, 0, time.UTC), Timezone: "America/New_York",
	})
	if err != nil {
		t.Fatal(err)
	}
	track(t, f.Engine, "acme", "calls", "1.5")
	start, end := time.Date(2026, 11, 30, 5, 0, 0, 0, time.UTC), time.Date(2026, 12, 31, 5, 0, 0, 0, time.UTC)
	check := func(e *engine.Engine, value, unflushed string) {
		t.Helper()
		u, err := e.Usage(t.Context(), engine.UsageQuery{Tenant: "acme"})
		if err != nil || len(u.Rows) != 1 {
			t.Fatalf("%+v, %v", u, err)
		}
		r := u.Rows[0]
		if !r.Buffered || r.Feature != "calls" || r.Value.String() != value || r.Unflushed.String() != unflushed || r.Count != nil || !r.From.Equal(start) || !r.To.Equal(end) {
			t.Errorf("%+v, value %s, unflushed %s; want %s and %s", r, r.Value, r.Unflushed, value, unflushed)
		}
	}
	check(f.Engine, "0", "1.5")
	if err := f.FlushTracked(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(f.Engine, "1.5", "0")
	now = now.Add(70 * time.Minute)
	track(t, f.Engine, "acme", "calls", "2")
	other := over(t, f.store, buffered)
	check(f.Engine, "1.5", "2")
	check(other, "1.5", "0")
	track(t, other, "acme", "calls", "4") // at noon
	other.Close()                         // writes it
	if err := f.StopTracking(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(f.Engine, "7.5", "0")
	err = f.Track(t.Context(), "acme", "calls", decimal.One)
	tagIs(t, err, sdk.TagUnavailable, "closed")

	q := engine.UsageQuery{
		Tenant: "acme", Feature: "calls", Window: period.Hour, Timezone: "Asia/Kathmandu", // hours begin at :15 UTC
		From: noon.Add(-45 * time.Minute), To: noon.Add(135 * time.Minute),
	}
	if got, want := usageText(f.usage(q)), "11-30T11:15 5.5/null\n11-30T12:15 2/null\n11-30T13:15 0/null"; got != want {
		t.Errorf("by the hour:\n%s\nwant\n%s", got, want)
	}
}

// What was tracked is shown by a host that knows nothing of the feature, and what
// was recorded before a feature became buffered is shown beside it.
func TestUsageHidesNothing(t *testing.T) {
	t.Parallel()
	f := open(t)
	e := plain("a", "8")
	e.Feature = "calls"
	f.want(f.each(e), "inserted")
	counting := over(t, f.store, buffered)
	track(t, counting, "acme", "calls", "2")
	if err := counting.FlushTracked(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, asked := range map[string]*engine.Engine{"buffered here": counting, "not here": f.Engine} {
		for _, feature := range []string{"", "calls"} {
			u, err := asked.Usage(t.Context(), engine.UsageQuery{Tenant: "acme", Feature: feature})
			if err != nil {
				t.Fatal(err)
			}
			if got, want := usageText(u), "11-01T00:00 8/1\n11-01T00:00 2/null"; got != want {
				t.Errorf("%s, %q:\n%s\nwant\n%s", name, feature, got, want)
			}
		}
	}
	u, err := f.Usage(t.Context(), engine.UsageQuery{Tenant: "acme", Feature: "calls", Aggregation: meter.Max})
	if got := usageText(u); err != nil || got != "11-01T00:00 8/1" {
		t.Errorf("%s, %v", got, err)
	}
}

// Counters tell a sum in steps of five minutes and nothing else.
func TestUsageOfBufferedFeatures(t *testing.T) {
	t.Parallel()
	f := open(t, buffered)
	from, to := noon.Add(-time.Hour), noon
	for name, tc := range map[string]struct {
		q   engine.UsageQuery
		tag sdk.Tag
	}{
		"count":        {engine.UsageQuery{Aggregation: meter.Count}, sdk.TagUnsupported},
		"groups":       {engine.UsageQuery{GroupBy: []string{"m"}}, sdk.TagUnsupported},
		"a filter":     {engine.UsageQuery{Filter: map[string]string{"m": "x"}, Window: period.Day, From: from, To: to}, sdk.TagUnsupported},
		"minutes":      {engine.UsageQuery{Window: period.Minute, From: from, To: to}, sdk.TagInvalid},
		"half a step":  {engine.UsageQuery{Window: period.Hour, From: from.Add(time.Minute), To: to}, sdk.TagInvalid},
		"whole steps":  {engine.UsageQuery{Window: period.Hour, From: from.Add(5 * time.Minute), To: to}, ""},
		"every period": {engine.UsageQuery{}, ""},
	} {
		tc.q.Tenant, tc.q.Feature = "acme", "calls"
		_, err := f.Usage(t.Context(), tc.q)
		if sdk.TagOf(err) != tc.tag {
			t.Errorf("%s: %v, want %q", name, err, tc.tag)
		}
		var e *sdk.Error
		if errors.As(err, &e) && e.Code != "buffered" {
			t.Errorf("%s: code %q", name, e.Code)
		}
	}
}

func TestTrackRefuses(t *testing.T) {
	t.Parallel()
	f := open(t, buffered)
	err := f.Track(t.Context(), "acme", "tokens", decimal.One)
	tagIs(t, err, sdk.TagInvalid, "not_buffered")
	for _, tenant := range []string{"", "a\x00", strings.Repeat("x", 129), "\xff"} {
		err := f.Track(t.Context(), tenant, "calls", decimal.One)
		tagIs(t, err, sdk.TagInvalid, "")
	}
	without := over(t, &lacking{f.store}, buffered)
	err = without.Track(t.Context(), "acme", "calls", decimal.One)
	tagIs(t, err, sdk.TagUnsupported, "counters") // B8
}

// lacking is a store that does not declare counters.
type lacking struct{ *sqlite.Adapter }

func (l *lacking) Describe() storage.Manifest {
	m := l.Adapter.Describe()
	m.Capabilities = []storage.Capability{storage.DurableEvents, storage.Subscriptions, storage.EventStreaming, storage.Outbox}
	return m
}

// The flusher writes by itself, and Close writes what it has not.
func TestFlusher(t *testing.T) {
	t.Parallel()
	f := open(t)
	seen := &flushes{CounterStore: f.store, done: make(chan struct{}, 100)}
	e := over(t, &counted{Adapter: f.store, flushes: seen}, buffered, func(c *engine.Config) { c.Buffer.FlushEvery = 10 * time.Millisecond })
	track(t, e, "acme", "calls", "1")
	<-seen.done
	track(t, e, "acme", "calls", "2")
	e.Close()
	k, err := f.store.LoadCounter(t.Context(), storage.CounterKey{Tenant: "acme", Feature: "calls", PeriodStart: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)})
	if err != nil || k.Value.String() != "3" {
		t.Errorf("%+v, %v", k, err)
	}
}

type flushes struct {
	storage.CounterStore
	done chan struct{}
}

func (f *flushes) FlushBatch(ctx context.Context, b storage.FlushBatch) (storage.FlushResult, error) {
	res, err := f.CounterStore.FlushBatch(ctx, b)
	f.done <- struct{}{}
	return res, err
}

type counted struct {
	*sqlite.Adapter
	flushes *flushes
}

func (c *counted) FlushBatch(ctx context.Context, b storage.FlushBatch) (storage.FlushResult, error) {
	return c.flushes.FlushBatch(ctx, b)
}

// trackChild names the store of a child process that tracks until it is killed.
const trackChild = "FENCEPOST_TEST_TRACK_CHILD"

// trackUntilKilled counts ones and flushes. It says what it has counted before
// each flush and after it, without buffering.
func trackUntilKilled(path string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}
	ctx := context.Background()
	st, err := sqlite.Open(ctx, sqlite.Config{Path: path, Migrate: true})
	fail(err)
	e, err := engine.New(engine.Config{
		Store: st, Features: map[string]engine.Feature{"calls": {Buffered: true}}, Buffer: engine.Buffer{FlushEvery: -1},
	})
	fail(err)
	for counted := 0; ; {
		for range 100 {
			fail(e.Track(ctx, "acme", "calls", decimal.One))
			counted++
		}
		fmt.Println("counted", counted)
		fail(e.FlushTracked(ctx))
		fmt.Println("flushed", counted)
	}
}

// The loss boundary: a SIGKILL loses at most what was tracked since the last
// flush, and nothing counts twice, kill after kill. The counter is the sum of
// what was flushed, and of the batch that was on its way if it arrived.
func TestKillWhileTracking(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "fencepost.db")
	var before int // in the store when the child starts
	for round := range 5 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), trackChild+"="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		counted, flushed := 0, 0
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var what string
			var n int
			if _, err := fmt.Sscan(lines.Text(), &what, &n); err != nil {
				t.Fatalf("the child says %q", lines.Text())
			}
			if what == "counted" {
				counted = n
			} else {
				flushed = n
			}
			// In the middle of a flush, or of counting.
			if n >= 300*(round+1) && (what == "counted") == (round%2 == 0) {
				_ = cmd.Process.Kill()
			}
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("the child ended by itself")
		}
		if flushed == 0 {
			t.Fatal("killed before anything was flushed")
		}
		stored := storedCalls(t, path)
		if grown := stored - before; grown < flushed || grown > counted {
			t.Errorf("round %d: %d were flushed and %d counted, the store grew by %d", round, flushed, counted, grown)
		}
		before = stored
	}
}

// storedCalls is the counter in a store, over periods; history says the same.
func storedCalls(t *testing.T, path string) int {
	t.Helper()
	st, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}()
	var sum, history decimal.Decimal
	page, err := st.StreamCounters(t.Context(), storage.CounterQuery{Tenant: "acme", Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range page.Counters {
		sum = sum.Add(k.Value)
	}
	points, err := st.LoadHistoryRange(t.Context(), storage.HistoryQuery{
		Tenant: "acme", Feature: "calls", From: time.Unix(0, 0).UTC(), To: time.Now().AddDate(1, 0, 0).UTC(), Limit: 100_000,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range points {
		history = history.Add(p.Value)
	}
	if !sum.Equal(history) {
		t.Errorf("counters hold %s, their history %s", sum, history)
	}
	var n int
	if _, err := fmt.Sscan(sum.String(), &n); err != nil {
		t.Fatal(err)
	}
	return n
}
