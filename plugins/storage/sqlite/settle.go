package sqlite

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// newItem is an item to insert beside what it reports.
type newItem struct {
	*storage.NewItem
	seq     int64 // of the event; zero: none
	feature string
}

// insertItems inserts items in order and answers the id of each, zero where its
// identity or sendable subject exists.
func insertItems(c *conn, items []newItem, now time.Time) ([]int64, error) {
	var last int64
	if _, err := c.bind(qLastItem).one(func(r *row) { last = r.int() }); err != nil {
		return nil, err
	}
	counts, ids := countDeltas{}, make([]int64, len(items))
	for i, n := range items {
		if moved, err := dependencyMoved(c, n.DependsOn); err != nil {
			return nil, err
		} else if moved {
			return nil, errItemsMoved
		}
		inserted, err := insertItem(c, n.NewItem, itemPlace{id: last + 1, seq: n.seq, feature: n.feature, now: now}, counts)
		if err != nil {
			return nil, err
		}
		if inserted {
			last++
			ids[i] = last
		}
	}
	if _, err := c.bind(qLastItemSet).int(last).run(); err != nil {
		return nil, err
	}
	return ids, counts.write(c)
}

// Enqueue inserts items of what is recorded already; see [storage.SettlementStore].
func (a *Adapter) Enqueue(ctx context.Context, req storage.EnqueueRequest) (ids []int64, err error) {
	err = a.write(ctx, "enqueue items", func(_ context.Context, c *conn) (err error) {
		if req.Action != nil {
			if e := checkAction(req.Action); e != nil {
				return e
			}
		}
		ids, err = enqueue(c, &req, a.now())
		return err
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

func enqueue(c *conn, req *storage.EnqueueRequest, now time.Time) ([]int64, error) {
	if err := routesMoved(c, req.RoutesRevision); err != nil {
		return nil, err
	}
	items := make([]newItem, len(req.Items))
	for i := range req.Items {
		items[i].NewItem = &req.Items[i]
		if err := items[i].place(c); err != nil {
			return nil, err
		}
	}
	ids, err := insertItems(c, items, now)
	if err != nil {
		return nil, err
	}
	if req.Action != nil && slices.ContainsFunc(ids, func(id int64) bool { return id != 0 }) {
		err = appendAction(c, req.Action, now)
	}
	return ids, err
}

// place finds what an item reports: its event, or the feature of a window.
func (n *newItem) place(c *conn) error {
	if n.Identity.SubjectKind == storage.SubjectWindow {
		var payload struct {
			Feature string `json:"feature"`
		}
		if err := json.Unmarshal(n.Payload, &payload); err != nil || payload.Feature == "" {
			return sdk.Invalid("payload.feature", "required")
		}
		n.feature = payload.Feature
		return nil
	}
	found, err := c.bind(qEventDedupe).text(n.Identity.Tenant).text(n.Identity.SubjectRef).one(func(r *row) {
		n.seq, n.feature = r.int(), r.text()
	})
	if err == nil && !found {
		err = notFound("an event")
	}
	return err
}

// Supersede replaces items; see [storage.Supersession].
func (a *Adapter) Supersede(ctx context.Context, list []storage.Supersession) (results []storage.SupersedeResult, err error) {
	err = a.write(ctx, "supersede items", func(_ context.Context, c *conn) error {
		results = make([]storage.SupersedeResult, len(list))
		m := &mover{c: c, now: a.now(), counts: countDeltas{}}
		for i := range list {
			if e := checkSupersession(&list[i]); e != nil {
				return e.At(i)
			}
			var err error
			if results[i], err = m.supersede(&list[i]); err != nil {
				return err
			}
		}
		return m.counts.write(c)
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

func checkSupersession(s *storage.Supersession) *sdk.Error {
	if !slices.Contains(storage.ItemStates[:], s.Expect.State) || s.Expect.State == storage.Leased {
		return sdk.Invalid("expect.state", "one of the seven states but leased")
	}
	return checkAction(&s.Action)
}

// supersede updates the old row before it inserts the new one: the index of
// sendable subjects has room for one of them.
func (m *mover) supersede(s *storage.Supersession) (res storage.SupersedeResult, err error) {
	yes := true
	t := storage.Transition{ItemID: s.ItemID, Expect: s.Expect, Set: storage.Change{State: s.Expect.State, Settled: &yes}}
	if res.Rows, err = m.move(&t); err != nil || res.Rows == 0 {
		return res, err
	}
	old, err := m.stored(s.ItemID)
	if err != nil {
		return res, err
	}
	if was, is := old.item.Identity, s.New.Identity; was.Tenant != is.Tenant || was.SubjectKind != is.SubjectKind || was.SubjectRef != is.SubjectRef {
		return res, sdk.Invalid("new.identity", "the subject of the item that it replaces")
	}
	if res.NewItemID, err = m.replaceItem(s.ItemID, newItem{NewItem: &s.New, seq: old.seq, feature: old.item.Feature}); err != nil {
		return res, err
	}
	if err := m.replaceWaiting(s, res.NewItemID); err != nil {
		return res, err
	}
	if old.item.Identity.SubjectKind == storage.SubjectWindow {
		if _, err := m.c.bind(qBoundItem).int(s.ItemID).int(res.NewItemID).run(); err != nil {
			return res, err
		}
	}
	action := s.Action
	action.ItemID = s.ItemID
	return res, appendAction(m.c, &action, m.now)
}

// storedItem is an item with the event that it reports.
type storedItem struct {
	item storage.Item
	seq  int64
}

func (m *mover) stored(id int64) (s storedItem, err error) {
	found, err := m.c.bind(qItem).int(id).one(func(r *row) { s.item, s.seq = r.item(), r.int() })
	if err == nil && !found {
		err = errRowMoved
	}
	return s, err
}

// replaceItem marks an item as superseded by the one that it inserts.
func (m *mover) replaceItem(id int64, n newItem) (int64, error) {
	var last int64
	if _, err := m.c.bind(qLastItem).one(func(r *row) { last = r.int() }); err != nil {
		return 0, err
	}
	rows, err := m.c.bind(qSupersede).int(id).int(last + 1).time(m.now).run()
	if err != nil {
		return 0, err
	}
	if rows != 1 {
		return 0, errRowMoved
	}
	ids, err := insertItems(m.c, []newItem{n}, m.now)
	if err != nil {
		return 0, err
	}
	if ids[0] == 0 {
		return 0, itemConflict("item_exists", "an identity and a subject that no other item has")
	}
	return ids[0], nil
}

func itemConflict(code, rule string) *sdk.Error {
	return &sdk.Error{Tag: sdk.TagConflict, Code: code, Field: "items", Rule: rule}
}

// replaceWaiting gives everything that waited for the old item a copy that
// waits for the new one.
func (m *mover) replaceWaiting(s *storage.Supersession, item int64) error {
	all, err := loadDependents(m.c, s.ItemID)
	if err != nil {
		return err
	}
	for _, d := range all {
		if !d.waits {
			continue
		}
		if d.state != storage.Pending && d.state != storage.Quarantined {
			return itemConflict("waiting_moved", "pending or quarantined items that wait for it")
		}
		was, err := m.stored(d.item)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(s.Waiting, func(n storage.NewItem) bool {
			return n.Identity.SubjectRef == was.item.Identity.SubjectRef
		})
		if i < 0 {
			return itemConflict("waiting_missing", "a replacement for every item that waits for it")
		}
		n := copyWaiting(&was.item, &s.New, &s.Waiting[i])
		n.DependsOn = &storage.Dependency{ItemID: item, State: stateOf(&s.New), Settled: s.New.Settled, Wait: true}
		m.counts.open(d.route, d.state, d.open, -1)
		if _, err := m.replaceItem(d.item, newItem{NewItem: &n, seq: was.seq, feature: was.item.Feature}); err != nil {
			return err
		}
	}
	return nil
}

// stateOf is the state in which an item is inserted.
func stateOf(n *storage.NewItem) storage.ItemState {
	if n.QuarantineReason != "" {
		return storage.Quarantined
	}
	return storage.Pending
}

// copyWaiting is an item as it is, sent where its original now goes.
func copyWaiting(was *storage.Item, to, with *storage.NewItem) storage.NewItem {
	id := was.Identity
	id.Exporter, id.Account, id.Mode, id.MappingVersion = to.Identity.Exporter, to.Identity.Account, to.Identity.Mode, to.Identity.MappingVersion
	return storage.NewItem{
		Identity: id, Digest: with.Digest, SubjectKey: with.SubjectKey, Payload: with.Payload,
		RouteID: to.RouteID, SerialKey: to.SerialKey, Customer: to.Customer,
		QuarantineReason: was.QuarantineReason, Settled: !was.SettledAt.IsZero(), AttemptBudget: was.AttemptBudget,
	}
}
