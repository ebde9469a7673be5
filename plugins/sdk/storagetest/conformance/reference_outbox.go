package conformance

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// itemRow is an item with what the contract does not show.
type itemRow struct {
	storage.Item
	event    int64 // seq; zero: none
	subject  storage.Hash
	payload  []byte
	attempts []storage.Attempt
}

func (s *Reference) sortedItems() []*itemRow {
	all := make([]*itemRow, 0, len(s.items))
	for id := int64(1); id <= s.lastItem; id++ {
		if it := s.items[id]; it != nil {
			all = append(all, it)
		}
	}
	return all
}

// insertItem inserts an item unless its identity or its subject exists, and
// answers 1 when it was superseded by another mapping's item.
func (s *Reference) insertItem(n *storage.NewItem, ev *storage.Event) int {
	for _, it := range s.items {
		if it.Digest == n.Digest {
			return 0
		}
		if it.subject == n.SubjectKey && it.SupersededBy == 0 {
			return 1
		}
	}
	s.lastItem++
	now := s.clock()
	row := &itemRow{
		Item: storage.Item{
			ItemID: s.lastItem, Identity: n.Identity, Digest: n.Digest, RouteID: n.RouteID, Feature: ev.Feature,
			Customer: n.Customer, SerialKey: n.SerialKey, State: storage.Pending, AttemptBudget: n.AttemptBudget,
			NextAttemptAt: now, QuarantineReason: n.QuarantineReason, CreatedAt: now,
		},
		event: ev.Seq, subject: n.SubjectKey, payload: slices.Clone(n.Payload),
	}
	if n.QuarantineReason != "" {
		row.State, row.NextAttemptAt = storage.Quarantined, time.Time{}
	}
	if n.Settled {
		row.SettledAt = now
	}
	if d := n.DependsOn; d != nil {
		row.DependsOn, row.Waits = d.ItemID, d.Wait
	}
	s.items[row.ItemID] = row
	return 0
}

// Claim follows [storage.ClaimRequest].
func (s *Reference) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claim, error) {
	if err := s.begin(ctx); err != nil {
		return storage.Claim{}, err
	}
	defer s.mu.Unlock()
	c := &claiming{s: s, req: req, now: s.clock(), held: map[string]bool{}}
	for _, it := range s.items {
		if it.State == storage.Leased && !it.LeaseExpiresAt.Before(c.now) && it.SerialKey != "" && !s.flaws.has(flawSerialKeyIgnored) {
			c.held[it.SerialKey] = true
		}
	}
	for _, expired := range []bool{true, false} {
		for _, it := range c.candidates(expired) {
			if len(c.claim.Items)+len(c.claim.Exhausted) < req.Limit {
				c.take(it, expired)
			}
			if expired && len(c.claim.Items) > 0 {
				return c.answer(), nil
			}
		}
	}
	return c.answer(), nil
}

// answer raises the claims of the incarnation if anything was taken.
func (c *claiming) answer() storage.Claim {
	if len(c.claim.Items)+len(c.claim.Exhausted) > 0 && !c.s.slips.has(slipClaimsNotRaised) {
		c.s.settled.incarnation.Claims++
	}
	c.claim.Incarnation = c.s.settled.incarnation
	return c.claim
}

type claiming struct {
	s     *Reference
	req   storage.ClaimRequest
	now   time.Time
	held  map[string]bool
	claim storage.Claim
}

func (c *claiming) candidates(expired bool) []*itemRow {
	var found []*itemRow
	for _, it := range c.s.sortedItems() {
		live := !it.LeaseExpiresAt.Before(c.now) && !c.s.flaws.has(flawClaimsLiveLease)
		due := it.State == storage.Pending && !it.NextAttemptAt.After(c.now)
		if expired {
			due = it.State == storage.Leased && !live
		}
		if it.Waits && !c.s.slips.has(slipWaitIgnored) {
			due = false
		}
		if due && it.SupersededBy == 0 && slices.Contains(c.req.Routes, it.RouteID) && !c.held[it.SerialKey] {
			found = append(found, it)
		}
	}
	slices.SortStableFunc(found, func(a, b *itemRow) int {
		if expired {
			return a.LeaseExpiresAt.Compare(b.LeaseExpiresAt)
		}
		return a.NextAttemptAt.Compare(b.NextAttemptAt)
	})
	return found
}

