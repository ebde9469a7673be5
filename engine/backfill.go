package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Backfill asks for the items of events that were recorded before a route was
// there.
type Backfill struct {
	Exporter string // required: one with routes in force
	Feature  string // empty: all
	Tenant   string // empty: all
	// After is the seq to go on from, Limit how many events one call looks at:
	// 1 to 1000, 0: 500.
	After int64
	Limit int
}

// Backfilled answers one call of [Engine.Backfill].
type Backfilled struct {
	Scanned int
	Made    int // items, those in quarantine included; in a dry run, what would be
	// Quarantined counts those of Made that cannot be sent, with their reason.
	Quarantined int
	// Skipped are the events that have, or had, an item on a route to the same
	// place.
	Skipped []Skipped
	Next    int64 // the After to go on from
	More    bool
	DryRun  bool
}

// Skipped is an event that was left alone, because of an item.
type Skipped struct {
	Event  storage.EventKey
	Seq    int64
	ItemID int64
	State  storage.ItemState
}

// Backfill makes items for events that were recorded before an exporter had a
// route for them, and for their corrections. It goes through the events in the
// order of their insertion, a page in each call: call it with After = Next until
// More is false. Asked twice, it makes nothing twice.
//
// An event that has, or had, an item on any route to the same place, whatever
// became of it, is skipped and reported, unless that item is superseded: it may
// have been billed. What cannot be sent is made in quarantine, with its reason. A
// dry run counts corrections only of events that have their item. // Q4
//
// It fails with tag not_found when the exporter has no route in force, and with
// tag unsupported when the store does not stream events.
func (e *Engine) Backfill(ctx context.Context, b Backfill, a Act) (Backfilled, error) {
	if err := a.Check(); err != nil {
		return Backfilled{}, err //nolint:wrapcheck // it names the field
	}
	if err := e.mayDecide(); err != nil {
		return Backfilled{}, err
	}
	if b.Limit == 0 {
		b.Limit = 500
	}
	page, err := e.Events(ctx, storage.StreamQuery{After: b.After, Limit: b.Limit, Tenant: b.Tenant, Feature: b.Feature})
	if err != nil {
		return Backfilled{}, err
	}
	st, err := need[storage.SettlementStore](e.cfg.Store, storage.Outbox)
	if err != nil {
		return Backfilled{}, err
	}
	f := &filling{engine: e, settle: st, ask: b, act: a}
	f.out = Backfilled{Scanned: len(page.Events), Next: page.Next, More: page.More, DryRun: a.DryRun}
	// Corrections come second: their originals have their items by then.
	for _, kind := range []storage.Kind{storage.Usage, storage.Correction} {
		if err := f.fill(ctx, kind, page.Events); err != nil {
			return Backfilled{}, tagged(ctx, err)
		}
	}
	if err := f.closing(ctx); err != nil {
		return Backfilled{}, tagged(ctx, err)
	}
	return f.out, nil
}

// filling is one page of a backfill.
type filling struct {
	engine *Engine
	settle storage.SettlementStore
	ask    Backfill
	act    Act
	routes *routeView
	own    []storage.Route  // in force, of the exporter
	keys   map[int64]string // see billingKeys
	out    Backfilled
}

// fill makes the items of events of one kind, anew where what they were computed
// from moved: nothing was written then.
func (f *filling) fill(ctx context.Context, kind storage.Kind, events []storage.Event) error {
	before := f.out
	for range settleTries {
		f.out = before
		err := f.try(ctx, kind, events)
		if err == nil || !moved(err) {
			return err
		}
	}
	return sdk.Unavailable("routes_moving", errors.New("routes or items kept moving"))
}

func (f *filling) try(ctx context.Context, kind storage.Kind, events []storage.Event) error {
	if err := f.readRoutes(ctx); err != nil {
		return err
	}
	var wanting []wanted
	var keys []storage.EventKey
	for _, ev := range events {
		if ev.Kind != kind {
			continue
		}
		build := f.usage
		if kind == storage.Correction {
			build = f.correction
		}
		items, err := build(ctx, ev)
		if err != nil {
			return err
		}
		if len(items) > 0 {
			wanting = append(wanting, wanted{ev, items})
			keys = append(keys, storage.EventKey{Tenant: ev.Tenant, EventID: ev.EventID})
		}
	}
	have, err := f.itemsOf(ctx, keys)
	if err != nil {
		return err
	}
	var items []storage.NewItem
	for _, w := range wanting {
		items = append(items, f.lacking(w, have)...)
	}
	return f.enqueue(ctx, items)
}

// wanted are the items that an event would have if it had none.
type wanted struct {
	event storage.Event
	items []storage.NewItem
}

// itemsOf reads what items events have, all of them at once.
func (f *filling) itemsOf(ctx context.Context, keys []storage.EventKey) (map[storage.EventKey][]storage.Item, error) {
	have := make(map[storage.EventKey][]storage.Item, len(keys))
	q := storage.ItemQuery{Events: keys, Limit: 1000}
	for more := len(keys) > 0; more; {
		page, err := f.engine.store.items.ListItems(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("list items of events: %w", err)
		}
		for _, i := range page.Items {
			k := storage.EventKey{Tenant: i.Identity.Tenant, EventID: i.Identity.SubjectRef}
			have[k] = append(have[k], i)
		}
		q.After, more = page.Next, page.More
	}
	return have, nil
}

// closing ends the last page. A correction that was computed before the item of
// its original was there has none itself: changing the revision of the routes
// makes those that are not written yet be computed anew, and the next call meets
// those that are.
func (f *filling) closing(ctx context.Context) error {
	if f.out.More || f.out.Made == 0 || f.act.DryRun {
		return nil
	}
	f.out.More = true
	return f.engine.changeRoutes(ctx, false, func(storage.RouteSet) (storage.RouteChange, error) {
		return storage.RouteChange{Action: f.action()}, nil
	})
}

