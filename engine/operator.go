package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// What settling an item is told with; see [outbox].
type (
	Act         = outbox.Act
	Evidence    = outbox.Evidence
	Resolution  = outbox.Resolution
	Requeue     = outbox.Requeue
	Abandonment = outbox.Abandonment
)

// Recovery bounds what people may do with items. The zero value has the
// documented defaults.
type Recovery struct {
	// QuietTime is how long nothing may have been claimed of an item that is
	// settled by hand: longer than any lease. Zero: 10 min. The exporter's
	// read-back lag is added.
	QuietTime time.Duration
	// Horizon is how long an unresolved item may be sent again; the smaller of
	// this and the exporter's counts. Zero: 23 h.
	Horizon time.Duration
	// TrustedSince says since when the store's clock is known not to have
	// stepped back by more than is allowed; nil or zero: no such rule. // Q16
	TrustedSince func() time.Time
	// Blocked says why nothing may be decided about items now, or nil: what the
	// store says of them is not how they are. Nil: never. // Q17
	Blocked func() error
}

// mayDecide refuses while the store is known to be behind: what looks unsent may
// be charged, and another identifier would charge it again.
func (e *Engine) mayDecide() error {
	if e.cfg.Recovery.Blocked == nil {
		return nil
	}
	return e.cfg.Recovery.Blocked()
}

// Settled answers what was done with one item, or in a dry run would be.
type Settled struct {
	ItemID int64
	From   storage.ItemState
	To     storage.ItemState
	// NewItemID is the item that took its place; zero without, and in a dry run.
	NewItemID  int64
	Superseded bool
	DryRun     bool
}

// Resolve settles an uncertain item: it was accepted, was rejected, or is sent
// again. See [outbox.Resolve] for the conditions; none can be passed over.
//
// # Errors
//
// Invalid: the resolution or the act breaks a rule. Not_found: no such item.
// Conflict: the item is not what it was taken for ([outbox.StateMismatchError]
// says what it is), or it is too early, or too late to send it again. In all
// these cases nothing was written. Unavailable: it may have happened; asking
// again is safe, and then answers a conflict with the state asked for.
func (e *Engine) Resolve(ctx context.Context, id int64, r Resolution, a Act) (Settled, error) {
	if err := e.mayDecide(); err != nil {
		return Settled{}, err
	}
	return e.settle(ctx, id, a, func(d storage.ItemDetail) (storage.Transition, error) {
		s, known := e.standing(ctx, d.Item)
		if !known && r.To == storage.Pending {
			// How long the provider remembers an identifier is not known here.
			return storage.Transition{}, &sdk.Error{
				Tag: sdk.TagUnsupported, Code: "exporter_unknown", Field: "to", Rule: "an exporter that is configured here, to send an item again",
			}
		}
		move, err := outbox.Resolve(d.Item, r, s, a)
		if err != nil || move.Set.State != storage.Pending {
			return move, err
		}
		return move, e.resendable(ctx, d)
	})
}

// resendable refuses to send an item again that would come back at once, or wait
// for what never comes. // Q18.
func (e *Engine) resendable(ctx context.Context, d storage.ItemDetail) error {
	var original *storage.Item
	if id := d.Item.DependsOn; id != 0 {
		of, err := e.Item(ctx, id)
		if err != nil {
			return err
		}
		original = &of.Item
	}
	return outbox.Resendable(d, original, e.cfg.Manifests[e.exporterOf(ctx, d.Item)], e.cfg.Now())
}

// AddEvidence stores what is known of an item beside its state, which never
// changes by that. Evidence of the provider that is stored already is left alone:
// a message that comes again says nothing new, also after somebody withdrew what
// it said. Errors are those of [Engine.Resolve].
func (e *Engine) AddEvidence(ctx context.Context, id int64, ev Evidence, a Act) (Settled, error) {
	d, err := e.Item(ctx, id)
	if err != nil {
		return Settled{}, err
	}
	if outbox.Attested(d, ev) {
		out := Settled{ItemID: id, From: d.Item.State, To: d.Item.State, DryRun: a.DryRun}
		if ev.Finding != outbox.FoundTaken || a.DryRun {
			return out, nil
		}
		return out, e.lift(ctx, id, a)
	}
	done, err := e.settle(ctx, id, a, func(d storage.ItemDetail) (storage.Transition, error) {
		s, _ := e.standing(ctx, d.Item)
		return outbox.Attest(d.Item, ev, s, a)
	})
	if err != nil || a.DryRun || ev.Finding != outbox.FoundTaken || d.Item.Identity.SubjectKind != storage.SubjectEvent {
		return done, err
	}
	return done, e.lift(ctx, id, a)
}

