package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/host/egress"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	// beatEvery is the time between two heartbeats, and hostTTL how long after
	// its last one a host counts as living.
	beatEvery = 5 * time.Second
	hostTTL   = 30 * time.Second
	// sampleEvery is the time between two samples of the clocks. One more is
	// taken when the store's clock is seen to step by more than stepSeen.
	sampleEvery = time.Minute
	stepSeen    = 250 * time.Millisecond
	// leaveWait bounds the goodbye of a host.
	leaveWait = 2 * time.Second
)

// presence keeps a host known to the others by its heartbeats, and learns from
// them: which hosts live, what the store's clock did, and whether the store is
// the one this host knows. // Q12, Q16, Q17.
type presence struct {
	store   storage.HostStore
	items   storage.OutboxStore
	owner   string
	version string
	boot    string
	clock   func() time.Duration
	// flushed says through which instant everything that was tracked here is in
	// the store; zero: nothing is tracked.
	flushed func() time.Time
	bound   time.Duration // on steps back of the store's clock
	known   *incarnations
	log     *slog.Logger

	// glancing is held during a look of a host without delivery, which at glanced
	// saw glimpse.
	glancing sync.Mutex
	glanced  time.Duration
	glimpse  string

	// beating is held during a heartbeat.
	beating sync.Mutex
	samples []storage.ClockSample
	read    time.Duration       // when samples were read, on clock
	sampled storage.ClockSample // the last one of this host

	mu      sync.Mutex
	beatAt  time.Duration // when the last heartbeat that arrived was begun, on clock
	hosts   int
	trusted time.Time
}

// newPresence returns nil for a store that knows no hosts.
func (h *Host) newPresence() *presence {
	store, ok := storage.As[storage.HostStore](h.store)
	if !ok {
		return nil
	}
	items, _ := h.store.(storage.OutboxStore) // the engine required it
	boot, clock := bootClock(h.owner)
	dir := h.cfg.Settings.StateDir
	if len(h.exporters) == 0 && !h.cfg.WithoutDelivery {
		dir = "" // it sends nothing, so it has nothing to remember
	}
	known := newIncarnations(dir, h.cfg.Logger)
	known.owner = h.owner
	return &presence{
		store: store, items: items, owner: h.owner, version: h.cfg.Version, boot: boot, clock: clock,
		flushed: h.engine.FlushedThrough, bound: time.Duration(h.cfg.Settings.Outbox.BackwardStep),
		known: known, log: h.cfg.Logger,
	}
}

// bootClock returns a clock that nobody sets, and the name of the time in which
// it goes on: the machine's boot where the system tells it, else this process.
func bootClock(owner string) (string, func() time.Duration) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if name := strings.TrimSpace(string(id)); err == nil && name != "" && egress.Elapsed() > 0 {
		return name, egress.Elapsed
	}
	began := time.Now() //nolint:forbidigo // its monotonic reading, which no injected clock has
	return "process/" + owner, func() time.Duration {
		return time.Since(began) + time.Second //nolint:forbidigo // as above
	}
}

// run beats until ctx ends, and then says that this host leaves.
func (p *presence) run(ctx context.Context) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			p.leave(ctx)
			return
		case <-tick.C:
		}
		if err := p.beat(ctx); err != nil && ctx.Err() == nil {
			p.log.WarnContext(ctx, "heartbeat", "error", err)
		}
	}
}

// beat sends one heartbeat, and a second one if the store's clock turns out to
// have been set: then the samples before and after lie close together.
func (p *presence) beat(ctx context.Context) error {
	p.beating.Lock()
	defer p.beating.Unlock()
	ctx, cancel := context.WithTimeout(ctx, beatEvery)
	defer cancel()
	begun := p.clock()
	// The hosts come first: what one of them has seen of the store is then no
	// more than what the heartbeat says, unless the store went back.
	rows, err := p.store.Hosts(ctx, hostTTL)
	if err != nil {
		return fmt.Errorf("read hosts: %w", err)
	}
	due := p.sampled.StoreAt.IsZero() || begun-p.sampled.Boottime >= sampleEvery
	before := p.known.claims()
	_, noticed, _ := p.known.behind()
	now, res, err := p.send(ctx, due)
	if err != nil {
		return err
	}
	if step := now.StoreAt.Sub(p.sampled.StoreAt) - (now.Boottime - p.sampled.Boottime); !due && step.Abs() > stepSeen {
		if now, res, err = p.send(ctx, true); err != nil {
			return err
		}
		p.log.WarnContext(ctx, "the store's clock was set", "by", step.String())
	}
	if err := p.readSamples(ctx); err != nil {
		return err
	}
	seen := sighting{in: res.Incarnation, now: res.Now, last: res.LastBeat, before: before, at: now.Boottime}
	for _, r := range rows {
		if r.Host != p.owner {
			seen.others = append(seen.others, r)
		}
	}
	if seen.lost, err = p.lost(ctx, res.Incarnation); err != nil {
		return err
	}
	if err := p.known.see(seen); err != nil {
		return err
	}
	if _, at, _ := p.known.behind(); !at.Equal(noticed) {
		// Whoever settles it now must know.
		if _, _, err := p.send(ctx, false); err != nil {
			return err
		}
	}
	trusted := outbox.TrustedSince(p.samples, p.bound, now)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beatAt, p.hosts, p.trusted = begun, len(seen.others)+1, trusted
	return nil
}

