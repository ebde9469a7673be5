package host

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/engine/outbox/reconcile"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	// roleReconciler is of the host that compares for all.
	roleReconciler = "reconciler"
	// reconcileEvery is the time between two comparisons of the last days, and
	// reconcileAllEvery between two of all the time for which the provider takes
	// usage: to read every day each hour would cost the store too much.
	reconcileEvery    = time.Hour
	reconcileFirst    = time.Minute // after a host took the role
	reconcileAllEvery = 24 * time.Hour
	// reconcileRecent is how many days the former look at, today included, and
	// reconcileAgain how many the latter look at also where all is confirmed: a
	// provider may change its mind.
	reconcileRecent = 2
	reconcileAgain  = 4
	// reconcileBack is how far back usage is compared if the exporter bounds
	// the age of usage at nothing.
	reconcileBack = 35 * 24 * time.Hour
	// reconcileStep is the stretch that is compared: a day that is closed is
	// confirmed, and a difference is found where it is.
	reconcileStep = 24 * time.Hour
)

// ReconcileRequest says what to compare with an exporter's provider.
type ReconcileRequest struct {
	Exporter string
	From     time.Time
	To       time.Time
	Customer string // empty: all
	Feature  string // empty: all
	// Whole compares the stretch as one instead of day by day.
	Whole bool
	Actor string
	// Reason is why; empty: asked for.
	Reason string
	DryRun bool
}

// reconciles are the comparisons that people asked for.
type reconciles struct {
	mu  sync.Mutex
	ctx context.Context // of the loops; nil while nothing runs
	run int
}

// reconcilesMax bounds how many comparisons people have under way: they share
// the rate of the deliveries.
const reconcilesMax = 4

// reconcileAsked lets people ask for comparisons until ctx ends.
func (h *Host) reconcileAsked(ctx context.Context) {
	h.asked.mu.Lock()
	defer h.asked.mu.Unlock()
	h.asked.ctx = ctx
}

// Reconcile compares, and returns when that is done. Errors are those of
// [engine.Engine.Reconcile]; not_found: no such exporter on this host.
func (h *Host) Reconcile(ctx context.Context, r ReconcileRequest) (storage.Reconciliation, error) {
	x, request, err := h.reconcileRequest(r)
	if err == nil {
		err = request.Check(x.manifest)
	}
	if err == nil && !x.sends() { // before a run is stored in which nothing could be asked
		err = &sdk.Error{
			Tag: sdk.TagUnsupported, Code: "no_delivery", Field: "exporter", Rule: "a host that delivers: this one sends nothing, and so cannot ask the provider",
			Hint: "ask a server: --server URL",
		}
	}
	if err != nil {
		return storage.Reconciliation{}, err
	}
	return h.engine.Reconcile(ctx, x.destination(), x, request)
}

// StartReconcile begins a comparison and returns the name of the run at once.
// It fails with tag unavailable if too many are under way or the host stops.
func (h *Host) StartReconcile(ctx context.Context, r ReconcileRequest) (string, error) {
	x, request, err := h.reconcileRequest(r)
	if err != nil {
		return "", err
	}
	// What breaks a rule is told now and not in a run that nobody reads.
	if err := request.Check(x.manifest); err != nil {
		return "", err
	}
	h.asked.mu.Lock()
	defer h.asked.mu.Unlock()
	switch {
	case h.asked.ctx == nil:
		return "", &sdk.Error{Tag: sdk.TagUnsupported, Code: "no_delivery", Rule: "a host that delivers"}
	case h.asked.ctx.Err() != nil:
		return "", sdk.Unavailable("stopping", nil)
	case h.asked.run >= reconcilesMax:
		return "", sdk.Unavailable("overloaded", errors.New("too many comparisons are under way"))
	}
	h.asked.run++
	loops := h.asked.ctx
	h.loops.Go(func() {
		defer func() {
			h.asked.mu.Lock()
			defer h.asked.mu.Unlock()
			h.asked.run--
		}()
		if _, err := h.engine.Reconcile(loops, x.destination(), x, request); err != nil {
			h.cfg.Logger.WarnContext(loops, "reconcile", "exporter", r.Exporter, "run", request.ID, "error", err)
		}
	})
	return request.ID, nil
}

func (h *Host) reconcileRequest(r ReconcileRequest) (*exporterRuntime, reconcile.Request, error) {
	i := slices.IndexFunc(h.exporters, func(x *exporterRuntime) bool { return x.settings.Name == r.Exporter })
	if i < 0 {
		return nil, reconcile.Request{}, &sdk.Error{Tag: sdk.TagNotFound, Field: "exporter", Rule: "an exporter of this host"}
	}
	if r.Reason == "" {
		r.Reason = "asked for"
	}
	request := reconcile.Request{
		ID: reconcile.NewID(), From: r.From, To: r.To, Step: reconcileStep, Customer: r.Customer, Feature: r.Feature,
		Act: outbox.Act{Actor: r.Actor, Reason: r.Reason, DryRun: r.DryRun},
	}
	if r.Whole {
		request.Step = 0
	}
	return h.exporters[i], request, nil
}

