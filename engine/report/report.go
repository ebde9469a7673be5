// Package report turns buffered counters into outbox items: windows, each from
// what was reported before to what the counter says now. // O22, Q20
//
// For each counter and destination the store keeps a bound: how far it has been
// reported, and at most one window on its way. A window and its item are inserted
// in one transaction, where the bound still is what the window begins at; the
// bound moves when the provider took the item. So a reporter may be killed
// between any two steps, and two may work at once: what one has staged is there,
// and what it has not is staged by the next pass.
package report

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/fault"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Config is what a reporter works with. Store, Counters, Routes, Customers,
// Features and Now are required.
type Config struct {
	Store    storage.ReportStore
	Counters storage.CounterStore
	// Routes reads the stored routes.
	Routes func(ctx context.Context) (storage.RouteSet, error)
	// Customers says who tenants are at each exporter, by tenant.
	Customers func(ctx context.Context, tenants []string) (map[string]map[string]string, error)
	// Features are those of which counters are reported.
	Features []string
	// Hosts returns the hosts that live. nil: this is the only one, and
	// everything it counted is in the store.
	Hosts func(ctx context.Context) ([]storage.HostRow, error)
	// Manifests are those of the exporters that this host runs, by name.
	Manifests map[string]exporter.Manifest
	// AttemptBudget is given to every item.
	AttemptBudget int
	// Every is the time between two passes. Zero: 5 minutes.
	Every time.Duration
	Now   func() time.Time
	// Logger receives what an operator should know. nil: discarded.
	Logger *slog.Logger
}

// Reporter stages windows and acknowledges them. Run and Once are for one
// goroutine at a time; any number of reporters may work on one store.
type Reporter struct {
	cfg Config
	// spent says until when a bound gets no window, because its span has one.
	// It spares the store a question; the store's answer would be the same.
	spent map[storage.BoundKey]time.Time
}

// flushWait is how long after the end of a period its last window waits for hosts
// that have not said that everything of the period is in the store. What they
// write later is one more window.
const flushWait = time.Hour

// page is how many counters or bounds one call reads.
const page = 500

// Summary is what one pass did.
type Summary struct {
	Counters     int // that were looked at
	Staged       int // windows
	Acknowledged int // windows
	// Waiting counters belong to a period that has ended and that not every
	// host has flushed.
	Waiting int
	// Carried counters have grown by less than their exporter can be told, or
	// have fallen below what it was told and cannot be untold: the next window
	// has it.
	Carried int
	// Blocked windows wait for a person: the provider refused them, or they
	// cannot be sent, or nobody knows what became of them.
	Blocked int
}

