package conformance

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// slip is a mistake as [flaw] is one, in the part of the contract that settles,
// reports and compares.
type slip uint64

const (
	slipWaitIgnored slip = 1 << iota
	slipDependencyUnchecked
	slipBesideUnchanged
	slipReleaseUnquarantines
	slipEvidenceReachesAll
	slipDependentsUncounted
	slipSettledIgnored
	slipAttemptsIgnored
	slipQuietIgnored
	slipWithinIgnored
	slipTrustIgnored
	slipMethodMoves
	slipCustomerMoves
	slipSettlesDisputed
	slipClockTrusted
	slipClaimsNotRaised
	slipSupersedeKeepsOld
	slipSupersedeForgetsWaiting
	slipSupersedePartial
	slipBoundKeepsOldItem
	slipEnqueueStale
	slipEnqueueWithoutAction
	slipRestoreMovesFirst
	slipRestoreTakesSettled
	slipRestoreRaisesEarly
	slipRestoreKeepsClaim
	slipRestoreForgetsReason
	slipLeavingStays
	slipSamplesWithoutBoot
	slipRoleStolen
	slipFenceStays
	slipWindowIgnoresAcked
	slipRestageAdvances
	slipSettlesAnyState
	slipWindowTwice
	slipCutoverMoves
	slipCountedForgotten
	slipSumsSuperseded
	slipSumsDisputed
	slipSumsCounted
	slipConfirmsWithOpen
	slipFinishedReplaced
	slipDigestsIgnored
	slipGaugesForgotten
	slipRenameForgetsBounds
	slipIdleIgnored
	slipIdleAlsoIgnored
	slipOldNames
	slipActionsUnfiltered
	slipStagedIgnored
	slipWindowMagnitude
	slipSumPages
	slipFreshForgotten
	slipQuarantineTakesAll
	slipSupersededDepend
	slipEventsIgnored
	slipNoticedForgotten
	slipAdoptSettles
)

func (s slip) has(t slip) bool { return s&t != 0 }

// settledState is what the store holds beside events and items.
type settledState struct {
	incarnation storage.Incarnation
	actions     []storage.Action
	hosts       map[string]storage.HostRow
	lastBeat    time.Time
	samples     []storage.ClockSample
	roles       map[string]storage.Holding
	bounds      map[storage.BoundKey]storage.Bound
	cutovers    []storage.Cutover
	runs        []reconciliation
	snapshotState
}

func newSettledState() settledState {
	return settledState{
		incarnation: storage.Incarnation{Store: "reference", System: "reference"},
		hosts:       map[string]storage.HostRow{}, roles: map[string]storage.Holding{}, bounds: map[storage.BoundKey]storage.Bound{},
		snapshotState: snapshotState{versions: map[[2]string]int64{}},
	}
}

func checkAction(a *storage.Action) error {
	kinds := []storage.ActionKind{
		storage.ActionResolve, storage.ActionRequeue, storage.ActionSupersede, storage.ActionAbandon, storage.ActionEvidence,
		storage.ActionConfirm, storage.ActionRestore, storage.ActionAdopt, storage.ActionBackfill, storage.ActionRoute,
	}
	if a.Actor == "" || a.Reason == "" || !slices.Contains(kinds, a.Kind) {
		return sdk.Invalid("action", "a kind, an actor and a reason")
	}
	return nil
}

// act appends an action; item, if not zero, is the one that it is about.
func (s *Reference) act(a *storage.Action, item int64) {
	line := *a
	line.ID, line.At, line.Detail = int64(len(s.settled.actions)+1), s.clock(), slices.Clone(a.Detail)
	if item != 0 {
		line.ItemID = item
	}
	s.settled.actions = append(s.settled.actions, line)
}

func (s *Reference) actionsOf(item int64) []storage.Action {
	all := []storage.Action{}
	for _, a := range s.settled.actions {
		if a.ItemID == item {
			all = append(all, a)
		}
	}
	return all
}

