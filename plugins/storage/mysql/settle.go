package mysql

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Supersede implements [storage.SettlementStore].
func (a *Adapter) Supersede(ctx context.Context, list []storage.Supersession) (results []storage.SupersedeResult, err error) {
	var ids []int64
	k := &keys{}
	for i := range list {
		if err := checkAction(&list[i].Action); err != nil {
			return nil, err
		}
		ids = append(ids, list[i].ItemID)
		k.item(&list[i].New)
		for j := range list[i].Waiting {
			k.item(&list[i].Waiting[j])
		}
	}
	k.split()
	err = a.writeAfter(ctx, "supersede", k.statements(), func(t *tx, r []result) error {
		results = make([]storage.SupersedeResult, len(list))
		s := superseding{known: newKnown()}
		if err := s.known.read(k, r); err != nil {
			return err
		}
		var err error
		if s.itemSet, err = t.loadItems(ids, ids); err != nil {
			return err
		}
		for i := range list {
			old := s.items[list[i].ItemID]
			if old == nil || !old.holds(&list[i].Expect, t.now) {
				continue
			}
			id, err := s.supersede(&list[i], old)
			if err != nil {
				return err
			}
			results[i] = storage.SupersedeResult{Rows: 1, NewItemID: id}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

type superseding struct {
	*itemSet
	known known
}

func (s *superseding) supersede(sup *storage.Supersession, old *item) (int64, error) {
	id, err := s.replace(old, &sup.New)
	if err != nil {
		return 0, err
	}
	// What was inserted just now is as it was asked for.
	of := storage.Dependency{ItemID: id, State: storage.Pending, Settled: sup.New.Settled, Wait: true}
	if sup.New.QuarantineReason != "" {
		of.State = storage.Quarantined
	}
	for _, d := range s.dependents[old.ItemID] {
		if !d.Waits || d.SupersededBy != 0 {
			continue
		}
		if d.State != storage.Pending && d.State != storage.Quarantined {
			return 0, conflict("waiting_moved")
		}
		i := slices.IndexFunc(sup.Waiting, func(n storage.NewItem) bool { return n.Identity.SubjectRef == d.Identity.SubjectRef })
		if i < 0 {
			return 0, conflict("waiting_missing")
		}
		s.known.depends[id] = of
		if _, err := s.replace(d, d.copyTo(&sup.New, &sup.Waiting[i], of)); err != nil {
			return 0, err
		}
	}
	s.exec(anyRows, "UPDATE fencepost_bounds SET item = ? WHERE item = ?", id, old.ItemID)
	s.act(&sup.Action, old.ItemID)
	return id, s.room()
}

// copyTo is what waits, sent where the item it waits for goes now.
func (it *item) copyTo(to, with *storage.NewItem, of storage.Dependency) *storage.NewItem {
	n := storage.NewItem{
		Identity: it.Identity, Digest: with.Digest, SubjectKey: with.SubjectKey, Payload: with.Payload, RouteID: to.RouteID,
		SerialKey: to.SerialKey, Customer: to.Customer, QuarantineReason: it.QuarantineReason,
		Settled: !it.SettledAt.IsZero(), AttemptBudget: it.AttemptBudget, DependsOn: &of,
	}
	n.Identity.Exporter, n.Identity.Account = to.Identity.Exporter, to.Identity.Account
	n.Identity.Mode, n.Identity.MappingVersion = to.Identity.Mode, to.Identity.MappingVersion
	return &n
}

// replace marks an item as superseded by a new one of the same subject.
func (s *superseding) replace(old *item, n *storage.NewItem) (int64, error) {
	x := newItem{NewItem: n, event: old.event, feature: old.Feature, at: old.usageAt, value: old.value}
	if s.known.moved([]newItem{x}) {
		return 0, conflict("items_moved")
	}
	old.SupersededBy, old.changed = s.state.lastItem+1, true
	if old.SettledAt.IsZero() {
		old.settle(true, s.now)
	}
	delete(s.known.subjects, old.subject)
	if d, ok := s.known.depends[old.ItemID]; ok {
		d.Superseded, d.Settled = true, true
		s.known.depends[old.ItemID] = d
	}
	if err := s.save(old); err != nil { // before the new one: one item of a subject
		return 0, err
	}
	id, _ := s.insertItem(&s.known, &x)
	if id == 0 {
		return 0, conflict("item_exists")
	}
	return id, s.room()
}

// payload is what the store reads of a stored payload.
type payload struct {
	Feature   string    `json:"feature"`
	Value     string    `json:"value"`
	Timestamp time.Time `json:"timestamp"`
}

func (x *newItem) ofWindow() error {
	var p payload
	err := json.Unmarshal(x.Payload, &p)
	if err == nil {
		x.value, err = decimal.ParseTotal(p.Value)
	}
	if err != nil {
		return sdk.Invalid("payload", "an object with feature, value and timestamp")
	}
	x.feature, x.at = p.Feature, p.Timestamp
	return nil
}

// Enqueue implements [storage.SettlementStore].
func (a *Adapter) Enqueue(ctx context.Context, req storage.EnqueueRequest) (ids []int64, err error) {
	if req.Action != nil {
		if err := checkAction(req.Action); err != nil {
			return nil, err
		}
	}
	k := &keys{}
	items := make([]newItem, len(req.Items))
	for i := range req.Items {
		n := &req.Items[i]
		items[i].NewItem = n
		k.item(n)
		if n.Identity.SubjectKind == storage.SubjectWindow {
			if err := items[i].ofWindow(); err != nil {
				return nil, err
			}
			continue
		}
		k.events = append(k.events, key(n.Identity.Tenant, n.Identity.SubjectRef))
	}
	events := map[storage.Hash]storage.Event{}
	k.split()
	for list := range slices.Chunk(k.events, maxPage/2) {
		k.parts = append(k.parts, part{selectEvents + "event_key IN " + places(len(list)), anys(list), func(_ *known, r *row) {
			ev := r.event()
			events[key(ev.Tenant, ev.EventID)] = ev
		}})
	}
	err = a.writeAfter(ctx, "enqueue", k.statements(), func(t *tx, r []result) error {
		n := newKnown()
		if err := n.read(k, r); err != nil {
			return err
		}
		switch {
		case t.state.routes != req.RoutesRevision:
			return conflict("routes_moved")
		case n.moved(items):
			return conflict("items_moved")
		}
		ids = make([]int64, len(items))
		inserted := false
		for i := range items {
			x := &items[i]
			if id := &x.Identity; id.SubjectKind != storage.SubjectWindow {
				ev, ok := events[key(id.Tenant, id.SubjectRef)]
				if !ok {
					return notFound("an event")
				}
				x.event, x.feature, x.at, x.value = ev.Seq, ev.Feature, ev.OccurredAt, ev.Effect
			}
			ids[i], _ = t.insertItem(&n, x)
			inserted = inserted || ids[i] != 0
			if err := t.room(); err != nil {
				return err
			}
		}
		if req.Action != nil && inserted {
			t.act(req.Action, 0)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

const restorable = "settled_at IS NULL AND superseded_by = 0 AND created_at <= ? AND (state IN ('pending', 'leased', 'quarantined') " +
	"OR state = 'uncertain' AND (unresolved = 0 OR first_unresolved_at IS NULL))"

// MarkRestored implements [storage.SettlementStore].
func (a *Adapter) MarkRestored(ctx context.Context, req storage.RestoreRequest) (n int64, err error) {
	if err := checkAction(&req.Action); err != nil {
		return 0, err
	}
	if req.DryRun {
		err = a.read(ctx, "mark restored", func(r []result) error { return r[0].each(func(r *row) { n = r.int() }) },
			read("SELECT COUNT(*) FROM fencepost_items WHERE "+restorable, req.Before))
		return n, err
	}
	if req.Limit < 1 || req.Limit > 10_000 {
		return 0, sdk.Invalid("limit", "1 to 10,000")
	}
	err = a.write(ctx, "mark restored", func(t *tx) error {
		n = 0
		after, more := int64(0), true
		for more && n < int64(req.Limit) {
			var list []*item
			most := min(maxPage, req.Limit-int(n))
			err := t.query(func(r *row) { list = append(list, r.item()) },
				selectItems+"item > ? AND "+restorable+" ORDER BY item LIMIT ?", after, req.Before, most+1)
			if err != nil {
				return err
			}
			more = len(list) > most
			list = list[:min(len(list), most)]
			for _, it := range list {
				it.restore(req.Since, t.now)
				after = it.ItemID
			}
			if err := t.save(list...); err != nil {
				return err
			}
			n += int64(len(list))
		}
		if !more {
			t.state.claims, t.state.restores = max(t.state.claims, req.Claims)+1, t.state.restores+1
			if req.Action.Kind == storage.ActionRestore && req.Before.After(t.state.through) {
				t.state.through = req.Before
			}
			t.moved = true
			t.act(&req.Action, 0)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

func (it *item) restore(since, now time.Time) {
	if it.State != storage.Uncertain {
		it.State, it.LastError = storage.Uncertain, &storage.ItemError{Code: "restored"}
	}
	it.Unresolved, it.changed = true, true
	it.release()
	it.LeaseToken++
	it.ClaimedAt = now.UTC() // R3: a request of the lost time may be on its way
	if it.FirstUnresolvedAt.IsZero() {
		it.FirstUnresolvedAt = since.UTC()
	}
}
