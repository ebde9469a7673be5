package conformance

import (
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func (r *run) settlements() storage.SettlementStore {
	return use[storage.SettlementStore](r, storage.Outbox)
}

func (r *run) hosts() storage.HostStore { return use[storage.HostStore](r, storage.Outbox) }

func (r *run) reconciler() storage.ReconcileStore {
	return use[storage.ReconcileStore](r, storage.Outbox)
}

func (r *run) reports() storage.ReportStore { return use[storage.ReportStore](r, storage.Counters) }

// correcting are the capabilities of an outbox with corrections.
func correcting() []storage.Capability {
	return caps(storage.DurableEvents, storage.Outbox, storage.Corrections)
}

// reporting are those of an outbox with counters.
func reporting() []storage.Capability {
	return caps(storage.DurableEvents, storage.Outbox, storage.Counters)
}

// actionOf is what a person of this case does.
func (r *run) actionOf(kind storage.ActionKind) *storage.Action {
	return &storage.Action{
		Kind: kind, Actor: r.prefix + "@é", Reason: "because", EvidenceKind: "asserted", Evidence: "a ticket",
		From: storage.Uncertain, To: storage.Accepted, Detail: []byte(`{"n":1}`),
	}
}

// actions returns all pages of what a query selects.
func (r *run) actions(q storage.ActionQuery) []storage.Action {
	var all []storage.Action
	for {
		page, err := r.settlements().ListActions(r.ctx, q)
		r.must("list actions", err)
		if len(page.Actions) > q.Limit || (page.More && page.Next <= q.After) {
			r.fatalf("a page %s after %d, limit %d", text(page), q.After, q.Limit)
		}
		all = append(all, page.Actions...)
		if !page.More {
			return all
		}
		q.After = page.Next
	}
}

// actionsAre compares the actions of an item, or of all by this case for a zero
// item, with what was done.
func (r *run) actionsAre(what string, item int64, want ...*storage.Action) {
	plain := []storage.Action{}
	for _, a := range r.actions(storage.ActionQuery{ItemID: item, Limit: 1000}) {
		if a.Actor != r.prefix+"@é" {
			continue
		}
		if a.ID <= 0 || a.At.IsZero() || a.At.Equal(period) {
			r.errorf("%s: an action without an id or the store's time: %s", what, text(a))
		}
		a.ID, a.At, a.Detail = 0, time.Time{}, plainJSON(a.Detail)
		plain = append(plain, a)
	}
	expected := []storage.Action{}
	for _, a := range want {
		line := *a
		line.At = time.Time{}
		expected = append(expected, line)
	}
	r.same(what+": actions", plain, expected)
}

// of is an action about an item.
func of(a *storage.Action, item int64) *storage.Action {
	line := *a
	line.ItemID = item
	return &line
}

// dependency is an item as it is now.
func dependency(of *storage.Item, wait bool) *storage.Dependency {
	return &storage.Dependency{
		ItemID: of.ItemID, State: of.State, Settled: !of.SettledAt.IsZero(), Superseded: of.SupersededBy != 0, Wait: wait,
	}
}

// correctionItem is the item of a correction, which depends on that of its
// original.
func (r *run) correctionItem(c *storage.Event, original *storage.Item, wait bool) storage.NewItem {
	id := original.Identity
	id.SubjectKind, id.SubjectRef = storage.SubjectCorrection, c.EventID
	return storage.NewItem{
		Identity: id, Digest: hash("digest", text(id)), SubjectKey: hash("subject", c.Tenant, c.EventID, id.Exporter, id.Account),
		RouteID: original.RouteID, Customer: original.Customer, AttemptBudget: 3, DependsOn: dependency(original, wait),
		Payload: []byte(`{"feature":"tokens","value":"-` + c.Quantity.String() + `","timestamp":"2026-10-02T12:00:00Z"}`),
	}
}

// takeBack corrects an event by one, with an item that depends on its original's
// as it is, and answers that item.
func (r *run) takeBack(e *storage.Event, id string, original *storage.Item, edit func(*storage.NewItem)) storage.Item {
	c := correction(e, id, "1")
	wait := original.State != storage.Accepted && original.State != storage.Confirmed
	n := r.correctionItem(&c, original, wait)
	if edit != nil {
		edit(&n)
	}
	req := r.correctRequest(c)
	req.Items = []storage.NewItem{n}
	res := r.correct(req)
	if res.Outcome != storage.Inserted {
		r.fatalf("correction %s: %s, want inserted", id, text(res))
	}
	all := r.items(storage.ItemQuery{Tenant: e.Tenant, SubjectRef: id})
	if len(all) != 1 {
		r.fatalf("%d items of correction %s, want 1", len(all), id)
	}
	return all[0]
}

// pair is an event of 10 with its item, and a correction by 1 that waits for it.
func (r *run) pair(t string, route int64) (e storage.Event, original, waiting storage.Item) {
	e = usage(t, "e", "10")
	r.putUnits(storage.Unit{Entries: []storage.Entry{entry(e, r.item(&e, route))}})
	original = r.only(storage.ItemQuery{Tenant: t, SubjectRef: "e"})
	return e, original, r.takeBack(&e, "c", &original, nil)
}

// only is the one item that a query selects.
func (r *run) only(q storage.ItemQuery) storage.Item {
	all := r.items(q)
	if len(all) != 1 {
		r.fatalf("%s selects %d items, want 1", text(q), len(all))
	}
	return all[0]
}

// now is an item as it is.
func (r *run) now(id int64) storage.Item { return r.detail(id).Item }

// take claims one item and expects that it is this one.
func (r *run) take(route, item int64) storage.ClaimedItem {
	var c storage.Claim
	r.until("an item is handed out", func() bool {
		c = r.claim(storage.ClaimRequest{Routes: []int64{route}, Limit: 1})
		return len(c.Items) > 0
	})
	if c.Items[0].ItemID != item {
		r.fatalf("item %d is handed out, want %d", c.Items[0].ItemID, item)
	}
	return c.Items[0]
}

// accepted takes an item and accepts it.
func (r *run) accepted(route, item int64, edit func(*storage.Transition)) storage.Item {
	c := r.take(route, item)
	yes := true
	m := storage.Transition{
		ItemID: item, Expect: leasedBy(c.LeaseToken),
		Set:     storage.Change{State: storage.Accepted, AcceptedNow: true, Settled: &yes},
		Waiting: &storage.Change{State: storage.Pending, Release: true},
	}
	if edit != nil {
		edit(&m)
	}
	r.same("rows of an acceptance", r.moves(m), []int{1})
	return r.now(item)
}
