package simulation

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// fleet is what the hosts remember of the store on their disks, and tell each
// other by their heartbeats. The rule of a single host is tested with host.
type fleet struct {
	claims, restores int64
	behind           bool
}

// backup is a copy of the store.
type backup struct {
	rows             []*row
	digests          map[storage.Hash]int64
	claims, restores int64
	taken            time.Time // the store's clock
	told             map[int64]int
}

// backups takes one and, hours or more than a day later, restores it. Somebody
// then settles what that means. // Q17.
func (w *world) backups() {
	w.sleep(context.Background(), laneBackup, w.drawn(w.heals/20, w.heals/2))
	w.mu.Lock()
	b := w.store.backup()
	later := w.between(time.Hour, max(2*time.Hour, min(30*time.Hour, w.heals-w.since()-2*time.Hour)))
	if w.seed/5%2 == 1 {
		later = time.Second
	}
	w.mu.Unlock()
	w.sleep(context.Background(), laneBackup, later)
	// Half of them while a request is under way that nobody waits for, and by
	// somebody in a hurry.
	hurried := w.hurries(b)
	w.mu.Lock()
	if hurried {
		w.count("backup restored in a hurry")
	}
	if w.failure == "" {
		w.store.restore(b)
	}
	wait := w.between(2*time.Minute, 90*time.Minute)
	if hurried {
		wait, w.store.downUntil = w.between(time.Minute, 3*time.Minute), w.since()+time.Minute
	}
	w.mu.Unlock()
	for {
		w.sleep(context.Background(), laneBackup, wait)
		w.mu.Lock()
		done := w.failure != "" || w.over || !w.store.stale
		if noticed := w.fleet.behind || w.hooks.noIncarnate; !done && noticed {
			w.store.markRestored(b.taken)
			done = true
		}
		wait = w.between(time.Minute, time.Hour)
		if hurried {
			wait = time.Minute
		}
		w.mu.Unlock()
		if done {
			break
		}
	}
	for range 3 {
		if !hurried {
			return
		}
		w.round(session{w: w, s: w.store, lane: laneBackup}, time.Second)
	}
}

// hurries waits, in every other world, for a request that nobody waits for, of an
// item which the backup takes for unsent.
func (w *world) hurries(b *backup) bool {
	for range 8 * 60 * int(w.seed/5%2) {
		w.mu.Lock()
		flies := slices.ContainsFunc(b.rows, func(r *row) bool {
			return w.flying[r.ItemID] > 0 && r.SettledAt.IsZero() && r.State != storage.Uncertain && w.provider.facts[r.subject] == 0
		})
		over := w.since() > w.heals-2*time.Hour || w.failure != ""
		w.mu.Unlock()
		if flies || over {
			return flies
		}
		w.sleep(context.Background(), laneBackup, time.Minute)
	}
	return false
}

func (s *store) backup() *backup {
	b := &backup{digests: maps.Clone(s.digests), claims: s.claims, restores: s.restores, taken: s.now(), told: maps.Clone(s.w.told)}
	for _, r := range s.rows {
		b.rows = append(b.rows, r.copied())
	}
	s.w.note("backup of %d items", len(b.rows))
	return b
}

func (r *row) copied() *row {
	c := *r
	c.attempts, c.actions = slices.Clone(r.attempts), slices.Clone(r.actions)
	return &c
}

// restore puts the store back: connections end, and what came later is gone.
func (s *store) restore(b *backup) {
	for _, r := range s.rows {
		r.lost = true
	}
	for _, r := range b.rows {
		s.byID[r.ItemID] = r
	}
	s.rows, s.digests, s.claims, s.restores = b.rows, b.digests, b.claims, b.restores
	s.life++
	s.stale = s.claims < s.w.fleet.claims // or nothing was sent since
	s.w.told = b.told
	s.downUntil = s.w.since() + s.w.between(time.Minute, time.Hour)
	s.w.count("backup restored")
	s.w.note("backup restored: %d items, %d claims", len(s.rows), s.claims)
}

// markRestored follows [storage.RestoreRequest].
func (s *store) markRestored(since time.Time) {
	for _, r := range s.rows {
		open := r.State == storage.Uncertain && (!r.Unresolved || r.FirstUnresolvedAt.IsZero())
		moves := r.State == storage.Pending || r.State == storage.Leased || r.State == storage.Quarantined
		if !r.SettledAt.IsZero() || r.SupersededBy != 0 || !(moves || open) || s.w.hooks.noRestoreLog {
			continue
		}
		r.Unresolved, r.LeaseToken = true, r.LeaseToken+1
		r.ClaimedAt = s.now() // a page of the lost time may be on its way
		if r.FirstUnresolvedAt.IsZero() {
			r.FirstUnresolvedAt = since
		}
		if moves {
			r.LastError = &storage.ItemError{Code: "restored"}
			s.w.count("restored as uncertain")
		}
		s.land(r, storage.Uncertain)
	}
	s.claims, s.restores, s.stale = max(s.claims, s.w.fleet.claims+1), s.restores+1, false
	s.w.count("restore settled")
	for _, r := range s.rows {
		s.w.judge(r)
	}
}

var errBehind = errors.New("the store is behind what was seen of it")

// look is what a heartbeat tells, and may be some seconds old.
func (w *world) look() {
	f, s := &w.fleet, w.store
	switch settled := s.restores > f.restores && s.claims >= f.claims; {
	case w.hooks.noIncarnate, s.downUntil > w.since():
	case f.behind && settled:
		f.behind, f.claims, f.restores = false, s.claims, s.restores
	case s.claims < f.claims:
		f.behind = true
	case !f.behind:
		f.claims = s.claims
	}
}

// blocked reports whether a host may not deliver, as far as it knows.
func (w *world) blocked() bool {
	if w.draw(2) == 0 {
		w.look()
	}
	return w.fleet.behind
}

// allow is asked before a page is sent.
func (w *world) allow(claim storage.Claim, before int64) error {
	f := &w.fleet
	switch {
	case w.hooks.noIncarnate:
		return nil
	case f.behind:
		return errBehind
	case claim.Incarnation.Claims <= before:
		f.behind = true
		w.count("page not sent: the store went back")
		return errBehind
	}
	f.claims = max(f.claims, claim.Incarnation.Claims)
	return nil
}
