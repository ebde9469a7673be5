// Package buffer counts usage in memory and writes it to a store in batches.
//
// Counting is for usage that is too frequent to be recorded event by event and
// may be lost with the machine: what was counted since the last flush dies with
// the process. Nothing else loses or doubles anything. A batch keeps its id until
// the store has said that it is applied, however often that takes, and a store
// applies an id once.
package buffer

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/engine/period"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Slot says where usage of one name counts at a time.
type Slot struct {
	Period period.Period
	// Revision of the subscription that the period came from.
	Revision int64
	// Signed: the feature takes negative quantities.
	Signed bool
}

// Config is what counters are made of. Store, Slot and Revisions are required.
type Config struct {
	Store storage.CounterStore
	// Slot says where usage of a name counts at a time, or refuses to count
	// it. It is asked once for each step of a name's history.
	Slot func(ctx context.Context, tenant, feature string, at time.Time) (Slot, error)
	// Revisions reads the present revisions of tenants' subscriptions from the
	// store; zero, or absent, for a tenant without one.
	Revisions func(ctx context.Context, tenants []string) (map[string]int64, error)
	// NewID draws the ids of batches, unique over all hosts.
	NewID func() string
	// Owner names this host in what it writes.
	Owner string
	// Timeout bounds the writing of one batch. Zero: 10 s.
	Timeout time.Duration
	// Max bounds the counters held in memory, with those that the store
	// refused. Zero: 1,000,000.
	Max int64
	Now func() time.Time
	// Took is told how long each batch took to write.
	Took   func(time.Duration)
	Logger *slog.Logger
}

// Counters count. They are safe for concurrent use; the zero value is not
// usable.
type Counters struct {
	cfg     Config
	entries sync.Map // name → *entry
	cells   atomic.Int64
	refused atomic.Int64 // counters of batches that the store refused

	// gate is held shared while a cell is made and exclusively to stop.
	gate    sync.RWMutex
	stopped bool

	flushing chan struct{} // holds a token while nobody flushes
	mu       sync.Mutex
	pending  []storage.FlushBatch // written by whoever holds the token
	// refusals is how many counters a pending batch holds that was refused.
	refusals map[string]int64
	// doubts says when the first attempt began to write a pending batch of
	// which the outcome is unknown; unknown are the batches for which that is
	// too long ago to write them again.
	doubts  map[string]time.Time
	unknown []storage.FlushBatch
	// flushed is when the last flush that left nothing pending began.
	flushed time.Time
}

// believable is how long after the first attempt of unknown outcome a batch may be
// written again. A store keeps the receipts of batches for a day at least; after
// that it would not know a batch that it has applied.
const believable = 23 * time.Hour

// New returns counters. It starts nothing: see [Counters.Run].
func New(cfg Config) *Counters {
	if cfg.Timeout == 0 {
		cfg.Timeout = 10 * time.Second
	}
	if cfg.Max == 0 {
		cfg.Max = 1_000_000
	}
	c := &Counters{cfg: cfg, flushing: make(chan struct{}, 1), doubts: map[string]time.Time{}, refusals: map[string]int64{}}
	c.flushing <- struct{}{}
	c.flushed = cfg.Now()
	return c
}

// FlushedThrough is an instant, by Now, such that everything that was counted
// before it is in the store, but for what a call of Track that has not returned
// may still count. It does not move while a batch waits to be written.
func (c *Counters) FlushedThrough() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.flushed
}

// Track counts q of a feature for a tenant now. It does no I/O but for the
// tenant's subscription, the first time. It fails if Slot refuses the name, for a
// negative q where the feature is not signed, and with tag unavailable when too
// many counters are held ("overloaded") or after Stop ("closed"); nothing was
// counted then.
func (c *Counters) Track(ctx context.Context, tenant, feature string, q decimal.Decimal) error {
	now := c.cfg.Now()
	n := name{tenant, feature}
	l, m := laneOf(q)
	if l == wide { // only these can be wider than a quantity may be
		if _, err := decimal.Parse(q.String()); err != nil {
			return sdk.Invalid("quantity", err.Error())
		}
	}
	if v, ok := c.entries.Load(n); ok {
		e := v.(*entry) //nolint:errcheck // the only type that is stored
		if cl := e.current.Load(); cl != nil && cl.covers(now.UnixNano()) {
			if (m < 0 || l == wide && q.Sign() < 0) && !cl.signed {
				return negative()
			}
			if cl.add(q, l, m) {
				return nil
			}
		}
	}
	return c.trackSlowly(ctx, n, q, now)
}

