package simulation

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// store is the outbox part of the storage contract, with what the contract's
// plain reference leaves out: a claim looks for work before it has the locks,
// a commit may come after its caller gave up, and the clock steps.
type store struct {
	w       *world
	offset  time.Duration
	rows    []*row         // that there are
	byID    map[int64]*row // that there ever were; an id is used once
	digests map[storage.Hash]int64
	samples []sample
	changes int // of what the samples say

	claims, restores int64
	life             int  // rises when connections end for good
	stale            bool // restored, and nobody has settled that
	downUntil        time.Duration

	counters map[string]decimal.Decimal // by tenant
	bounds   map[storage.BoundKey]storage.Bound
}

// row is an item with the frozen parts of its claim.
type row struct {
	storage.Item
	frozen   storage.ClaimedItem
	subject  storage.Hash
	attempts []storage.Attempt
	actions  []storage.Action
	foreign  bool // somebody else used its identifier
	lost     bool // a restored store does not know it, or not as it was
}

func newStore(w *world) *store {
	return &store{
		w: w, byID: map[int64]*row{}, digests: map[storage.Hash]int64{},
		counters: map[string]decimal.Decimal{}, bounds: map[storage.BoundKey]storage.Bound{},
	}
}

func (s *store) now() time.Time { return time.Now().Add(s.offset).UTC().Truncate(time.Microsecond) }

func (s *store) row(id int64) *row { return s.byID[id] }

// insert adds an item unless its identity or its sendable subject exists, and
// answers its id, or 0. moved: what it depends on is not as it was seen.
func (s *store) insert(n storage.NewItem, ev storage.Event) (id int64, moved bool) {
	if s.digests[n.Digest] != 0 {
		return 0, false
	}
	for _, r := range s.rows {
		if r.subject == n.SubjectKey && r.SupersededBy == 0 {
			return 0, false
		}
	}
	r := &row{subject: n.SubjectKey, Item: storage.Item{
		ItemID: int64(len(s.byID) + 1), Identity: n.Identity, Digest: n.Digest, RouteID: n.RouteID, Feature: ev.Feature,
		Customer: n.Customer, SerialKey: n.SerialKey, State: storage.Pending, AttemptBudget: n.AttemptBudget, NextAttemptAt: s.now(), CreatedAt: s.now(),
	}}
	if n.QuarantineReason != "" {
		r.State, r.QuarantineReason = storage.Quarantined, n.QuarantineReason
	}
	if d := n.DependsOn; d != nil {
		on := s.row(d.ItemID)
		if (on.lost || on.State != d.State || on.SettledAt.IsZero() == d.Settled || (on.SupersededBy != 0) != d.Superseded) && !s.w.hooks.noMoved {
			return 0, true
		}
		r.DependsOn, r.Waits = d.ItemID, d.Wait
	}
	r.frozen = storage.ClaimedItem{
		ItemID: r.ItemID, Identity: n.Identity, Digest: n.Digest, RouteID: n.RouteID, Customer: n.Customer,
		Payload: n.Payload, Event: ev, Mapping: mapping(n.Identity.MappingVersion), AttemptBudget: n.AttemptBudget,
	}
	s.rows, s.byID[r.ItemID] = append(s.rows, r), r
	s.digests[n.Digest] = r.ItemID
	s.w.note("item %d inserted %s%s", r.ItemID, r.State, r.QuarantineReason)
	return r.ItemID, false
}

// due is the predicate of a claim; it is asked twice.
func (s *store) due(r *row, req *storage.ClaimRequest, now time.Time) (ok, expired bool) {
	expired = r.State == storage.Leased && r.LeaseExpiresAt.Before(now)
	ok = expired || (r.State == storage.Pending && !r.NextAttemptAt.After(now))
	return ok && !r.Waits && r.SupersededBy == 0 && slices.Contains(req.Routes, r.RouteID), expired
}

// candidate is what a claim saw before it had the lock.
type candidate struct {
	id      int64
	expired bool
}

func (s *store) look(req *storage.ClaimRequest) []candidate {
	var out []candidate
	now := s.now()
	held := s.held(now)
	for _, r := range s.rows {
		if held[r.SerialKey] {
			continue
		}
		if ok, expired := s.due(r, req, now); ok {
			out = append(out, candidate{r.ItemID, expired})
		}
	}
	slices.SortStableFunc(out, func(a, b candidate) int {
		if a.expired != b.expired {
			if a.expired {
				return -1
			}
			return 1
		}
		return cmp.Compare(s.row(a.id).NextAttemptAt.UnixMicro(), s.row(b.id).NextAttemptAt.UnixMicro())
	})
	return out[:min(len(out), req.Limit)]
}

// held are the serial keys of leases that live.
func (s *store) held(now time.Time) map[string]bool {
	if !s.w.has.serial || s.w.hooks.noSerial {
		return nil
	}
	held := map[string]bool{}
	for _, r := range s.rows {
		if r.State == storage.Leased && r.SerialKey != "" && !r.LeaseExpiresAt.Before(now) {
			held[r.SerialKey] = true
		}
	}
	return held
}

