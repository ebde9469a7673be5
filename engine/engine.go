// Package engine is what metering means: it validates and canonicalises events,
// assigns their billing period, computes what has to be reported of them, and
// hands all of it to a store in one transaction. It knows no database, no
// provider and no transport.
package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/fencepost/fencepost/engine/buffer"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Event is a fact to record, in the project's own form.
type Event = meter.PlainEvent

// Config is what an engine is made of. Store is required; the zero value of
// every other field is a documented default.
type Config struct {
	// Store must declare durable_events, subscriptions and outbox.
	Store storage.Adapter
	// Meters turn CloudEvents into usage. The zero set matches nothing.
	Meters meter.Set
	// Features says how features are measured, by name. One that is absent
	// has the zero value.
	Features map[string]Feature
	// Manifests are those of the exporters that this host runs, by configured
	// name. Routes in the store decide what is reported; a manifest says what
	// the provider can express.
	Manifests map[string]exporter.Manifest
	// AttemptBudget is how often an item may be tried. Zero: 20.
	AttemptBudget int
	// RecordTimeout bounds one call of Record. Zero: 15 s.
	RecordTimeout time.Duration
	// RecordConcurrency is how many calls of Record and Correct may run at the
	// same time; one more is refused at once, with tag unavailable and code
	// "overloaded". Zero: 64. Negative: any number. A [Bound] is not counted:
	// it works on a connection that its caller holds.
	RecordConcurrency int
	// Coalesce is the number of flushers that gather concurrent one-event
	// calls into batches. Zero: 1. Negative: every call has a transaction of
	// its own.
	Coalesce int
	// CreditMeters are what tenants have a balance of. Empty: each feature with
	// buckets is one, without renewal.
	CreditMeters []CreditMeter
	// Buffer says how usage that [Engine.Track] counts is kept and written.
	Buffer Buffer
	// Recovery bounds what people may do with outbox items.
	Recovery Recovery
	// Changed is told, after the commit, of what makes the balance of a tenant
	// another one than it was: usage of closed buckets, corrections, credits and
	// renewals of this engine, not those in the transaction of a [Bound]. It may
	// be called from several goroutines and must not block. Nil: nobody.
	Changed func(Change)
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
	// Logger receives what an operator should know. Nil: discarded.
	Logger *slog.Logger
	// Observer receives counts and times. Nil: none.
	Observer Observer
}

// Observer is told what recording did. Its methods must not block.
type Observer interface {
	// Recorded counts n events with one outcome.
	Recorded(outcome string, n int)
	// RecordTook notes the time of one call.
	RecordTook(d time.Duration)
	// FlushTook notes the time in which one batch of counters was written.
	FlushTook(d time.Duration)
}

// Engine records and reads usage. It is safe for concurrent use.
type Engine struct {
	cfg      Config
	store    stores
	subjects *subjects
	gather   *coalescer
	calls    calls
	counters *buffer.Counters // nil if the store has none
	// report is nil if the store does not report counters.
	report   storage.ReportStore
	cutovers cutovers
	cuts     bool // a feature has a cutover
	flusher  flusher
	reducers reducers
}

// stores are the capabilities that recording needs.
type stores struct {
	events storage.EventStore
	subs   storage.SubscriptionStore
	routes storage.RouteStore
	items  storage.OutboxStore
	stream storage.EventStreamer // nil if not declared
	// corrections is nil if not declared, and in a transaction that has none.
	corrections storage.CorrectionStore
	// cutovers is set in a transaction that decides them itself.
	cutovers cutoverDecider
}

