package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// redelivered settles the CloudEvents that today's meters cannot measure. One
// that was received before is a duplicate, or a conflict, as its first receipt
// says, whatever became of the meters since; any other is invalid. // Q1.
func (r recorder) redelivered(ctx context.Context, all []*prepared) error {
	for _, p := range all {
		if p.unmeasured == nil {
			continue
		}
		key := storage.ReceiptKey{Tenant: p.in.Cloud.Subject, ReceiptID: p.in.Cloud.ReceiptID()}
		rc, err := r.store.events.LoadReceipt(ctx, key)
		switch {
		case errors.Is(err, sdk.ErrNotFound):
			p.refused = p.unmeasured
			continue
		case err != nil:
			return fmt.Errorf("load receipt: %w", err)
		}
		p.written = true
		if rc.DedupeHash != p.hash {
			p.result.Outcome = storage.Conflict
			continue
		}
		p.result.Outcome = storage.Duplicate
		for _, f := range rc.Features {
			id := canon.EventID(rc.Source, rc.ID, f)
			ev, err := r.store.events.LoadEvent(ctx, storage.EventKey{Tenant: rc.Tenant, EventID: id})
			// An event that retention removed has no number to answer any more.
			if err != nil && !errors.Is(err, sdk.ErrNotFound) {
				return fmt.Errorf("load event of a receipt: %w", err)
			}
			p.result.Entries = append(p.result.Entries, storage.EntryResult{EventID: id, Feature: f, Seq: ev.Seq})
		}
	}
	return nil
}