// take is the rest of a claim, under the locks.
func (s *store) take(req *storage.ClaimRequest, seen []candidate) storage.Claim {
	var claim storage.Claim
	held := s.held(s.now())
	for _, c := range seen {
		r := s.row(c.id)
		if held[r.SerialKey] {
			s.w.count("claim met a taken key")
			continue
		}
		ok, expired := s.due(r, req, s.now())
		if !ok && !s.w.hooks.noRecheck {
			s.w.count("claim met a taken row")
			continue
		}
		if c.expired && len(claim.Items) > 0 {
			break
		}
		// What the lock guards is read anew: an item that was pending may be an
		// expired lease by now.
		if expired {
			s.reclaim(r)
		}
		r.LeaseToken++
		if code := s.exhausted(r, req); code != "" {
			s.land(r, storage.Uncertain)
			r.LastError = &storage.ItemError{Code: code}
			s.w.count(code)
			claim.Exhausted = append(claim.Exhausted, storage.Exhausted{ItemID: r.ItemID, Code: code})
			continue
		}
		claim.Items = append(claim.Items, s.lease(r, req))
		if expired {
			break
		}
	}
	if len(claim.Items) > 0 {
		s.claims++
	}
	claim.Incarnation = storage.Incarnation{System: "simulated", Store: "simulated", Claims: s.claims, Restores: s.restores}
	return claim
}

func (s *store) reclaim(r *row) {
	s.w.count("lease expired")
	if s.w.hooks.noMark {
		return
	}
	s.unresolved(r)
}

func (s *store) unresolved(r *row) {
	r.Unresolved = true
	if r.FirstUnresolvedAt.IsZero() {
		r.FirstUnresolvedAt = r.ClaimedAt
	}
}

func (s *store) exhausted(r *row, req *storage.ClaimRequest) string {
	switch since := r.FirstUnresolvedAt; {
	case r.Attempts >= r.AttemptBudget && !s.w.hooks.noBudget:
		return storage.CodeAttemptsExhausted
	case !r.Unresolved || s.w.hooks.noHorizon:
		return ""
	case since.IsZero() || s.now().Sub(since) > req.Horizon:
		return storage.CodeHorizonPassed
	case !req.TrustedSince.IsZero() && !s.w.hooks.noTrusted && since.Before(req.TrustedSince):
		return storage.CodeClockUntrusted
	}
	return ""
}

func (s *store) lease(r *row, req *storage.ClaimRequest) storage.ClaimedItem {
	now := s.now()
	r.State, r.LeaseOwner, r.ClaimedAt, r.LeaseExpiresAt = storage.Leased, req.Owner, now, now.Add(req.Lease)
	r.Attempts++
	if r.FirstAttemptAt.IsZero() {
		r.FirstAttemptAt = now
	}
	s.w.note("item %d leased to %s, token %d, attempt %d, unresolved %v", r.ItemID, req.Owner, r.LeaseToken, r.Attempts, r.Unresolved)
	s.w.judge(r)
	c := r.frozen
	c.LeaseToken, c.Attempts, c.AttemptBudget = r.LeaseToken, r.Attempts, r.AttemptBudget
	c.Unresolved, c.FirstAttemptAt, c.Method = r.Unresolved, r.FirstAttemptAt, r.Method
	if s.w.hooks.forgetMethod {
		c.Method = ""
	}
	c.Original = s.original(r)
	return c
}

func (s *store) original(r *row) *storage.OriginalItem {
	if r.DependsOn == 0 {
		return nil
	}
	on := s.row(r.DependsOn)
	o := &storage.OriginalItem{
		ItemID: on.ItemID, Digest: on.Digest, State: on.State, Unresolved: on.Unresolved, Disputed: on.Disputed,
		Dependents: len(s.dependents(on.ItemID)),
	}
	if !on.FirstAttemptAt.IsZero() {
		o.SinceFirstAttempt = s.now().Sub(on.FirstAttemptAt)
	}
	return o
}

func (s *store) dependents(id int64) []*row {
	var out []*row
	for _, r := range s.rows {
		if r.DependsOn == id && r.SupersededBy == 0 {
			out = append(out, r)
		}
	}
	return out
}

