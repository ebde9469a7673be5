package outbox

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// epoch is when the store's clock and the true one agree.
var epoch = time.Date(2026, time.November, 30, 0, 0, 0, 0, time.UTC)

// clocks is a true clock, a store whose clock is set, and machines that sample it.
type clocks struct {
	at      time.Duration // true time since epoch
	shift   time.Duration // of the store's clock
	booted  map[string]time.Duration
	samples []storage.ClockSample
}

func newClocks(boots ...string) *clocks {
	w := &clocks{booted: map[string]time.Duration{}}
	for i, b := range boots {
		w.booted[b] = -time.Duration(i+1) * time.Hour
	}
	return w
}

func (w *clocks) store() time.Time { return epoch.Add(w.at + w.shift) }

func (w *clocks) reading(boot string) storage.ClockSample {
	return storage.ClockSample{Host: boot, BootID: boot, Boottime: w.at - w.booted[boot], StoreAt: w.store()}
}

// run lets time pass, and the machines sample once a minute.
func (w *clocks) run(d time.Duration, boots ...string) *clocks {
	for end := w.at + d; w.at < end; {
		for _, b := range boots {
			w.samples = append(w.samples, w.reading(b))
		}
		w.at += min(time.Minute, end-w.at)
	}
	return w
}

func (w *clocks) set(by time.Duration) *clocks { w.shift += by; return w }

func (w *clocks) since(boot string) time.Time {
	return TrustedSince(w.samples, 10*time.Minute, w.reading(boot))
}

// Q16, F24: what is trusted after the store's clock was set.
func TestTrustedSince(t *testing.T) {
	t.Parallel()
	at := epoch.Add
	repeat := func(w *clocks, n int, by time.Duration, boots ...string) *clocks {
		for range n {
			w.run(time.Minute, boots...).set(by)
		}
		return w.run(time.Minute, boots...)
	}
	for name, tc := range map[string]struct {
		clocks *clocks
		boot   string
		want   time.Time
	}{
		"a store that is new":                {newClocks("a"), "a", at(0)},
		"a clock that nobody set":            {newClocks("a").run(40*time.Hour, "a"), "a", at(0)},
		"back by 0.4 s":                      {repeat(newClocks("a"), 1, -400*time.Millisecond, "a"), "a", at(0)},
		"back by 5 s, 100 times":             {repeat(newClocks("a"), 100, -5*time.Second, "a"), "a", at(0)},
		"back by exactly the bound":          {newClocks("a").run(time.Hour, "a").set(-10*time.Minute).run(time.Hour, "a"), "a", at(0)},
		"forward by 1 h":                     {newClocks("a").run(time.Hour, "a").set(time.Hour).run(time.Hour, "a"), "a", at(0)},
		"forward by an hour, and back again": {newClocks("a").run(time.Hour, "a").set(time.Hour).run(time.Hour, "a").set(-time.Hour).run(time.Hour, "a"), "a", at(3 * time.Hour)},
		// Shown twice: the first time counts.
		"back by 1 h": {newClocks("a").run(2*time.Hour, "a").set(-time.Hour).run(30*time.Minute, "a"), "a", at(2 * time.Hour)},
		// The last 120 steps are within the bound, 121 are not; the clock
		// showed its latest untrusted instant just before the step.
		"back by 5 s, 130 times": {
			repeat(newClocks("a"), 130, -5*time.Second, "a"), "a", at(10*time.Minute - 9*5*time.Second),
		},
		"back by 0.4 s, 1600 times": {
			repeat(newClocks("a"), 1600, -400*time.Millisecond, "a"), "a", at(100*time.Minute - 99*400*time.Millisecond),
		},
		"a machine that was started again": {
			func() *clocks {
				w := newClocks("a").run(time.Hour, "a")
				w.at += 10 * time.Minute
				w.booted["a2"] = w.at
				return w.run(time.Hour, "a2")
			}(), "a2", at(70 * time.Minute),
		},
		"one that was started again at once": {
			func() *clocks {
				w := newClocks("a").run(time.Hour, "a")
				w.booted["a2"] = w.at
				return w.run(time.Hour, "a2")
			}(), "a2", at(59 * time.Minute).Add(ClockReach),
		},
		// The process was gone for hours, its machine was not.
		"a process that was started again": {
			func() *clocks {
				w := newClocks("a").run(time.Hour, "a")
				w.at += 10 * time.Hour
				return w.run(time.Hour, "a")
			}(), "a", at(0),
		},
		"a clock set back while nobody looked": {
			func() *clocks {
				w := newClocks("a").run(time.Hour, "a")
				w.at += 10 * time.Hour
				return w.set(-time.Hour).run(time.Hour, "a")
			}(), "a", at(10 * time.Hour),
		},
		// a was started again while b went on, then b while a2 went on.
		"two machines that cover each other": {
			func() *clocks {
				w := newClocks("a", "b").run(time.Hour, "a", "b").run(10*time.Minute, "b")
				w.booted["a2"] = w.at
				w.run(time.Hour, "b", "a2").run(10*time.Minute, "a2")
				w.booted["b2"] = w.at
				return w.run(time.Hour, "a2", "b2")
			}(), "b2", at(0),
		},
		"two machines that do not": {
			func() *clocks {
				w := newClocks("a", "b").run(time.Hour, "a", "b").run(time.Hour, "a")
				w.at += 10 * time.Minute
				w.booted["b2"] = w.at
				return w.run(time.Hour, "b2")
			}(), "b2", at(2*time.Hour + 10*time.Minute),
		},
		// Both measure the same step; it counts once.
		"two machines, back by 6 min twice within their overlap": {
			newClocks("a", "b").run(time.Hour, "a", "b").set(-6*time.Minute).run(time.Hour, "a", "b"), "b", at(0),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.clocks.since(tc.boot); !got.Equal(tc.want) {
				t.Errorf("trusted since %s, want %s", got.Sub(epoch), tc.want.Sub(epoch))
			}
		})
	}
}

