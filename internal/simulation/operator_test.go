package simulation

import (
	"context"
	"time"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// operator looks at what is open every now and then, makes a plan for each item
// by the engine's rules, and carries it out, sometimes long after.
func (w *world) operator(lane int) {
	s := session{w: w, s: w.store, lane: lane}
	often := 8 * time.Hour
	if lane > laneOperator { // one of them cannot wait
		often = 40 * time.Minute
	}
	for !w.ended() {
		w.sleep(context.Background(), lane, w.drawn(often/16, often))
		w.mu.Lock()
		idle := w.phase.name == "healed" && !w.judged || w.store.stale // who restored a backup settles that first
		slow := time.Duration(0)
		if w.draw(3) == 0 {
			slow = w.between(time.Minute, 10*time.Hour)
		}
		w.mu.Unlock()
		if idle {
			continue
		}
		w.round(s, slow)
	}
}

// round is one look at what is open, and what follows from it.
func (w *world) round(s session, slow time.Duration) {
	w.mu.Lock()
	restores := w.store.restores
	w.mu.Unlock()
	page, err := s.ListItems(context.Background(), storage.ItemQuery{Limit: 1000, Open: true})
	if err != nil {
		return
	}
	var plans []outbox.Requeued
	for _, it := range page.Items {
		if p, ok := w.decide(s, it); ok {
			plans = append(plans, p)
		}
	}
	w.sleep(context.Background(), s.lane, slow)
	for _, p := range plans {
		w.carryOut(s, p, restores)
	}
	if w.has.windows {
		w.settleWindows(s)
	}
}

func (w *world) decide(s session, it storage.Item) (outbox.Requeued, bool) {
	w.mu.Lock()
	luck, healed := w.draw(20), w.phase.name == "healed"
	w.mu.Unlock()
	if luck >= 10 && !healed {
		return outbox.Requeued{}, false
	}
	switch it.State {
	case storage.Uncertain:
		if luck == 0 { // refused by the engine: it may have been taken
			return w.requeue(s, it)
		}
		return w.resolve(it)
	case storage.Quarantined:
		mendable := it.QuarantineReason == string(outbox.ReasonProviderRefused) || it.QuarantineReason == string(outbox.ReasonNoCustomer)
		if mendable && luck%10 < 7 {
			return w.requeue(s, it)
		}
		return w.abandon(it)
	case storage.Rejected:
		return w.abandon(it)
	case storage.Accepted:
		if it.Disputed != "" {
			return w.abandon(it)
		}
		return outbox.Requeued{}, false
	default: // the hosts' business
		return outbox.Requeued{}, false
	}
}

// abandon gives an item up, a window with what becomes of its stretch. // O27, Q20.
func (w *world) abandon(it storage.Item) (outbox.Requeued, bool) {
	b := outbox.Abandonment{LeaseToken: &it.LeaseToken}
	if it.Identity.SubjectKind == storage.SubjectWindow {
		w.mu.Lock()
		b.Disposition = storage.WindowRestage
		if w.draw(2) == 0 {
			b.Disposition = storage.WindowWrittenOff
		}
		w.mu.Unlock()
	}
	return w.settle("abandoned", it, outbox.Abandon, b)
}

func (w *world) standing() outbox.Standing {
	return outbox.Standing{
		QuietFor: quiet, Horizon: horizon, Budget: 2, TrustedSince: w.trusted(-1),
		Admissible: []string{outbox.SourceSumPresent, outbox.SourceErrorReport},
	}
}

func act() outbox.Act { return outbox.Act{Actor: "operator", Reason: "simulated"} }

// resolve is T8, by what the provider's books say once nothing can be in flight
// any more, R3: the engine says what was planned too early.
func (w *world) resolve(it storage.Item) (outbox.Requeued, bool) {
	w.mu.Lock()
	taken, send := w.provider.facts[w.store.row(it.ItemID).subject] > 0, w.draw(2) == 0
	// To send it again is nothing that the books have to be asked for: the rules
	// let it happen only while the provider knows what it took. What a restore
	// made uncertain it may have taken under an identifier that is lost: that is
	// for the engine to know.
	blind := w.draw(4) == 0
	w.mu.Unlock()
	r := outbox.Resolution{To: storage.Pending, LeaseToken: &it.LeaseToken}
	switch {
	case blind:
		w.mu.Lock()
		w.count("resolved without a look at the books")
		w.mu.Unlock()
	case taken:
		r.To = storage.Accepted
		r.Evidence = &outbox.Evidence{Kind: outbox.EvidenceProvider, Source: outbox.SourceSumPresent, Finding: outbox.FoundTaken, Text: "in the sum"}
	case send:
		r.Evidence = &outbox.Evidence{Kind: outbox.EvidenceAsserted, Finding: outbox.FoundRefused, Text: "not in the books"}
	default:
		r.To = storage.Rejected
		r.Evidence = &outbox.Evidence{Kind: outbox.EvidenceAsserted, Finding: outbox.FoundRefused, Text: "not in the books"}
	}
	return w.settle("resolved: "+string(r.To), it, outbox.Resolve, r)
}

// requeue is T9, under the mapping that the item was made with or under the next.
func (w *world) requeue(s session, it storage.Item) (outbox.Requeued, bool) {
	d, err := s.LoadItem(context.Background(), it.ItemID)
	if err != nil {
		return outbox.Requeued{}, false
	}
	var waiting []storage.ItemDetail
	page, err := s.ListItems(context.Background(), storage.ItemQuery{Limit: 1000, DependsOn: it.ItemID})
	for _, dependent := range page.Items {
		if err == nil && dependent.Waits {
			var of storage.ItemDetail
			of, err = s.LoadItem(context.Background(), dependent.ItemID)
			waiting = append(waiting, of)
		}
	}
	if err != nil {
		return outbox.Requeued{}, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	version := it.Identity.MappingVersion
	if w.draw(2) == 0 {
		version += "+"
	}
	build := w.enqueue(storage.Event{Tenant: it.Identity.Tenant}, version)
	p, err := outbox.PlanRequeue(d, outbox.Requeue{LeaseToken: &it.LeaseToken}, outbox.Surroundings{
		Routes: build.Routes, Mappings: build.Mappings, Manifests: build.Manifests, Customers: build.Customers,
		Waiting: waiting, AttemptBudget: build.AttemptBudget, Now: build.Now,
	}, act())
	if err != nil {
		w.count("requeue refused")
		return outbox.Requeued{}, false
	}
	if p.Replace == nil {
		w.count("requeued")
	}
	return p, true
}

// settle plans one transition by a rule of the engine.
func (w *world) settle(what string, it storage.Item, rule any, how any) (outbox.Requeued, bool) {
	var t storage.Transition
	var err error
	w.mu.Lock()
	standing := w.standing()
	w.mu.Unlock()
	switch rule := rule.(type) {
	case func(storage.Item, outbox.Resolution, outbox.Standing, outbox.Act) (storage.Transition, error):
		t, err = rule(it, how.(outbox.Resolution), standing, act()) //nolint:forcetypeassert // a test
	case func(storage.Item, outbox.Abandonment, outbox.Standing, outbox.Act) (storage.Transition, error):
		t, err = rule(it, how.(outbox.Abandonment), standing, act()) //nolint:forcetypeassert // a test
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case sdk.TagOf(err) == sdk.TagConflict: // the engine knows better, as of an identifier that somebody else holds
		w.count("settling refused")
		return outbox.Requeued{}, false
	case err != nil:
		w.fail("%s: %v", what, err)
		return outbox.Requeued{}, false
	case outbox.Unmet(t.Expect, it, w.store.now()) != nil:
		return outbox.Requeued{}, false
	}
	w.count(what)
	return outbox.Requeued{Moves: []storage.Transition{t}}, true
}

// carryOut does what was planned, unless a restore was settled since: what a plan
// knows may be of the lost time, and the engine refuses a plan that old.
func (w *world) carryOut(s session, p outbox.Requeued, restores int64) {
	w.mu.Lock()
	stale := w.store.stale || w.store.restores != restores && !w.hooks.oldPlans
	w.mu.Unlock()
	if stale {
		return
	}
	if p.Replace != nil {
		_ = s.call(context.Background(), func() { w.store.supersede(*p.Replace) })
		return
	}
	_, _ = s.Transition(context.Background(), p.Moves)
}

// supersede follows [storage.Supersession].
func (s *store) supersede(p storage.Supersession) {
	old := s.row(p.ItemID)
	if old.lost {
		return
	}
	if !s.holds(old, &p.Expect) {
		s.w.count("write fenced out")
		return
	}
	bySubject := map[string]storage.NewItem{}
	for _, n := range p.Waiting {
		bySubject[n.Identity.SubjectRef] = n
	}
	waiting := s.dependents(old.ItemID)
	for _, d := range waiting {
		if _, planned := bySubject[d.Identity.SubjectRef]; d.Waits && !planned {
			return // conflict: waiting_missing
		}
	}
	fresh := s.replace(old, p.New, old.frozen.Event)
	s.acted(old, &p.Action)
	for _, d := range waiting {
		if d.Waits {
			n := s.replace(d, bySubject[d.Identity.SubjectRef], d.frozen.Event)
			n.DependsOn, n.Waits, n.State, n.QuarantineReason = fresh.ItemID, true, d.State, d.QuarantineReason
			s.w.left[n.ItemID] = 0
		}
	}
	s.w.left[fresh.ItemID] = s.w.left[old.ItemID]
	s.w.count("superseded")
}

func (s *store) replace(old *row, by storage.NewItem, ev storage.Event) *row {
	old.SupersededBy, old.SettledAt = int64(len(s.byID)+1), s.now()
	id, _ := s.insert(by, ev)
	if id == 0 {
		s.w.fail("item %d is superseded by nothing", old.ItemID)
		return old
	}
	return s.row(id)
}