func (c *claiming) take(it *itemRow, expired bool) {
	wasUnresolved := it.Unresolved
	if expired && !c.s.flaws.has(flawUnresolvedLost) {
		it.Unresolved, wasUnresolved = true, true
		if it.FirstUnresolvedAt.IsZero() {
			it.FirstUnresolvedAt = it.ClaimedAt
		}
	}
	it.LeaseToken++
	if code := c.exhausted(it); code != "" {
		it.State, it.LastError = storage.Uncertain, &storage.ItemError{Code: code}
		it.LeaseOwner, it.LeaseExpiresAt = "", time.Time{}
		c.claim.Exhausted = append(c.claim.Exhausted, storage.Exhausted{ItemID: it.ItemID, Code: code})
		return
	}
	it.State, it.LeaseOwner, it.ClaimedAt, it.LeaseExpiresAt = storage.Leased, c.req.Owner, c.now, c.now.Add(c.req.Lease)
	it.Attempts++
	if it.FirstAttemptAt.IsZero() {
		it.FirstAttemptAt = c.now
	}
	claimed := storage.ClaimedItem{
		ItemID: it.ItemID, Identity: it.Identity, Digest: it.Digest, RouteID: it.RouteID, SerialKey: it.SerialKey,
		Customer: it.Customer, Payload: it.payload, Mapping: c.s.mapping(it.Identity.MappingVersion),
		LeaseToken: it.LeaseToken, Attempts: it.Attempts, AttemptBudget: it.AttemptBudget,
		Unresolved: wasUnresolved, FirstAttemptAt: it.FirstAttemptAt, Method: it.Method, Original: c.s.original(it),
	}
	if ev := c.s.event(it.event); ev != nil {
		claimed.Event = *ev
	}
	c.claim.Items = append(c.claim.Items, claimed)
}

func (c *claiming) exhausted(it *itemRow) string {
	switch {
	case it.Attempts >= it.AttemptBudget && !c.s.flaws.has(flawBudgetIgnored):
		return storage.CodeAttemptsExhausted
	case !it.Unresolved:
		return ""
	case c.req.Horizon > 0 && (it.FirstUnresolvedAt.IsZero() || c.now.Sub(it.FirstUnresolvedAt) > c.req.Horizon):
		return storage.CodeHorizonPassed
	case !c.req.TrustedSince.IsZero() && it.FirstUnresolvedAt.Before(c.req.TrustedSince) && !c.s.slips.has(slipClockTrusted):
		return storage.CodeClockUntrusted
	}
	return ""
}

func (s *Reference) mapping(version string) storage.Mapping {
	for _, m := range s.routes.Mappings {
		if m.Version == version {
			return m
		}
	}
	return storage.Mapping{}
}

// LoadItem returns one item.
func (s *Reference) LoadItem(ctx context.Context, id int64) (storage.ItemDetail, error) {
	if err := s.begin(ctx); err != nil {
		return storage.ItemDetail{}, err
	}
	defer s.mu.Unlock()
	it := s.items[id]
	if it == nil {
		return storage.ItemDetail{}, missing("an item")
	}
	d := storage.ItemDetail{
		Item: it.Item, Mapping: s.mapping(it.Identity.MappingVersion), Payload: it.payload, Attempts: slices.Clone(it.attempts),
		Original: s.original(it), Actions: s.actionsOf(id),
	}
	if ev := s.event(it.event); ev != nil {
		e := *ev
		d.Event = &e
	}
	return d, nil
}

// ListItems pages in id order.
func (s *Reference) ListItems(ctx context.Context, q storage.ItemQuery) (storage.ItemPage, error) {
	if err := s.begin(ctx); err != nil {
		return storage.ItemPage{}, err
	}
	defer s.mu.Unlock()
	if len(q.Digests) > 100 {
		return storage.ItemPage{}, sdk.Invalid("digests", "at most 100")
	}
	if len(q.Events) > 1000 {
		return storage.ItemPage{}, sdk.Invalid("events", "at most 1000")
	}
	page := storage.ItemPage{Items: []storage.Item{}, Next: q.After}
	for _, it := range s.sortedItems() {
		if it.ItemID <= q.After || (q.State != "" && it.State != q.State) || !same(q.Tenant, it.Identity.Tenant) ||
			!s.called(q.Exporter, it) || !same(q.Feature, it.Feature) ||
			!same(q.Reason, it.QuarantineReason) || !same(q.SubjectRef, it.Identity.SubjectRef) || !s.selects(&q, it) {
			continue
		}
		if len(page.Items) == q.Limit {
			page.More = true
			break
		}
		page.Items = append(page.Items, it.Item)
		page.Next = it.ItemID
	}
	return page, nil
}

// same reports whether a filter lets a value through.
func same(filter, value string) bool { return filter == "" || filter == value }

