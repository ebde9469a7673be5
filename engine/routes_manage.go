package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// maxExporterName bounds an exporter's name in bytes.
const maxExporterName = 63

// Codes of the conflicts that a store answers about routes.
const (
	codeRouteExists = "route_exists"
	codeRouteOpen   = "route_open"
)

// RouteRenamed answers [Engine.RenameRoute].
type RouteRenamed struct {
	Routes int // those that have the other name, retired ones included
	// Tenants have the customer that they had under the old name under the new
	// one, too. Who had one there keeps it.
	Tenants int
	// Already: this very rename took place before, and nothing was done now.
	Already bool
	DryRun  bool
}

// RenameRoute gives an exporter another name: its routes, retired ones included,
// and how far its counters are reported. What is on its way goes on under the
// identity that it has, so nothing is reported twice; the new name then belongs
// into the configuration, in place of the old one. Subscriptions should not be
// changed meanwhile: they are read, completed and put. It may be repeated.
//
// It fails with tag not_found when no route has the old name, and with conflict,
// code "route_exists", when one has the new name. That the very same rename took
// place already, in a script's first run or by another host at the same time, is no
// error, as long as its action is kept. // Q4.
func (e *Engine) RenameRoute(ctx context.Context, from, to string, a Act) (RouteRenamed, error) {
	out := RouteRenamed{DryRun: a.DryRun}
	if err := a.Check(); err != nil {
		return out, err //nolint:wrapcheck // it names the field
	}
	if to == "" || !plainText(to, maxExporterName) || to == from {
		return out, sdk.Invalid("to", "another name, of 1 to 63 bytes without control characters")
	}
	action := storage.Action{Kind: storage.ActionRoute, Actor: a.Actor, Reason: a.Reason, Detail: detail(map[string]string{renamedFrom: from, renamedTo: to})}
	err := e.changeRoutes(ctx, a.DryRun, func(set storage.RouteSet) (storage.RouteChange, error) {
		had, has := routesOf(set, from), routesOf(set, to)
		if had == 0 {
			out.Routes = has
			return storage.RouteChange{}, e.renamed(ctx, from, to, has)
		}
		if has > 0 {
			return storage.RouteChange{}, routeExists()
		}
		out.Routes = had
		notes, err := renamedLabels(set, from, to)
		if err != nil {
			return storage.RouteChange{}, err
		}
		if out.Tenants, err = e.copyCustomers(ctx, from, to, a.DryRun); err != nil {
			return storage.RouteChange{}, err
		}
		return storage.RouteChange{Rename: &storage.RouteRename{From: from, To: to}, Mappings: notes, Action: &action}, nil
	})
	if errors.Is(err, errRenamed) {
		out.Already = true
		err = nil
	}
	return out, err
}

func routesOf(set storage.RouteSet, exporter string) (n int) {
	for _, r := range set.Routes {
		if r.Exporter == exporter {
			n++
		}
	}
	return n
}

// copyCustomers makes every tenant known at an exporter under its new name.
func (e *Engine) copyCustomers(ctx context.Context, from, to string, dry bool) (int, error) {
	n, after := 0, ""
	for {
		list, err := e.Subscriptions(ctx, after, pageOfTenants)
		if err != nil {
			return n, err
		}
		for _, s := range list {
			after = s.Tenant
			if s.Customers[from] == "" || s.Customers[to] != "" {
				continue
			}
			n++
			if dry {
				continue
			}
			s.Customers = maps.Clone(s.Customers)
			s.Customers[to] = s.Customers[from]
			if _, err := e.PutSubscription(ctx, s); err != nil {
				return n, err
			}
		}
		if len(list) < pageOfTenants {
			return n, nil
		}
	}
}

const pageOfTenants = 500

// RouteRetirement names the routes to retire: those in force of an exporter, or
// one of its features.
type RouteRetirement struct {
	Exporter string
	Feature  string // empty: all, [storage.AnyFeature] among them
}

