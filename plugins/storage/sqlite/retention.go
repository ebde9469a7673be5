package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	// maxPrune is the largest number of rows that one call removes.
	maxPrune = 10_000
	// minReceiptAge is the least age of a flushed batch that is forgotten.
	minReceiptAge = 24 * time.Hour
)

// Prune removes what is old; see [storage.RetentionStore]. Events are looked at
// in the order in which they were recorded, up to the first that is not old
// enough: one recorded while the clock was ahead holds back those after it. An
// event and its corrections go together. With the limit reached, Kept counts
// only the events before it.
//
// PruneTombstones also forgets CloudEvents: those of which an event is forgotten,
// and old ones that fed none; Removed does not count them. The age of a
// tombstone is the time since its event was pruned.
func (a *Adapter) Prune(ctx context.Context, req storage.PruneRequest) (res storage.PruneResult, err error) {
	const op = "prune"
	if err := checkPrune(req); err != nil {
		return res, fmt.Errorf("%s: %w", op, err)
	}
	var p *pruner
	work := func(c *conn) error {
		p = &pruner{c: c, req: req, now: a.now(), deltas: newDeltas(), counts: countDeltas{}}
		return p.run()
	}
	if req.DryRun {
		err = a.read(ctx, op, work)
	} else {
		err = a.write(ctx, op, func(_ context.Context, c *conn) error {
			c.pruning = true
			defer func() { c.pruning = false }()
			return work(c)
		})
	}
	if err != nil {
		return res, err
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

// pruner is the state of one call.
type pruner struct {
	c      *conn
	req    storage.PruneRequest
	now    time.Time
	deltas deltas
	counts countDeltas
	// unscanned events of a build, (from, to], must stay.
	from, to int64
	res      storage.PruneResult
}

func (p *pruner) before() time.Time { return p.now.Add(-p.req.Age) }

func (p *pruner) run() error {
	switch p.req.Kind {
	case storage.PruneEvents:
		return p.events()
	case storage.PruneTombstones:
		if err := p.tombstones(); err != nil {
			return err
		}
		return p.unmatched()
	case storage.PruneReceipts:
		return p.batches()
	}
	return nil
}

// full counts a row that goes, or notes that the limit leaves it.
func (p *pruner) full() bool {
	if p.res.Removed == int64(p.req.Limit) {
		p.res.More = true
		return true
	}
	p.res.Removed++
	return false
}

func (p *pruner) tombstones() error {
	type tombstone struct{ tenant, id, receipt string }
	var all []tombstone
	err := p.c.bind(qPruneTombstones).time(p.before()).int(int64(p.req.Limit) + 1).each(func(r *row) error {
		if t := (tombstone{r.text(), r.text(), r.text()}); !p.full() {
			all = append(all, t)
		}
		return nil
	})
	if err != nil || p.req.DryRun {
		return err
	}
	for _, t := range all {
		if _, err := p.c.bind(qPruneForget).text(t.tenant).text(t.id).run(); err != nil {
			return err
		}
		if t.receipt == "" {
			continue
		}
		if _, err := p.c.bind(qPruneCloudevent).text(t.tenant).text(t.receipt).run(); err != nil {
			return err
		}
	}
	return nil
}

// bodies removes the bodies of the receipts of which no event is left.
func (p *pruner) bodies(receipts map[storage.ReceiptKey]bool) error {
	for key := range receipts {
		var seqs []int64
		if _, err := p.c.bind(qReceiptDedupe).text(key.Tenant).text(key.ReceiptID).one(func(r *row) {
			r.hash()
			r.decode(&seqs)
		}); err != nil {
			return err
		}
		left := false
		for _, seq := range seqs {
			found, err := p.c.bind(qSeqKnown).int(seq).one(func(*row) {})
			if err != nil {
				return err
			}
			left = left || found
		}
		if left {
			continue
		}
		if _, err := p.c.bind(qPruneBody).text(key.Tenant).text(key.ReceiptID).run(); err != nil {
			return err
		}
	}
	return nil
}

// unmatched forgets old CloudEvents that fed nothing.
func (p *pruner) unmatched() error {
	var all []storage.ReceiptKey
	err := p.c.bind(qPruneUnmatched).time(p.before()).int(int64(p.req.Limit) + 1).each(func(r *row) error {
		if len(all) == p.req.Limit {
			p.res.More = true
			return nil
		}
		all = append(all, storage.ReceiptKey{Tenant: r.text(), ReceiptID: r.text()})
		return nil
	})
	if err != nil || p.req.DryRun {
		return err
	}
	for _, key := range all {
		if _, err := p.c.bind(qPruneCloudevent).text(key.Tenant).text(key.ReceiptID).run(); err != nil {
			return err
		}
	}
	return nil
}

func (p *pruner) batches() error {
	var all []string
	err := p.c.bind(qPruneBatches).time(p.before()).int(int64(p.req.Limit) + 1).each(func(r *row) error {
		if id := r.text(); !p.full() {
			all = append(all, id)
		}
		return nil
	})
	if err != nil || p.req.DryRun {
		return err
	}
	for _, id := range all {
		if _, err := p.c.bind(qPruneBatch).text(id).run(); err != nil {
			return err
		}
	}
	return nil
}
