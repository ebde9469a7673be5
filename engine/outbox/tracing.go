package outbox

import (
	"context"

	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Tracer is implemented by an [Observer] that also follows single items.
type Tracer interface {
	// StartSend begins the sending of a batch; its context is that of the
	// send. The function that it returns is called once, with where each item
	// is to move, by item id. Both are called from the deliverer's goroutine
	// and must not block.
	StartSend(ctx context.Context, items []storage.ClaimedItem) (context.Context, func(landed map[int64]storage.ItemState))
}

// TraceOf names everything that happens to one subject, from its recording to
// its confirmation. Both ends compute it, so nothing has to be stored for them
// to meet.
func TraceOf(tenant, subjectRef string) storage.Hash {
	return canon.Digest("trace", tenant, subjectRef)
}

// startSend is the observer's StartSend, or nothing.
func (p *pass) startSend(ctx context.Context, batch []work) (context.Context, func([]storage.Transition)) {
	t, ok := p.cfg.Observer.(Tracer)
	if !ok {
		return ctx, func([]storage.Transition) {}
	}
	items := make([]storage.ClaimedItem, len(batch))
	for i, w := range batch {
		items[i] = w.claimed
	}
	ctx, end := t.StartSend(ctx, items)
	return ctx, func(moves []storage.Transition) {
		landed := make(map[int64]storage.ItemState, len(moves))
		for _, m := range moves {
			landed[m.ItemID] = m.Set.State
		}
		end(landed)
	}
}
