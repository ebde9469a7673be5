// Package storage is the contract of a storage adapter: one small interface per
// capability, the values that cross it, and nothing about any database.
//
// # Rules for every adapter
//
// An adapter lists the capabilities it has in its [Manifest]; the engine checks
// that list before every call and answers "unsupported" itself, so a method of
// an undeclared capability is never called. Every method may be called from
// many goroutines at once. Every method honours its context's deadline and
// answers with an [sdk.Error] of tag unavailable when it passes: the outcome of
// a write is then unknown, and the caller repeats it with the same ids. An
// error from COMMIT is always unavailable, whatever the driver says.
//
// Times are UTC with microseconds. Durations that decide something (a lease, a
// backoff, a horizon) are compared inside the store, on the store's clock; the
// engine sends durations, never instants.
package storage

import (
	"context"
	"slices"
)

// Capability names a part of the contract that an adapter may have.
type Capability string

// The capabilities of this version of the contract.
const (
	DurableEvents  Capability = "durable_events"
	Subscriptions  Capability = "subscriptions"
	EventStreaming Capability = "event_streaming"
	Outbox         Capability = "outbox"

	Counters              Capability = "counters"
	Corrections           Capability = "corrections"
	ProjectionGenerations Capability = "projection_generations"
	Buckets               Capability = "buckets"
	Retention             Capability = "retention"
)

// Manifest says what an adapter is and what it can do. Its zero value is not
// one: Name is required. Without Capabilities it can do nothing, which is
// allowed.
type Manifest struct {
	Name         string
	Version      string
	Capabilities []Capability
}

// Has reports whether the adapter declares c.
func (m Manifest) Has(c Capability) bool { return slices.Contains(m.Capabilities, c) }

// Adapter is what every storage plugin implements, whatever else it can do.
// The capability interfaces of this package are asked for by type assertion
// after Describe declared them.
type Adapter interface {
	// Describe returns the manifest. It does no I/O and never changes.
	Describe() Manifest
	// Ping reports whether Record could work now: the store answers, is
	// writable and carries the schema this adapter knows. Every error has a
	// tag: unavailable when ctx has ended, and after Close, too.
	Ping(ctx context.Context) error
	// Close releases everything. It waits for calls in flight, works after a
	// failed open, and may be called more than once.
	Close() error
}

// EventStore is the capability durable_events.
type EventStore interface {
	// RecordEvents writes units, their totals and their outbox items in one
	// transaction. See [RecordRequest] for the rules.
	RecordEvents(ctx context.Context, req RecordRequest) (RecordResult, error)
	// LoadEvent returns one event, or not_found.
	LoadEvent(ctx context.Context, key EventKey) (Event, error)
	// LoadReceipt returns the first receipt of a CloudEvent, or not_found.
	LoadReceipt(ctx context.Context, key ReceiptKey) (Receipt, error)
	// LoadTotals returns the totals of the active projection that q selects,
	// ordered by (tenant, feature, period start). An empty selection is an
	// empty slice, not an error.
	LoadTotals(ctx context.Context, q TotalsQuery) ([]Total, error)
}

// EventStreamer is the capability event_streaming.
type EventStreamer interface {
	// StreamEvents returns events in insertion order after a cursor. It never
	// skips an event that commits later with a lower seq.
	StreamEvents(ctx context.Context, q StreamQuery) (EventPage, error)
}

// SubscriptionStore is the capability subscriptions.
type SubscriptionStore interface {
	// Subscriptions returns those of the named tenants that exist, in no
	// particular order. Unknown tenants are absent from the answer.
	Subscriptions(ctx context.Context, tenants []string) ([]Subscription, error)
	// PutSubscription creates or replaces a tenant's subscription, raises its
	// revision by one and returns the stored value.
	PutSubscription(ctx context.Context, s Subscription) (Subscription, error)
	// ListSubscriptions returns at most limit subscriptions with a tenant key
	// greater than after, in tenant order.
	ListSubscriptions(ctx context.Context, after string, limit int) ([]Subscription, error)
}

// OutboxStore is the part of the capability outbox that moves items.
type OutboxStore interface {
	// Claim takes items for one worker. See [ClaimRequest].
	Claim(ctx context.Context, req ClaimRequest) (Claim, error)
	// Transition applies conditional updates in one transaction and answers,
	// in order, how many rows each changed: 1, or 0 when the expected state
	// did not hold. It knows no transition by name. Attempts are appended
	// even where the update changed nothing.
	Transition(ctx context.Context, moves []Transition) ([]TransitionResult, error)
	// LoadItem returns one item with its payload and attempts, or not_found.
	LoadItem(ctx context.Context, id int64) (ItemDetail, error)
	// ListItems returns a page of items in id order.
	ListItems(ctx context.Context, q ItemQuery) (ItemPage, error)
	// OutboxStats counts items by exporter and state.
	OutboxStats(ctx context.Context) (OutboxStats, error)
}

// RouteStore is the part of the capability outbox that says where usage goes.
type RouteStore interface {
	// Routes returns every route, retired ones included, with the revision
	// that RecordEvents checks, and every mapping.
	Routes(ctx context.Context) (RouteSet, error)
	// ChangeRoutes adds and retires routes under the exclusive side of the
	// lock that RecordEvents takes shared. It answers conflict when the
	// revision moved since it was read.
	ChangeRoutes(ctx context.Context, change RouteChange) (RouteSet, error)
}

// Migrator is implemented by adapters whose schema this project versions.
type Migrator interface {
	// MigrationStatus lists every migration known to the adapter or applied
	// in the store. A store that Migrate refuses is listed too, beside the
	// error that Migrate would answer.
	MigrationStatus(ctx context.Context) ([]Migration, error)
	// Migrate applies what is missing. It refuses a store with a newer or a
	// changed migration.
	Migrate(ctx context.Context) ([]Migration, error)
}