// trackSlowly counts where no cell was found.
func (c *Counters) trackSlowly(ctx context.Context, n name, q decimal.Decimal, now time.Time) error {
	l, m := laneOf(q)
	for {
		slot, err := c.cfg.Slot(ctx, n.tenant, n.feature, now)
		if err != nil {
			return err
		}
		if q.Sign() < 0 && !slot.Signed {
			return negative()
		}
		cl, err := c.cell(n, now, slot)
		if err != nil {
			return err
		}
		if cl != nil && cl.add(q, l, m) {
			return nil
		}
		// The cell died between finding and adding, or the entry was removed.
		if err := ctx.Err(); err != nil {
			return &sdk.Error{Tag: sdk.TagUnavailable, Code: "canceled", Rule: "nothing was counted", Err: err}
		}
	}
}

// cell finds or makes the cell that counts now; nil: try again.
func (c *Counters) cell(n name, now time.Time, slot Slot) (*cell, error) {
	c.gate.RLock()
	defer c.gate.RUnlock()
	if c.stopped {
		return nil, closed()
	}
	v, ok := c.entries.Load(n)
	if !ok {
		v, _ = c.entries.LoadOrStore(n, &entry{})
	}
	e := v.(*entry) //nolint:errcheck // the only type that is stored
	cl, room := e.find(n, now, slot, c.room)
	if !room {
		// A name that was made for nothing is not kept: nobody collects while
		// the store does not answer, and there is no end of names.
		if e.abandon() {
			c.entries.CompareAndDelete(n, e)
		}
		return nil, &sdk.Error{Tag: sdk.TagUnavailable, Code: "overloaded", Rule: "fewer counters at the same time; nothing was counted"}
	}
	return cl, nil
}

// room takes a place for one more cell if there is one.
func (c *Counters) room() bool {
	if c.cells.Add(1)+c.refused.Load() <= c.cfg.Max {
		return true
	}
	c.cells.Add(-1)
	return false
}

func negative() error { return sdk.Invalid("quantity", "not negative, unless the feature is signed") }

func closed() error {
	return &sdk.Error{Tag: sdk.TagUnavailable, Code: "closed", Rule: "the engine is closing; nothing was counted"}
}

// Unflushed returns what this host has counted of a name and does not know to be
// in the store, by the start of the period. What a batch holds whose writing has
// an unknown outcome is in it.
func (c *Counters) Unflushed(tenant, feature string) map[time.Time]decimal.Decimal {
	out := map[time.Time]decimal.Decimal{}
	add := func(start time.Time, d decimal.Decimal) {
		if !d.IsZero() {
			out[start] = out[start].Add(d)
		}
	}
	c.mu.Lock()
	for _, b := range slices.Concat(c.pending, c.unknown) {
		for _, k := range b.Counters {
			if k.Tenant == tenant && k.Feature == feature {
				add(k.PeriodStart, k.Value)
			}
		}
	}
	c.mu.Unlock()
	if v, ok := c.entries.Load(name{tenant, feature}); ok {
		e := v.(*entry) //nolint:errcheck // the only type that is stored
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, cl := range e.all() {
			add(cl.key.PeriodStart, cl.peek())
		}
	}
	return out
}

// Run flushes every interval until ctx ends. It does not flush then: Stop does.
func (c *Counters) Run(ctx context.Context, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := c.Flush(ctx); err != nil && ctx.Err() == nil {
			c.cfg.Logger.WarnContext(ctx, "counters were not flushed and stay in memory", "error", err, "batches", c.waiting())
		}
	}
}

// Stop refuses what is tracked from now on and writes what was counted. If that
// fails, or ctx ends first, it says in the log what is lost unless Stop is called
// again, and returns an error of tag unavailable.
func (c *Counters) Stop(ctx context.Context) error {
	c.gate.Lock()
	c.stopped = true
	c.gate.Unlock()
	err := c.Flush(ctx)
	if err == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, b := range c.pending {
		n = c.name(ctx, b, n)
	}
	c.cfg.Logger.ErrorContext(ctx, "counters were not flushed", "counters", n, "batches", len(c.pending), "error", err)
	return &sdk.Error{
		Tag: sdk.TagUnavailable, Code: "unflushed", Err: err,
		Rule: "a store that takes what was counted; see the log for what it was",
	}
}

// name says in the log what a batch holds, the n-th counter on.
func (c *Counters) name(ctx context.Context, b storage.FlushBatch, n int) int {
	for _, k := range b.Counters {
		if n++; n <= maxNamed {
			c.cfg.Logger.ErrorContext(ctx, "counted usage is not known to be written", "batch", b.ID, "tenant", k.Tenant,
				"feature", k.Feature, "period_start", k.PeriodStart, "quantity", k.Value.String())
		}
	}
	return n
}

// maxNamed bounds the lines that Stop writes about what is lost.
const maxNamed = 1000

func (c *Counters) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending)
}

var errRefused = errors.New("the store refused a batch of counters")
