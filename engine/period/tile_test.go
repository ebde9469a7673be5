package period_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/engine/period"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

var zones = []string{
	"UTC", "America/New_York", "America/Los_Angeles", "Europe/Paris", "Europe/Budapest", "Asia/Kolkata",
	"Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo", "Africa/Casablanca", "Antarctica/Troll",
	"Pacific/Kwajalein", "Asia/Manila", "Africa/Monrovia", "America/Godthab", "Europe/Dublin",
}

var longest = map[storage.Interval]time.Duration{
	storage.Day:   49 * time.Hour,
	storage.Week:  8 * 24 * time.Hour,
	storage.Month: 32 * 24 * time.Hour,
	storage.Year:  367 * 24 * time.Hour,
}

// Periods tile time: no gap, no overlap, whatever anchor, zone and instant
// (reports 47 to 59).
func TestPeriodsTile(t *testing.T) {
	t.Parallel()
	var cache period.Zones
	rapid.Check(t, func(t *rapid.T) {
		interval := rapid.SampledFrom([]storage.Interval{storage.Day, storage.Week, storage.Month, storage.Year}).Draw(t, "interval")
		zone := rapid.SampledFrom(zones).Draw(t, "zone")
		anchor := drawTime(t, "anchor")
		c, err := cache.New(anchor, interval, zone)
		if err != nil {
			t.Fatal(err)
		}
		instant := drawTime(t, "instant")
		p := c.At(instant)
		if !p.Contains(instant) {
			t.Fatalf("%v not in %v", instant, p)
		}
		if d := p.End.Sub(p.Start); d <= 0 || d > longest[interval] {
			t.Fatalf("%v takes %v", p, d)
		}
		if again := c.At(p.Start); again != p {
			t.Fatalf("At(start) is %v, not %v", again, p)
		}
		if last := c.At(p.End.Add(-time.Nanosecond)); last != p {
			t.Fatalf("At(just before end) is %v, not %v", last, p)
		}
		if next := c.At(p.End); next.Start != p.End {
			t.Fatalf("after %v comes %v", p, next)
		}
		if before := c.At(p.Start.Add(-time.Nanosecond)); before.End != p.Start {
			t.Fatalf("before %v comes %v", p, before)
		}
	})
}

// The constant-time computation agrees with one that walks every day from the
// anchor and asks the time package alone.
func TestAtAgreesWithWalking(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom(zones).Draw(t, "zone")
		location, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		day := rapid.IntRange(1, 31).Draw(t, "day")
		anchor := time.Date(2026, 1, day, 12, 0, 0, 0, location)
		c, err := period.New(anchor, storage.Month, zone)
		if err != nil {
			t.Fatal(err)
		}
		start := anchor
		for n := 1; n <= 36; n++ {
			last := time.Date(2026, time.Month(1+n+1), 0, 12, 0, 0, 0, location)
			end := time.Date(2026, time.Month(1+n), min(day, last.Day()), 12, 0, 0, 0, location)
			want := period.Period{Start: start.UTC(), End: end.UTC()}
			if got := c.At(start.Add(end.Sub(start) / 2)); got != want {
				t.Fatalf("got %v, want %v", got, want)
			}
			start = end
		}
	})
}

func drawTime(t *rapid.T, label string) time.Time {
	// 1901 to 2099, in microseconds.
	us := rapid.Int64Range(-2177452800e6, 4102444799e6).Draw(t, label)
	return time.UnixMicro(us).UTC()
}

// Concurrent use of one calendar and one Zones is safe: run with -race.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	var cache period.Zones
	done := make(chan period.Period)
	for range 8 {
		go func() {
			c, err := cache.New(time.UnixMicro(0), storage.Month, "Europe/Paris")
			if err != nil {
				t.Error(err)
			}
			done <- c.At(time.UnixMicro(1e15))
		}()
	}
	first := <-done
	for range 7 {
		if p := <-done; p != first {
			t.Errorf("%v and %v", p, first)
		}
	}
}
