package simulation

import (
	"context"
	"time"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// operator looks at what is open every few hours, makes a plan for each item,
// and carries it out, sometimes long after.
func (w *world) operator(lane int) {
	s := session{w: w, s: w.store, lane: lane}
	often := 8 * time.Hour
	if lane > laneOperator { // one of them cannot wait
		often = 40 * time.Minute
	}
	for !w.ended() {
		w.sleep(context.Background(), lane, w.drawn(often/16, often))
		w.mu.Lock()
		idle := w.phase.name == "healed" && !w.judged
		slow := time.Duration(0)
		if w.draw(3) == 0 {
			slow = w.between(time.Minute, 10*time.Hour)
		}
		w.mu.Unlock()
		if idle {
			continue
		}
		page, err := s.ListItems(context.Background(), storage.ItemQuery{Limit: 1000, Open: true})
		if err != nil {
			continue
		}
		w.mu.Lock()
		plans := w.plan(page.Items)
		w.mu.Unlock()
		w.sleep(context.Background(), lane, slow)
		for _, p := range plans {
			w.carryOut(s, p)
		}
	}
}

// plan is one decision of an operator.
type plan struct {
	item storage.Item
	move *storage.Transition
	// supersede replaces the item by one under another mapping.
	supersede bool
}

func (w *world) plan(items []storage.Item) []plan {
	var out []plan
	for _, it := range items {
		if w.phase.name != "healed" && w.draw(2) == 0 {
			continue
		}
		switch it.State {
		case storage.Uncertain:
			if p, ok := w.resolve(it); ok {
				out = append(out, p)
			}
		case storage.Quarantined:
			out = append(out, w.requeue(it))
		case storage.Rejected:
			out = append(out, w.abandon(it))
		default: // the hosts' business
		}
	}
	return out
}

// resolve is T8, by what the provider's books say once nothing can be in
// flight any more. // R3
func (w *world) resolve(it storage.Item) (plan, bool) {
	token, settled, wait, within := it.LeaseToken, true, quiet, horizon
	if w.hooks.reidentify {
		return plan{item: it, supersede: true}, true
	}
	if w.store.now().Sub(it.ClaimedAt) < quiet && !w.hooks.noQuiet {
		return plan{}, false
	}
	m := &storage.Transition{ItemID: it.ItemID, Expect: storage.Expect{State: storage.Uncertain, LeaseToken: &token, QuietFor: &wait}}
	switch {
	case w.provider.booked[it.ItemID] > 0:
		w.count("resolved: accepted")
		m.Set = storage.Change{State: storage.Accepted, AcceptedNow: true, Settled: &settled}
	case w.draw(2) == 0:
		w.count("resolved: rejected")
		m.Set = storage.Change{State: storage.Rejected, Settled: &settled}
	default:
		w.count("resolved: pending")
		now := time.Duration(0)
		m.Expect.Within = &within
		m.Set = storage.Change{State: storage.Pending, NextAttemptAfter: &now, AddBudget: 2}
	}
	return plan{item: it, move: m}, true
}

// requeue is T9, or another mapping for what was never sent, or giving up.
func (w *world) requeue(it storage.Item) plan {
	version, now := it.Identity.MappingVersion, time.Duration(0)
	switch luck := w.draw(6); {
	case it.QuarantineReason == string(outbox.ReasonTimestampWindow):
		return w.abandon(it)
	case luck < 2 && it.Attempts == 0 && !it.Unresolved:
		return plan{item: it, supersede: true}
	case luck == 2:
		return w.abandon(it)
	}
	w.count("requeued")
	return plan{item: it, move: &storage.Transition{
		ItemID: it.ItemID, Expect: storage.Expect{State: storage.Quarantined, MappingVersion: &version, LeaseToken: &it.LeaseToken, Settled: new(bool)},
		Set: storage.Change{State: storage.Pending, NextAttemptAfter: &now, ClearQuarantine: true, AddBudget: 1},
	}}
}

func (w *world) abandon(it storage.Item) plan {
	w.count("abandoned")
	settled := true
	return plan{item: it, move: &storage.Transition{
		ItemID: it.ItemID, Expect: storage.Expect{State: it.State, LeaseToken: &it.LeaseToken, Settled: new(bool)},
		Set: storage.Change{State: it.State, Settled: &settled},
	}}
}

func (w *world) carryOut(s session, p plan) {
	if !p.supersede {
		_, _ = s.Transition(context.Background(), []storage.Transition{*p.move})
		return
	}
	_ = s.call(context.Background(), func() {
		r := w.store.row(p.item.ItemID)
		never := r.State == storage.Quarantined && r.Attempts == 0 && !r.Unresolved
		if r.SupersededBy != 0 || (!never && !w.hooks.reidentify) || len(w.store.dependents(r.ItemID)) > 0 {
			return
		}
		w.count("superseded")
		r.SupersededBy, r.SettledAt = -1, w.store.now()
		for _, n := range outbox.BuildItems(w.enqueue(r.frozen.Event, r.Identity.MappingVersion+"+")) {
			if id, _ := w.store.insert(n, r.frozen.Event); id != 0 {
				r.SupersededBy = id
			}
		}
	})
}