func (x *exporterRuntime) destination() outbox.Destination {
	return outbox.Destination{Exporter: x.settings.Name, Account: x.settings.Account, Mode: x.settings.Mode}
}

// reconcile compares now and then, until ctx ends. One host at a time does.
func (h *Host) reconcile(ctx context.Context) {
	var all time.Time           // when everything was last looked at
	older := map[string]int64{} // what differed then, of days that are looked at daily
	pause(ctx, reconcileFirst)
	for ctx.Err() == nil {
		now := h.cfg.Now()
		whole := all.IsZero() || now.Sub(all) >= reconcileAllEvery
		for _, x := range h.exporters {
			if !x.manifest.ReadBack.Sums || !x.sends() {
				continue
			}
			differing := h.compareDays(ctx, x, x.comparisons(now, whole))
			if whole {
				older[x.settings.Name] = 0
				for _, n := range differing[:len(differing)-1] {
					older[x.settings.Name] += n
				}
			}
			if recent := differing[len(differing)-1]; ctx.Err() == nil {
				h.metrics.Reconciled(x.settings.Name, older[x.settings.Name]+recent, h.unconfirmed(ctx, x))
			}
		}
		if whole {
			all = now
		}
		pause(ctx, reconcileEvery)
	}
}

// compareDays makes comparisons of one exporter and answers how many lines of
// each differ.
func (h *Host) compareDays(ctx context.Context, x *exporterRuntime, due []reconcile.Request) []int64 {
	differing := make([]int64, len(due))
	for i, r := range due {
		if !r.From.Before(r.To) || ctx.Err() != nil {
			continue
		}
		r.Step, r.Act = reconcileStep, outbox.Act{Actor: "reconciler", Reason: "compared with the provider every " + reconcileEvery.String()}
		done, err := h.engine.Reconcile(ctx, x.destination(), x, r)
		level := h.cfg.Logger.InfoContext
		if err != nil || done.Differing > 0 || done.Error != "" {
			level = h.cfg.Logger.WarnContext
		}
		differing[i] = done.Differing
		if ctx.Err() == nil {
			level(ctx, "reconciled", "exporter", x.settings.Name, "run", done.ID, "lines", done.Lines, "differing", done.Differing,
				"confirmed", done.Confirmed, "unanswered", done.Error, "error", err)
		}
	}
	return differing
}

// comparisons are what is due at a time: the last one is that of the last days,
// and those before it come once a day.
func (x *exporterRuntime) comparisons(now time.Time, all bool) []reconcile.Request {
	today := now.UTC().Truncate(reconcileStep)
	to := now.UTC().Add(-2 * x.manifest.ReadBack.Lag).Truncate(max(time.Hour, x.manifest.ReadBack.Granularity))
	recent := today.Add(-(reconcileRecent - 1) * reconcileStep)
	if !all {
		return []reconcile.Request{{From: recent, To: to, Unconfirmed: true}}
	}
	back := reconcileBack
	if past := x.manifest.WindowPast; past > 0 {
		back = past + reconcileStep
	}
	again := today.Add(-(reconcileAgain - 1) * reconcileStep)
	return []reconcile.Request{
		{From: now.UTC().Add(-back).Truncate(reconcileStep), To: again, Unconfirmed: true},
		{From: again, To: recent},
		{From: recent, To: to},
	}
}

// unconfirmedMax bounds what is counted: more is as bad.
const unconfirmedMax = 100_000

// unconfirmed counts what should be confirmed by now: what was accepted before
// the last two comparisons of its day, whatever day that is.
func (h *Host) unconfirmed(ctx context.Context, x *exporterRuntime) (n int64) {
	items, _ := h.store.(storage.OutboxStore)
	q := storage.ItemQuery{
		Exporter: x.settings.Name, Account: x.settings.Account, Mode: x.settings.Mode, Limit: 1000,
		Unconfirmed: 2*x.manifest.ReadBack.Lag + reconcileAllEvery + 2*reconcileEvery,
	}
	for n < unconfirmedMax {
		page, err := items.ListItems(ctx, q)
		if err != nil {
			h.cfg.Logger.WarnContext(ctx, "count what is unconfirmed", "exporter", x.settings.Name, "error", err)
			return n
		}
		n += int64(len(page.Items))
		if !page.More || len(page.Items) == 0 {
			return n
		}
		q.After = page.Next
	}
	return n
}