// RetireRoute ends routes: what is recorded from now on does not take them. It
// answers how many.
//
// It fails with tag not_found when no such route is in force, and with conflict,
// code "route_open", while items of one, or of one that a mapping replaced, are open: whoever they wait for could not
// settle them any more. // Q4.
func (e *Engine) RetireRoute(ctx context.Context, r RouteRetirement, a Act) (int, error) {
	if err := a.Check(); err != nil {
		return 0, err //nolint:wrapcheck // it names the field
	}
	n := 0
	err := e.changeRoutes(ctx, a.DryRun, func(set storage.RouteSet) (storage.RouteChange, error) {
		change := storage.RouteChange{Idle: true}
		for _, x := range set.Routes {
			switch {
			case x.Exporter != r.Exporter, r.Feature != "" && r.Feature != x.Feature:
			case x.RetiredAt.IsZero():
				change.Retire = append(change.Retire, x.ID)
			default: // a mapping that was replaced left items under its own route
				change.IdleAlso = append(change.IdleAlso, x.ID)
			}
		}
		n = len(change.Retire)
		if n == 0 {
			return change, &sdk.Error{Tag: sdk.TagNotFound, Field: "exporter", Rule: "an exporter with such a route in force"}
		}
		if a.DryRun {
			return change, e.idle(ctx, r.Exporter, slices.Concat(change.Retire, change.IdleAlso))
		}
		change.Action = &storage.Action{Kind: storage.ActionRoute, Actor: a.Actor, Reason: a.Reason, Detail: detail(map[string]string{"retired": r.Exporter, "feature": r.Feature})}
		return change, nil
	})
	if errors.Is(err, &sdk.Error{Tag: sdk.TagConflict, Code: codeRouteOpen}) {
		return 0, routeOpen()
	}
	return n, err
}

func routeOpen() error {
	return &sdk.Error{
		Tag: sdk.TagConflict, Code: codeRouteOpen, Field: "exporter", Rule: "routes of which no item is open",
		Hint: "fencepost outbox list --open shows them",
	}
}

// idle fails if an item of the routes is open, for a dry run: the store's own test
// is made under the lock.
func (e *Engine) idle(ctx context.Context, exporter string, routes []int64) error {
	ids := map[int64]bool{}
	for _, id := range routes {
		ids[id] = true
	}
	q := storage.ItemQuery{Open: true, Exporter: exporter, Limit: 1000}
	for {
		page, err := e.store.items.ListItems(ctx, q)
		if err != nil {
			return fmt.Errorf("list open items of %s: %w", exporter, err)
		}
		for _, i := range page.Items {
			if ids[i.RouteID] && i.SupersededBy == 0 {
				return routeOpen()
			}
		}
		if !page.More {
			return nil
		}
		q.After = page.Next
	}
}

// changeRoutes plans a change on the routes as they are and makes it, again where
// other hosts changed them meanwhile.
func (e *Engine) changeRoutes(ctx context.Context, dry bool, plan func(storage.RouteSet) (storage.RouteChange, error)) error {
	for range routeRetries {
		set, err := e.store.routes.Routes(ctx)
		if err != nil {
			return fmt.Errorf("read routes: %w", err)
		}
		change, err := plan(set)
		if err != nil || dry {
			return err
		}
		change.Revision = set.Revision
		_, err = e.store.routes.ChangeRoutes(ctx, change)
		e.subjects.routes.Store(nil)
		coded := &sdk.Error{}
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, sdk.ErrConflict), errors.As(err, &coded) && (coded.Code == codeRouteExists || coded.Code == codeRouteOpen):
			return tagged(ctx, fmt.Errorf("change routes: %w", err))
		}
	}
	return sdk.Unavailable("routes_moving", errors.New("other hosts kept changing routes"))
}

// detail is a JSON object of strings.
func detail(m map[string]string) json.RawMessage {
	raw, err := json.Marshal(m)
	if err != nil {
		return nil
	}
	return raw
}

// billingKeys names, by route, what a provider bills by: two routes of equal keys
// report to the same place. Routes that report nothing have none. // Q4.
func billingKeys(routes []storage.Route, mappings []storage.Mapping) (map[int64]string, error) {
	contents := make(map[string]map[string]string, len(mappings))
	for _, m := range mappings {
		var c map[string]string
		if err := json.Unmarshal(m.Content, &c); err != nil {
			return nil, fmt.Errorf("decode stored mapping: %w", err)
		}
		contents[m.Version] = c
	}
	keys := make(map[int64]string, len(routes))
	for _, r := range routes {
		if c := contents[r.MappingVersion]; r.Disposition == storage.RouteExport && c != nil {
			keys[r.ID] = billingKey(r, c)
		}
	}
	return keys, nil
}

func billingKey(r storage.Route, content map[string]string) string {
	return canon.Join(content[mappingProvider], r.Account, r.Mode, r.Feature, content["event_name"])
}
