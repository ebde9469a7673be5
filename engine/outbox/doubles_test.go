package outbox

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// provider counts charges as a billing provider does: a known identifier is not
// charged again while it is remembered.
type provider struct {
	mu       sync.Mutex
	clock    func() time.Time
	remember time.Duration
	first    map[string]time.Time
	charges  map[string]int
	seen     map[string]int
}

func newProvider(clock func() time.Time) *provider {
	return &provider{
		clock: clock, remember: 24 * time.Hour,
		first: make(map[string]time.Time), charges: make(map[string]int), seen: make(map[string]int),
	}
}

// take reports whether the identifier was charged now.
func (p *provider) take(identifier string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[identifier]++
	at, known := p.first[identifier]
	if known && p.clock().Sub(at) < p.remember {
		return false
	}
	p.first[identifier] = p.clock()
	p.charges[identifier]++
	return true
}

func (p *provider) count(identifier string) (charges, seen int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.charges[identifier], p.seen[identifier]
}

func (p *provider) knows(identifier string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, known := p.first[identifier]
	return known && p.clock().Sub(at) < p.remember
}

// reply is what happens to one item in one Send.
type reply struct {
	said      exporter.OutcomeKind // empty: no answer for the item
	exchanges []exporter.Exchange
}

func seen(class exporter.HostClass) []exporter.Exchange { return []exporter.Exchange{{Class: class}} }

// scripted is a Sender that asks a function about each item.
type scripted struct {
	manifest exporter.Manifest
	answer   func(ctx context.Context, item SendItem) reply
	edit     func(*Report) // last word on the report

	mu    sync.Mutex
	calls [][]SendItem
}

func (s *scripted) Manifest() exporter.Manifest { return s.manifest }

func (s *scripted) Send(ctx context.Context, items []SendItem, _ time.Time) Report {
	s.mu.Lock()
	s.calls = append(s.calls, items)
	s.mu.Unlock()
	r := Report{Called: true, Grade: GradeHost, Exchanges: make(map[string][]exporter.Exchange)}
	for _, it := range items {
		a := s.answer(ctx, it)
		if a.exchanges != nil {
			r.Exchanges[it.ID] = a.exchanges
		}
		if a.said != "" {
			r.Outcomes = append(r.Outcomes, exporter.ItemOutcome{ItemID: it.ID, Kind: a.said})
		}
	}
	if s.edit != nil {
		s.edit(&r)
	}
	return r
}

func (s *scripted) sent() [][]SendItem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([][]SendItem(nil), s.calls...)
}

// honest answers as a Stripe-like exporter would: charged, or known already.
func honest(p *provider) func(context.Context, SendItem) reply {
	return func(_ context.Context, it SendItem) reply {
		if p.take(it.Identifier) {
			return reply{said: exporter.Accepted, exchanges: seen(exporter.ClassSuccess)}
		}
		return reply{said: exporter.AcceptedEarlier, exchanges: seen(exporter.ClassDuplicateOwn)}
	}
}

func always(r reply) func(context.Context, SendItem) reply {
	return func(context.Context, SendItem) reply { return r }
}

var testManifest = exporter.Manifest{
	Name: "double", IdentifierMaxLength: 100, IdentifierHorizon: 23 * time.Hour,
	WindowPast: 34 * 24 * time.Hour, WindowFuture: 4 * time.Minute,
	Values:   exporter.ValueDomain{SignificantDigits: 15, MaxDecimals: 12},
	MaxBatch: 10, SerialBy: []string{"customer", "event_name"}, MappingKeys: []string{"event_name"},
}

var testDestination = Destination{Exporter: "double", Account: "acct_1", Mode: "test"}

// sample is an item that may be sent, its event at the given time.
func sample(ref string, at time.Time) storage.ClaimedItem {
	return storage.ClaimedItem{
		Identity: storage.Identity{
			Tenant: "acme", SubjectKind: storage.SubjectEvent, SubjectRef: ref,
			Exporter: "double", Account: "acct_1", Mode: "test", MappingVersion: "9f2c",
		},
		RouteID: 7, Customer: "cus_" + ref,
		Event: storage.Event{
			Tenant: "acme", EventID: ref, Feature: "tokens", Quantity: decimal.MustParse("12.5"), OccurredAt: at,
		},
		Mapping: storage.Mapping{Version: "9f2c", Content: json.RawMessage(`{"event_name":"llm_tokens"}`)},
	}
}

// counts is an Observer.
type counts struct {
	mu     sync.Mutex
	states map[storage.ItemState]int
	stale  int
	lied   int
	pauses []PauseReason
}

func (c *counts) Delivered(s storage.ItemState, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.states == nil {
		c.states = make(map[storage.ItemState]int)
	}
	if took < 0 {
		panic("negative duration")
	}
	c.states[s]++
}

func (c *counts) Stale(n int) { c.mu.Lock(); defer c.mu.Unlock(); c.stale += n }
func (c *counts) Lied(n int)  { c.mu.Lock(); defer c.mu.Unlock(); c.lied += n }
func (c *counts) Paused(r PauseReason, _ time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pauses = append(c.pauses, r)
}

// bench is one store, one provider and a clock that all share. Inside a synctest
// bubble time is virtual.
type bench struct {
	t        *testing.T
	start    time.Time
	store    *modelStore
	provider *provider
	observer *counts
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, start: time.Now(), observer: &counts{}}
	b.store = newModelStore(time.Now)
	b.provider = newProvider(time.Now)
	return b
}

func (b *bench) deliverer(s Sender, edits ...func(*Config)) *Deliverer {
	b.t.Helper()
	cfg := Config{
		Store: b.store, Sender: s, Destination: testDestination, Routes: func() []int64 { return []int64{7} },
		Owner: "w1", Now: time.Now, Boottime: func() time.Duration { return time.Since(b.start) },
		Uniform: func(int64) int64 { return 0 }, Observer: b.observer,
	}
	for _, edit := range edits {
		edit(&cfg)
	}
	d, err := NewDeliverer(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	return d
}

// once makes one pass and fails the test on an error.
func (b *bench) once(d *Deliverer) Summary {
	b.t.Helper()
	sum, err := d.Once(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return sum
}

// want checks one item's state.
func (b *bench) want(id int64, state storage.ItemState, code string) storage.Item {
	b.t.Helper()
	item := b.store.row(id)
	got := ""
	if item.LastError != nil {
		got = item.LastError.Code
	}
	if item.State != state || (code != "" && got != code) {
		b.t.Errorf("item %d is %s with %q, want %s with %q", id, item.State, got, state, code)
	}
	return item
}
