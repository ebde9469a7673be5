package outbox

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// modelStore is the outbox part of the storage contract in memory, written from
// its documentation. clock is the database's.
type modelStore struct {
	mu    sync.Mutex
	clock func() time.Time
	rows  map[int64]*modelRow

	// loseAnswers makes that many next Transitions take effect and answer
	// unavailable.
	loseAnswers int
	// failClaims makes that many next Claims fail.
	failClaims int
	// afterClaim, if set, runs after a claim was committed.
	afterClaim func()
}

type modelRow struct {
	item     storage.Item
	claimed  storage.ClaimedItem // the frozen parts
	attempts []storage.Attempt
	actions  []storage.Action
}

func newModelStore(clock func() time.Time) *modelStore {
	return &modelStore{clock: clock, rows: make(map[int64]*modelRow)}
}

// add inserts an item that is due now. Missing parts are filled in.
func (s *modelStore) add(c storage.ClaimedItem) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.ItemID = int64(len(s.rows) + 1)
	c.Digest, _ = Identifier(c.Identity)
	if c.AttemptBudget == 0 {
		c.AttemptBudget = 20
	}
	s.rows[c.ItemID] = &modelRow{claimed: c, item: storage.Item{
		ItemID: c.ItemID, Identity: c.Identity, Digest: c.Digest, RouteID: c.RouteID, Customer: c.Customer,
		SerialKey: c.SerialKey, State: storage.Pending, AttemptBudget: c.AttemptBudget, NextAttemptAt: s.clock(), CreatedAt: s.clock(),
	}}
	return c.ItemID
}

// depend makes an item depend on another.
func (s *modelStore) depend(id, of int64, wait bool, reason string) {
	i := &s.rows[id].item
	i.DependsOn, i.Waits, i.QuarantineReason = of, wait, reason
	if reason != "" {
		i.State = storage.Quarantined
	}
}

func (s *modelStore) row(id int64) storage.Item {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows[id].item
}

func (s *modelStore) log(id int64) []storage.Attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.rows[id].attempts)
}

