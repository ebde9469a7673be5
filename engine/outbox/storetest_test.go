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
		out.Items = append(out.Items, lease(r, now, req))
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
		if open && i.SupersededBy == 0 && slices.Contains(routes, i.RouteID) {
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

func lease(r *modelRow, now time.Time, req storage.ClaimRequest) storage.ClaimedItem {
	i := &r.item
	i.State, i.LeaseOwner, i.ClaimedAt, i.LeaseExpiresAt = storage.Leased, req.Owner, now, now.Add(req.Lease)
	i.Attempts++
	i.LeaseToken++
	if i.FirstAttemptAt.IsZero() {
		i.FirstAttemptAt = now
	}
	c := r.claimed
	c.LeaseToken, c.Attempts, c.Unresolved, c.FirstAttemptAt = i.LeaseToken, i.Attempts, i.Unresolved, i.FirstAttemptAt
	return c
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
	holds := i.State == e.State && i.SupersededBy == 0 &&
		(e.LeaseToken == nil || *e.LeaseToken == i.LeaseToken) &&
		(e.MappingVersion == nil || *e.MappingVersion == i.Identity.MappingVersion) &&
		(e.Unresolved == nil || *e.Unresolved == i.Unresolved)
	if m.Attempt != nil {
		a := *m.Attempt
		a.Fenced = !holds
		r.attempts = append(r.attempts, a)
	}
	if !holds {
		return 0
	}
	s.change(i, m.Set)
	return 1
}

func (s *modelStore) change(i *storage.Item, c storage.Change) {
	now := s.clock()
	if i.State == storage.Leased {
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
	if c.Settled != nil {
		i.SettledAt = time.Time{}
		if *c.Settled {
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
	return storage.ItemDetail{Item: r.item, Event: &event, Mapping: r.claimed.Mapping, Attempts: slices.Clone(r.attempts)}, nil
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
