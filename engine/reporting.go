package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fencepost/fencepost/engine/report"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Reporting says how counters are reported.
type Reporting struct {
	// Hosts returns the hosts that live. nil: this is the only one.
	Hosts func(ctx context.Context) ([]storage.HostRow, error)
	// Every is the time between two passes. Zero: 5 minutes.
	Every time.Duration
}

// Reporter returns what reports the counters of the configured features that are
// buffered or have a cutover; nil if there are none, or if the store cannot. It
// should run on one host at a time, and does no harm on several. // O22.
func (e *Engine) Reporter(r Reporting) *report.Reporter {
	if e.report == nil {
		return nil
	}
	counters, err := need[storage.CounterStore](e.cfg.Store, storage.Counters)
	if err != nil {
		return nil
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(e.cfg.Features)) {
		if f := e.cfg.Features[name]; f.Buffered || !f.Cutover.IsZero() {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return report.New(report.Config{
		Store: e.report, Counters: counters, Routes: e.store.routes.Routes, Customers: e.customers, Features: names,
		Hosts: r.Hosts, Manifests: e.cfg.Manifests, AttemptBudget: e.cfg.AttemptBudget, Every: r.Every,
		Now: e.cfg.Now, Logger: e.cfg.Logger,
	})
}

// customers says who tenants are at each exporter now.
func (e *Engine) customers(ctx context.Context, tenants []string) (map[string]map[string]string, error) {
	found, err := e.store.subs.Subscriptions(ctx, tenants)
	if err != nil {
		return nil, fmt.Errorf("read subscriptions: %w", err)
	}
	out := make(map[string]map[string]string, len(found))
	for _, s := range found {
		out[s.Tenant] = s.Customers
	}
	return out, nil
}