// ListActions pages in order.
func (s *Reference) ListActions(ctx context.Context, q storage.ActionQuery) (storage.ActionPage, error) {
	if err := s.begin(ctx); err != nil {
		return storage.ActionPage{}, err
	}
	defer s.mu.Unlock()
	if q.Limit < 1 {
		return storage.ActionPage{}, sdk.Invalid("limit", "1 to 1000")
	}
	page := storage.ActionPage{Actions: []storage.Action{}, Next: q.After}
	for _, a := range s.settled.actions {
		if a.ID <= q.After || (q.ItemID != 0 && a.ItemID != q.ItemID && !s.slips.has(slipActionsUnfiltered)) ||
			(q.Kind != "" && a.Kind != q.Kind) {
			continue
		}
		if len(page.Actions) == q.Limit {
			page.More = true
			break
		}
		page.Actions = append(page.Actions, a)
		page.Next = a.ID
	}
	return page, nil
}

// undoing runs f and, if it fails, puts items, bounds and actions back.
func (s *Reference) undoing(f func() error) error {
	items, last, actions := map[int64]*itemRow{}, s.lastItem, len(s.settled.actions)
	for id, it := range s.items {
		kept := *it
		items[id] = &kept
	}
	bounds := maps.Clone(s.settled.bounds)
	err := f()
	if err != nil && !s.slips.has(slipSupersedePartial) {
		s.items, s.lastItem, s.settled.bounds, s.settled.actions = items, last, bounds, s.settled.actions[:actions]
	}
	return err
}