// Q16: whatever the clock does, and whichever machines are up, of nothing that
// is trusted is the age understated by more than the bound and what a reading
// may be off. And what was never set back, seen by one machine, is trusted.
func TestTrustNeverUnderstatesAnAge(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const bound = 10 * time.Minute
		w := newClocks("m0", "m1")
		up := map[string]bool{"m0": true, "m1": true}
		names, boots := []string{"m0", "m1"}, 2
		type written struct{ truly, stamp time.Duration }
		var rows []written
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				w.set(-rapid.SampledFrom([]time.Duration{400 * time.Millisecond, 5 * time.Second, 4 * time.Minute, 11 * time.Minute, time.Hour}).Draw(t, "back"))
			case 1:
				w.set(rapid.SampledFrom([]time.Duration{5 * time.Second, time.Hour}).Draw(t, "forward"))
			case 2: // one machine goes down, and comes up as another boot
				i := rapid.IntRange(0, 1).Draw(t, "machine")
				if up[names[i]] {
					up[names[i]] = false
					break
				}
				names[i] = fmt.Sprint("m", boots)
				w.booted[names[i]], up[names[i]] = w.at, true
				boots++
			default:
				for range rapid.IntRange(1, 90).Draw(t, "minutes") {
					alive := false
					for _, n := range names {
						if up[n] {
							alive = true
							w.samples = append(w.samples, w.reading(n))
						}
					}
					w.at += 30 * time.Second
					if alive {
						rows = append(rows, written{w.at, w.at + w.shift})
					}
					w.at += 30 * time.Second
				}
			}
		}
		names = append(names, "last")
		w.booted["last"] = w.at
		boot := "last"
		for _, n := range names[:2] {
			if up[n] {
				boot = n
			}
		}
		since := w.since(boot).Sub(epoch)
		for _, r := range rows {
			if r.stamp < since {
				continue
			}
			age, shown := w.at-r.truly, w.at+w.shift-r.stamp
			if age-shown > bound+2*clockBand {
				t.Fatalf("written at %s, dated %s, trusted since %s: %s old and shown as %s", r.truly, r.stamp, since, age, shown)
			}
		}
	})
}

// A clock that only trembles is not one that is set back, however often it is
// read; one that creeps is.
func TestTremblingAndCreepingClocks(t *testing.T) {
	t.Parallel()
	trembling, creeping := newClocks("a"), newClocks("a")
	for i := range 2880 {
		trembling.shift = time.Duration(i%2*240) * time.Millisecond
		trembling.run(time.Minute, "a")
		creeping.set(-300*time.Millisecond).run(time.Minute, "a")
	}
	if got := TrustedSince(trembling.samples, time.Minute, trembling.reading("a")); !got.Equal(epoch) {
		t.Errorf("trembling: trusted since %s", got.Sub(epoch))
	}
	if got := creeping.since("a"); got.Before(epoch.Add(10 * time.Hour)) {
		t.Errorf("creeping: trusted since %s", got.Sub(epoch))
	}
}
