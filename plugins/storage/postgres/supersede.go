package postgres

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qItemID           query = "item_id"
	qSupersede        query = "supersede"
	qSupersedeWaiting query = "supersede_waiting"
	qSupersedeBound   query = "supersede_bound"
)

// Supersede replaces items; see [storage.Supersession]. What it may reach is
// locked first, in the order of items.
func (a *Adapter) Supersede(ctx context.Context, list []storage.Supersession) ([]storage.SupersedeResult, error) {
	const op = "supersede items"
	ids := make([]int64, len(list))
	for i := range list {
		if err := checkSupersession(&list[i]); err != nil {
			return nil, storeError(ctx, op, err)
		}
		ids[i] = list[i].ItemID
	}
	if len(list) == 0 {
		return nil, nil
	}
	var results []storage.SupersedeResult
	w := writing{lock: lockShared, settings: qOutboxPlanner}
	err := a.run.write(ctx, op, w, func(ctx context.Context, t *tx) error {
		results = make([]storage.SupersedeResult, len(list))
		if err := t.row(ctx, qMoveLock, []any{nil}, ids, ids); err != nil {
			return err
		}
		for i := range list {
			s := &superseder{t: t, Supersession: &list[i]}
			if err := s.run(ctx); err != nil {
				return err
			}
			results[i] = s.res
		}
		return nil
	})
	a.hints.forget()
	if err != nil {
		return nil, err
	}
	return results, nil
}

func checkSupersession(s *storage.Supersession) error {
	if !slices.Contains(storage.ItemStates[:], s.Expect.State) || s.Expect.State == storage.Leased {
		return sdk.Invalid("expect.state", "one of the seven states but leased")
	}
	return checkAction(s.Action)
}

// superseder replaces one item, whose row is locked.
type superseder struct {
	t *tx
	*storage.Supersession
	res storage.SupersedeResult
}

func (s *superseder) run(ctx context.Context) error {
	// The update is one of the full statement: whatever was expected.
	moved := make([]storage.TransitionResult, 1)
	err := (&movement{t: s.t, results: moved, moves: []storage.Transition{{
		ItemID: s.ItemID, Expect: s.Expect, Set: storage.Change{State: s.Expect.State, Settled: new(true)},
	}}}).run(ctx)
	if s.res.Rows = moved[0].Rows; err != nil || s.res.Rows == 0 {
		return err
	}
	same, err := dependencies(ctx, s.t, []storage.NewItem{s.New})
	if err == nil && !same {
		err = itemsMoved()
	}
	if err != nil {
		return err
	}
	was, err := s.replace(ctx, s.ItemID, &s.New)
	if err != nil {
		return err
	}
	s.res.NewItemID = was.by
	if err := s.waiting(ctx); err != nil {
		return err
	}
	if was.identity.SubjectKind == storage.SubjectWindow {
		if _, err := s.t.exec(ctx, qSupersedeBound, s.ItemID, was.by); err != nil {
			return err
		}
	}
	action := s.Action
	action.ItemID = s.ItemID
	return s.t.appendActions(ctx, []storage.Action{action})
}

// replaced is an item that has a successor.
type replaced struct {
	identity storage.Identity
	by       int64
}

// replace marks an item and then inserts its successor: the index of sendable
// subjects has room for one of them. The identity of n may be incomplete: what
// is empty in it is copied.
func (s *superseder) replace(ctx context.Context, item int64, n *storage.NewItem) (was replaced, err error) {
	if err := s.t.row(ctx, qItemID, []any{&was.by}); err != nil {
		return was, err
	}
	next := itemOf{new: n, id: was.by}
	dest := append(identityInto(&was.identity), &next.seq, &next.feature)
	err = s.t.row(ctx, qSupersede, dest, item, was.by)
	if errors.Is(err, pgx.ErrNoRows) {
		err = errGone
	}
	if err != nil {
		return was, err
	}
	if a, b := was.identity, n.Identity; a.Tenant != b.Tenant || a.SubjectKind != b.SubjectKind || a.SubjectRef != b.SubjectRef {
		return was, sdk.Invalid("new.identity", "the subject of the item that it replaces")
	}
	done, err := insertItems(ctx, s.t, []itemOf{next})
	if err == nil && (len(done.ids) != 1 || done.ids[0] != was.by) {
		err = itemConflict("item_exists", "an identity and a subject that no other item has")
	}
	return was, err
}

func itemConflict(code, rule string) *sdk.Error {
	return &sdk.Error{Tag: sdk.TagConflict, Code: code, Field: "items", Rule: rule}
}

// waitingItem is an item that waits for the one that is replaced.
type waitingItem struct {
	id      int64
	state   storage.ItemState
	reason  string
	settled bool
	budget  int
	ref     string
}

// waiting gives everything that waits for the old item a copy that waits for
// the new one.
func (s *superseder) waiting(ctx context.Context) error {
	var all []waitingItem
	err := s.t.each(ctx, qSupersedeWaiting, func(rows pgx.Rows) error {
		var w waitingItem
		err := rows.Scan(&w.id, textInto(&w.state), textInto(&w.reason), &w.settled, &w.budget, &w.ref)
		all = append(all, w)
		return err
	}, s.ItemID)
	if err != nil {
		return err
	}
	for _, w := range all {
		if w.state != storage.Pending && w.state != storage.Quarantined {
			return itemConflict("waiting_moved", "pending or quarantined items that wait for it")
		}
		i := slices.IndexFunc(s.Waiting, func(n storage.NewItem) bool { return n.Identity.SubjectRef == w.ref })
		if i < 0 {
			return itemConflict("waiting_missing", "a replacement for every item that waits for it")
		}
		if err := s.replaceWaiting(ctx, w, &s.Waiting[i]); err != nil {
			return err
		}
	}
	return nil
}

// replaceWaiting inserts a copy of a waiting item, sent where its original now
// goes.
func (s *superseder) replaceWaiting(ctx context.Context, w waitingItem, with *storage.NewItem) error {
	to := s.New.Identity
	_, err := s.replace(ctx, w.id, &storage.NewItem{
		Identity: storage.Identity{
			Tenant: to.Tenant, SubjectKind: storage.SubjectCorrection, SubjectRef: w.ref,
			Exporter: to.Exporter, Account: to.Account, Mode: to.Mode, MappingVersion: to.MappingVersion,
		},
		Digest: with.Digest, SubjectKey: with.SubjectKey, Payload: with.Payload,
		RouteID: s.New.RouteID, SerialKey: s.New.SerialKey, Customer: s.New.Customer,
		QuarantineReason: w.reason, Settled: w.settled, AttemptBudget: w.budget,
		DependsOn: &storage.Dependency{ItemID: s.res.NewItemID, Wait: true},
	})
	return err
}