// lift takes from what depends on an item the dispute that it has from there, if
// that was withdrawn, and again where one of them moves meanwhile; what was
// quarantined for it is requeued. To store the same evidence once more finishes
// what an error broke off. // Q18, T9.
func (e *Engine) lift(ctx context.Context, id int64, a Act) error {
	for range settleTries {
		original, err := e.Item(ctx, id)
		if err != nil {
			return err
		}
		dependents, err := e.dependents(ctx, id, func(storage.Item) bool { return true })
		if err != nil {
			return err
		}
		moves := outbox.Lifted(original, dependents)
		if len(moves) == 0 {
			return e.free(ctx, outbox.Freed(original, dependents), a)
		}
		if _, err := e.store.items.Transition(ctx, moves); err != nil {
			return tagged(ctx, fmt.Errorf("lift a dispute: %w", err))
		}
	}
	return sdk.Unavailable("dependents_moving", errors.New("what depends on the item kept moving"))
}

// free requeues what nothing is held against any more. One that would be
// quarantined again, or moved meanwhile, stays as it is, and open; so do all while
// nothing may be decided: the evidence is stored all the same. // T9.
func (e *Engine) free(ctx context.Context, ids []int64, a Act) error {
	for _, id := range ids {
		barred := e.mayDecide()
		err := barred
		if barred == nil {
			_, err = e.Requeue(ctx, id, Requeue{}, a)
		}
		switch {
		case err == nil:
		case barred != nil || errors.Is(err, sdk.ErrConflict):
			e.cfg.Logger.WarnContext(ctx, "a correction stays quarantined after its original's dispute was lifted", "item", id, "error", err)
		default:
			return err
		}
	}
	return nil
}

// Abandon gives an item up. What is stuck with a usage window goes on with its
// disposition; to repeat it after an error finishes that. Errors are those of
// [Engine.Resolve].
func (e *Engine) Abandon(ctx context.Context, id int64, b Abandonment, a Act) (Settled, error) {
	if err := e.mayDecide(); err != nil {
		return Settled{}, err
	}
	d, err := e.Item(ctx, id)
	if err != nil {
		return Settled{}, err
	}
	window := d.Item.Identity.SubjectKind == storage.SubjectWindow
	if window && !d.Item.SettledAt.IsZero() {
		return e.abandonWindow(ctx, d, b, a) // again
	}
	done, err := e.settle(ctx, id, a, func(d storage.ItemDetail) (storage.Transition, error) {
		s, _ := e.standing(ctx, d.Item)
		return outbox.Abandon(d.Item, b, s, a)
	})
	if err != nil || !window || a.DryRun {
		return done, err
	}
	return e.abandonWindow(ctx, d, b, a)
}

// Item returns one item with its history, or not_found.
func (e *Engine) Item(ctx context.Context, id int64) (storage.ItemDetail, error) {
	d, err := e.store.items.LoadItem(ctx, id)
	if err != nil {
		return d, fmt.Errorf("load item: %w", err)
	}
	return d, nil
}

// Actions returns a page of what people and reconcilers did, in order.
func (e *Engine) Actions(ctx context.Context, q storage.ActionQuery) (storage.ActionPage, error) {
	st, err := need[storage.SettlementStore](e.cfg.Store, storage.Outbox)
	if err != nil {
		return storage.ActionPage{}, err
	}
	page, err := st.ListActions(ctx, q)
	if err != nil {
		return page, fmt.Errorf("list actions: %w", err)
	}
	return page, nil
}

// settleTries bounds how often evidence is written anew because its item moved
// between reading and writing.
const settleTries = 8

// settle reads an item and moves it by one conditional update.
func (e *Engine) settle(ctx context.Context, id int64, a Act, plan func(storage.ItemDetail) (storage.Transition, error)) (Settled, error) {
	for try := 1; ; try++ {
		d, err := e.Item(ctx, id)
		if err != nil {
			return Settled{}, err
		}
		move, err := plan(d)
		if err != nil {
			return Settled{}, err
		}
		out := Settled{ItemID: id, From: d.Item.State, To: move.Set.State, DryRun: a.DryRun}
		if a.DryRun {
			return out, outbox.Unmet(move.Expect, d.Item, e.cfg.Now())
		}
		done, err := e.store.items.Transition(ctx, []storage.Transition{move})
		if err != nil {
			return Settled{}, tagged(ctx, fmt.Errorf("settle item: %w", err))
		}
		if len(done) == 1 && done[0].Rows == 1 {
			return out, nil
		}
		// Evidence is about the item in whatever state it is by now.
		if move.Action == nil || move.Action.Kind != storage.ActionEvidence || try == settleTries {
			return Settled{}, e.explain(ctx, id, move.Expect)
		}
	}
}

