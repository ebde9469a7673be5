package storage

import (
	"context"
	"time"
)

// HostStore is the part of the capability outbox by which hosts know of each
// other, of the store's clock and of its past (Q12, Q16, Q17).
type HostStore interface {
	// Beat notes that a host lives, and samples the clocks. See [Heartbeat].
	Beat(ctx context.Context, b Heartbeat) (HeartbeatResult, error)
	// Hosts returns every host that beat in the last Age, by the store's clock.
	Hosts(ctx context.Context, age time.Duration) ([]HostRow, error)
	// ClockSamples returns samples in the order in which they were taken.
	// Samples older than 48 h, and hosts that last beat so long ago, are removed
	// by Beat.
	ClockSamples(ctx context.Context) ([]ClockSample, error)
	// Hold takes or renews a role for one owner until ttl from now, by the
	// store's clock, and reports whether it holds it. A role that nobody holds,
	// that ended, or that this owner holds is granted. Fence rises with every
	// change of owner. A zero ttl gives it up.
	Hold(ctx context.Context, role, owner string, ttl time.Duration) (Holding, error)
}

// Incarnation says which store this is and how far it has come. A store that
// was restored from a backup is behind what a host remembers of it.
type Incarnation struct {
	// Store is the store's own id: random, made with the schema, at most 64
	// characters. It never changes and is part of a backup, so a copy has the
	// id of what it is a copy of: by it a host finds what it remembers.
	Store string
	// System names the database cluster (PostgreSQL: system identifier) or the
	// file; Timeline rises with every promotion. An adapter that has no such
	// things leaves the store's own id and zero.
	System   string
	Timeline int64
	// Claims is raised by every claim that takes something. It never goes back
	// but by a restore.
	Claims int64
	// Restores counts what [SettlementStore].MarkRestored completed.
	Restores int64
	// RestoredThrough is the latest Before of what it completed, by the store's
	// clock; zero if none. It never goes back but by a restore of the store.
	RestoredThrough time.Time
}

// Heartbeat is what a host says of itself.
type Heartbeat struct {
	Host    string // its owner id
	Version string
	// BootID names the boot of its machine and Boottime is the reading of its
	// clock that runs during suspend. An empty BootID leaves no clock sample.
	BootID   string
	Boottime time.Duration
	// FlushedThrough: every usage that this host counted before this instant
	// (its own clock, the same that decides periods) is in the store. Zero: it
	// counts none.
	FlushedThrough time.Time
	// Claims is what the host remembers of the incarnation.
	Claims int64
	// Noticed is when the host noticed, by the store's clock, that the store went
	// back; zero if it is not behind.
	Noticed time.Time
	// Leaving removes the host instead.
	Leaving bool
}

// HeartbeatResult answers a heartbeat.
type HeartbeatResult struct {
	Now         time.Time // the store's clock
	Incarnation Incarnation
	// LastBeat is the latest beat of any host before this one, hosts that left
	// and this one included; zero if none.
	LastBeat time.Time
}

// HostRow is a host as the others see it.
type HostRow struct {
	Host           string
	Version        string
	StartedAt      time.Time
	BeatAt         time.Time
	FlushedThrough time.Time
	Claims         int64
	Noticed        time.Time
}

// ClockSample is one reading of the store's clock beside that of a machine.
type ClockSample struct {
	Host     string
	BootID   string
	Boottime time.Duration
	StoreAt  time.Time
}

// Holding answers Hold.
type Holding struct {
	Held  bool
	Owner string // who holds it now
	Until time.Time
	Fence int64
}
