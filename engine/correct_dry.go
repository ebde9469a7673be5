package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// rehearse answers a correction as the store would, in the order in which
// [storage.CorrectRequest] decides, from what is stored now. It writes nothing and
// takes no lock.
func (c *correcting) rehearse(ctx context.Context) (CorrectionResult, error) {
	req, err := c.request(ctx)
	if err != nil {
		return CorrectionResult{}, tagged(ctx, err)
	}
	out := CorrectionResult{Outcome: Inserted, Quantity: req.Event.Quantity, DryRun: true}
	before, err := c.stored(ctx, c.event.EventID)
	switch {
	case err != nil:
		return CorrectionResult{}, tagged(ctx, err)
	case before != nil && before.DedupeHash != c.event.DedupeHash:
		return CorrectionResult{}, c.conflict(ctx)
	case before != nil:
		out.Outcome, out.Seq, out.Quantity, out.Remaining = Duplicate, before.Seq, before.Quantity, c.left()
		return c.replaced(ctx, out)
	}
	why, err := c.refused(ctx, req)
	switch {
	case err != nil:
		return CorrectionResult{}, tagged(ctx, err)
	case why != "":
		return CorrectionResult{}, c.refusal(why)
	}
	out.Remaining = c.left().Sub(req.Event.Quantity)
	return c.replaced(ctx, out)
}

// left is what is left of the original; zero of one that is not there.
func (c *correcting) left() (left decimal.Decimal) {
	if c.absent {
		return left
	}
	return c.found.Original.Quantity.Abs().Sub(c.found.Corrected)
}

// stored is the event of an id, nil if there is none.
func (c *correcting) stored(ctx context.Context, id string) (*storage.Event, error) {
	ev, err := c.store.events.LoadEvent(ctx, storage.EventKey{Tenant: c.event.Tenant, EventID: id})
	switch {
	case errors.Is(err, sdk.ErrNotFound):
		return nil, nil //nolint:nilnil // that there is none is an answer
	case err != nil:
		return nil, fmt.Errorf("load event: %w", err)
	}
	return &ev, nil
}

// refused says why the store would refuse, or nothing.
func (c *correcting) refused(ctx context.Context, req storage.CorrectRequest) (string, error) {
	if c.absent {
		original, err := c.stored(ctx, c.original.EventID)
		if err != nil || original == nil {
			return storage.RefusedNotFound, err
		}
		return storage.RefusedNotUsage, nil
	}
	if c.found.Original.Kind != storage.Usage {
		return storage.RefusedNotUsage, nil
	}
	after := c.left().Sub(req.Event.Quantity).Sign()
	switch {
	case req.Event.Quantity.Sign() == 0:
		return storage.RefusedNothingRemaining, nil
	case after < 0:
		return storage.RefusedExceedsOriginal, nil
	case req.WholeOnly && after > 0:
		return storage.RefusedPartial, nil
	}
	return "", nil
}

// replaced adds the event that takes the original's place. What is recorded under
// its id is another one, unless this correction recorded it.
func (c *correcting) replaced(ctx context.Context, out CorrectionResult) (CorrectionResult, error) {
	if c.replace == nil {
		return out, nil
	}
	ev, err := c.stored(ctx, c.replace.EventID)
	if err != nil {
		return CorrectionResult{}, tagged(ctx, err)
	}
	out.Replacement = &Entry{Feature: c.replace.Feature, EventID: c.replace.EventID, Outcome: out.Outcome}
	switch {
	case ev == nil:
	case out.Outcome == Inserted:
		return CorrectionResult{}, c.conflict(ctx)
	default:
		out.Replacement.Seq = ev.Seq
	}
	return out, nil
}
