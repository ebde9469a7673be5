package outbox

import (
	"context"
	"log/slog"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Observer is told what a deliverer does, for metrics. Its methods are called
// from the deliverer's goroutine and must not block.
type Observer interface {
	// Delivered: an item left the state leased for this one.
	Delivered(state storage.ItemState, took time.Duration)
	// Stale: so many conditional updates changed nothing.
	Stale(items int)
	// Lied: so many answers were excluded by the host's evidence.
	Lied(items int)
	// Paused: nothing is claimed for this destination for that long.
	Paused(reason PauseReason, d time.Duration)
}

// PauseReason says why a deliverer stopped claiming for a while.
type PauseReason string

// The reasons of a pause.
const (
	PausedThrottled PauseReason = "throttled"
	PausedBreaker   PauseReason = "breaker"
)

// Config is what a deliverer works with. Store, Sender, Destination, Routes,
// Owner, Now, Boottime and Uniform are required.
type Config struct {
	Store       storage.OutboxStore
	Sender      Sender
	Destination Destination
	// Routes returns the ids of the destination's routes. None: nothing to do.
	Routes func() []int64
	// Owner names this worker in leases and attempts: random for each process.
	Owner string

	Page  int           // items in one claim at most; 0: 100
	Lease time.Duration // 0: 120 s
	Tick  time.Duration // pause after an empty claim; 0: 1 s
	// Horizon is how long an unresolved item may be sent again; the smaller
	// of this and the manifest's counts, zero being none.
	Horizon time.Duration
	Retry   Retry
	// Rate is the operator's limit in requests per second; the smaller of
	// this and the manifest's counts, zero being none. Hosts is how many
	// live hosts share it; nil: one.
	Rate  int
	Hosts func() int
	// TrustedSince is asked before each claim for an instant of the store's
	// clock: how long ago anything before it was cannot be told, see
	// [TrustedSince]. nil, or the zero time: no such rule. // Q16
	TrustedSince func() time.Time
	// BeforeSend is called after each claim that took something and before its
	// first send, with what the claim answered. If it fails
	// nothing is sent: what was claimed is handed back. nil: nobody is asked.
	// // Q17
	BeforeSend func(ctx context.Context, claim storage.Claim) error
	// Trusted takes the plugin's word that something was not taken.
	Trusted bool
	// Grace bounds what goes on after the context is done: requests in
	// flight, and then the writing of outcomes. 0: 10 s each.
	Grace time.Duration

	// Now is the wall clock, for the attempt log and time windows only.
	Now func() time.Time
	// Boottime is a clock that never steps and goes on while the machine
	// sleeps (CLOCK_BOOTTIME on Linux); only differences count.
	Boottime func() time.Duration
	// Uniform returns a random number in [0, n). It is not for secrets.
	Uniform func(n int64) int64

	Logger   *slog.Logger // nil: discarded
	Observer Observer     // nil: nobody
}

// Deliverer moves the items of one destination. Run and Once are for one
// goroutine at a time; any number of deliverers, in any number of processes,
// may work on one destination.
type Deliverer struct {
	cfg     Config
	breaker breaker
	// limitedUntil is when claiming may go on after a rate limit, on the
	// boottime clock.
	limitedUntil time.Duration
}

// Summary is what one pass did.
type Summary struct {
	Claimed   int
	Exhausted int // moved to uncertain by the claim, not sent
	Sent      int // handed to the sender
	Released  int // handed back unsent
	// States counts the items that this pass moved, by where they landed.
	States map[storage.ItemState]int
	Stale  int
	Lied   int
	// Pause is how long nothing will be claimed for this destination.
	Pause time.Duration
	// More is set if another claim may find work at once.
	More bool
}

// NewDeliverer checks the configuration and fills in defaults. It fails with
// tag invalid, naming the field.
func NewDeliverer(cfg Config) (*Deliverer, error) {
	missing := []struct {
		field  string
		absent bool
	}{
		{"store", cfg.Store == nil},
		{"sender", cfg.Sender == nil},
		{"destination.exporter", cfg.Destination.Exporter == ""},
		{"routes", cfg.Routes == nil},
		{"owner", cfg.Owner == ""},
		{"now", cfg.Now == nil},
		{"boottime", cfg.Boottime == nil},
		{"uniform", cfg.Uniform == nil},
	}
	for _, m := range missing {
		if m.absent {
			return nil, sdk.Invalid(m.field, "required")
		}
	}
	if cfg.Page < 0 || cfg.Lease < 0 || cfg.Tick < 0 || cfg.Horizon < 0 || cfg.Grace < 0 || cfg.Rate < 0 {
		return nil, sdk.Invalid("page, lease, tick, horizon, grace, rate", "not negative")
	}
	cfg.Page = orDefault(cfg.Page, 100)
	cfg.Lease = orDefault(cfg.Lease, 120*time.Second)
	cfg.Tick = orDefault(cfg.Tick, time.Second)
	cfg.Grace = orDefault(cfg.Grace, 10*time.Second)
	cfg.Retry = cfg.Retry.withDefaults()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Observer == nil {
		cfg.Observer = nobody{}
	}
	cfg.Logger = cfg.Logger.With("exporter", cfg.Destination.Exporter, "mode", cfg.Destination.Mode)
	return &Deliverer{cfg: cfg, breaker: breaker{retry: cfg.Retry}}, nil
}

func orDefault[T int | time.Duration](v, d T) T {
	if v == 0 {
		return d
	}
	return v
}

// Run passes until ctx is done, then returns nil. It stops claiming at once;
// items not sent are handed back, and the outcomes of requests in flight are
// still written, within Grace. A failing store is retried for ever, with the
// backoff of Retry.
func (d *Deliverer) Run(ctx context.Context) error {
	failures := 0
	for ctx.Err() == nil {
		sum, err := d.Once(ctx)
		wait := d.cfg.Tick
		switch {
		case err != nil:
			failures++
			wait = max(wait, min(d.cfg.Retry.Backoff(failures, d.cfg.Uniform), time.Minute))
			d.cfg.Logger.ErrorContext(ctx, "delivery pass", "error", err, "again_in", wait)
		case sum.Pause > 0:
			failures, wait = 0, sum.Pause
		case sum.More:
			failures, wait = 0, 0
		default:
			failures = 0
		}
		if !sleep(ctx, wait) {
			return nil
		}
	}
	return nil
}

// sleep waits and reports whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// rate is the number of requests a second that this host may make; 0: no limit.
func (d *Deliverer) rate() float64 {
	r := smaller(d.cfg.Rate, d.cfg.Sender.Manifest().Rate)
	if d.cfg.Hosts == nil || r == 0 {
		return float64(r)
	}
	return float64(r) / float64(max(d.cfg.Hosts(), 1))
}

func (d *Deliverer) horizon() time.Duration {
	return smaller(d.cfg.Horizon, d.cfg.Sender.Manifest().IdentifierHorizon)
}

// smaller of two limits, zero being none.
func smaller[T int | time.Duration](a, b T) T {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}

// sendShare is the part of a lease in which requests may be made; the rest is
// for writing the outcomes.
func sendShare(lease time.Duration) time.Duration { return lease / 4 * 3 }

// limit is how many items to claim: no more than can be sent inside the lease,
// and a single probe while the breaker is half open.
func (d *Deliverer) limit() int {
	n := d.cfg.Page
	if r := d.rate(); r > 0 {
		n = min(n, max(int(r*sendShare(d.cfg.Lease).Seconds()), 1))
	}
	if d.breaker.failures > 0 {
		n = 1
	}
	return n
}

type nobody struct{}

func (nobody) Delivered(storage.ItemState, time.Duration) {}
func (nobody) Stale(int)                                  {}
func (nobody) Lied(int)                                   {}
func (nobody) Paused(PauseReason, time.Duration)          {}
