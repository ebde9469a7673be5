package outpost

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/outpost/state"
)

const (
	// validFor is how long a copy is believed that nobody compared with Redis.
	validFor = 2 * time.Second
	// auditEvery is how often copies that are read are compared, and idleEvery
	// the others.
	auditEvery = time.Second
	idleEvery  = 30 * time.Second
	// auditPage is how many are compared in one round trip.
	auditPage = 500
)

// view is what a copy says. It does not change.
type view struct {
	epoch, tip string
	definition string
	snapshot   bool
	aggregate  state.Aggregate
	// until is when the aggregate changes by itself, by the clock of Redis; zero:
	// not.
	until     time.Time
	credits   creditsOf
	coldUntil int64
	appliedAt time.Time
}

// copied is the copy of one identity's state.
type copied struct {
	id  state.Identity
	key string

	view  atomic.Pointer[view]
	valid atomic.Int64 // until when it is believed, on the copies' own clock
	read  atomic.Int64 // when it was last read

	mu sync.Mutex
	st *state.State // nil: not loaded
	// skew is the clock of Redis less ours.
	skew   time.Duration
	loads  sync.Mutex // one load at a time
	asking sync.Mutex // one question at a time
}

// copies are the states that were read or written here, kept up by messages. A
// change is applied in place only if it follows what the copy has; anything else
// loads the state anew. // C28, I7, C-T13.
type copies struct {
	store *state.Store
	limit int
	now   func() time.Time
	begin time.Time

	mu    sync.RWMutex
	byKey map[string]*copied
	order *list.List // of keys, the latest made first
}

func newCopies(store *state.Store, limit int, now func() time.Time) *copies {
	return &copies{store: store, limit: limit, now: now, begin: now(), byKey: map[string]*copied{}, order: list.New()}
}

// clock is nanoseconds since the copies were made; a step of the wall clock does
// not move it.
func (c *copies) clock() int64 { return int64(c.now().Sub(c.begin)) }

// of returns the copy of an identity, making one that is not loaded.
func (c *copies) of(id state.Identity) *copied {
	key := c.store.Key(id)
	c.mu.RLock()
	k := c.byKey[key]
	c.mu.RUnlock()
	if k != nil {
		return k
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if k = c.byKey[key]; k != nil {
		return k
	}
	k = &copied{id: id, key: key}
	c.byKey[key] = k
	c.order.PushFront(key)
	for len(c.byKey) > c.limit {
		c.evict()
	}
	return k
}

// evict lets go of a copy that was not read lately, looking at the oldest few.
func (c *copies) evict() {
	var victim *list.Element
	var key string
	var read int64
	for e, n := c.order.Back(), 0; e != nil && n < 16; e, n = e.Prev(), n+1 {
		name, _ := e.Value.(string)
		if at := c.byKey[name].read.Load(); victim == nil || at < read {
			victim, key, read = e, name, at
		}
	}
	c.order.Remove(victim)
	delete(c.byKey, key)
}

// apply follows a change that was published, or made here.
func (c *copies) apply(m state.Message) {
	c.mu.RLock()
	k := c.byKey[m.Key]
	c.mu.RUnlock()
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.st == nil {
		return // whoever loads it sees the change
	}
	switch k.st.Apply(m) {
	case state.Applied:
		k.show(c.now())
	case state.Known:
	case state.Reload:
		k.st = nil
		k.view.Store(nil)
	}
}

// doubt has a copy loaded before it is read again.
func (c *copies) doubt(id state.Identity) {
	c.mu.RLock()
	k := c.byKey[c.store.Key(id)]
	c.mu.RUnlock()
	if k != nil {
		k.forget()
	}
}

func (k *copied) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.st = nil
	k.view.Store(nil)
}

// show publishes what the state says at a time. k.mu is held.
func (k *copied) show(now time.Time) {
	st := k.st
	v := &view{epoch: st.Epoch, tip: st.Tip, definition: st.Definition, snapshot: st.Snapshot, coldUntil: st.ColdUntil, appliedAt: st.AppliedAt}
	v.aggregate, v.until = st.Aggregate(now.Add(k.skew))
	if !v.until.IsZero() {
		v.until = v.until.Add(-k.skew)
	}
	v.credits = creditsOf(st.Credits)
	k.view.Store(v)
}

// load reads the state from Redis, once for all who wait.
func (c *copies) load(ctx context.Context, k *copied) (*view, error) {
	k.loads.Lock()
	defer k.loads.Unlock()
	if v := k.view.Load(); v != nil && k.valid.Load() > c.clock() {
		return v, nil // somebody else did
	}
	return c.reload(ctx, k)
}

// reload reads the state whatever is known of it. k.loads is held.
func (c *copies) reload(ctx context.Context, k *copied) (*view, error) {
	asked := c.clock()
	st, err := c.store.Load(ctx, k.id)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := c.now()
	k.st, k.skew = st, st.LoadedAt.Sub(now)
	k.show(now)
	k.valid.Store(asked + int64(validFor))
	return k.view.Load(), nil
}

// audit compares the copies with Redis: the last of lost messages leaves no gap
// that a later one would show. // F9.
func (c *copies) audit(ctx context.Context) {
	tick := time.NewTicker(auditEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		idle := n%int(idleEvery/auditEvery) == 0
		c.compare(ctx, c.warm(idle))
	}
}

// warm are the copies that were read since the last audit, or all that are loaded.
func (c *copies) warm(all bool) []*copied {
	since := c.clock() - int64(idleEvery)
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []*copied
	for _, k := range c.byKey {
		if k.view.Load() != nil && (all || k.read.Load() > since) {
			out = append(out, k)
		}
	}
	return out
}

func (c *copies) compare(ctx context.Context, warm []*copied) {
	for len(warm) > 0 && ctx.Err() == nil {
		page := warm[:min(len(warm), auditPage)]
		warm = warm[len(page):]
		ids := make([]state.Identity, len(page))
		views := make([]*view, len(page))
		for i, k := range page {
			ids[i], views[i] = k.id, k.view.Load()
		}
		asked := c.clock()
		bounded, cancel := context.WithTimeout(ctx, validFor)
		tips, err := c.store.Tips(bounded, ids)
		cancel()
		if err != nil {
			return // what is not compared is not believed for long
		}
		for i, k := range page {
			if v := views[i]; v == nil || v.epoch != tips[i].Epoch || v.tip != tips[i].Tip {
				if k.view.Load() == v {
					k.forget()
				}
				continue
			}
			k.valid.Store(asked + int64(validFor))
		}
	}
}
