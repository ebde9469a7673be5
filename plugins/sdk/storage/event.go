package storage

import (
	"encoding/json"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// Kind tells usage from a correction of earlier usage.
type Kind string

// The kinds of an event.
const (
	Usage      Kind = "usage"
	Correction Kind = "correction"
)

// PeriodSource says what decided an event's billing period.
type PeriodSource string

// Sources of a period.
const (
	FromSubscription PeriodSource = "subscription"
	FromCalendar     PeriodSource = "calendar" // no subscription: calendar month in UTC
)

// Hash is a SHA-256 digest.
type Hash [32]byte

// EventKey identifies an event: unique, neither part empty.
type EventKey struct {
	Tenant  string
	EventID string
}

// Event is a fact that was recorded. It never changes after commit.
type Event struct {
	Tenant  string
	EventID string
	Feature string
	// Quantity is what was used; of a correction the magnitude, above zero.
	Quantity decimal.Decimal
	Kind     Kind
	// Effect is what the event adds to the totals: the quantity of usage, and
	// of a correction its quantity with the sign that moves the original
	// towards zero. Assigned by the store.
	Effect decimal.Decimal
	// Reverses is set on the correction that left nothing of its original.
	// Assigned by the store.
	Reverses        bool
	OriginalEventID string // of a correction; empty for usage
	OccurredAt      time.Time
	PeriodStart     time.Time
	PeriodEnd       time.Time
	PeriodSource    PeriodSource
	Plan            string
	PlanVersion     string
	Dimensions      map[string]string
	Metadata        json.RawMessage // a JSON object, or nil
	// PayloadHash is the hash of the canonical form as stored.
	PayloadHash Hash
	// DedupeHash decides between duplicate and conflict. It differs from
	// PayloadHash when the caller gave no time.
	DedupeHash Hash
	// Seq is the insertion identity, assigned by the store, increasing in
	// commit order as seen by StreamEvents. Zero before insertion.
	Seq int64
	// RecordedAt is the store's time of insertion.
	RecordedAt time.Time
}

// ReceiptKey identifies the first receipt of a CloudEvent: the tenant and the
// length-prefixed pair (source, id).
type ReceiptKey struct {
	Tenant    string
	ReceiptID string
}

// Receipt is the first delivery of a CloudEvent. It settles for good which
// features the event fed, none included.
type Receipt struct {
	Tenant     string
	ReceiptID  string
	Source     string
	ID         string
	Type       string
	OccurredAt time.Time
	DedupeHash Hash
	Features   []string // in order; empty: unmatched
	Body       json.RawMessage
	RecordedAt time.Time
}

// RecordMode says what a conflict does to the rest of a call.
type RecordMode string

// The modes of a call.
const (
	// Atomic: one conflict rolls everything back.
	Atomic RecordMode = "atomic"
	// Each: conflicts are reported, the rest is recorded.
	Each RecordMode = "each"
)

// Entry is one event and the outbox items it leads to. Items are inserted only
// when the event is.
type Entry struct {
	Event Event
	Items []NewItem
	// Signed says that the feature takes negative quantities: the totals of
	// others never fall below zero.
	Signed bool
	Bucket *BucketKey // nil: the feature has no buckets
	// Counted: the period belongs to the feature's counter, so what the event
	// adds is added to that, too, in the same transaction and after the
	// totals, in key order. // Q21
	Counted bool
}

// Unit is what is recorded or refused as a whole: a plain event (no receipt,
// one entry), or a CloudEvent (a receipt and an entry per feature it feeds).
// Identities within one request are distinct; the engine folds repeats.
type Unit struct {
	Receipt *Receipt
	Entries []Entry
}

// RecordRequest is one call of RecordEvents.
//
// The adapter works in one transaction, in this order: it takes the shared side
// of the route lock; checks the revisions and answers a [Stale] result when one
// moved; inserts what is new, skipping identities that exist; for each skipped
// identity reads the stored dedupe hash (equal: duplicate, different: conflict,
// not visible: unavailable "conflict_unresolved"); adds the quantities and
// counts of inserted events to the totals of the active generation; inserts the
// items of inserted events, doing nothing where an item's identity or its
// sendable subject exists; commits. Multi-row writes are sorted by identity.
type RecordRequest struct {
	Units []Unit
	Mode  RecordMode
	// RoutesRevision is the revision of the routes that the items were
	// computed from.
	RoutesRevision int64
	// Subscriptions are the revisions of the subscriptions that periods and
	// customers were computed from, one for each tenant of the request. Zero
	// means that the tenant had none.
	Subscriptions []SubscriptionRevision
}

// SubscriptionRevision is what a computation assumed of one tenant.
type SubscriptionRevision struct {
	Tenant   string
	Revision int64
}

// Outcome is what became of one unit.
type Outcome string

// The outcomes of recording.
const (
	Inserted  Outcome = "inserted"
	Duplicate Outcome = "duplicate"
	Conflict  Outcome = "conflict"
)

// RecordResult answers RecordEvents. Either Stale is set and nothing was
// written, or Units holds a result for each unit, in order. In atomic mode a
// conflict is reported here too, with nothing written: every other unit then
// carries the empty outcome.
type RecordResult struct {
	Stale *Stale
	Units []UnitResult
	// Superseded counts items that were not inserted because a sendable item
	// of the same subject exists under another mapping.
	Superseded int
}

// Stale says which assumptions no longer hold; the caller reads them again.
type Stale struct {
	Routes  bool
	Tenants []string
	// Items: an item that others depend on moved.
	Items bool
}

// UnitResult is the outcome of one unit. Entries are in the unit's order when
// it was inserted, and as first recorded when it is a duplicate.
type UnitResult struct {
	Outcome Outcome
	Entries []EntryResult
}

// EntryResult names one stored event.
type EntryResult struct {
	EventID string
	Feature string
	Seq     int64
}

// TotalsQuery selects totals. Tenant is required; an empty feature selects all
// features of the tenant. From and To bound the period start, half-open; a zero
// time is no bound.
type TotalsQuery struct {
	Tenant  string
	Feature string
	From    time.Time
	To      time.Time
}

// Total is the sum of one (tenant, feature, period).
type Total struct {
	Tenant      string
	Feature     string
	PeriodStart time.Time
	PeriodEnd   time.Time
	Quantity    decimal.Decimal
	// Events counts rows: one for each usage event and each correction.
	Events int64
	// Count is the net count: usage events less those fully reversed.
	Count int64
}

// StreamQuery asks for events with Seq > After, at most Limit (1 to 1000).
// Empty filters select everything.
type StreamQuery struct {
	After   int64
	Limit   int
	Tenant  string
	Feature string
}

// EventPage is a slice of the stream. Next is the cursor to go on from; More
// says whether something was left.
type EventPage struct {
	Events []Event
	Next   int64
	More   bool
}

// Interval is the length of a billing period.
type Interval string

// The intervals of a subscription.
const (
	Day   Interval = "day"
	Week  Interval = "week"
	Month Interval = "month"
	Year  Interval = "year"
)

// Subscription is a tenant's plan, its billing calendar and who the tenant is
// at each exporter. The engine fills in a zero Anchor: local midnight of the
// first of January 2000 in Timezone.
type Subscription struct {
	Tenant      string            `json:"tenant"`
	Plan        string            `json:"plan,omitempty"`
	PlanVersion string            `json:"plan_version,omitempty"`
	Anchor      time.Time         `json:"anchor"`
	Interval    Interval          `json:"interval"`
	Timezone    string            `json:"timezone"`
	Customers   map[string]string `json:"customers,omitempty"` // exporter name → customer id
	// Revision rises with every change; zero before the first.
	Revision  int64     `json:"revision"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Migration is one numbered schema change.
type Migration struct {
	Version   int
	Name      string
	Checksum  string // SHA-256 of the SQL, in hex
	AppliedAt time.Time
}

// Applied reports whether the migration is in the store.
func (m Migration) Applied() bool { return !m.AppliedAt.IsZero() }
