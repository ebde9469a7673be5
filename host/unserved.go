package host

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// unservedEvery is how often the routes are compared with what this host
// serves: people rename and retire them while it runs.
const unservedEvery = 30 * time.Second

// waitingPages bounds the search for an item that waits for somebody else.
const waitingPages = 10

// DegradedMappingDiffers: another mapping than this host's is in force, put there
// by another host, and this one records by it.
const DegradedMappingDiffers = "mapping_differs"

// unserved lists exporters whose usage nobody here delivers: routes in force
// without an exporter, and items that wait for an account or mode from which an
// exporter has moved.
func (h *Host) unserved(ctx context.Context, set storage.RouteSet) ([]Degradation, error) {
	served, names := map[outbox.Destination]bool{}, map[string]bool{}
	for _, x := range h.exporters {
		names[x.settings.Name] = true
		served[outbox.Destination{Exporter: x.settings.Name, Account: x.settings.Account, Mode: x.settings.Mode}] = true
	}
	items, _ := h.store.(storage.OutboxStore)
	noted := map[outbox.Destination]bool{}
	var list []Degradation
	for _, r := range set.Routes {
		dest := outbox.DestinationOf(r)
		switch {
		case served[dest] || noted[dest]:
		case r.RetiredAt.IsZero() && !names[r.Exporter]:
			noted[dest] = true
			list = append(list, Degradation{DegradedRouteUnserved, "exporter " + r.Exporter + " has routes and is not served by this host"})
		case !r.RetiredAt.IsZero():
			noted[dest] = true
			waiting, err := pendingFor(ctx, items, dest)
			if err != nil {
				return nil, err
			}
			if waiting {
				list = append(list, Degradation{
					DegradedItemsUnserved,
					"items wait for exporter " + dest.Exporter + ", account " + dest.Account + ", mode " + dest.Mode + ", which this host does not serve",
				})
			}
		}
	}
	apart, err := h.apart(set)
	return append(list, apart...), err
}

// Unapplied lists how the routes in force differ from what this host is configured
// with. A host that does not follow its configuration ([Config].Routes) records,
// and makes items anew, by those in force. Empty: they do not differ.
func (h *Host) Unapplied(ctx context.Context) ([]Degradation, error) {
	set, err := h.engine.Routes(ctx)
	if err != nil {
		return nil, err
	}
	return h.apart(set)
}

// apart lists exporters of this host whose routes are not those that it asks for.
func (h *Host) apart(set storage.RouteSet) ([]Degradation, error) {
	var list []Degradation
	// Two releases with two mappings run side by side: one of them decides.
	for _, x := range h.exporters {
		how, err := x.plan().Behind(set)
		if err != nil {
			return nil, err
		}
		if how != "" {
			list = append(list, Degradation{DegradedMappingDiffers, "exporter " + x.settings.Name + ": " + how})
		}
	}
	// An exporter of ours without a route delivers nothing and gets nothing: its
	// routes were renamed or retired under us.
	for _, x := range h.exporters {
		if s := x.settings; !slices.ContainsFunc(set.Routes, func(r storage.Route) bool {
			return r.RetiredAt.IsZero() && r.Exporter == s.Name && r.Account == s.Account && r.Mode == s.Mode
		}) {
			list = append(list, Degradation{DegradedRouteGone, "exporter " + s.Name + " has no routes any more: they were renamed or retired; give it their name in the configuration, or start again"})
		}
	}
	return list, nil
}

// watchRoutes keeps the list of what is unserved up to date, and logs what is
// new in it.
func (h *Host) watchRoutes(ctx context.Context) {
	routes, ok := h.store.(storage.RouteStore)
	if !ok {
		return
	}
	tick := time.NewTicker(unservedEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		set, err := routes.Routes(ctx)
		var list []Degradation
		if err == nil {
			list, err = h.unserved(ctx, set)
		}
		if err != nil {
			continue // the store is asked again, and whoever needs it says so
		}
		h.mu.Lock()
		before := h.degraded
		h.degraded = list
		h.mu.Unlock()
		for _, d := range list {
			if !slices.Contains(before, d) {
				h.cfg.Logger.WarnContext(ctx, "delivery changed under this host", "code", d.Code, "detail", d.Detail)
			}
		}
	}
}

// pendingFor reports whether an item waits for a destination, as far as the
// first pages tell.
func pendingFor(ctx context.Context, items storage.OutboxStore, dest outbox.Destination) (bool, error) {
	q := storage.ItemQuery{State: storage.Pending, Exporter: dest.Exporter, Limit: 1000}
	for range waitingPages {
		page, err := items.ListItems(ctx, q)
		if err != nil {
			return false, fmt.Errorf("look for waiting items: %w", err)
		}
		for _, it := range page.Items {
			if it.Identity.Account == dest.Account && it.Identity.Mode == dest.Mode {
				return true, nil
			}
		}
		if !page.More {
			break
		}
		q.After = page.Next
	}
	return false, nil
}
