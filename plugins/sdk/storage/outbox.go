package storage

import (
	"encoding/json"
	"time"
)

// ItemState is where an outbox item stands. The engine owns the machine; a
// store only keeps the value.
type ItemState string

// The seven states.
const (
	Pending     ItemState = "pending"
	Leased      ItemState = "leased"
	Accepted    ItemState = "accepted"
	Confirmed   ItemState = "confirmed"
	Uncertain   ItemState = "uncertain"
	Rejected    ItemState = "rejected"
	Quarantined ItemState = "quarantined"
)

// ItemStates lists all states, in the order in which people read them.
var ItemStates = [...]ItemState{Pending, Leased, Accepted, Confirmed, Uncertain, Rejected, Quarantined}

// SubjectKind says what an item reports.
type SubjectKind string

// The kinds of a subject.
const (
	SubjectEvent      SubjectKind = "event"
	SubjectCorrection SubjectKind = "correction"
	SubjectWindow     SubjectKind = "usage_window"
)

// Identity is the whole identity of an item. No part may be absent; an empty
// string means "not applicable" and is itself a value.
type Identity struct {
	Tenant         string
	SubjectKind    SubjectKind
	SubjectRef     string
	Exporter       string
	Account        string
	Mode           string
	MappingVersion string
}

// NewItem is an item to insert. Payload is nil for an event: its payload is a
// pure function of the event, the mapping and the columns here.
type NewItem struct {
	Identity Identity
	// Digest is the hash of the identity: unique in the store, and the
	// provider's idempotency key in hex.
	Digest Hash
	// SubjectKey is the hash of the identity without its mapping version:
	// unique among items that are not superseded.
	SubjectKey Hash
	RouteID    int64
	// SerialKey groups items of which the exporter allows one send at a
	// time. Empty: no such limit.
	SerialKey string
	Customer  string
	Payload   json.RawMessage
	// QuarantineReason is empty for an item that may be sent.
	QuarantineReason string
	// Settled is set for reasons that nobody needs to act on.
	Settled       bool
	AttemptBudget int
	// DependsOn is set for a correction's item: the item of its original at the
	// same destination. nil: it depends on none.
	DependsOn *Dependency
}

// Dependency is an item that another one depends on, as it was when that one
// was computed. The adapter locks its state row before it inserts the dependent
// (rows of several in item order, after the row of the original event), and
// answers Stale with Items set if State, Settled or Superseded is not what is
// written here: whoever moves the item later then sees its dependents.
type Dependency struct {
	ItemID     int64
	State      ItemState
	Settled    bool
	Superseded bool
	// Wait: the dependent is not claimed until a transition of the item it
	// depends on releases it, see [Transition].Waiting. It is stored as a
	// column of the state row (waits_for); a claim does not see the row at
	// all, so waiting spends no attempts and costs a claim nothing.
	Wait bool
}

// RouteDisposition says what a route does with usage.
type RouteDisposition string

// What a route can do.
const (
	RouteExport     RouteDisposition = "export"
	RouteQuarantine RouteDisposition = "quarantine" // stage as feature_unmapped
	RouteIgnore     RouteDisposition = "ignore"     // not this exporter's business
)

// AnyFeature is the Feature of a route that takes every feature without a
// route of its own at the same destination.
const AnyFeature = "*"

// Route sends one feature to one destination from one point in the insertion
// order onwards.
type Route struct {
	ID             int64
	Exporter       string
	Account        string
	Mode           string
	Feature        string // or AnyFeature
	Disposition    RouteDisposition
	MappingVersion string // empty unless Disposition is export
	// AppliesAfter is the highest seq at the time the route was added: it
	// applies to events inserted after it.
	AppliesAfter int64
	RetiredAt    time.Time // zero while in force
}

// Mapping is how one feature is expressed at a provider. Version is the hash of
// Content; a mapping never changes.
type Mapping struct {
	Version string
	Label   string          // the number or name in the configuration
	Content json.RawMessage // canonical JSON object of strings
}

// RouteSet is everything stored about routes.
type RouteSet struct {
	Revision int64
	Routes   []Route
	Mappings []Mapping
	Features []Feature
}

// Feature is what the store remembers of a feature's configuration, because
// changing it would change what is stored.
type Feature struct {
	Name string
	// Signed says that it takes negative quantities. It cannot change once
	// the feature has events. // Q7
	Signed bool
	// Buckets are the dimensions that its buckets keep; nil: no buckets.
	Buckets []string
	// Revision is the revision of the routes that wrote this. Assigned by the
	// store.
	Revision int64
}

// RouteChange is applied if the revision still is Revision. Mappings that exist
// with equal content are left alone. A Feature is created or replaced by name;
// one that has events and another Signed is a conflict, code "signed_in_use".
type RouteChange struct {
	Revision int64
	Mappings []Mapping
	Features []Feature
	Add      []Route // IDs, AppliesAfter and RetiredAt are assigned by the store
	Retire   []int64
	// Idle: if an item of a route in Retire is open (not settled and not
	// superseded), nothing is written: a conflict, code "route_open".
	Idle bool
	// IdleAlso are further routes, retired ones among them, that must have no open
	// item either: as Idle, whether that is set or not.
	IdleAlso []int64
	// Rename gives an exporter another name, before anything else of the change
	// is done. nil: none.
	Rename *RouteRename
	// Action is appended with the change. nil: none.
	Action *Action
}

