package host

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Why a host does not deliver though it could. They begin what [Host.Degraded]
// says. // Q17, Q17a.
const (
	// ReasonRestorePending: the store went back in time. What it says is still
	// to be sent may have been sent; see [Host.RecoverRestore].
	ReasonRestorePending = "restore_pending"
	// ReasonNoMemory: this host remembers nothing of a store that has been
	// used, so it could not tell; see [Host.RecoverAdopt].
	ReasonNoMemory = "no_memory"
	// ReasonFailoverPending: the store is another one than it was, and hosts
	// that may have seen more of the old one have half a minute to say so.
	ReasonFailoverPending = "failover_pending"
	// ReasonUnreached: the last heartbeat is too long ago.
	ReasonUnreached = "store_unreached"
)

// behindBy is what a host adds to the claims that it remembers when it finds the
// store behind them: claims that are made meanwhile, by hosts that do not know,
// must not hide it from those that compare later.
const behindBy = 1 << 20

// sighting is what a host saw of the store in one heartbeat.
type sighting struct {
	in  storage.Incarnation
	now time.Time // the store's clock
	// last is the latest heartbeat of any host before.
	last time.Time
	// others are the other hosts that live, read before in.
	others []storage.HostRow
	// before is what this host remembered of the claims when it asked for in:
	// a claim of its own may have come between.
	before int64
	at     time.Duration // on the host's own clock
	// lost: the store is another server, and a claim that this host sent from is
	// not in it.
	lost bool
}

// incarnations decides whether the store is the one that this host knows, no
// earlier than it knows it. // Q17.
type incarnations struct {
	dir string // empty: nothing is kept
	log *slog.Logger
	// owner is by which name this host claims.
	owner string

	mu     sync.Mutex
	file   memoryFile
	memory *remembered // nil: none
	loaded bool
	// reason is why nothing may be sent; empty: it may. It is ReasonUnreached
	// until the store was seen.
	reason string
	// short: a restore was settled for less than this host remembers.
	short bool
	// first is when the store's clock first told the time to this host, and
	// changed when this host first saw that it is another one.
	first   time.Time
	changed time.Duration
}

func newIncarnations(dir string, log *slog.Logger) *incarnations {
	return &incarnations{dir: dir, log: log, reason: ReasonUnreached, changed: -1}
}

// blocked says why nothing may be sent, and what would help; empty: it may.
func (i *incarnations) blocked() (reason, hint string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch i.reason {
	case ReasonRestorePending:
		hint = "the store is behind what a host has seen of it: it was restored from a backup or lost its last writes. Nothing is sent until fencepost recover restore"
		if i.short {
			hint += " is said with the state_dir of this host, " + i.dir + ": it was settled with that of one that remembers less"
		}
	case ReasonNoMemory:
		hint = "state_dir holds nothing about this store, which has been delivered from before. Nothing is sent until another host that lives knows it, or fencepost recover adopt"
	case ReasonFailoverPending:
		hint = "the store is another server than before. Nothing is sent until every host has had the time to compare"
	case ReasonUnreached:
		hint = "no heartbeat has reached the store for a while. Nothing is sent until one does"
	}
	return i.reason, hint
}

// claims is how far the store had come as far as this host remembers.
func (i *incarnations) claims() int64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.remembers()
}

// load reads what is remembered of a store, once.
func (i *incarnations) load(store string) {
	if i.loaded && i.memory != nil && i.memory.Store != store {
		i.loaded, i.memory = false, nil
	}
	if i.loaded || i.dir == "" {
		return
	}
	i.file, i.loaded = newMemoryFile(i.dir, store), true
	m, err := i.file.load(store)
	switch {
	case errors.Is(err, errDamaged):
		i.log.Error("what this host remembers of the store is damaged and not used: it delivers as one without memory", "file", i.file.path)
	case err != nil:
		i.log.Error("what this host remembers of the store cannot be read: it delivers as one without memory", "file", i.file.path, "error", err)
	default:
		i.memory = m
	}
}

// see compares the store with what is remembered, in a heartbeat.
func (i *incarnations) see(s sighting) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.load(s.in.Store); i.first.IsZero() {
		i.first, s.before = s.now, i.remembers() // it has sent nothing yet
	}
	was := i.reason
	i.reason = i.judge(s)
	if i.reason != was && i.reason != "" {
		i.log.Error("delivery stops", "reason", i.reason, "claims", s.in.Claims, "remembered", i.remembers())
	}
	switch i.reason {
	case "":
		i.short = false
		if was != "" {
			i.log.Info("delivery may go on", "claims", s.in.Claims)
		}
		return i.remember(remembered{}.orNew(i.memory).at(s.in))
	case ReasonRestorePending:
		return i.fallBehind(s)
	}
	return nil
}

