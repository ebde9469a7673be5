package host

import (
	"context"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/host/egress"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// gaugeEvery is how often the outbox is counted for metrics.
const gaugeEvery = 15 * time.Second

// start runs a deliverer for each exporter, the heartbeat, the gauges, and what
// one host does for all. ctx bounds the first heartbeat only.
func (h *Host) start(ctx context.Context) error {
	if err := h.appear(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	h.stop = cancel
	for _, x := range h.exporters {
		d, err := h.deliverer(x)
		if err != nil {
			return fmt.Errorf("exporter %s: %w", x.settings.Name, err)
		}
		h.loops.Go(func() {
			select { // until then everything waits where it is
			case <-x.ready:
			case <-ctx.Done():
				return
			}
			if err := d.Run(ctx); err != nil {
				h.cfg.Logger.ErrorContext(ctx, "deliverer ended", "exporter", x.settings.Name, "error", err)
			}
		})
	}
	h.loops.Go(func() { h.gauge(ctx) })
	h.loops.Go(func() { h.watchRoutes(ctx) })
	if h.presence != nil {
		h.loops.Go(func() { h.presence.run(ctx) })
	}
	h.loops.Go(func() { h.single(ctx, roleBuckets, h.rebuildBuckets) })
	h.loops.Go(func() { h.single(ctx, roleRenewer, h.renew) })
	if r := h.engine.Reporter(h.reporting()); r != nil {
		h.loops.Go(func() { h.single(ctx, roleReporter, r.Run) })
	}
	h.reconcileAsked(ctx)
	h.loops.Go(func() { h.single(ctx, roleReconciler, h.reconcile) })
	return nil
}

// reporting says how counters are reported from here.
func (h *Host) reporting() engine.Reporting {
	r := engine.Reporting{Every: time.Duration(h.cfg.Settings.Counters.Report)}
	if h.presence != nil {
		r.Hosts = func(ctx context.Context) ([]storage.HostRow, error) { return h.presence.store.Hosts(ctx, hostTTL) }
	}
	return r
}

// appear makes this host known to the others. A store that does not answer is
// no reason not to start: recording may work before the heartbeat does.
func (h *Host) appear(ctx context.Context) error {
	if h.presence == nil {
		return nil
	}
	if len(h.exporters) > 0 {
		if err := usableFolder(h.cfg.Settings.StateDir); err != nil {
			return err
		}
	}
	if err := h.presence.beat(ctx); err != nil {
		h.cfg.Logger.WarnContext(ctx, "first heartbeat", "error", err)
	}
	return nil
}

// single runs a loop on one host at a time.
func (h *Host) single(ctx context.Context, role string, run func(ctx context.Context)) {
	if h.presence == nil {
		run(ctx)
		return
	}
	h.presence.holding(ctx, role, run)
}

// blocked says why this host sends nothing though it could; empty: it may send.
func (h *Host) blocked() (reason, hint string) {
	if h.presence == nil || h.cfg.WithoutDelivery || len(h.exporters) == 0 {
		return "", ""
	}
	return h.presence.blocked()
}

func (h *Host) deliverer(x *exporterRuntime) (*outbox.Deliverer, error) {
	o := h.cfg.Settings.Outbox
	items, _ := h.store.(storage.OutboxStore)
	routes, _ := h.store.(storage.RouteStore)
	served := &servedRoutes{store: routes, dest: outbox.Destination{
		Exporter: x.settings.Name, Account: x.settings.Account, Mode: x.settings.Mode,
	}, log: h.cfg.Logger}
	cfg := outbox.Config{
		Store: items, Sender: x, Destination: served.dest, Routes: served.ids, Owner: h.owner,
		Page: o.Page, Lease: time.Duration(o.Lease), Tick: time.Duration(o.Tick), Horizon: time.Duration(o.Horizon),
		Retry: outbox.Retry{
			Base: time.Duration(o.Base), Cap: time.Duration(o.Cap), RateLimitDelay: time.Duration(o.RateLimitDelay),
		},
		Rate: x.settings.Rate, Trusted: x.settings.Trust == "outcomes",
		Now: h.cfg.Now, Boottime: egress.Elapsed, Uniform: uniform,
		Logger: h.cfg.Logger, Observer: h.deliveryObserver(x),
	}
	if h.presence != nil {
		g := &gate{presence: h.presence}
		cfg.Routes = func() []int64 { return g.routes(served.ids) }
		cfg.Hosts, cfg.TrustedSince, cfg.BeforeSend = g.living, g.trusted, g.allow
	}
	return outbox.NewDeliverer(cfg)
}

// gauge counts the outbox now and then, and once before it ends.
func (h *Host) gauge(ctx context.Context) {
	items, _ := h.store.(storage.OutboxStore)
	names := make([]string, len(h.exporters))
	for i, x := range h.exporters {
		names[i] = x.settings.Name
	}
	tick := time.NewTicker(gaugeEvery)
	defer tick.Stop()
	for {
		st, err := items.OutboxStats(ctx)
		if err != nil && ctx.Err() == nil {
			h.cfg.Logger.WarnContext(ctx, "count the outbox", "error", err)
		}
		if err == nil {
			h.metrics.SetOutbox(names, st)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// deliveryObserver turns what a deliverer reports into metrics.
type deliveryObserver struct {
	host     *Host
	exporter string
}

func (o deliveryObserver) Delivered(state storage.ItemState, took time.Duration) {
	if state == storage.Accepted {
		o.host.delivered(o.exporter)
	}
	o.host.metrics.Delivered(o.exporter, state, took)
}
func (o deliveryObserver) Stale(items int) { o.host.metrics.Stale(o.exporter, items) }
func (o deliveryObserver) Lied(items int)  { o.host.metrics.Lied(o.exporter, items) }
func (o deliveryObserver) Paused(reason outbox.PauseReason, d time.Duration) {
	if reason == outbox.PausedBreaker {
		o.host.paused(o.exporter, d)
	}
	o.host.metrics.Paused(o.exporter, string(reason), d)
}
