//go:build unix

package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/internal/redistest"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/storagetest"
)

var period = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func open(t *testing.T, s *redistest.Server) *Adapter {
	t.Helper()
	a, err := Open(context.WithoutCancel(t.Context()), Config{DSN: s.URL(), Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

func counter(tenant, feature, value string) storage.Counter {
	return storage.Counter{
		CounterKey: storage.CounterKey{Tenant: tenant, Feature: feature, PeriodStart: period},
		PeriodEnd:  period.AddDate(0, 1, 0), Value: decimal.MustParse(value),
	}
}

// S16: the suite that every adapter has to pass, as far as it declares.
func TestConformance(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Durable()...)
	stores := 0
	storagetest.Run(t, func(t *testing.T) storage.Adapter {
		t.Helper()
		stores++
		a, err := Open(context.WithoutCancel(t.Context()), Config{DSN: fmt.Sprintf("%s?fencepost_prefix=store%d", s.URL(), stores), Migrate: true})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}, storagetest.Beside(func() (storage.Adapter, error) {
		return Open(context.WithoutCancel(t.Context()), Config{DSN: s.URL() + "?fencepost_prefix=store1"})
	}))
}

// P5: what the script adds in groups of digits is what decimals add.
func TestSumsAreExact(t *testing.T) {
	t.Parallel()
	a := open(t, redistest.Start(t, redistest.Durable()...))
	run := 0
	quantity := rapid.Custom(func(t *rapid.T) decimal.Decimal {
		sign := rapid.SampledFrom([]string{"", "-"}).Draw(t, "sign")
		// Zeros and nines are where carries and borrows are.
		whole := rapid.StringMatching(`[09]{0,26}|[0-9]{1,26}`).Draw(t, "whole")
		return decimal.MustParse(sign + strings.TrimLeft("0"+whole, "0") + digitIfNone(whole) + "." + rapid.StringMatching(`[09]{1,12}|[0-9]{1,12}`).Draw(t, "fraction"))
	})
	rapid.Check(t, func(t *rapid.T) {
		run++
		tenant, want := fmt.Sprintf("t%d", run), decimal.Decimal{}
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			q := quantity.Draw(t, "quantity")
			want = want.Add(q)
			delta := counter(tenant, "f", "0")
			delta.Value = q
			res, err := a.FlushBatch(context.Background(), storage.FlushBatch{ID: fmt.Sprint(run, want, q), Counters: []storage.Counter{delta}})
			if err != nil {
				t.Fatal(err)
			}
			if got := res.Counters[0].Value; !got.Equal(want) {
				t.Fatalf("%s, want %s", got, want)
			}
		}
		stored, err := a.client.HGet(context.Background(), a.keys.counters, member(tenant, "f", period)).Result()
		if _, value, _ := strings.Cut(stored, " "); err != nil || value != scaled(want) {
			t.Fatalf("stored %q, want %q: %v", value, scaled(want), err)
		}
	})
}

// digitIfNone is the zero that a whole part of nothing but zeros keeps.
func digitIfNone(whole string) string {
	if strings.Trim(whole, "0") == "" {
		return "0"
	}
	return ""
}

// Keys are as many as their fields, in the order of their fields.
func TestMembersAreOrderedAndDistinct(t *testing.T) {
	t.Parallel()
	text := rapid.StringOfN(rapid.SampledFrom([]rune{0, 1, 2, 'a', 'b', 'é', 0xff}), 1, 4, -1)
	at := rapid.SampledFrom([]time.Time{period, period.Add(time.Microsecond), time.UnixMicro(-1).UTC(), time.UnixMicro(0).UTC(), {}})
	rapid.Check(t, func(t *rapid.T) {
		type key struct {
			tenant, feature string
			at              time.Time
		}
		draw := func() key { return key{text.Draw(t, "tenant"), text.Draw(t, "feature"), at.Draw(t, "at")} }
		a, b := draw(), draw()
		ma, mb := member(a.tenant, a.feature, a.at), member(b.tenant, b.feature, b.at)
		want := strings.Compare(a.tenant, b.tenant)
		if want == 0 {
			want = strings.Compare(a.feature, b.feature)
		}
		if want == 0 {
			want = a.at.Compare(b.at)
		}
		if got := strings.Compare(ma, mb); got != want {
			t.Fatalf("%q and %q: %d, want %d", ma, mb, got, want)
		}
		tenant, feature, instant, err := parseMember(ma)
		if err != nil || tenant != a.tenant || feature != a.feature || !instant.Equal(a.at) {
			t.Fatalf("%q is read as %q %q %s: %v", ma, tenant, feature, instant, err)
		}
		if inside := strings.HasPrefix(ma, scope(b.tenant, "")+textEnd); inside != (a.tenant == b.tenant) {
			t.Fatalf("%q within the scope of %q: %t", ma, b.tenant, inside)
		}
	})
}

// B3: a batch that was acknowledged is there after a crash, and counts once when
// it is delivered again.
func TestAcknowledgedSurvivesACrash(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Durable()...)
	a := open(t, s)
	const batches = 200
	flush := func(i int) storage.FlushResult {
		t.Helper()
		b := storage.FlushBatch{ID: fmt.Sprintf("b%d", i), Owner: "host", Counters: []storage.Counter{counter("t", "f", "0.5")}}
		res, err := a.FlushBatch(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	for i := range batches {
		flush(i)
	}
	s.Kill()
	_, err := a.FlushBatch(t.Context(), storage.FlushBatch{ID: "b-late"})
	if !errors.Is(err, sdk.ErrUnavailable) {
		t.Fatalf("without a server: %v", err)
	}
	s.Restart()
	for i := range batches {
		if flush(i).Applied {
			t.Fatalf("batch %d was applied twice", i)
		}
	}
	got, err := a.LoadCounter(t.Context(), counter("t", "f", "0").CounterKey)
	if err != nil || !got.Value.Equal(decimal.MustParse("100")) {
		t.Fatalf("%s: %v", got.Value, err)
	}
}

// A change that the server refuses in the middle leaves nothing: what can fail
// comes before the first write.
func TestChangeIsWhole(t *testing.T) {
	t.Parallel()
	a := open(t, redistest.Start(t, redistest.Durable()...))
	if err := a.client.Set(t.Context(), a.keys.history, "not a hash", 0).Err(); err != nil {
		t.Fatal(err)
	}
	_, err := a.FlushBatch(t.Context(), storage.FlushBatch{
		ID: "b", Counters: []storage.Counter{counter("t", "f", "1")},
		History: []storage.HistoryPoint{{HistoryKey: storage.HistoryKey{Tenant: "t", Feature: "f", Start: period}, Value: decimal.One}},
	})
	if !errors.Is(err, sdk.ErrUnavailable) {
		t.Fatalf("a damaged store: %v", err)
	}
	if n, err := a.client.DBSize(t.Context()).Result(); err != nil || n != 2 { // the layout, and the damage
		t.Fatalf("%d keys: %v", n, err)
	}
}

// A Redis that loses what it acknowledged, or evicts it, is not taken.
func TestRefusesWhatLosesCounters(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory-policy", "noeviction")
	evicting := redistest.Start(t, append(redistest.Durable(), "--maxmemory-policy", "allkeys-lru")...)
	for _, tc := range []struct{ dsn, code, says string }{
		{s.URL(), "not_durable", "appendfsync always"},
		{s.URL() + "?fencepost_durability=everysec", "", ""},
		{evicting.URL(), "not_durable", "maxmemory-policy noeviction"},
		{evicting.URL() + "?fencepost_durability=unchecked", "", ""},
		{s.URL() + "?fencepost_durability=never", "invalid", "fencepost_durability"},
		{s.URL() + "?fencepost_prefix={a}", "invalid", "fencepost_prefix"},
		{s.URL() + "?unheard_of=1", "invalid", "parameters"},
		{"postgres://x:secret@y/z", "invalid", "redis://"},
		{"redis://u:secret@%zz", "invalid", "redis://"},
	} {
		a, err := Open(t.Context(), Config{DSN: tc.dsn, Migrate: true})
		if err == nil {
			_ = a.Close()
		}
		if tc.code == "" {
			if err != nil {
				t.Errorf("%s: %v", tc.dsn, err)
			}
			continue
		}
		if !errors.Is(err, sdk.ErrInvalid) || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want invalid, with %q", tc.dsn, err, tc.says)
		}
	}
}

// Without Migrate a Redis that is not ours is opened, and says that it is not.
func TestPingKnowsTheLayout(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Durable()...)
	a, err := Open(t.Context(), Config{DSN: s.URL()})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Ping(t.Context()); !errors.Is(err, sdk.ErrUnavailable) || !strings.Contains(err.Error(), "layout") {
		t.Fatalf("an empty Redis: %v", err)
	}
	open(t, s)
	if err := a.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Ping(t.Context()); !errors.Is(err, sdk.ErrUnavailable) {
		t.Fatalf("closed: %v", err)
	}
}