// New returns an engine on an open store. It fails with tag unsupported when
// the store lacks a capability that recording needs. It does no I/O.
func New(cfg Config) (*Engine, error) {
	cfg = cfg.withDefaults()
	st, err := capabilities(cfg.Store)
	if err != nil {
		return nil, err
	}
	reducers, err := newReducers(cfg)
	if err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, store: st, subjects: newSubjects(st), calls: calls{limit: cfg.RecordConcurrency}, reducers: reducers}
	if _, err := need[storage.CounterStore](cfg.Store, storage.Counters); err == nil {
		e.report, _ = need[storage.ReportStore](cfg.Store, storage.Outbox)
	}
	for _, f := range cfg.Features {
		e.cuts = e.cuts || !f.Cutover.IsZero()
	}
	if e.cuts && e.report == nil {
		return nil, needsReports(cfg.Store)
	}
	if cfg.Coalesce > 0 { // last: what it starts ends with Close
		e.gather = newCoalescer(e.recordGathered, cfg.Coalesce, meter.MaxBatchEvents, cfg.RecordTimeout)
	}
	e.startCounting()
	return e, nil
}

func (c Config) withDefaults() Config {
	if c.AttemptBudget == 0 {
		c.AttemptBudget = 20
	}
	if c.RecordTimeout == 0 {
		c.RecordTimeout = 15 * time.Second
	}
	if c.RecordConcurrency == 0 {
		c.RecordConcurrency = 64
	}
	if c.Coalesce == 0 {
		c.Coalesce = 1
	}
	c.Buffer = c.Buffer.withDefaults()
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Observer == nil {
		c.Observer = silent{}
	}
	return c
}

func capabilities(a storage.Adapter) (stores, error) {
	var s stores
	var err error
	if s.events, err = need[storage.EventStore](a, storage.DurableEvents); err != nil {
		return s, err
	}
	if s.subs, err = need[storage.SubscriptionStore](a, storage.Subscriptions); err != nil {
		return s, err
	}
	if s.routes, err = need[storage.RouteStore](a, storage.Outbox); err != nil {
		return s, err
	}
	if s.items, err = need[storage.OutboxStore](a, storage.Outbox); err != nil {
		return s, err
	}
	s.stream, _ = need[storage.EventStreamer](a, storage.EventStreaming)
	s.corrections, _ = need[storage.CorrectionStore](a, storage.Corrections)
	return s, nil
}

// Close waits for what is being recorded and refuses what comes later, with tag
// unavailable and code "closed". It does not close the store, and concerns
// neither reading nor a [Bound]. What was tracked is written; see
// [Engine.StopTracking], which a program that tracks calls first, to bound the
// time and to hear of what could not be. It may be called more than once.
func (e *Engine) Close() {
	if e.gather != nil {
		e.gather.close()
	}
	e.calls.close()
	e.stopCounting()
}

// silent is the observer of an engine without one.
type silent struct{}

func (silent) Recorded(string, int)     {}
func (silent) RecordTook(time.Duration) {}
func (silent) FlushTook(time.Duration)  {}

// Bound is an engine that records inside a transaction of its caller. What it
// answers is conditional until the caller commits: a rollback leaves nothing,
// and nothing in memory has moved.
//
// A Bound is used by one goroutine, while the transaction is open.
type Bound struct {
	engine   *Engine
	subjects *subjects
	store    stores
}

// Transaction is a store bound to a caller's transaction, as a storage adapter
// hands it out. [Bound.Correct] needs it to be a [storage.CorrectionStore] too.
type Transaction interface {
	storage.EventStore
	storage.RouteStore
	storage.SubscriptionStore
}

// In binds the engine to a caller's transaction.
func (e *Engine) In(tx Transaction) *Bound {
	st := stores{events: tx, subs: tx, routes: tx}
	if e.store.corrections != nil {
		st.corrections, _ = tx.(storage.CorrectionStore)
	}
	if e.cuts {
		st.cutovers, _ = tx.(cutoverDecider)
	}
	return &Bound{engine: e, store: st, subjects: newSubjects(st)}
}

// Record is [Engine.Record] inside the caller's transaction.
func (b *Bound) Record(ctx context.Context, events ...Event) ([]Result, error) {
	return b.RecordBatch(ctx, plainBatch(events))
}

// RecordBatch is [Engine.RecordBatch] inside the caller's transaction.
func (b *Bound) RecordBatch(ctx context.Context, batch Batch) ([]Result, error) {
	r := recorder{engine: b.engine, store: b.store, subjects: b.subjects, bound: true}
	return r.run(ctx, batch)
}
