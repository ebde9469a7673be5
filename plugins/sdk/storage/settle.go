package storage

import (
	"context"
	"encoding/json"
	"time"
)

// SettlementStore is the part of the capability outbox by which people and
// reconcilers settle what the loop cannot. What moves one item and may be told
// as a conditional update is a [Transition] with an Action.
type SettlementStore interface {
	// Supersede replaces items, each by one of another identity for the same
	// subject, in one transaction. See [Supersession].
	Supersede(ctx context.Context, list []Supersession) ([]SupersedeResult, error)
	// Enqueue inserts items for events and windows that exist already, doing
	// nothing where an item's identity or its sendable subject exists, in one
	// transaction under the shared side of the route lock, and answers the id
	// of each, zero where nothing was inserted. Event items name their event by
	// Identity.Tenant and SubjectRef, which must exist (else not_found); so do
	// corrections. The feature of a window is the "feature" of its payload. A
	// moved RoutesRevision is a conflict, code "routes_moved", a moved
	// dependency one of code "items_moved".
	Enqueue(ctx context.Context, req EnqueueRequest) ([]int64, error)
	// MarkRestored is what an operator does after the store went back in time:
	// see [RestoreRequest]. It answers how many items it moved, or would.
	MarkRestored(ctx context.Context, req RestoreRequest) (int64, error)
	// ListActions returns what people and reconcilers did, in order.
	ListActions(ctx context.Context, q ActionQuery) (ActionPage, error)
}

// ActionKind is what was done: a closed list.
type ActionKind string

// The kinds of an action.
const (
	ActionResolve   ActionKind = "resolve"   // T8
	ActionRequeue   ActionKind = "requeue"   // T9
	ActionSupersede ActionKind = "supersede" // another identity took its place
	ActionAbandon   ActionKind = "abandon"
	ActionEvidence  ActionKind = "evidence" // evidence for or against, stored beside the state
	ActionConfirm   ActionKind = "confirm"  // T7
	ActionRestore   ActionKind = "restore"
	ActionAdopt     ActionKind = "adopt"
	ActionBackfill  ActionKind = "backfill"
	ActionRoute     ActionKind = "route" // renamed or retired
)

// Action is one line of the append-only log of what was done beside the loop.
// One without an actor, without a reason or of an unknown kind is invalid.
type Action struct {
	ID     int64     // assigned by the store
	At     time.Time // the store's, assigned by it
	ItemID int64     // zero: it concerns no single item
	Kind   ActionKind
	Actor  string // who: 1 to 200 characters
	Reason string // why: 1 to 1000 characters
	// EvidenceKind is provider, asserted or empty; Evidence what it says.
	EvidenceKind string
	Evidence     string
	// From and To are the states before and after, empty where none moved.
	From ItemState
	To   ItemState
	// Detail is a JSON object of what else is known, or nil.
	Detail json.RawMessage
}

// ActionQuery selects actions with an id above After, at most Limit (1 to
// 1000). A zero ItemID selects all.
type ActionQuery struct {
	After  int64
	Limit  int
	ItemID int64
	Kind   ActionKind
}

// ActionPage is a page of actions.
type ActionPage struct {
	Actions []Action
	Next    int64
	More    bool
}

// Supersession replaces one item by another of the same subject. In one
// transaction, in this order: the old row is updated where Expect holds
// (superseded_by is set to the new item's id, settled_at to now), the new item
// is inserted, and everything that depends on the old item and waits for it is
// superseded by a copy of itself with the new item's destination fields, whose
// Digest, SubjectKey and Payload are those of Waiting with the same SubjectRef;
// one for which Waiting has none is a conflict, code "waiting_missing", and
// nothing is written. Destination fields are exporter, account, mode, mapping
// version, route, customer and serial key; state, reason, budget and method are
// copied. A new item whose identity or sendable subject exists is a conflict,
// code "item_exists"; a moved dependency is one of code "items_moved" (Q5, O19).
type Supersession struct {
	ItemID  int64
	Expect  Expect
	New     NewItem
	Waiting []NewItem
	Action  Action
}

// SupersedeResult answers one supersession. Rows is 0 when Expect did not hold.
type SupersedeResult struct {
	Rows      int
	NewItemID int64 // zero with no rows
}

// EnqueueRequest asks for items of what is recorded already. Action is appended
// if at least one item was inserted.
type EnqueueRequest struct {
	Items          []NewItem
	RoutesRevision int64
	Action         *Action
}

// RestoreRequest: every item that is pending, leased or quarantined, not
// settled, not superseded and created at or before Before becomes uncertain,
// unresolved, with first_unresolved_at = coalesce(first_unresolved_at, Since),
// its lease gone, its token raised and its claimed_at now, since a request of the
// lost time may be on its way, with last error code "restored"; the reason of a
// quarantine stays, by which it is known where it came from. One that
// is uncertain already counts if it is not unresolved or has no
// first_unresolved_at: it gets those two and claimed_at, and its token is raised.
// The incarnation's Claims are raised above Claims, its Restores by one, and its
// RestoredThrough to Before if that is later and the action is a restore: one that
// adopts settles nothing.
// At most Limit items are moved in one call; the three move, and the
// action is appended, with the call that leaves none. A dry run counts all.
type RestoreRequest struct {
	Before time.Time // of the store's clock
	Since  time.Time // the store's last heartbeat before it went back
	Claims int64
	Limit  int // 1 to 10,000
	DryRun bool
	Action Action
}
