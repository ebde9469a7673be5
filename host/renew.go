package host

import (
	"context"
	"time"
)

// renewEvery is how often billing periods are looked for that have begun.
const renewEvery = 30 * time.Second

// renew begins the periods of credit meters, until ctx ends.
func (h *Host) renew(ctx context.Context) {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		n, err := h.engine.RenewDue(ctx)
		if n > 0 {
			h.cfg.Logger.InfoContext(ctx, "billing periods begun", "tenants", n)
		}
		if err != nil && ctx.Err() == nil {
			h.cfg.Logger.WarnContext(ctx, "begin billing periods", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}