// explain says why a conditional update changed nothing.
func (e *Engine) explain(ctx context.Context, id int64, expect storage.Expect) error {
	d, err := e.Item(ctx, id)
	if err != nil {
		return err
	}
	if err := outbox.Unmet(expect, d.Item, e.cfg.Now()); err != nil {
		return err
	}
	// By this program's clock everything holds; by the store's it did not.
	return &sdk.Error{Tag: sdk.TagConflict, Code: "too_early_or_late", Field: "item", Rule: "inside the times that the store's clock tells", Hint: "try again in a minute"}
}

// standing is what settling an item depends on, and whether this host knows its
// exporter.
func (e *Engine) standing(ctx context.Context, i storage.Item) (outbox.Standing, bool) {
	s := outbox.Standing{QuietFor: e.cfg.Recovery.QuietTime, Horizon: e.cfg.Recovery.Horizon, Budget: e.cfg.AttemptBudget}
	if s.QuietFor == 0 {
		s.QuietFor = 10 * time.Minute
	}
	if s.Horizon == 0 {
		s.Horizon = 23 * time.Hour
	}
	if f := e.cfg.Recovery.TrustedSince; f != nil {
		s.TrustedSince = f()
	}
	m, known := e.cfg.Manifests[e.exporterOf(ctx, i)]
	if !known {
		return s, false
	}
	if h := m.IdentifierHorizon; h > 0 && h < s.Horizon {
		s.Horizon = h
	}
	s.QuietFor += m.ReadBack.Lag
	s.Admissible = m.ReadBack.Evidence
	return s, true
}

// exporterOf is what the exporter of an item is called now.
func (e *Engine) exporterOf(ctx context.Context, i storage.Item) string {
	if routes, err := e.subjects.routeSet(ctx); err == nil {
		for _, r := range routes.Routes {
			if r.ID == i.RouteID {
				return r.Exporter
			}
		}
	}
	return i.Identity.Exporter
}

// abandonWindow lets the reporting of a counter go on after its window was given
// up. // Q20.
func (e *Engine) abandonWindow(ctx context.Context, d storage.ItemDetail, b Abandonment, a Act) (Settled, error) {
	if err := a.Check(); err != nil {
		return Settled{}, err
	}
	reports, err := need[storage.ReportStore](e.cfg.Store, storage.Outbox)
	if err != nil {
		return Settled{}, err
	}
	i := d.Item
	bound, err := boundOf(ctx, reports, i)
	if err != nil {
		return Settled{}, err
	}
	out := Settled{ItemID: i.ItemID, From: i.State, To: i.State, DryRun: a.DryRun}
	if a.DryRun {
		return out, nil
	}
	res, err := reports.SettleWindow(ctx, storage.WindowSettle{
		Key: bound, ItemID: i.ItemID, States: []storage.ItemState{i.State}, Settled: true, Disposition: b.Disposition,
		Action: &storage.Action{ItemID: i.ItemID, Kind: storage.ActionAbandon, Actor: a.Actor, Reason: a.Reason, From: i.State, To: i.State},
	})
	if err != nil {
		return Settled{}, tagged(ctx, fmt.Errorf("settle window: %w", err))
	}
	if !res.Changed {
		return Settled{}, &outbox.StateMismatchError{ItemID: i.ItemID, Current: i.State, LeaseToken: i.LeaseToken, Settled: true}
	}
	return out, nil
}

// boundOf finds the bound on which a window is staged, whatever its exporter is
// called by now.
func boundOf(ctx context.Context, reports storage.ReportStore, i storage.Item) (storage.BoundKey, error) {
	q := storage.BoundQuery{Tenant: i.Identity.Tenant, Feature: i.Feature, Staged: true, Limit: 1000}
	for {
		page, err := reports.ReportBounds(ctx, q)
		if err != nil {
			return storage.BoundKey{}, fmt.Errorf("read report bounds: %w", err)
		}
		for _, b := range page.Bounds {
			if b.ItemID == i.ItemID {
				return b.BoundKey, nil
			}
		}
		if !page.More {
			return storage.BoundKey{}, &outbox.StateMismatchError{
				ItemID: i.ItemID, Current: i.State, LeaseToken: i.LeaseToken, Settled: !i.SettledAt.IsZero(), SupersededBy: i.SupersededBy,
			}
		}
		q.After = page.Next
	}
}
