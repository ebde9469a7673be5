package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qPruneAllow       query = "prune_allow"
	qPruneTombstones  query = "prune_tombstones"
	qPruneForget      query = "prune_forget"
	qPruneUnmatched   query = "prune_unmatched"
	qPruneCloudevents query = "prune_cloudevents"
	qPruneBatches     query = "prune_batches"
	qPruneBatch       query = "prune_batch"
)

const (
	// maxPrune is the largest number of rows that one call removes.
	maxPrune = 10_000
	// minReceiptAge is the least age of a flushed batch that is forgotten.
	minReceiptAge = 24 * time.Hour
)

var _ storage.RetentionStore = (*Adapter)(nil)

// Prune removes what is old; see [storage.RetentionStore]. What may go is looked
// for before the lock is taken and looked at once more under it, and is removed
// in slices with a transaction each: recording waits for one slice at most. An
// error may come after some of them; what they removed is gone for good.
//
// Events are looked at in the order in which they were recorded, up to the first
// that is not old enough. An event and its corrections go together. With the
// limit reached, Kept counts only the events before it.
//
// PruneTombstones also forgets CloudEvents: those of which an event is forgotten,
// and old ones that fed none; Removed does not count them. The age of a
// tombstone is the time since its event was pruned.
func (a *Adapter) Prune(ctx context.Context, req storage.PruneRequest) (storage.PruneResult, error) {
	const op = "prune"
	if err := checkPrune(req); err != nil {
		return storage.PruneResult{}, fmt.Errorf("%s: %w", op, err)
	}
	if req.Kind == storage.PruneEvents {
		return a.pruneEvents(ctx, op, req)
	}
	var p *keyPruner
	run := func(ctx context.Context, t *tx) error {
		p = &keyPruner{t: t, req: req}
		return p.run(ctx)
	}
	var err error
	if req.DryRun {
		err = a.run.read(ctx, op, run)
	} else {
		err = a.run.write(ctx, op, writing{lock: lockExclusive}, run)
	}
	if err != nil {
		return storage.PruneResult{}, err
	}
	return p.res, nil
}

func checkPrune(req storage.PruneRequest) error {
	switch {
	case req.Kind != storage.PruneEvents && req.Kind != storage.PruneTombstones && req.Kind != storage.PruneReceipts:
		return sdk.Invalid("kind", "events, tombstones or receipts")
	case req.Age < 0 || req.Kind == storage.PruneReceipts && req.Age < minReceiptAge:
		return sdk.Invalid("age", "0 or more; of receipts a day or more")
	case req.Limit < 1 || req.Limit > maxPrune:
		return sdk.Invalid("limit", "1 to 10,000")
	}
	return nil
}

// keyPruner removes what nothing else hangs on: identities and receipts.
type keyPruner struct {
	t   *tx
	req storage.PruneRequest
	res storage.PruneResult
}

func (p *keyPruner) run(ctx context.Context) error {
	if !p.req.DryRun {
		if _, err := p.t.exec(ctx, qPruneAllow); err != nil {
			return err
		}
	}
	if p.req.Kind == storage.PruneReceipts {
		return p.batches(ctx)
	}
	tenants, ids, err := p.pairs(ctx, qPruneTombstones)
	if err != nil {
		return err
	}
	p.res.Removed = int64(len(ids))
	if !p.req.DryRun && len(ids) > 0 {
		if _, err := p.t.exec(ctx, qPruneForget, tenants, ids); err != nil {
			return err
		}
	}
	tenants, ids, err = p.pairs(ctx, qPruneUnmatched)
	if err == nil && !p.req.DryRun && len(ids) > 0 {
		_, err = p.t.exec(ctx, qPruneCloudevents, tenants, ids)
	}
	return err
}

// pairs reads the keys that are old enough, at most as many as may go.
func (p *keyPruner) pairs(ctx context.Context, q query) (tenants, ids []string, err error) {
	err = p.t.each(ctx, q, func(rows pgx.Rows) error {
		var tenant, id string
		if err := rows.Scan(&tenant, &id); err != nil {
			return err
		}
		if len(ids) == p.req.Limit {
			p.res.More = true
			return nil
		}
		tenants, ids = append(tenants, tenant), append(ids, id)
		return nil
	}, p.req.Age, p.req.Limit+1)
	return tenants, ids, err
}

func (p *keyPruner) batches(ctx context.Context) error {
	var ids []string
	err := p.t.each(ctx, qPruneBatches, func(rows pgx.Rows) error {
		var id string
		if err := rows.Scan(&id); err != nil {
			return err
		}
		if p.res.More = len(ids) == p.req.Limit; !p.res.More {
			ids = append(ids, id)
		}
		return nil
	}, p.req.Age, p.req.Limit+1)
	p.res.Removed = int64(len(ids))
	if err == nil && !p.req.DryRun && len(ids) > 0 {
		_, err = p.t.exec(ctx, qPruneBatch, ids)
	}
	return err
}