// New returns a reporter. It does no I/O.
func New(cfg Config) *Reporter {
	if cfg.Every == 0 {
		cfg.Every = 5 * time.Minute
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Reporter{cfg: cfg, spent: map[storage.BoundKey]time.Time{}}
}

// Run makes a pass at once and then one every interval until ctx ends.
func (r *Reporter) Run(ctx context.Context) {
	tick := time.NewTicker(r.cfg.Every)
	defer tick.Stop()
	for {
		sum, err := r.Once(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			r.cfg.Logger.ErrorContext(ctx, "report counters", "error", err)
		case sum.Blocked > 0:
			r.cfg.Logger.WarnContext(ctx, "counters are not reported any further: a window of theirs waits for a person", "windows", sum.Blocked)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Once makes one pass: it acknowledges what was taken and stages what was counted
// since. An error leaves nothing half done.
func (r *Reporter) Once(ctx context.Context) (Summary, error) {
	p := &pass{Reporter: r, now: r.cfg.Now()}
	maps.DeleteFunc(r.spent, func(_ storage.BoundKey, until time.Time) bool { return !p.now.Before(until) })
	if err := p.acknowledge(ctx); err != nil {
		return p.sum, fmt.Errorf("acknowledge windows: %w", err)
	}
	if err := p.begin(ctx); err != nil {
		return p.sum, err
	}
	for _, f := range r.cfg.Features {
		if err := p.feature(ctx, f); err != nil {
			return p.sum, fmt.Errorf("stage windows: %w", err)
		}
	}
	return p.sum, nil
}

// pass is one pass over all counters.
type pass struct {
	*Reporter
	now time.Time
	sum Summary
	set storage.RouteSet
	// mappings are those of set, by version.
	mappings map[string]storage.Mapping
	hosts    []storage.HostRow
}

// begin reads what all counters are judged by.
func (p *pass) begin(ctx context.Context) (err error) {
	if p.set, err = p.cfg.Routes(ctx); err != nil {
		return fmt.Errorf("read routes: %w", err)
	}
	p.mappings = make(map[string]storage.Mapping, len(p.set.Mappings))
	for _, m := range p.set.Mappings {
		p.mappings[m.Version] = m
	}
	if p.cfg.Hosts != nil {
		if p.hosts, err = p.cfg.Hosts(ctx); err != nil {
			return fmt.Errorf("read hosts: %w", err)
		}
	}
	return nil
}

// acknowledge moves the bounds of windows that the provider took, and counts
// those that need a person.
func (p *pass) acknowledge(ctx context.Context) error {
	q := storage.BoundQuery{Staged: true, Limit: page}
	for {
		found, err := p.cfg.Store.ReportBounds(ctx, q)
		if err != nil {
			return err
		}
		for _, b := range found.Bounds {
			switch b.ItemState {
			case storage.Accepted, storage.Confirmed:
				if err := p.settle(ctx, b); err != nil {
					return err
				}
			case storage.Rejected, storage.Quarantined, storage.Uncertain:
				p.sum.Blocked++
			case storage.Pending, storage.Leased:
			}
		}
		if !found.More {
			return nil
		}
		q.After = found.Next
	}
}

func (p *pass) settle(ctx context.Context, b storage.Bound) error {
	if err := fault.Point(ctx, "w1"); err != nil {
		return err
	}
	res, err := p.cfg.Store.SettleWindow(ctx, storage.WindowSettle{
		Key: b.BoundKey, ItemID: b.ItemID, States: []storage.ItemState{storage.Accepted, storage.Confirmed},
		Disposition: storage.WindowAcknowledged,
	})
	if err != nil {
		return err
	}
	if res.Changed {
		p.sum.Acknowledged++
	}
	return fault.Point(ctx, "w2")
}

// feature stages what the counters of one feature have grown or shrunk by.
func (p *pass) feature(ctx context.Context, feature string) error {
	routes := outbox.ExportRoutes(p.set.Routes, feature)
	if len(routes) == 0 {
		return nil
	}
	q := storage.CounterQuery{Feature: feature, Limit: page}
	for {
		found, err := p.cfg.Counters.StreamCounters(ctx, q)
		if err != nil {
			return err
		}
		if err := p.counters(ctx, found.Counters, routes); err != nil {
			return err
		}
		if !found.More {
			return nil
		}
		q.After = found.Next
	}
}

// counters stages the windows of some counters of one feature.
func (p *pass) counters(ctx context.Context, list []storage.Counter, routes []storage.Route) error {
	var open []storage.Counter
	var tenants []string
	for _, c := range list {
		p.sum.Counters++
		if !p.flushed(c.PeriodEnd) {
			p.sum.Waiting++
			continue
		}
		open = append(open, c)
		if n := len(tenants); n == 0 || tenants[n-1] != c.Tenant { // they come in order
			tenants = append(tenants, c.Tenant)
		}
	}
	if len(open) == 0 {
		return nil
	}
	customers, err := p.cfg.Customers(ctx, tenants)
	if err != nil {
		return fmt.Errorf("read customers: %w", err)
	}
	for _, route := range routes {
		known, err := p.bounds(ctx, open, route)
		if err != nil {
			return err
		}
		for _, c := range open {
			if err := p.counter(ctx, c, route, known.of(c, route, customers[c.Tenant][route.Exporter])); err != nil {
				return err
			}
		}
	}
	return nil
}

// flushed reports whether everything of a period that has ended is in the store,
// as far as the hosts that live know; or whether that was waited for long enough.
func (p *pass) flushed(end time.Time) bool {
	if p.now.Before(end) || p.now.Sub(end) >= flushWait {
		return true
	}
	for _, h := range p.hosts {
		if !h.FlushedThrough.IsZero() && h.FlushedThrough.Before(end) {
			return false
		}
	}
	return true
}

// tries bounds how often one window is shortened because its identity exists.
const tries = 8

// counter stages one window of one counter, if there is one to stage.
func (p *pass) counter(ctx context.Context, c storage.Counter, route storage.Route, b reported) error {
	to := c.Value.Sub(b.elsewhere)
	if b.staged || to.Equal(b.acked) {
		return nil
	}
	if m, ok := p.cfg.Manifests[route.Exporter]; ok && m.Every > 0 {
		return p.spaced(ctx, c, route, b, m)
	}
	for range tries {
		done, err := p.stage(ctx, c, route, b, to)
		if done || err != nil {
			return err
		}
		// The counter has been here before, on its way up or down: the window
		// is another one only if it ends somewhere else.
		mid, ok := outbox.Split(b.acked, to)
		if !ok {
			break
		}
		to = mid
	}
	p.sum.Blocked++
	p.cfg.Logger.WarnContext(ctx, "a window of a counter exists and cannot be shortened", "exporter", route.Exporter, "feature", c.Feature)
	return nil
}

// codes of refusals that are no failures.
const (
	codeWindowExists = "window_exists"
	codeRoutesMoved  = "routes_moved"
)

// stage stages one window and reports whether there is nothing more to do: it was
// staged, by this reporter or by another, or the routes have changed and the next
// pass looks at them. It reports false if the window's identity exists.
func (p *pass) stage(ctx context.Context, c storage.Counter, route storage.Route, b reported, to reading) (bool, error) {
	s := outbox.Stretch{
		Tenant: c.Tenant, Window: outbox.Window{Feature: c.Feature, PeriodStart: c.PeriodStart, From: b.acked, To: to, Span: b.span},
		PeriodEnd: c.PeriodEnd, Route: route, Mapping: p.mappings[route.MappingVersion], Customer: b.customer,
		AttemptBudget: p.cfg.AttemptBudget, Now: p.now,
	}
	if m, ok := p.cfg.Manifests[route.Exporter]; ok {
		s.Manifest = &m
	}
	if err := fault.Point(ctx, "w3"); err != nil {
		return false, err
	}
	res, err := p.cfg.Store.StageWindow(ctx, storage.WindowStage{
		Key: keyOf(c, route), PeriodEnd: c.PeriodEnd, From: b.acked, To: to, Item: outbox.BuildWindow(s), RoutesRevision: p.set.Revision,
	})
	if refused, ok := errors.AsType[*sdk.Error](err); ok && refused.Tag == sdk.TagConflict {
		switch refused.Code {
		case codeWindowExists:
			return false, nil
		case codeRoutesMoved:
			return true, nil
		}
	}
	if err != nil {
		return false, err
	}
	if res.Changed {
		p.sum.Staged++
	}
	return true, fault.Point(ctx, "w4")
}