func (s *store) holds(r *row, e *storage.Expect) bool {
	now := s.now()
	fenced := r.State == e.State && (e.LeaseToken == nil || *e.LeaseToken == r.LeaseToken)
	if s.w.hooks.noToken && e.State == storage.Leased {
		fenced = true
	}
	if s.w.hooks.noExpect && e.State != storage.Leased {
		fenced = r.State == e.State
	}
	return fenced && r.SupersededBy == 0 && !r.lost &&
		(e.MappingVersion == nil || *e.MappingVersion == r.Identity.MappingVersion) &&
		(e.Unresolved == nil || *e.Unresolved == r.Unresolved) &&
		(e.Settled == nil || *e.Settled == !r.SettledAt.IsZero()) &&
		(e.Attempts == nil || *e.Attempts == r.Attempts) &&
		(e.QuietFor == nil || r.ClaimedAt.IsZero() || now.Sub(r.ClaimedAt) >= *e.QuietFor) &&
		(e.Within == nil || r.FirstUnresolvedAt.IsZero() || now.Sub(r.FirstUnresolvedAt) < *e.Within) &&
		(e.TrustedSince == nil || r.FirstUnresolvedAt.IsZero() || !r.FirstUnresolvedAt.Before(*e.TrustedSince))
}

func (s *store) apply(moves []storage.Transition) []storage.TransitionResult {
	out := make([]storage.TransitionResult, len(moves))
	for i := range moves {
		m := &moves[i]
		r := s.row(m.ItemID)
		out[i].ItemID = m.ItemID
		holds := s.holds(r, &m.Expect) && (m.Set.Method == nil || r.Method == "" || r.Method == *m.Set.Method || s.w.hooks.forgetMethod) &&
			(m.Set.Customer == nil || r.Customer == "" || r.Customer == *m.Set.Customer)
		if m.Attempt != nil {
			a := *m.Attempt
			a.Fenced = !holds
			r.attempts = append(r.attempts, a)
		}
		if !holds {
			s.w.count("write fenced out")
			continue
		}
		out[i].Rows = 1
		s.change(r, &m.Set)
		s.acted(r, m.Action)
		for _, d := range s.dependents(r.ItemID) {
			switch {
			case d.Waits && m.Waiting != nil:
				s.released(d, m.Waiting)
			case !d.Waits && m.Dependents != nil:
				s.details(d, m.Dependents)
			}
		}
	}
	return out
}

// acted appends to the log of what people and reconcilers did.
func (s *store) acted(r *row, a *storage.Action) {
	if a == nil {
		return
	}
	if s.w.hooks.overwrites && a.Kind == storage.ActionEvidence {
		r.actions = nil
	}
	r.actions = append(r.actions, *a)
}

// disposition is what somebody said who gave a window up.
func (r *row) disposition() (storage.WindowDisposition, bool) {
	var detail struct {
		Disposition storage.WindowDisposition `json:"disposition"`
	}
	for _, a := range r.actions {
		if a.Kind == storage.ActionAbandon && json.Unmarshal(a.Detail, &detail) == nil && detail.Disposition != "" {
			return detail.Disposition, true
		}
	}
	return "", false
}

func (s *store) released(d *row, c *storage.Change) {
	if c.State == storage.Quarantined && (d.State == storage.Pending || d.State == storage.Quarantined) {
		s.land(d, storage.Quarantined)
	}
	d.Waits = d.Waits && !c.Release
	s.details(d, c)
	s.w.note("item %d released as %s", d.ItemID, d.State)
	s.w.judge(d)
}

// land changes the state. Leaving leased ends the lease.
func (s *store) land(r *row, to storage.ItemState) {
	if to != storage.Leased {
		r.LeaseOwner, r.LeaseExpiresAt = "", time.Time{}
	}
	s.w.note("item %d %s -> %s", r.ItemID, r.State, to)
	s.w.judgeMove(r, to)
	r.State = to
	s.w.judge(r)
}

func (s *store) change(r *row, c *storage.Change) {
	if c.MarkUnresolved {
		s.unresolved(r)
	}
	if c.ReturnAttempt {
		r.Attempts--
	}
	r.AttemptBudget += c.AddBudget
	s.land(r, c.State)
	if c.Method != nil {
		r.Method = *c.Method
	}
	if c.AcceptedNow {
		r.AcceptedAt = s.now()
	}
	if c.ClearQuarantine {
		r.QuarantineReason = ""
	}
	if c.Customer != nil {
		r.Customer, r.frozen.Customer = *c.Customer, *c.Customer
		if c.SerialKey != nil {
			r.SerialKey = *c.SerialKey
		}
	}
	r.Waits = r.Waits && !c.Release
	s.details(r, c)
}

// details are what a change of an item and of its dependents have in common.
func (s *store) details(r *row, c *storage.Change) {
	if c.NextAttemptAfter != nil {
		r.NextAttemptAt = s.now().Add(*c.NextAttemptAfter)
	}
	if c.LastError != nil {
		r.LastError = c.LastError
	}
	if c.QuarantineReason != nil {
		r.QuarantineReason = *c.QuarantineReason
	}
	if c.Disputed != nil {
		r.Disputed = *c.Disputed
	}
	switch {
	case c.Settled == nil:
	case !*c.Settled:
		r.SettledAt = time.Time{}
	case c.AcceptedNow && r.Disputed != "": // stays open, Q25
		s.w.count("accepted and disputed")
	default:
		r.SettledAt = s.now()
	}
}