func (s *modelStore) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claim, error) {
	if err := ctx.Err(); err != nil {
		return storage.Claim{}, sdk.Unavailable("", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failClaims > 0 {
		s.failClaims--
		return storage.Claim{}, sdk.Unavailable("overloaded", nil)
	}
	now := s.clock()
	var out storage.Claim
	for _, r := range s.due(req.Routes, now) {
		expired := r.item.State == storage.Leased
		if len(out.Items) >= req.Limit || (expired && len(out.Items) > 0) {
			break
		}
		if s.serialHeld(r, now, out.Items) {
			continue
		}
		if code := reclaim(r, now, req.Horizon); code != "" {
			out.Exhausted = append(out.Exhausted, storage.Exhausted{ItemID: r.item.ItemID, Code: code})
			continue
		}
		out.Items = append(out.Items, s.lease(r, now, req))
		if expired {
			break
		}
	}
	if s.afterClaim != nil && len(out.Items) > 0 {
		s.afterClaim()
	}
	return out, nil
}

// due lists what a claim may look at, the longest due first.
func (s *modelStore) due(routes []int64, now time.Time) []*modelRow {
	var out []*modelRow
	for _, r := range s.rows {
		i := r.item
		open := (i.State == storage.Pending && !i.NextAttemptAt.After(now)) ||
			(i.State == storage.Leased && i.LeaseExpiresAt.Before(now))
		if open && !i.Waits && i.SupersededBy == 0 && slices.Contains(routes, i.RouteID) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *modelRow) int {
		if c := a.item.NextAttemptAt.Compare(b.item.NextAttemptAt); c != 0 {
			return c
		}
		return int(a.item.ItemID - b.item.ItemID)
	})
	return out
}

// serialHeld reports whether a live lease, other than of this claim, holds the
// serial key.
func (s *modelStore) serialHeld(r *modelRow, now time.Time, mine []storage.ClaimedItem) bool {
	for id, o := range s.rows {
		same := r.item.SerialKey != "" && o.item.SerialKey == r.item.SerialKey && o != r
		ours := slices.ContainsFunc(mine, func(c storage.ClaimedItem) bool { return c.ItemID == id })
		if same && !ours && o.item.State == storage.Leased && !o.item.LeaseExpiresAt.Before(now) {
			return true
		}
	}
	return false
}

// reclaim updates what an expired lease leaves behind and then tests budget and
// horizon; what fails goes to uncertain, with the code.
func reclaim(r *modelRow, now time.Time, horizon time.Duration) string {
	i := &r.item
	if i.State == storage.Leased {
		i.Unresolved = true
		if i.FirstUnresolvedAt.IsZero() {
			i.FirstUnresolvedAt = i.ClaimedAt
		}
	}
	late := i.FirstUnresolvedAt.IsZero() || now.Sub(i.FirstUnresolvedAt) > horizon
	var code string
	switch {
	case i.Attempts >= i.AttemptBudget:
		code = storage.CodeAttemptsExhausted
	case horizon > 0 && i.Unresolved && late:
		code = storage.CodeHorizonPassed
	default:
		return ""
	}
	i.State, i.LeaseOwner, i.LeaseExpiresAt = storage.Uncertain, "", time.Time{}
	i.LeaseToken++
	i.LastError = &storage.ItemError{Code: code}
	return code
}

func (s *modelStore) lease(r *modelRow, now time.Time, req storage.ClaimRequest) storage.ClaimedItem {
	i := &r.item
	i.State, i.LeaseOwner, i.ClaimedAt, i.LeaseExpiresAt = storage.Leased, req.Owner, now, now.Add(req.Lease)
	i.Attempts++
	i.LeaseToken++
	if i.FirstAttemptAt.IsZero() {
		i.FirstAttemptAt = now
	}
	c := r.claimed
	c.LeaseToken, c.Attempts, c.Unresolved, c.FirstAttemptAt = i.LeaseToken, i.Attempts, i.Unresolved, i.FirstAttemptAt
	c.Method, c.Original = i.Method, s.original(i)
	return c
}

// original is what a claim says of the item that i depends on.
func (s *modelStore) original(i *storage.Item) *storage.OriginalItem {
	r, ok := s.rows[i.DependsOn]
	if !ok {
		return nil
	}
	of := r.item
	out := &storage.OriginalItem{ItemID: of.ItemID, Digest: of.Digest, State: of.State, Unresolved: of.Unresolved, Disputed: of.Disputed}
	if !of.FirstAttemptAt.IsZero() {
		out.SinceFirstAttempt = s.clock().Sub(of.FirstAttemptAt)
	}
	for _, o := range s.rows {
		if o.item.DependsOn == of.ItemID && o.item.SupersededBy == 0 {
			out.Dependents++
		}
	}
	return out
}

func (s *modelStore) Transition(ctx context.Context, moves []storage.Transition) ([]storage.TransitionResult, error) {
	if err := ctx.Err(); err != nil {
		return nil, sdk.Unavailable("", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []storage.TransitionResult
	for _, m := range moves {
		out = append(out, storage.TransitionResult{ItemID: m.ItemID, Rows: s.move(m)})
	}
	if s.loseAnswers > 0 {
		s.loseAnswers--
		return nil, sdk.Unavailable("commit", context.DeadlineExceeded)
	}
	return out, nil
}

func (s *modelStore) move(m storage.Transition) int {
	r := s.rows[m.ItemID]
	i := &r.item
	e := m.Expect
	holds := s.expected(i, e) &&
		(m.Set.Method == nil || i.Method == "" || i.Method == *m.Set.Method) &&
		(m.Set.Customer == nil || i.Customer == "" || i.Customer == *m.Set.Customer)
	if m.Attempt != nil {
		a := *m.Attempt
		a.Fenced = !holds
		r.attempts = append(r.attempts, a)
	}
	if !holds {
		return 0
	}
	s.change(i, m.Set)
	r.claimed.Customer = i.Customer
	if m.Action != nil {
		a := *m.Action
		a.ID, a.At, a.ItemID = int64(len(r.actions)+1), s.clock(), m.ItemID
		r.actions = append(r.actions, a)
	}
	s.follow(m)
	return 1
}

// expected tests a predicate, durations by the store's clock.
func (s *modelStore) expected(i *storage.Item, e storage.Expect) bool {
	now := s.clock()
	return i.State == e.State && i.SupersededBy == 0 &&
		(e.LeaseToken == nil || *e.LeaseToken == i.LeaseToken) &&
		(e.MappingVersion == nil || *e.MappingVersion == i.Identity.MappingVersion) &&
		(e.Unresolved == nil || *e.Unresolved == i.Unresolved) &&
		(e.Settled == nil || *e.Settled == !i.SettledAt.IsZero()) &&
		(e.Attempts == nil || *e.Attempts == i.Attempts) &&
		(e.QuietFor == nil || i.ClaimedAt.IsZero() || now.Sub(i.ClaimedAt) >= *e.QuietFor) &&
		(e.Within == nil || i.FirstUnresolvedAt.IsZero() || now.Sub(i.FirstUnresolvedAt) < *e.Within) &&
		(e.TrustedSince == nil || i.FirstUnresolvedAt.IsZero() || !i.FirstUnresolvedAt.Before(*e.TrustedSince))
}

// follow applies what a transition means for the items that depend on its own.
func (s *modelStore) follow(m storage.Transition) {
	for _, r := range s.rows {
		i := &r.item
		if i.DependsOn != m.ItemID || i.SupersededBy != 0 {
			continue
		}
		c := m.Dependents
		if i.Waits {
			c = m.Waiting
		}
		if c == nil {
			continue
		}
		moves := i.State == storage.Pending || i.State == storage.Quarantined
		if i.Waits && c.State == storage.Quarantined && moves {
			i.State, i.Waits = c.State, !c.Release
			if c.QuarantineReason != nil {
				i.QuarantineReason = *c.QuarantineReason
			}
		}
		if i.Waits && c.State == storage.Pending && c.Release {
			i.Waits = false
		}
		if c.Disputed != nil {
			i.Disputed = *c.Disputed
		}
		if c.Settled != nil && !*c.Settled {
			i.SettledAt = time.Time{}
		}
	}
}

func (s *modelStore) change(i *storage.Item, c storage.Change) {
	now := s.clock()
	if i.State == storage.Leased && c.State != storage.Leased {
		i.LeaseOwner, i.LeaseExpiresAt = "", time.Time{}
	}
	i.State = c.State
	if c.NextAttemptAfter != nil {
		i.NextAttemptAt = now.Add(*c.NextAttemptAfter)
	}
	if c.ReturnAttempt {
		i.Attempts--
	}
	if c.MarkUnresolved {
		i.Unresolved = true
		if i.FirstUnresolvedAt.IsZero() {
			i.FirstUnresolvedAt = i.ClaimedAt
		}
	}
	if c.ProviderRef != nil {
		i.ProviderRef = *c.ProviderRef
	}
	if c.AcceptedNow {
		i.AcceptedAt = now
	}
	if c.LastError != nil {
		i.LastError = c.LastError
	}
	if c.QuarantineReason != nil {
		i.QuarantineReason = *c.QuarantineReason
	}
	if c.ClearQuarantine {
		i.QuarantineReason = ""
	}
	i.AttemptBudget += c.AddBudget
	for to, from := range map[*string]*string{&i.Disputed: c.Disputed, &i.Method: c.Method, &i.Customer: c.Customer} {
		if from != nil {
			*to = *from
		}
	}
	if c.Settled != nil {
		i.SettledAt = time.Time{}
		if *c.Settled && (!c.AcceptedNow || i.Disputed == "") {
			i.SettledAt = now
		}
	}
}

func (s *modelStore) LoadItem(_ context.Context, id int64) (storage.ItemDetail, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.rows[id]
	if !ok {
		return storage.ItemDetail{}, sdk.ErrNotFound
	}
	event := r.claimed.Event
	return storage.ItemDetail{
		Item: r.item, Event: &event, Mapping: r.claimed.Mapping, Payload: r.claimed.Payload,
		Attempts: slices.Clone(r.attempts), Actions: slices.Clone(r.actions), Original: s.original(&r.item),
	}, nil
}

func (s *modelStore) ListItems(context.Context, storage.ItemQuery) (storage.ItemPage, error) {
	return storage.ItemPage{}, fmt.Errorf("the model lists nothing: %w", sdk.ErrUnsupported)
}

func (s *modelStore) OutboxStats(context.Context) (storage.OutboxStats, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := make(map[storage.ItemCount]int64)
	for _, r := range s.rows {
		counts[storage.ItemCount{Exporter: r.item.Identity.Exporter, State: r.item.State}]++
	}
	var out storage.OutboxStats
	for c, n := range counts {
		c.Items = n
		out.Counts = append(out.Counts, c)
	}
	return out, nil
}