// OutboxStats counts.
func (s *Reference) OutboxStats(ctx context.Context) (storage.OutboxStats, error) {
	if err := s.begin(ctx); err != nil {
		return storage.OutboxStats{}, err
	}
	defer s.mu.Unlock()
	type key struct {
		exporter string
		state    storage.ItemState
	}
	counts := map[key]*storage.ItemCount{}
	var stats storage.OutboxStats
	for _, it := range s.sortedItems() {
		k := key{it.Identity.Exporter, it.State}
		if counts[k] == nil {
			counts[k] = &storage.ItemCount{Exporter: k.exporter, State: k.state}
		}
		counts[k].Items++
		if it.SettledAt.IsZero() {
			counts[k].Open++
		}
		if it.State == storage.Pending {
			stats.OldestPending = max(stats.OldestPending, s.clock().Sub(it.CreatedAt))
		}
		for _, at := range it.attempts {
			if at.Fenced {
				stats.FencedAttempts++
			}
		}
	}
	s.gauges(&stats)
	for _, c := range counts {
		stats.Counts = append(stats.Counts, *c)
	}
	slices.SortFunc(stats.Counts, func(a, b storage.ItemCount) int {
		return cmp.Or(cmp.Compare(a.Exporter, b.Exporter), cmp.Compare(a.State, b.State))
	})
	return stats, nil
}

// Routes returns all routes.
func (s *Reference) Routes(ctx context.Context) (storage.RouteSet, error) {
	if err := s.begin(ctx); err != nil {
		return storage.RouteSet{}, err
	}
	defer s.mu.Unlock()
	return s.routeSet(), nil
}

func (s *Reference) routeSet() storage.RouteSet {
	set := s.routes
	set.Routes, set.Mappings, set.Features = slices.Clone(set.Routes), slices.Clone(set.Mappings), slices.Clone(set.Features)
	return set
}

// ChangeRoutes follows [storage.RouteChange].
func (s *Reference) ChangeRoutes(ctx context.Context, change storage.RouteChange) (storage.RouteSet, error) {
	if err := s.begin(ctx); err != nil {
		return storage.RouteSet{}, err
	}
	defer s.mu.Unlock()
	set := s.routeSet()
	if set.Revision != change.Revision {
		return storage.RouteSet{}, clash("routes_changed")
	}
	if err := s.rename(&set, change.Rename); err != nil {
		return storage.RouteSet{}, err
	}
	for _, m := range change.Mappings {
		i := slices.IndexFunc(set.Mappings, func(o storage.Mapping) bool { return o.Version == m.Version })
		if i < 0 {
			set.Mappings = append(set.Mappings, m)
		} else if !bytes.Equal(set.Mappings[i].Content, m.Content) {
			return storage.RouteSet{}, clash("mapping_changed")
		}
	}
	for _, f := range change.Features {
		if err := s.putFeature(&set, f); err != nil {
			return storage.RouteSet{}, err
		}
	}
	if slices.ContainsFunc(change.IdleAlso, s.routeOpen) && !s.slips.has(slipIdleAlsoIgnored) {
		return storage.RouteSet{}, clash("route_open")
	}
	for _, id := range change.Retire {
		i := slices.IndexFunc(set.Routes, func(r storage.Route) bool { return r.ID == id && r.RetiredAt.IsZero() })
		if i < 0 {
			return storage.RouteSet{}, clash("route_not_in_force")
		}
		if change.Idle && s.routeOpen(id) {
			return storage.RouteSet{}, clash("route_open")
		}
		set.Routes[i].RetiredAt = s.clock()
	}
	for _, r := range change.Add {
		r.ID, r.AppliesAfter, r.RetiredAt = int64(len(set.Routes)+1), s.lastSeq, time.Time{}
		set.Routes = append(set.Routes, r)
	}
	if change.Action != nil {
		if err := checkAction(change.Action); err != nil {
			return storage.RouteSet{}, err
		}
		s.act(change.Action, 0)
	}
	s.renameBounds(change.Rename)
	set.Revision++
	s.routes = set
	return s.routeSet(), nil
}

func (s *Reference) putFeature(set *storage.RouteSet, f storage.Feature) error {
	f.Revision = set.Revision + 1
	i := slices.IndexFunc(set.Features, func(o storage.Feature) bool { return o.Name == f.Name })
	if i < 0 {
		set.Features = append(set.Features, f)
		return nil
	}
	used := slices.ContainsFunc(s.events, func(e storage.Event) bool { return e.Feature == f.Name })
	if used && set.Features[i].Signed != f.Signed && !s.flaws.has(flawSignedFrozenNot) {
		return clash("signed_in_use")
	}
	set.Features[i] = f
	return nil
}
