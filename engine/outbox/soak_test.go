package outbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// flaky is a store whose writes sometimes do not happen, as if the worker had
// died before them, and sometimes happen without an answer.
type flaky struct {
	*modelStore
	chance func(percent int) bool
}

var errDied = errors.New("worker died")

func (f flaky) Transition(ctx context.Context, moves []storage.Transition) ([]storage.TransitionResult, error) {
	if f.chance(10) {
		return nil, errDied
	}
	if f.chance(5) {
		f.mu.Lock()
		f.loseAnswers = 1
		f.mu.Unlock()
	}
	return f.modelStore.Transition(ctx, moves)
}

// P1, P2, F05, F26, F31: four whole deliverers on one destination for a virtual
// day, against answers lost before and after the effect, sends that outlast the
// lease, panics, rate limits and dying workers; then all is well again.
func TestSoak(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { soak(t, seed) })
		})
	}
}

func soak(t *testing.T, seed uint64) {
	t.Helper()
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 1))
	well := false
	intn := func(n int64) int64 { mu.Lock(); defer mu.Unlock(); return random.Int64N(n) }
	chance := func(percent int) bool {
		hit := intn(100) < int64(percent)
		mu.Lock()
		defer mu.Unlock()
		return hit && !well
	}
	b := newBench(t)
	const items = 60
	for i := range items {
		b.store.add(sample(fmt.Sprint("req_", i), time.Now()))
	}
	answer := func(ctx context.Context, it SendItem) reply {
		luck := intn(100)
		if !chance(32) {
			luck = 100
		}
		switch {
		case luck < 25:
			return indefinite
		case luck < 50:
			honest(b.provider)(ctx, it)
			return indefinite
		case luck < 65:
			r := honest(b.provider)(ctx, it)
			time.Sleep(200 * time.Second)
			return r
		case luck < 75:
			return reply{exporter.RateLimited, seen(exporter.ClassThrottled)}
		case luck < 85:
			panic("boom")
		case luck < 100:
			return reply{exporter.Retry, seen(exporter.ClassNotSent)}
		}
		return honest(b.provider)(ctx, it)
	}
	var stops []func()
	for i := range 4 {
		stops = append(stops, run(t, b.deliverer(&scripted{manifest: testManifest, answer: answer}, func(c *Config) {
			c.Store, c.Owner, c.Uniform, c.Tick = flaky{b.store, chance}, fmt.Sprint("w", i), intn, 30*time.Second
		})))
	}
	time.Sleep(12 * time.Hour)
	mu.Lock()
	well = true
	mu.Unlock()
	time.Sleep(12 * time.Hour)
	for _, stop := range stops {
		stop()
	}
	accepted := 0
	for id := range int64(items) {
		item := b.store.row(id + 1)
		charges, _ := b.provider.count(IdentifierOf(item.Digest))
		switch {
		case charges > 1:
			t.Errorf("item %d charged %d times", id+1, charges)
		case item.State == storage.Accepted && charges == 1:
			accepted++
		case item.State != storage.Uncertain:
			t.Errorf("item %d is %s with %d charges", id+1, item.State, charges)
		}
	}
	if accepted < items-5 {
		t.Errorf("%d of %d accepted", accepted, items)
	}
	t.Logf("%d of %d accepted, %d stale writes", accepted, items, b.observer.stale)
}