// lost reports whether a store that is another server than before lacks a claim
// that this host has sent from. The servers' logs are prefixes of each other, so a
// server that has the last claims has all before them. // Q17.
func (p *presence) lost(ctx context.Context, in storage.Incarnation) (bool, error) {
	for _, w := range p.known.witnesses(in) {
		d, err := p.items.LoadItem(ctx, w.Item)
		switch {
		case errors.Is(err, sdk.ErrNotFound):
			return true, nil
		case err != nil:
			return false, fmt.Errorf("look for the last claims: %w", err)
		case w.missing(&d):
			return true, nil
		}
	}
	return false, nil
}

// send sends a heartbeat and returns the reading of the clocks that it made.
func (p *presence) send(ctx context.Context, sample bool) (storage.ClockSample, storage.HeartbeatResult, error) {
	b := storage.Heartbeat{Host: p.owner, Version: p.version, Claims: p.known.claims(), FlushedThrough: p.flushed()}
	_, b.Noticed, _ = p.known.behind()
	at := p.clock()
	if sample {
		b.BootID, b.Boottime = p.boot, at
	}
	res, err := p.store.Beat(ctx, b)
	if err != nil {
		return storage.ClockSample{}, res, fmt.Errorf("heartbeat: %w", err)
	}
	now := storage.ClockSample{Host: p.owner, BootID: p.boot, Boottime: at, StoreAt: res.Now}
	if sample {
		p.sampled = now
		p.read = 0 // what is stored has changed
	}
	return now, res, nil
}

// readSamples reads what all hosts sampled if that is a minute old.
func (p *presence) readSamples(ctx context.Context) error {
	now := p.clock()
	if p.read > 0 && now-p.read < sampleEvery {
		return nil
	}
	samples, err := p.store.ClockSamples(ctx)
	if err != nil {
		return fmt.Errorf("read clock samples: %w", err)
	}
	p.samples, p.read = samples, now
	return nil
}

// leave says goodbye, so that the others need not wait.
func (p *presence) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWait)
	defer cancel()
	_, err := p.store.Beat(ctx, storage.Heartbeat{Host: p.owner, Version: p.version, Claims: p.known.claims(), Leaving: true})
	if err != nil {
		p.log.WarnContext(ctx, "say that this host leaves", "error", err)
	}
}

// reached reports whether a heartbeat arrived lately.
func (p *presence) reached() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hosts > 0 && p.clock()-p.beatAt < hostTTL
}

// Blocked says why this host may send nothing now; empty: it may.
func (p *presence) blocked() (reason, hint string) {
	if reason, hint = p.known.blocked(); reason == "" && !p.reached() {
		return ReasonUnreached, "no heartbeat has reached the store for a while. Nothing is sent until one does"
	}
	return reason, hint
}

// living is the number of hosts that share a destination's rate, this one
// included. // Q12.
func (p *presence) living() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.hosts, 1)
}

// trustedSince is the instant since which the store's clock can be trusted. // Q16.
func (p *presence) trustedSince() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trusted
}

// trustedSince is since when the store's clock can be trusted, for people who
// settle items: a host without delivery looks when it is asked.
func (h *Host) trustedSince() time.Time {
	p := h.presence
	if p == nil {
		return time.Time{}
	}
	if at := p.trustedSince(); !at.IsZero() {
		return at
	}
	ctx, cancel := context.WithTimeout(context.Background(), beatEvery)
	defer cancel()
	s, err := p.sight(ctx)
	if err != nil {
		p.log.WarnContext(ctx, "look at the store's clock", "error", err)
		return h.cfg.Now().Add(outbox.ClockReach) // nothing is trusted
	}
	samples, err := p.store.ClockSamples(ctx)
	if err != nil {
		p.log.WarnContext(ctx, "read clock samples", "error", err)
		return s.now.Add(outbox.ClockReach)
	}
	return outbox.TrustedSince(samples, p.bound, storage.ClockSample{Host: p.owner, BootID: p.boot, Boottime: s.at, StoreAt: s.now})
}

// gate is what one deliverer asks of a host's presence. It is used by one
// goroutine.
type gate struct {
	*presence
	// before is what was remembered when the last claim was asked for.
	before int64
}

// routes returns the routes to claim from: none while nothing may be sent.
func (g *gate) routes(served func() []int64) []int64 {
	if reason, _ := g.blocked(); reason != "" {
		return nil
	}
	return served()
}

// trusted is asked right before each claim.
func (g *gate) trusted() time.Time {
	g.before = g.known.claims()
	return g.trustedSince()
}

// allow is asked before the first send of what a claim took.
func (g *gate) allow(_ context.Context, claim storage.Claim) error {
	return g.known.allow(claim, g.before)
}
