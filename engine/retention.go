package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// pruneBatch is how many rows one transaction removes.
const pruneBatch = 5000

// shortestAge is the least age at which each kind may be removed. Clients repeat
// what they are not sure of, and flushed batches are repeated for 23 hours.
var shortestAge = map[storage.PruneKind]time.Duration{
	storage.PruneEvents:     24 * time.Hour,
	storage.PruneTombstones: 30 * 24 * time.Hour,
	storage.PruneReceipts:   24 * time.Hour,
}

// PruneOptions say what to remove.
type PruneOptions struct {
	Kind storage.PruneKind
	// Age is the least age, by the store's clock: at least a day, and 30 days
	// for tombstones.
	Age time.Duration
	// Remove is set to remove; the zero value only counts.
	Remove bool
	// Progress is told after each transaction. Nil: nobody is.
	Progress func(storage.PruneResult)
}

// Prune removes what is older than an age, or counts what it would remove: by
// the same rule, and at most 10,000 of them. It works in transactions of 5000
// rows, between which recording goes on, and may be ended by ctx and called
// again. What it removed is in the log.
//
// Totals keep what is removed. A removed event leaves a tombstone, so that a
// repeat is still a duplicate or a conflict. An event with an item that nobody
// has settled is never removed.
//
// Errors: invalid for an unknown kind or an age that is too short, unsupported
// if the store has no retention.
func (e *Engine) Prune(ctx context.Context, o PruneOptions) (storage.PruneResult, error) {
	shortest, ok := shortestAge[o.Kind]
	switch {
	case !ok:
		return storage.PruneResult{}, sdk.Invalid("kind", "one of events, tombstones, receipts")
	case o.Age < shortest:
		return storage.PruneResult{}, sdk.Invalid("age", fmt.Sprintf("at least %d days for %s", shortest/(24*time.Hour), o.Kind))
	}
	st, err := need[storage.RetentionStore](e.cfg.Store, storage.Retention)
	if err != nil {
		return storage.PruneResult{}, err
	}
	req := storage.PruneRequest{Kind: o.Kind, Age: o.Age, Limit: pruneBatch}
	if !o.Remove {
		req.DryRun, req.Limit = true, 2*pruneBatch
	}
	var all storage.PruneResult
	for all.More = true; all.More; {
		res, err := st.Prune(ctx, req)
		if err != nil {
			e.cfg.Logger.ErrorContext(ctx, "retention ended", "kind", string(o.Kind), "age", o.Age.String(), "removed", all.Removed, "error", err)
			return all, fmt.Errorf("prune: %w", tagged(ctx, err))
		}
		all.Removed += res.Removed
		all.Kept, all.More = res.Kept, res.More
		if o.Progress != nil {
			o.Progress(all)
		}
		if !o.Remove || res.Removed == 0 {
			break
		}
	}
	e.cfg.Logger.InfoContext(ctx, "retention", "kind", string(o.Kind), "age", o.Age.String(), "dry_run", !o.Remove,
		"removed", all.Removed, "kept", all.Kept, "more", all.More)
	return all, nil
}