// Supersede follows [storage.Supersession].
func (s *Reference) Supersede(ctx context.Context, list []storage.Supersession) ([]storage.SupersedeResult, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	results := make([]storage.SupersedeResult, len(list))
	err := s.undoing(func() error {
		for i := range list {
			if err := checkAction(&list[i].Action); err != nil {
				return err
			}
			old := s.items[list[i].ItemID]
			if old == nil || !s.holds(old, &list[i].Expect) {
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

func (s *Reference) supersede(sup *storage.Supersession, old *itemRow) (int64, error) {
	id, err := s.replace(old, &sup.New)
	if err != nil {
		return 0, err
	}
	for _, d := range s.dependents(old.ItemID) {
		if !d.Waits || s.slips.has(slipSupersedeForgetsWaiting) {
			continue
		}
		if d.State != storage.Pending && d.State != storage.Quarantined {
			return 0, clash("waiting_moved")
		}
		i := slices.IndexFunc(sup.Waiting, func(n storage.NewItem) bool { return n.Identity.SubjectRef == d.Identity.SubjectRef })
		if i < 0 {
			return 0, clash("waiting_missing")
		}
		if _, err := s.replace(d, copyOf(d, &sup.New, &sup.Waiting[i], s.items[id])); err != nil {
			return 0, err
		}
	}
	for k, b := range s.settled.bounds {
		if b.ItemID == old.ItemID && !s.slips.has(slipBoundKeepsOldItem) {
			b.ItemID = id
			s.settled.bounds[k] = b
		}
	}
	s.act(&sup.Action, old.ItemID)
	return id, nil
}

// copyOf is what waits, sent where the item it waits for goes now.
func copyOf(d *itemRow, to, with *storage.NewItem, of *itemRow) *storage.NewItem {
	n := storage.NewItem{
		Identity: d.Identity, Digest: with.Digest, SubjectKey: with.SubjectKey, Payload: with.Payload, RouteID: to.RouteID,
		SerialKey: to.SerialKey, Customer: to.Customer, QuarantineReason: d.QuarantineReason,
		Settled: !d.SettledAt.IsZero(), AttemptBudget: d.AttemptBudget,
		DependsOn: &storage.Dependency{ItemID: of.ItemID, State: of.State, Settled: !of.SettledAt.IsZero(), Wait: true},
	}
	n.Identity.Exporter, n.Identity.Account = to.Identity.Exporter, to.Identity.Account
	n.Identity.Mode, n.Identity.MappingVersion = to.Identity.Mode, to.Identity.MappingVersion
	return &n
}

// replace marks an item as superseded by a new one of the same event.
func (s *Reference) replace(old *itemRow, n *storage.NewItem) (int64, error) {
	if s.itemsMoved([]storage.NewItem{*n}) {
		return 0, clash("items_moved")
	}
	if !s.slips.has(slipSupersedeKeepsOld) {
		old.SupersededBy = s.lastItem + 1
	}
	subject := old.subject
	if s.slips.has(slipSupersedeKeepsOld) {
		old.subject = storage.Hash{}
	}
	if old.SettledAt.IsZero() {
		s.settle(old, true)
	}
	id := s.enqueue(n, old.event, old.Feature)
	if id == 0 {
		old.subject = subject
		return 0, clash("item_exists")
	}
	return id, nil
}

// enqueue inserts an item of an event or window and answers its id, zero if it
// exists.
func (s *Reference) enqueue(n *storage.NewItem, event int64, feature string) int64 {
	before := s.lastItem
	s.insertItem(n, &storage.Event{Seq: event, Feature: feature})
	if s.lastItem == before {
		return 0
	}
	return s.lastItem
}

// Enqueue inserts items of what is recorded already.
func (s *Reference) Enqueue(ctx context.Context, req storage.EnqueueRequest) ([]int64, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if s.routes.Revision != req.RoutesRevision && !s.slips.has(slipEnqueueStale) {
		return nil, clash("routes_moved")
	}
	if req.Action != nil {
		if err := checkAction(req.Action); err != nil {
			return nil, err
		}
	}
	if s.itemsMoved(req.Items) {
		return nil, clash("items_moved")
	}
	places := make([]storage.Event, len(req.Items))
	for i := range req.Items {
		id := &req.Items[i].Identity
		if id.SubjectKind == storage.SubjectWindow {
			places[i].Feature = payloadOf(req.Items[i].Payload).Feature
			continue
		}
		ev := s.event(s.byKey[storage.EventKey{Tenant: id.Tenant, EventID: id.SubjectRef}])
		if ev == nil {
			return nil, missing("an event")
		}
		places[i] = *ev
	}
	ids, inserted := make([]int64, len(req.Items)), false
	for i := range req.Items {
		ids[i] = s.enqueue(&req.Items[i], places[i].Seq, places[i].Feature)
		inserted = inserted || ids[i] != 0
	}
	if req.Action != nil && (inserted || s.slips.has(slipEnqueueWithoutAction)) {
		s.act(req.Action, 0)
	}
	return ids, nil
}

// frozenPayload is what the store reads of a stored payload.
type frozenPayload struct {
	Feature   string    `json:"feature"`
	Value     string    `json:"value"`
	Timestamp time.Time `json:"timestamp"`
}

func payloadOf(raw []byte) frozenPayload {
	var p frozenPayload
	_ = json.Unmarshal(raw, &p) // the zero value says what it did not
	return p
}

// MarkRestored follows [storage.RestoreRequest].
func (s *Reference) MarkRestored(ctx context.Context, req storage.RestoreRequest) (int64, error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	if err := checkAction(&req.Action); err != nil {
		return 0, err
	}
	var all []*itemRow
	for _, it := range s.sortedItems() {
		if s.restorable(it, req.Before) {
			all = append(all, it)
		}
	}
	if req.DryRun {
		return int64(len(all)), nil
	}
	done := len(all) <= req.Limit
	for _, it := range all[:min(len(all), req.Limit)] {
		if it.State != storage.Uncertain {
			it.State, it.LastError = storage.Uncertain, &storage.ItemError{Code: "restored"}
		}
		it.Unresolved, it.LeaseOwner, it.LeaseExpiresAt = true, "", time.Time{}
		it.LeaseToken++
		if s.slips.has(slipRestoreForgetsReason) {
			it.QuarantineReason = ""
		}
		if !s.slips.has(slipRestoreKeepsClaim) {
			it.ClaimedAt = s.clock()
		}
		if it.FirstUnresolvedAt.IsZero() || s.slips.has(slipRestoreMovesFirst) {
			it.FirstUnresolvedAt = req.Since.UTC()
		}
	}
	if done || s.slips.has(slipRestoreRaisesEarly) {
		in := &s.settled.incarnation
		in.Claims, in.Restores = max(in.Claims, req.Claims)+1, in.Restores+1
		if (req.Action.Kind == storage.ActionRestore || s.slips.has(slipAdoptSettles)) && req.Before.After(in.RestoredThrough) {
			in.RestoredThrough = req.Before.UTC()
		}
		s.act(&req.Action, 0)
	}
	return int64(min(len(all), req.Limit)), nil
}

func (s *Reference) restorable(it *itemRow, before time.Time) bool {
	if !it.SettledAt.IsZero() && !s.slips.has(slipRestoreTakesSettled) || it.SupersededBy != 0 || it.CreatedAt.After(before) {
		return false
	}
	switch it.State {
	case storage.Pending, storage.Leased, storage.Quarantined:
		return true
	case storage.Uncertain:
		return !it.Unresolved || it.FirstUnresolvedAt.IsZero()
	case storage.Accepted, storage.Confirmed, storage.Rejected:
	}
	return false
}
