package engine

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/fencepost/fencepost/engine/buffer"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Buffer says how tracked usage is kept in memory and written. The zero value is
// a working default.
type Buffer struct {
	// FlushEvery is the time between two flushes. Zero: 5 s. Negative: only
	// when [Engine.FlushTracked] is called, and at the end.
	FlushEvery time.Duration
	// Timeout bounds the writing of one batch, and what [Engine.Close] waits.
	// Zero: 10 s.
	Timeout time.Duration
	// Max bounds the counters in memory. Zero: 1,000,000.
	Max int64
	// Host names this host in what it writes. Empty: "host".
	Host string
	// NewID draws the ids of batches, unique over all hosts. Nil: a random
	// UUID.
	NewID func() string
}

func (b Buffer) withDefaults() Buffer {
	if b.FlushEvery == 0 {
		b.FlushEvery = 5 * time.Second
	}
	if b.Timeout == 0 {
		b.Timeout = 10 * time.Second
	}
	if b.Host == "" {
		b.Host = "host"
	}
	if b.NewID == nil {
		b.NewID = randomUUID
	}
	return b
}

// randomUUID is a UUID of version 4.
func randomUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Track counts a quantity of a buffered feature for a tenant, at the time of the
// call and in the tenant's billing period of then. It takes about as long as a
// look-up in a map.
//
// What is tracked is in memory until the next flush, by default for at most
// five seconds, and is lost if the process is killed before; see
// docs/guarantees.md. Nothing tells one call from another, so a call that is
// repeated counts twice. Use [Engine.Record] for facts that have an id.
//
// A tenant's changed subscription applies at the latest from the flush after the
// change.
//
// # Errors
//
// Whatever the error, nothing was counted. Invalid: the feature is not buffered
// (code "not_buffered"), the tenant or the quantity breaks a rule. Unsupported:
// the store keeps no counters. Unavailable: the engine is closing ("closed"),
// too many counters are in memory ("overloaded"), or the tenant's subscription
// could not be read.
func (e *Engine) Track(ctx context.Context, tenant, feature string, quantity decimal.Decimal) error {
	if e.counters == nil {
		_, err := need[storage.CounterStore](e.cfg.Store, storage.Counters)
		return err
	}
	return e.counters.Track(ctx, tenant, feature, quantity) //nolint:wrapcheck // the engine's own, and on the hot path
}

// FlushTracked writes what was tracked before the call. On an error it stays in
// memory and is written by a later flush, once.
func (e *Engine) FlushTracked(ctx context.Context) error {
	if e.counters == nil {
		return nil
	}
	return e.counters.Flush(ctx) //nolint:wrapcheck // the engine's own
}

// FlushedThrough is an instant, by the engine's clock, such that everything that
// [Engine.Track] counted here before it is in the store; zero if it counts
// nothing. A call of Track that has not returned may still count before it.
func (e *Engine) FlushedThrough() time.Time {
	if e.counters == nil || !e.counts() {
		return time.Time{}
	}
	return e.counters.FlushedThrough()
}

// counts reports whether this engine has features that may be tracked.
func (e *Engine) counts() bool {
	for _, f := range e.cfg.Features {
		if f.Buffered || !f.Cutover.IsZero() {
			return true
		}
	}
	return false
}

// StopTracking refuses what is tracked from now on, with tag unavailable and
// code "closed", and writes what was tracked before. If that fails or ctx ends
// first it answers unavailable, code "unflushed", and the log names what is lost
// unless it is called again. Recording goes on.
func (e *Engine) StopTracking(ctx context.Context) error {
	e.flusher.end()
	if e.counters == nil {
		return nil
	}
	return e.counters.Stop(ctx) //nolint:wrapcheck // the engine's own
}

// startCounting prepares the counters, and the flusher if something will be
// counted.
func (e *Engine) startCounting() {
	st, err := need[storage.CounterStore](e.cfg.Store, storage.Counters)
	if err != nil {
		return
	}
	b := e.cfg.Buffer
	e.counters = buffer.New(buffer.Config{
		Store: st, Slot: e.slot, Revisions: e.revisions, NewID: b.NewID, Owner: b.Host, Timeout: b.Timeout, Max: b.Max,
		Now: e.cfg.Now, Took: e.cfg.Observer.FlushTook, Logger: e.cfg.Logger,
	})
	if e.counts() && b.FlushEvery > 0 {
		e.flusher.start(func(ctx context.Context) { e.counters.Run(ctx, b.FlushEvery) })
	}
}

func (e *Engine) stopCounting() {
	ctx, cancel := context.WithTimeout(context.Background(), e.cfg.Buffer.Timeout)
	defer cancel()
	_ = e.StopTracking(ctx) // it has logged what is lost
}

// slot says where usage of a feature counts at a time.
func (e *Engine) slot(ctx context.Context, tenant, feature string, at time.Time) (buffer.Slot, error) {
	f := e.cfg.feature(feature)
	switch {
	case tenant == "" || !plainText(tenant, meter.MaxID):
		return buffer.Slot{}, sdk.Invalid("tenant", "1 to 128 bytes of UTF-8 without control characters")
	case !f.Buffered && f.Cutover.IsZero():
		return buffer.Slot{}, &sdk.Error{
			Tag: sdk.TagInvalid, Code: "not_buffered", Field: "feature", Rule: "a feature whose source is buffered",
			Hint: "record an event, or set features.NAME.source to buffered",
		}
	}
	found, err := e.subjects.of(ctx, []string{tenant})
	if err != nil {
		return buffer.Slot{}, tagged(ctx, err)
	}
	r := recorder{engine: e, store: e.store, subjects: e.subjects}
	if err := r.withCutovers(ctx, found, []cutoverKey{{tenant, feature}}); err != nil {
		return buffer.Slot{}, tagged(ctx, err)
	}
	s := found[tenant]
	if !f.Buffered && !s.counted(feature, s.calendar.At(at).Start) {
		return buffer.Slot{}, &sdk.Error{
			Tag: sdk.TagInvalid, Code: "not_buffered", Field: "feature", Rule: "a period that the counter of the feature reports; this one is reported from events",
			Hint: "record an event",
		}
	}
	return buffer.Slot{Period: s.calendar.At(at), Revision: s.sub.Revision, Signed: f.Signed}, nil
}

// revisions reads the revisions of subscriptions, and forgets the tenants that
// are remembered with another.
func (e *Engine) revisions(ctx context.Context, tenants []string) (map[string]int64, error) {
	found, err := e.store.subs.Subscriptions(ctx, tenants)
	if err != nil {
		return nil, fmt.Errorf("read subscriptions: %w", err)
	}
	now := make(map[string]int64, len(found))
	for _, s := range found {
		now[s.Tenant] = s.Revision
	}
	e.subjects.check(now, tenants)
	return now, nil
}

// flusher runs one loop until it is ended.
type flusher struct {
	once   sync.Once
	cancel context.CancelFunc
	done   chan struct{}
}

func (f *flusher) start(run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel, f.done = cancel, make(chan struct{})
	go func() {
		defer close(f.done)
		defer cancel()
		run(ctx)
	}()
}

// end stops the loop, if there is one, and waits for it.
func (f *flusher) end() {
	if f.done == nil {
		return
	}
	f.once.Do(f.cancel)
	<-f.done
}
