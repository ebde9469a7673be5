package simulation

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// defaultSeeds are enough for more than 100,000 lives.
const defaultSeeds = 480

// seeds is how many worlds to run: SEEDS, or the default.
func seeds(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("SEEDS"))
	switch {
	case os.Getenv("SEEDS") == "":
		return defaultSeeds
	case err != nil || n < 1:
		t.Fatal("SEEDS is not a number of worlds")
	}
	return n
}

// without is what WITHOUT=clocks,serial leaves out of every world: by it one sees
// which mutant is missed only because of which ingredient.
func without(t *testing.T) (out ingredients) {
	t.Helper()
	for name := range strings.SplitSeq(os.Getenv("WITHOUT"), ",") {
		switch name {
		case "":
		case "clocks":
			out.clocks = true
		case "serial":
			out.serial = true
		case "restore":
			out.restore = true
		case "disputes":
			out.disputes = true
		case "windows":
			out.windows = true
		default:
			t.Fatal("WITHOUT names clocks, serial, restore, disputes, windows")
		}
	}
	return out
}

// live runs one world in its own bubble of time.
func live(t *testing.T, seed uint64, h hooks, trace bool) *world {
	t.Helper()
	var w *world
	synctest.Test(t, func(*testing.T) {
		w = newWorld(seed, h, trace)
		w.run()
	})
	return w
}

// found runs worlds until one fails, and returns it, and what all of them saw.
func found(t *testing.T, n int, h hooks) (*world, summary) {
	t.Helper()
	h.without = without(t)
	var mu sync.Mutex
	var next atomic.Uint64
	var first *world
	sum := summary{seen: map[string]int{}}
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				seed := next.Add(1)
				mu.Lock()
				stop := first != nil
				mu.Unlock()
				if seed > uint64(n) || stop {
					return
				}
				w := live(t, seed, h, false)
				mu.Lock()
				sum.add(w)
				if w.failure != "" && (first == nil || w.seed < first.seed) {
					first = w
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return first, sum
}

type summary struct {
	worlds, lives int
	seen          map[string]int
}

func (s *summary) add(w *world) {
	s.worlds++
	s.lives += w.lives
	for what, n := range w.seen {
		s.seen[what] += n
	}
}

func (s *summary) lines() string {
	var b strings.Builder
	names := make([]string, 0, len(s.seen))
	for name := range s.seen {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&b, "%9d  %s\n", s.seen[name], name)
	}
	return b.String()
}

// Whatever dies, stalls, is lost or lies: one charge for each fact, no refusal
// of what was charged, no acceptance of what was not, attempts within the
// budget, and everything ends or waits in sight. What the provider withdraws is
// seen, what was counted is charged once. SEEDS=n runs that many worlds, SEED=n one
// of them, with all that happens in it. // I7-I11, I18, O12, O16, Q16, Q17, Q20.
func TestSimulation(t *testing.T) {
	t.Parallel()
	if one := os.Getenv("SEED"); one != "" {
		seed, err := strconv.ParseUint(one, 10, 64)
		if err != nil {
			t.Fatal("SEED is not a number")
		}
		replay(t, seed)
		return
	}
	began := time.Now()
	n := seeds(t)
	failing, sum := found(t, n, hooks{})
	if failing != nil {
		t.Errorf("seed %d: %s\nSEED=%d go test -run TestSimulation -v ./internal/simulation shows how", failing.seed, failing.failure, failing.seed)
		return
	}
	t.Logf("%d worlds, %d lives of items, in %s; what happened in them:\n%s", sum.worlds, sum.lives, time.Since(began).Round(time.Millisecond), sum.lines())
	if n < defaultSeeds || os.Getenv("WITHOUT") != "" {
		return
	}
	if sum.lives < 100_000 {
		t.Errorf("%d lives, not 100,000", sum.lives)
	}
	for _, name := range fateNames {
		if sum.seen["send: "+name] == 0 {
			t.Errorf("it never happened that a request was %s", name)
		}
	}
	for _, what := range always {
		if sum.seen[what] == 0 {
			t.Errorf("it never happened: %s", what)
		}
	}
}

// always is what has to happen in a run of the default size.
var always = []string{
	"abandoned", "accepted and disputed", "answer of the store lost", "attempts_exhausted", "backup restored", "backup restored in a hurry", "call of the store lost",
	"claim met a taken key", "claim met a taken row", "clock of the store stepped", "clock_untrusted", "commit after the caller gave up",
	"correction sent: cancel", "correction sent: negative", "evidence against an item: accepted", "evidence against an item: pending",
	"evidence against an item: uncertain", "horizon_passed", "host died", "host stopped for a while", "identifier of somebody else",
	"lease expired", "machines started again", "no lease left to send", "original moved before its correction was recorded",
	"page not sent: the store went back", "requeue refused", "requeued", "resolved: accepted", "resolved: pending", "resolved: rejected",
	"resolved without a look at the books", "restore settled", "restored as uncertain", "superseded", "window exists", "window settled: acknowledged", "window settled: restage",
	"window settled: write_off", "window staged by another", "withdrawn by the provider", "write fenced out",
}

// replay shows one world.
func replay(t *testing.T, seed uint64) {
	t.Helper()
	w := live(t, seed, hooks{without: without(t)}, true)
	t.Log("\n" + w.trace.String())
	if w.failure != "" {
		t.Errorf("seed %d: %s", seed, w.failure)
	}
}

// A seed is one history, to the nanosecond: what fails once fails again.
func TestSeedReplays(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		a, b := live(t, seed, hooks{}, true), live(t, seed, hooks{}, true)
		if a.digest == b.digest {
			continue
		}
		left, right := strings.Split(a.trace.String(), "\n"), strings.Split(b.trace.String(), "\n")
		for i := range min(len(left), len(right)) {
			if left[i] != right[i] {
				t.Fatalf("seed %d parts at line %d:\n%s\n%s", seed, i, left[i], right[i])
			}
		}
		t.Fatalf("seed %d: %d and %d lines", seed, len(left), len(right))
	}
}
