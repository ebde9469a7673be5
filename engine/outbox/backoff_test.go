package outbox

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func none(int64) int64   { return 0 }
func most(n int64) int64 { return n - 1 }

// O15, A37, A38: 5, 10, 20, … seconds up to 900, plus at most a quarter.
func TestBackoff(t *testing.T) {
	t.Parallel()
	want := []int{5, 10, 20, 40, 80, 160, 320, 640, 900, 900, 900}
	var sum, most19 time.Duration
	for i := 1; i <= 19; i++ {
		got := Retry{}.Backoff(i, none)
		if i <= len(want) && got != time.Duration(want[i-1])*time.Second {
			t.Errorf("attempt %d: %s, want %ds", i, got, want[i-1])
		}
		sum += got
		most19 += Retry{}.Backoff(i, most)
	}
	if sum != 11175*time.Second || most19 != 11175*time.Second*5/4 {
		t.Errorf("nineteen delays take %s to %s", sum, most19)
	}
	if got := (Retry{}).Backoff(20, most); got != 1125*time.Second {
		t.Errorf("longest delay %s, want 1125s", got)
	}
}

// A-T6: no attempt number and no configuration overflows.
func TestBackoffNeverOverflows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := Retry{
			Base: time.Duration(rapid.Int64Range(1, math.MaxInt64/2).Draw(t, "base")),
			Cap:  time.Duration(rapid.Int64Range(1, math.MaxInt64/2).Draw(t, "cap")),
		}
		n := rapid.IntRange(-5, math.MaxInt).Draw(t, "attempt")
		got, next := r.Backoff(n, none), r.Backoff(n|1<<40, none)
		if got <= 0 || got > r.Cap || next < got {
			t.Fatalf("%+v, attempt %d: %s then %s", r, n, got, next)
		}
		if j := r.Backoff(n, most); j < got || j > got+got/4 {
			t.Fatalf("jitter from %s to %s", got, j)
		}
	})
}

// O15, F29.
func TestRateLimited(t *testing.T) {
	t.Parallel()
	for asked, want := range map[time.Duration]time.Duration{
		0: 30 * time.Second, -time.Second: 30 * time.Second, time.Millisecond: time.Second,
		90 * time.Second: 90 * time.Second, 24 * time.Hour: time.Hour, math.MaxInt64: time.Hour,
	} {
		if got := (Retry{}).RateLimited(asked, none); got != want {
			t.Errorf("asked for %s: %s, want %s", asked, got, want)
		}
		if got := (Retry{}).RateLimited(asked, most); got != want+want/4 {
			t.Errorf("asked for %s: at most %s, want %s", asked, got, want+want/4)
		}
	}
}
