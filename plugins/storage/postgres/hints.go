package postgres

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// position is a place in the order of (time, item). The zero value is before
// everything.
type position struct {
	at   time.Time
	item int64
}

func (p position) compare(q position) int {
	return cmp.Or(p.at.Compare(q.at), cmp.Compare(p.item, q.item))
}

// time is the position's time as a parameter.
func (p position) time() pgtype.Timestamptz {
	if p.at.IsZero() {
		return pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	}
	return pgtype.Timestamptz{Time: p.at, Valid: true}
}

// hintLife is how long a hint is believed. What it hides (an item that
// committed late, came back early, or was let go by a claim that failed) waits
// no longer than this.
const hintLife = time.Second

// hints remember, by set of routes, where the claims of this process have got
// to: the index entries before that are of items that are gone, and while some
// old snapshot is open nothing can remove them. A hint only says where to look
// first. The zero value knows nothing. Safe for concurrent use.
type hints struct {
	mu     sync.Mutex
	routes map[string]*hint
}

// hint is what is known of one set of routes.
type hint struct {
	until   time.Time
	pending position
	// leased: no lease of these routes expired before this time.
	leased time.Time
	// serial: some of their items have serial keys.
	serial bool
	// before is set for the one claim that looks from the beginning: where the
	// others go on meanwhile.
	before position
	// walking holds an element while a claim walks the index.
	walking chan struct{}
}

func routesKey(routes []int64) string { return fmt.Sprint(routes) }

// get answers what is known at now.
func (h *hints) get(routes []int64, now time.Time) hint {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.entry(routes)
	if !now.Before(k.until) {
		// One claim begins anew and says what it found. The others go on from
		// where they were: with an old snapshot open the way is long.
		k.until, k.leased = now.Add(hintLife), time.Time{}
		scout := *k
		scout.pending, scout.before = position{}, k.pending
		return scout
	}
	return *k
}

// pendingNow answers how far the claims have got by now, if the hint is still
// the one that old came from.
func (h *hints) pendingNow(routes []int64, old hint) position {
	h.mu.Lock()
	defer h.mu.Unlock()
	if k := h.entry(routes); k.until.Equal(old.until) {
		return k.pending
	}
	return old.pending
}

// entry needs the mutex.
func (h *hints) entry(routes []int64) *hint {
	key := routesKey(routes)
	k := h.routes[key]
	if k == nil {
		k = &hint{}
		if h.routes == nil {
			h.routes = map[string]*hint{}
		}
		h.routes[key] = k
	}
	return k
}

// put stores what a claim that began with old has found, unless the hint was
// begun anew meanwhile. A zero position starts over.
func (h *hints) put(routes []int64, old, found hint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.entry(routes)
	if !k.until.Equal(old.until) {
		return
	}
	switch {
	case found.pending == (position{}), found.pending.compare(old.before) < 0:
		k.pending = found.pending // it all begins there again
	case k.pending.compare(found.pending) < 0:
		k.pending = found.pending
	}
	if found.leased.After(k.leased) {
		k.leased = found.leased
	}
}

// setSerial notes that items of these routes have serial keys.
func (h *hints) setSerial(routes []int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entry(routes).serial = true
}

// forget is told that items may have become due before what was seen.
func (h *hints) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range h.routes {
		k.until = time.Time{}
	}
}

// turnWait bounds how long a claim waits for another of this process. To take
// turns saves work, nothing depends on it.
const turnWait = 250 * time.Millisecond

// turn waits until no other claim of these routes walks the index, and answers
// what ends this one's turn; alone is false if it did not get one. Two that walk
// at once see the same rows, and the second passes over all that the first one
// locks.
func (h *hints) turn(ctx context.Context, routes []int64) (end func(), alone bool) {
	h.mu.Lock()
	k := h.entry(routes)
	if k.walking == nil {
		k.walking = make(chan struct{}, 1)
	}
	walking := k.walking
	h.mu.Unlock()
	patience := time.NewTimer(turnWait)
	defer patience.Stop()
	select {
	case walking <- struct{}{}:
		return sync.OnceFunc(func() { <-walking }), true
	case <-patience.C:
	case <-ctx.Done():
	}
	return func() {}, false
}
