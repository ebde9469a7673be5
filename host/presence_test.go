package host

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// fakeHosts is a store of hosts, with a clock that a test may set.
type fakeHosts struct {
	mu      sync.Mutex
	shift   time.Duration
	in      storage.Incarnation
	rows    map[string]storage.HostRow
	samples []storage.ClockSample
	last    time.Time
	roles   map[string]storage.Holding
	fail    error
	beats   int
	tokens  map[int64]int64
}

// fakeItems are the items of such a store.
type fakeItems struct {
	storage.OutboxStore
	*fakeHosts
}

func (f fakeItems) LoadItem(_ context.Context, id int64) (storage.ItemDetail, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	token, ok := f.tokens[id]
	if !ok {
		return storage.ItemDetail{}, &sdk.Error{Tag: sdk.TagNotFound}
	}
	return storage.ItemDetail{Item: storage.Item{ItemID: id, LeaseToken: token}}, nil
}

func newFakeHosts() *fakeHosts {
	return &fakeHosts{
		in: storage.Incarnation{Store: "s1"}, rows: map[string]storage.HostRow{}, roles: map[string]storage.Holding{},
		tokens: map[int64]int64{},
	}
}

func (f *fakeHosts) now() time.Time { return time.Now().Add(f.shift) }

func (f *fakeHosts) Beat(_ context.Context, b storage.Heartbeat) (storage.HeartbeatResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return storage.HeartbeatResult{}, f.fail
	}
	f.beats++
	res := storage.HeartbeatResult{Now: f.now(), Incarnation: f.in, LastBeat: f.last}
	if b.Leaving {
		delete(f.rows, b.Host)
		return res, nil
	}
	f.last = f.now()
	f.rows[b.Host] = storage.HostRow{Host: b.Host, BeatAt: f.now(), Claims: b.Claims, FlushedThrough: b.FlushedThrough, Noticed: b.Noticed}
	if b.BootID != "" {
		f.samples = append(f.samples, storage.ClockSample{Host: b.Host, BootID: b.BootID, Boottime: b.Boottime, StoreAt: f.now()})
	}
	return res, nil
}

func (f *fakeHosts) Hosts(_ context.Context, age time.Duration) ([]storage.HostRow, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []storage.HostRow
	for _, r := range f.rows {
		if f.now().Sub(r.BeatAt) <= age {
			out = append(out, r)
		}
	}
	return out, f.fail
}

func (f *fakeHosts) ClockSamples(context.Context) ([]storage.ClockSample, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.samples), f.fail
}

func (f *fakeHosts) Hold(_ context.Context, role, owner string, ttl time.Duration) (storage.Holding, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return storage.Holding{}, f.fail
	}
	h := f.roles[role]
	if h.Owner != owner && f.now().Before(h.Until) {
		h.Held = false
		return h, nil
	}
	if h.Owner != owner {
		h.Fence++
	}
	h.Held, h.Owner, h.Until = ttl > 0, owner, f.now().Add(ttl)
	f.roles[role] = h
	return h, nil
}

func (f *fakeHosts) set(change func(*fakeHosts)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// member is a host as far as presence goes, on its own boot.
func member(t *testing.T, store *fakeHosts, owner string) *presence {
	t.Helper()
	began := time.Now()
	log := slog.New(slog.DiscardHandler)
	return &presence{
		store: store, items: fakeItems{fakeHosts: store}, owner: owner, boot: "boot-" + owner, clock: func() time.Duration { return time.Since(began) + time.Hour },
		flushed: func() time.Time { return time.Time{} }, bound: 10 * time.Minute,
		known: newIncarnations(filepath.Join(t.TempDir(), "state"), log), log: log,
	}
}

// live beats until the returned function is called, as a host that is closed;
// kill ends it without a goodbye.
func (p *presence) live(t *testing.T) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	if err := p.beat(ctx); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); p.run(ctx) }()
	return func() { cancel(); <-done }
}

// Q12: the rate is divided by the hosts that live; one that leaves counts no
// more at once, and one that is killed after half a minute.
func TestLivingHosts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeHosts()
		a, b, c := member(t, store, "a"), member(t, store, "b"), member(t, store, "c")
		leaveA, leaveB := a.live(t), b.live(t)
		defer leaveA()
		if err := c.beat(t.Context()); err != nil { // and then it is killed
			t.Fatal(err)
		}
		time.Sleep(beatEvery + time.Second)
		if a.living() != 3 || b.living() != 3 {
			t.Errorf("%d and %d hosts, want 3", a.living(), b.living())
		}
		leaveB()
		time.Sleep(beatEvery)
		if a.living() != 2 {
			t.Errorf("%d hosts after one left, want 2", a.living())
		}
		time.Sleep(hostTTL)
		if a.living() != 1 {
			t.Errorf("%d hosts after one died, want 1", a.living())
		}
	})
}