func (f *filling) action() *storage.Action {
	return &storage.Action{
		Kind: storage.ActionBackfill, Actor: f.act.Actor, Reason: f.act.Reason,
		Detail: detail(map[string]string{"exporter": f.ask.Exporter, "feature": f.ask.Feature, "tenant": f.ask.Tenant, "after": strconv.FormatInt(f.ask.After, 10)}),
	}
}

func (f *filling) readRoutes(ctx context.Context) error {
	f.engine.subjects.routes.Store(nil)
	var err error
	if f.routes, err = f.engine.subjects.routeSet(ctx); err != nil {
		return err
	}
	if f.keys, err = billingKeys(f.routes.Routes, f.routes.Mappings); err != nil {
		return err
	}
	f.own = nil
	for _, r := range f.routes.Routes {
		if r.Exporter == f.ask.Exporter && r.RetiredAt.IsZero() {
			f.own = append(f.own, r)
		}
	}
	if len(f.own) == 0 {
		return &sdk.Error{Tag: sdk.TagNotFound, Field: "exporter", Rule: "an exporter with routes in force"}
	}
	return nil
}

// usage makes the items of one event.
func (f *filling) usage(ctx context.Context, ev storage.Event) ([]storage.NewItem, error) {
	e := f.engine
	reason, err := e.withheld(ctx, ev)
	if err != nil {
		return nil, err
	}
	tenants, err := e.subjects.of(ctx, []string{ev.Tenant})
	if err != nil {
		return nil, err
	}
	items := outbox.BuildItems(outbox.Enqueue{
		Event: ev, Routes: f.own, Mappings: f.routes.mappings, Fields: f.routes.fields, Manifests: e.cfg.Manifests,
		Customers: tenants[ev.Tenant].sub.Customers, Reason: reason, AttemptBudget: e.cfg.AttemptBudget, Now: e.cfg.Now(),
	})
	return items, nil
}

// correction makes the items of one correction.
func (f *filling) correction(ctx context.Context, ev storage.Event) ([]storage.NewItem, error) {
	e := f.engine
	if err := e.store.takesCorrections(e); err != nil {
		return nil, err
	}
	found, err := e.store.corrections.LoadCorrectable(ctx, storage.EventKey{Tenant: ev.Tenant, EventID: ev.OriginalEventID})
	if err != nil {
		return nil, fmt.Errorf("load original: %w", err)
	}
	if reason, err := e.withheld(ctx, found.Original); err != nil || reason != outbox.ReasonNone {
		return nil, err // the counter went down instead
	}
	var items []storage.Item
	for _, i := range found.Items {
		for _, r := range f.routes.Routes {
			if r.ID == i.RouteID && r.Exporter == f.ask.Exporter {
				items = append(items, i)
			}
		}
	}
	return outbox.BuildCorrectionItems(outbox.Corrected{
		Correction: storage.EventKey{Tenant: ev.Tenant, EventID: ev.EventID}, Effect: ev.Effect, Original: found.Original,
		Items: items, Manifests: e.cfg.Manifests, AttemptBudget: e.cfg.AttemptBudget,
	}), nil
}

// lacking leaves out what the event has an item for.
func (f *filling) lacking(w wanted, have map[storage.EventKey][]storage.Item) (out []storage.NewItem) {
	ev := w.event
	key := storage.EventKey{Tenant: ev.Tenant, EventID: ev.EventID}
	for _, n := range w.items {
		if had := f.had(n, have[key]); had != nil {
			if ev.Kind == storage.Usage {
				f.out.Skipped = append(f.out.Skipped, Skipped{
					Event: key, Seq: ev.Seq, ItemID: had.ItemID, State: had.State,
				})
			}
			continue
		}
		out = append(out, n)
	}
	return out
}

// had is an item of the same subject on a route to the same place, or nil.
func (f *filling) had(n storage.NewItem, items []storage.Item) *storage.Item {
	for i := range items {
		old := &items[i]
		if old.SupersededBy != 0 || old.Identity.SubjectKind != n.Identity.SubjectKind {
			continue
		}
		key := f.keys[old.RouteID]
		same := old.Identity.Account == n.Identity.Account && old.Identity.Mode == n.Identity.Mode && f.nameOf(*old) == n.Identity.Exporter
		if same || (key != "" && key == f.keys[n.RouteID]) || outbox.SubjectKey(old.Identity) == n.SubjectKey {
			return old
		}
	}
	return nil
}

// nameOf is what the exporter of an item is called now.
func (f *filling) nameOf(i storage.Item) string {
	for _, r := range f.routes.Routes {
		if r.ID == i.RouteID {
			return r.Exporter
		}
	}
	return i.Identity.Exporter
}

func (f *filling) enqueue(ctx context.Context, items []storage.NewItem) error {
	if len(items) == 0 {
		return nil
	}
	ids := make([]int64, len(items))
	if f.act.DryRun {
		for i := range ids {
			ids[i] = 1
		}
	} else {
		var err error
		ids, err = f.settle.Enqueue(ctx, storage.EnqueueRequest{Items: items, RoutesRevision: f.routes.Revision, Action: f.action()})
		if err != nil {
			return fmt.Errorf("enqueue: %w", err)
		}
	}
	for i, id := range ids {
		if id == 0 {
			continue
		}
		f.out.Made++
		if items[i].QuarantineReason != "" {
			f.out.Quarantined++
		}
	}
	return nil
}