// RouteRename gives every route of the exporter From, retired ones included, and
// every report bound of it to To, which must have neither: a conflict, code
// "route_exists". That From has no route is not_found. Items keep their identity:
// the name in it is the one under which they were made (Q4).
type RouteRename struct {
	From string
	To   string
}

// ItemError is a sanitised failure: a code, a status and at most 200 characters
// of message, never a secret.
type ItemError struct {
	Code    string `json:"code"`
	Status  int    `json:"status,omitempty"`
	Message string `json:"message,omitempty"`
}

// Attempt is one line of the append-only log of what the host saw. A transition
// that is repeated because its answer was lost may log its attempt twice.
type Attempt struct {
	ItemID     int64     `json:"-"`
	LeaseToken int64     `json:"lease_token"`
	Owner      string    `json:"owner"`
	StartedAt  time.Time `json:"started_at"`
	FinishedAt time.Time `json:"finished_at"`
	// HostClass is what the host saw on the wire, Outcome what the plugin said.
	HostClass string `json:"host_class"`
	Outcome   string `json:"outcome"`
	// Evidence is who vouches for it: host, plugin or none.
	Evidence  string `json:"evidence"`
	Status    int    `json:"status,omitempty"`
	RequestID string `json:"request_id,omitempty"`
	Code      string `json:"code,omitempty"`
	Message   string `json:"message,omitempty"`
	// Decided is the state the engine asked for; Fenced that the write
	// changed nothing because the lease was lost.
	Decided ItemState `json:"decided"`
	Fenced  bool      `json:"fenced"`
}

// Item is an item as people see it.
type Item struct {
	ItemID            int64
	Identity          Identity
	Digest            Hash
	RouteID           int64
	Feature           string
	Customer          string
	SerialKey         string
	State             ItemState
	Attempts          int
	AttemptBudget     int
	Unresolved        bool
	FirstAttemptAt    time.Time
	FirstUnresolvedAt time.Time
	NextAttemptAt     time.Time
	ClaimedAt         time.Time
	LeaseOwner        string
	LeaseExpiresAt    time.Time
	LeaseToken        int64
	ProviderRef       string
	AcceptedAt        time.Time
	ConfirmedAt       time.Time
	ConfirmedBy       string
	Disputed          string
	LastError         *ItemError
	QuarantineReason  string
	SettledAt         time.Time
	SupersededBy      int64
	CreatedAt         time.Time
	Method            string
	DependsOn         int64 // zero: none
	Waits             bool  // for the item that it depends on
}

// ItemDetail is an item with all that its payload is made of and its history.
type ItemDetail struct {
	Item     Item
	Event    *Event // of an item of kind event
	Mapping  Mapping
	Payload  json.RawMessage // stored payload, nil when derived
	Attempts []Attempt
	Original *OriginalItem // as in ClaimedItem
	Actions  []Action      // in the order in which they happened
}

// ItemQuery selects items with an id greater than After, at most Limit (1 to
// 1000). Empty filters select everything.
type ItemQuery struct {
	After  int64
	Limit  int
	State  ItemState
	Tenant string
	// Exporter selects the items of the routes that have this name now, under
	// whatever name they were made. A name that no route has selects those that
	// were made under it.
	Exporter string
	Feature  string
	Reason   string
	// SubjectRef selects the items of one event, correction or window.
	SubjectRef string
	// Account and Mode narrow Exporter where they are set.
	Account string
	Mode    string
	// Open selects items that are not settled; Disputed those with evidence
	// against them; Unconfirmed accepted ones that were accepted at least so
	// long ago by the store's clock and are not superseded.
	Open        bool
	Disputed    bool
	Unconfirmed time.Duration
	// Digests selects by identity, at most 100; the other filters count too.
	Digests []Hash
	// Events selects the items of events and corrections, of whatever tenants,
	// at most 1000; the other filters count too. One that is not stored has none.
	Events []EventKey
	// DependsOn selects what depends on one item, superseded ones included.
	DependsOn int64
}

// ItemPage is a page of items. Next is the cursor to go on from.
type ItemPage struct {
	Items []Item
	Next  int64
	More  bool
}

// OutboxStats is a count of items by exporter and state.
type OutboxStats struct {
	Counts []ItemCount
	// OldestPending is the age of the oldest pending item by its creation;
	// zero when none is pending.
	OldestPending time.Duration
	// FencedAttempts counts log lines whose write was fenced out.
	FencedAttempts int64
	// Disputed counts items with evidence against them that are not settled.
	Disputed int64
	// OldestAccepted is how long ago the oldest accepted, not yet confirmed
	// and not superseded item was accepted; zero when there is none.
	OldestAccepted time.Duration
}

// ItemCount counts the items of one exporter in one state. Open counts those
// that are not settled.
type ItemCount struct {
	Exporter string
	State    ItemState
	Items    int64
	Open     int64
}