// orNew returns what m points to, or the receiver.
func (m remembered) orNew(p *remembered) remembered {
	if p == nil {
		return m
	}
	m = *p
	m.Behind, m.Since, m.Noticed = false, time.Time{}, time.Time{}
	return m
}

// remembers is how far the store had come; the caller holds the lock.
func (i *incarnations) remembers() int64 {
	if i.memory == nil {
		return 0
	}
	return i.memory.Claims
}

// judge says why nothing may be sent to whom this store says.
func (i *incarnations) judge(s sighting) string {
	ahead := false // another host has seen more of the store than there is
	vouched := false
	for _, h := range s.others {
		ahead = ahead || h.Claims > s.in.Claims
		// A row that came with a backup does not move.
		vouched = vouched || (h.Claims > 0 && h.BeatAt.After(i.first))
	}
	m := i.memory
	settled := m != nil && s.in.Restores > m.Restores && s.in.Claims >= s.before &&
		// What was settled for an earlier restore than this host noticed, and what
		// was adopted, leaves pending what was sent in between.
		(!m.Behind || !s.in.RestoredThrough.Before(m.Noticed))
	switch {
	case ahead, s.in.Claims < s.before, s.lost && !settled, m != nil && m.Behind && !settled:
		return ReasonRestorePending
	case m == nil && s.in.Claims > 0 && !vouched:
		return ReasonNoMemory
	case m != nil && !settled && i.another(s):
		return ReasonFailoverPending
	}
	i.changed = -1
	return ""
}

// differs reports whether a store is another server than was remembered, or the
// same after a promotion.
func (m remembered) differs(in storage.Incarnation) bool {
	return (in.System != "" && m.System != "" && in.System != m.System) ||
		(in.Timeline != 0 && m.Timeline != 0 && in.Timeline != m.Timeline)
}

// another reports whether the store is another server, or the same after a
// promotion, since too short a time for every host to have said what it knows.
func (i *incarnations) another(s sighting) bool {
	m := i.memory
	if !m.differs(s.in) {
		return false
	}
	if i.changed < 0 {
		i.changed = s.at
	}
	return s.at-i.changed < hostTTL
}

// witnesses are what must be in the store if it is another server than before.
func (i *incarnations) witnesses(in storage.Incarnation) []witness {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.load(in.Store); i.memory == nil || !i.memory.differs(in) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(i.memory.Last[:]), func(w witness) bool { return w.Item == 0 })
}

// fallBehind remembers that the store went back.
func (i *incarnations) fallBehind(s sighting) error {
	m := remembered{Store: s.in.Store}
	if i.memory != nil {
		m = *i.memory
	}
	if m.Since.IsZero() {
		m.Since = s.last
	}
	if m.Noticed.IsZero() {
		m.Noticed = s.now
	}
	if (s.lost || s.in.Claims < m.Claims) && !m.Behind {
		m.Claims = max(m.Claims, s.in.Claims) + behindBy
	}
	// A restore that was settled for less than what this host knows is none.
	if i.memory != nil && i.memory.Behind && s.in.Restores > i.memory.Restores && !i.short {
		i.short = true
		i.log.Error("the restore was settled with the state_dir of a host that remembers less: fencepost recover restore has to be said with this one's",
			"state_dir", i.dir, "claims", s.in.Claims, "remembered", i.memory.Claims)
	}
	m.Behind, m.Restores = true, s.in.Restores
	for _, h := range s.others {
		m.Claims = max(m.Claims, h.Claims)
	}
	return i.remember(m)
}

// remember saves m where it differs from what is saved.
func (i *incarnations) remember(m remembered) error {
	if i.memory != nil && *i.memory == m {
		return nil
	}
	if i.dir == "" {
		i.memory = &m
		return nil
	}
	saved, err := i.file.save(m)
	if err != nil {
		return err
	}
	i.memory = &saved
	return nil
}

// errBehind is why a page was not sent.
var errBehind = errors.New("the store is not the one that this host knows")

// allow is asked after a claim and before the first send of its page: before is
// what was remembered when the claim was asked for. When it returns nil, what it
// saw is on the disk. // Q17.
func (i *incarnations) allow(claim storage.Claim, before int64) error {
	in := claim.Incarnation
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.reason != "" {
		return fmt.Errorf("%w: %s", errBehind, i.reason)
	}
	if i.memory == nil || in.Store != i.memory.Store || i.memory.differs(in) {
		i.reason = ReasonUnreached // the next heartbeat says what it is
		return fmt.Errorf("%w: %s", errBehind, i.reason)
	}
	m := i.memory.saw(claim, i.owner)
	if in.Claims > before {
		return i.remember(m)
	}
	m.Claims += behindBy
	i.reason, m.Behind = ReasonRestorePending, true
	i.log.Error("delivery stops", "reason", i.reason, "claims", in.Claims, "remembered", before)
	return errors.Join(fmt.Errorf("%w: %s", errBehind, i.reason), i.remember(m))
}