// A host that cannot reach the store for half a minute sends nothing until it
// can: by then the others count without it. // Q17a.
func TestUnreachedStoreStopsDelivery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeHosts()
		p := member(t, store, "a")
		g := &gate{presence: p}
		routes := func() []int64 { return []int64{1} }
		if g.routes(routes) != nil {
			t.Error("delivers before the store was seen")
		}
		defer p.live(t)()
		if g.routes(routes) == nil {
			reason, _ := p.blocked()
			t.Fatalf("does not deliver: %s", reason)
		}
		store.set(func(f *fakeHosts) { f.fail = errors.New("gone") })
		time.Sleep(hostTTL + beatEvery)
		if reason, _ := p.blocked(); reason != ReasonUnreached || g.routes(routes) != nil {
			t.Errorf("reason %q", reason)
		}
		store.set(func(f *fakeHosts) { f.fail = nil })
		time.Sleep(2 * beatEvery)
		if reason, _ := p.blocked(); reason != "" {
			t.Errorf("reason %q", reason)
		}
	})
}

// Q16: a store whose clock is set back by more than the bound is noticed within
// two heartbeats; clocks are sampled once a minute otherwise.
func TestClockOfTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeHosts()
		p := member(t, store, "a")
		start := time.Now()
		defer p.live(t)()
		time.Sleep(10*time.Minute + time.Second)
		if list, _ := store.ClockSamples(t.Context()); len(list) < 10 || len(list) > 12 {
			t.Errorf("%d samples in ten minutes", len(list))
		}
		if got := p.trustedSince(); !got.Equal(start) {
			t.Errorf("trusted since %s", got.Sub(start))
		}
		set := time.Now()
		store.set(func(f *fakeHosts) { f.shift = -time.Hour })
		time.Sleep(2 * beatEvery)
		got := p.trustedSince()
		if got.Before(set) || got.After(set.Add(time.Minute)) {
			t.Errorf("after a step back at %s trusted since %s", set.Sub(start), got.Sub(start))
		}
	})
}

// R9: the loop of a host that was killed runs elsewhere within the time of the
// role and one try, not never; two never hold it.
func TestRoleOfADeadHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeHosts()
		dead, heir := member(t, store, "dead"), member(t, store, "heir")
		if _, held, err := dead.take(t.Context(), roleReporter); !held || err != nil {
			t.Fatal(held, err)
		}
		killed := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		began, done := make(chan time.Time, 1), make(chan struct{})
		go func() {
			defer close(done)
			heir.holding(ctx, roleReporter, func(ctx context.Context) { began <- time.Now(); <-ctx.Done() })
		}()
		at := <-began
		if took := at.Sub(killed); took < roleTTL || took > roleTTL+roleEvery {
			t.Errorf("the role moved after %s", took)
		}
		if _, held, _ := dead.take(t.Context(), roleReporter); held {
			t.Error("two hold the role")
		}
		time.Sleep(10 * time.Minute) // it is renewed
		if _, held, _ := dead.take(t.Context(), roleReporter); held {
			t.Error("the role was not renewed")
		}
		cancel()
		<-done
		if _, held, _ := dead.take(t.Context(), roleReporter); !held {
			t.Error("a host that closed kept its role")
		}
	})
}

// A holder that cannot renew its role has ended before another may begin, also
// when its machine slept meanwhile; and it begins again later.
func TestRoleIsLostInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeHosts()
		p := member(t, store, "a")
		ctx, cancel := context.WithCancel(t.Context())
		var running, runs atomic.Int32
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.holding(ctx, roleReporter, func(ctx context.Context) {
				runs.Add(1)
				running.Add(1)
				defer running.Add(-1)
				<-ctx.Done()
			})
		}()
		time.Sleep(roleEvery + time.Second)
		store.set(func(f *fakeHosts) { f.fail = errors.New("gone") })
		until := store.roles[roleReporter].Until
		time.Sleep(time.Until(until) - time.Millisecond)
		if running.Load() != 0 || runs.Load() != 1 {
			t.Errorf("%d running when the role ends", running.Load())
		}
		store.set(func(f *fakeHosts) { f.fail = nil })
		time.Sleep(2 * roleEvery)
		if running.Load() != 1 || runs.Load() != 2 {
			t.Errorf("%d running, %d runs", running.Load(), runs.Load())
		}
		// Another took it, by an operator's hand or a clock's: this one ends.
		store.set(func(f *fakeHosts) {
			f.roles[roleReporter] = storage.Holding{Owner: "b", Until: time.Now().Add(time.Hour)}
		})
		time.Sleep(roleEvery + time.Second)
		if running.Load() != 0 {
			t.Error("two run")
		}
		cancel()
		<-done
	})
}

// What runs once, such as a rebuild, gives its role up when it is done.
func TestRoleOfWhatEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeHosts()
		a, b := member(t, store, "a"), member(t, store, "b")
		var runs atomic.Int32
		var wg sync.WaitGroup
		for _, p := range []*presence{a, b} {
			wg.Go(func() {
				p.holding(t.Context(), roleBuckets, func(context.Context) { runs.Add(1); time.Sleep(time.Minute) })
			})
		}
		time.Sleep(50 * time.Second)
		if runs.Load() != 1 {
			t.Errorf("%d run at once", runs.Load())
		}
		wg.Wait()
		if runs.Load() != 2 {
			t.Errorf("%d runs", runs.Load())
		}
	})
}
