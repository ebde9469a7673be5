package host

import (
	"context"
	"time"

	"github.com/fencepost/fencepost/host/egress"
)

const (
	// readyFresh is how long an answer about readiness holds. Asking the store
	// is a durable write, and probes may come often.
	readyFresh = 2 * time.Second
	// readyWait is how long the store has to answer.
	readyWait = 5 * time.Second
)

// ready reports whether Record can work, at most readyFresh ago. The answer is
// for every probe, so the one that happens to ask does not end the asking when
// its client leaves.
func (h *Host) ready(ctx context.Context) error {
	h.readyMu.Lock()
	defer h.readyMu.Unlock()
	if now := egress.Elapsed(); h.readyAt == 0 || now-h.readyAt > readyFresh {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyWait)
		defer cancel()
		h.readyErr = h.store.Ping(ctx)
		h.readyAt = max(egress.Elapsed(), 1)
	}
	return h.readyErr
}
