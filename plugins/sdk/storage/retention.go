package storage

import (
	"context"
	"time"
)

// RetentionStore is the capability retention.
type RetentionStore interface {
	// Prune removes at most Limit rows of one kind that are older than Age by
	// the store's clock, in one or more transactions under the exclusive side
	// of the route lock, or only counts them. The predicate of a dry run is
	// that of the removal.
	Prune(ctx context.Context, req PruneRequest) (PruneResult, error)
}

// PruneKind is what can be pruned: a closed list.
type PruneKind string

// What retention may remove.
const (
	// PruneEvents removes events by their time of recording, with their
	// settled outbox items and attempts. An event with an item that is not
	// settled stays, and so does one whose correction stays. A tombstone
	// keeps identity and hash, so that a late repeat is still a duplicate or
	// a conflict; the totals keep what was pruned.
	PruneEvents PruneKind = "events"
	// PruneTombstones forgets identities: a repeat after that is new usage.
	PruneTombstones PruneKind = "tombstones"
	// PruneReceipts forgets which counter batches were applied. At least a
	// day old.
	PruneReceipts PruneKind = "receipts"
)

// PruneRequest says what to remove.
type PruneRequest struct {
	Kind   PruneKind
	Age    time.Duration
	Limit  int // 1 to 10,000
	DryRun bool
}

// PruneResult says what was removed, or would be.
type PruneResult struct {
	Removed int64
	// Kept counts rows that are old enough and must stay.
	Kept int64
	// More says that the limit left some.
	More bool
}
