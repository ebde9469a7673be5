package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Requeue sends a quarantined item, after what was wrong with it was mended: with
// the mapping and the customer that are in force now. See [outbox.PlanRequeue].
//
// # Errors
//
// Those of [Engine.Resolve]. Conflict with code "still_ineligible" names the
// reason for which the item would be quarantined again; [outbox.ErrMappingChanged]
// says that the mapping is another one and the item cannot be made anew.
func (e *Engine) Requeue(ctx context.Context, id int64, q Requeue, a Act) (Settled, error) {
	if err := e.mayDecide(); err != nil {
		return Settled{}, err
	}
	st, err := need[storage.SettlementStore](e.cfg.Store, storage.Outbox)
	if err != nil {
		return Settled{}, err
	}
	for try := 1; ; try++ {
		d, err := e.Item(ctx, id)
		if err != nil {
			return Settled{}, err
		}
		around, err := e.surroundings(ctx, d)
		if err != nil {
			return Settled{}, err
		}
		plan, err := outbox.PlanRequeue(d, q, around, a)
		if err != nil {
			return Settled{}, err
		}
		out := Settled{ItemID: id, From: d.Item.State, To: storage.Pending, DryRun: a.DryRun, Superseded: plan.Replace != nil}
		if a.DryRun {
			return out, nil
		}
		rows, expect, err := e.requeue(ctx, st, plan, &out)
		switch {
		case err == nil && rows == 1:
			return out, nil
		case err == nil:
			return Settled{}, e.explain(ctx, id, expect)
		case !moved(err) || try == settleTries:
			return Settled{}, tagged(ctx, fmt.Errorf("requeue item: %w", err))
		}
	}
}

// moved reports whether something that a plan depends on moved, so that it may be
// made anew.
func moved(err error) bool {
	for _, code := range []string{"items_moved", "waiting_missing", "routes_moved"} {
		if errors.Is(err, &sdk.Error{Tag: sdk.TagConflict, Code: code}) {
			return true
		}
	}
	return false
}

func (e *Engine) requeue(ctx context.Context, st storage.SettlementStore, plan outbox.Requeued, out *Settled) (int, storage.Expect, error) {
	if plan.Replace == nil {
		done, err := e.store.items.Transition(ctx, plan.Moves)
		if err != nil || len(done) == 0 {
			return 0, plan.Moves[0].Expect, err
		}
		return done[0].Rows, plan.Moves[0].Expect, nil
	}
	done, err := st.Supersede(ctx, []storage.Supersession{*plan.Replace})
	if err != nil || len(done) == 0 {
		return 0, plan.Replace.Expect, err
	}
	out.NewItemID = done[0].NewItemID
	return done[0].Rows, plan.Replace.Expect, nil
}

// surroundings reads what an item's eligibility depends on. Routes are read anew:
// the revision that others check is not checked here, because an item under an
// old mapping is an item like any other.
func (e *Engine) surroundings(ctx context.Context, d storage.ItemDetail) (outbox.Surroundings, error) {
	e.subjects.routes.Store(nil)
	routes, err := e.subjects.routeSet(ctx)
	if err != nil {
		return outbox.Surroundings{}, err
	}
	tenant := d.Item.Identity.Tenant
	e.subjects.forget(&storage.Stale{Tenants: []string{tenant}})
	tenants, err := e.subjects.of(ctx, []string{tenant})
	if err != nil {
		return outbox.Surroundings{}, err
	}
	s := outbox.Surroundings{
		Routes: routes.Routes, Mappings: routes.mappings, Manifests: e.cfg.Manifests, Customers: tenants[tenant].sub.Customers,
		AttemptBudget: e.cfg.AttemptBudget, Now: e.cfg.Now(),
	}
	s.Standing, _ = e.standing(ctx, d.Item)
	if d.Event != nil && d.Item.Identity.SubjectKind == storage.SubjectEvent {
		if s.Reason, err = e.withheld(ctx, *d.Event); err != nil {
			return s, err
		}
		s.Waiting, err = e.waiting(ctx, d.Item.ItemID)
		return s, err
	}
	if d.Item.DependsOn != 0 {
		original, err := e.Item(ctx, d.Item.DependsOn)
		if err != nil {
			return s, err
		}
		s.Original = &original.Item
	}
	return s, nil
}

// waiting are the items that wait for one, with their payloads.
func (e *Engine) waiting(ctx context.Context, id int64) ([]storage.ItemDetail, error) {
	return e.dependents(ctx, id, func(i storage.Item) bool { return i.Waits })
}

// dependents are those of the items which depend on one that are wanted.
func (e *Engine) dependents(ctx context.Context, id int64, want func(storage.Item) bool) ([]storage.ItemDetail, error) {
	var out []storage.ItemDetail
	q := storage.ItemQuery{DependsOn: id, Limit: 1000}
	for {
		page, err := e.store.items.ListItems(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("list dependents: %w", err)
		}
		for _, i := range page.Items {
			if !want(i) || i.SupersededBy != 0 {
				continue
			}
			d, err := e.Item(ctx, i.ItemID)
			if err != nil {
				return nil, err
			}
			out = append(out, d)
		}
		if !page.More {
			return out, nil
		}
		q.After = page.Next
	}
}

// withheld is what is held against exporting an event, whatever its routes say.
func (e *Engine) withheld(ctx context.Context, ev storage.Event) (outbox.Reason, error) {
	counted, err := e.counterOwns(ctx, ev.Tenant, ev.Feature, ev.PeriodStart)
	if err != nil || !counted {
		return outbox.ReasonNone, err
	}
	return outbox.ReasonPeriodBuffered, nil
}
