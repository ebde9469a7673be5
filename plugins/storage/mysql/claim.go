package mysql

import (
	"context"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// What may be claimed: not held through its serial key by a live lease.
const (
	claimable = "superseded_by = 0 AND waits = 0 AND (serial_key = '' OR NOT EXISTS (" +
		"SELECT 1 FROM fencepost_items AS h WHERE h.serial_key = i.serial_key AND h.state = 'leased' AND h.lease_expires_at >= ?))"
	expiredItems = "SELECT " + itemColumns + " FROM fencepost_items AS i WHERE state = 'leased' AND lease_expires_at < ? AND " + claimable
	dueItems     = "SELECT " + itemColumns + " FROM fencepost_items AS i WHERE state = 'pending' AND next_attempt_at <= ? AND " + claimable
	// anythingDue is asked without the lock: who polls an empty outbox keeps
	// nobody waiting.
	anythingDue = "SELECT 1 FROM fencepost_items WHERE (state = 'pending' AND next_attempt_at <= UTC_TIMESTAMP(6) OR " +
		"state = 'leased' AND lease_expires_at < UTC_TIMESTAMP(6)) AND superseded_by = 0 AND waits = 0 AND route IN "
)

// Claim implements [storage.OutboxStore].
func (a *Adapter) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claim, error) {
	if len(req.Routes) > maxPage || req.Limit < 1 || req.Limit > 1000 {
		return storage.Claim{}, sdk.Invalid("limit", "1 to 1000, of at most 4,000 routes")
	}
	if len(req.Routes) == 0 {
		req.Routes = []int64{0} // no route
	}
	var found storage.Claim
	due := false
	err := a.read(ctx, "claim", func(r []result) error {
		due = len(r[0].rows) > 0
		return r[1].each(func(r *row) { found.Incarnation = r.incarnation() })
	}, read(anythingDue+places(len(req.Routes))+" LIMIT 1", anys(req.Routes)...), read(selectIncarnation))
	if err != nil || !due {
		return found, err
	}
	err = a.write(ctx, "claim", func(t *tx) error {
		c := &claiming{tx: t, req: &req}
		if err := c.run(); err != nil {
			return err
		}
		found = c.claim
		return nil
	})
	if err != nil {
		return storage.Claim{}, err
	}
	return found, nil
}

const selectIncarnation = "SELECT store, claims, restores, restored_through FROM fencepost_state WHERE scope = 1"

func (r *row) incarnation() storage.Incarnation {
	store := r.text()
	return storage.Incarnation{Store: store, System: store, Claims: r.int(), Restores: r.int(), RestoredThrough: r.time()}
}

func (t *tx) incarnation() storage.Incarnation {
	s := &t.state
	return storage.Incarnation{Store: s.store, System: s.store, Claims: s.claims, Restores: s.restores, RestoredThrough: s.through}
}

// claiming is the state of one claim. Expired leases come first, and one that is
// taken is the only item.
type claiming struct {
	*tx
	req   *storage.ClaimRequest
	taken []*item
	// unresolved says of each taken item whether it was so before.
	unresolved []bool
	claim      storage.Claim
}

func (c *claiming) left() int { return c.req.Limit - len(c.taken) - len(c.claim.Exhausted) }

func (c *claiming) run() error {
	for _, expired := range []bool{true, false} {
		if len(c.taken) > 0 || c.left() == 0 {
			break
		}
		list, err := c.candidates(expired)
		if err != nil {
			return err
		}
		for _, it := range list {
			c.take(it, expired)
			if expired && len(c.taken) > 0 {
				break
			}
		}
		if err := c.save(list...); err != nil {
			return err
		}
	}
	if len(c.taken)+len(c.claim.Exhausted) > 0 {
		c.state.claims++
		c.moved = true
	}
	c.claim.Incarnation = c.incarnation()
	return c.fill()
}

func (c *claiming) candidates(expired bool) (list []*item, err error) {
	text, order := dueItems, " ORDER BY next_attempt_at, item LIMIT ?"
	if expired {
		text, order = expiredItems, " ORDER BY lease_expires_at, item LIMIT ?"
	}
	args := append([]any{c.now, c.now}, anys(c.req.Routes)...)
	err = c.query(func(r *row) { list = append(list, r.item()) }, text+" AND route IN "+places(len(c.req.Routes))+order, append(args, c.left())...)
	return list, err
}

func (c *claiming) take(it *item, expired bool) {
	it.changed = true
	if expired {
		it.Unresolved = true
		if it.FirstUnresolvedAt.IsZero() {
			it.FirstUnresolvedAt = it.ClaimedAt
		}
	}
	it.LeaseToken++
	if code := c.exhausted(it); code != "" {
		it.State, it.LastError = storage.Uncertain, &storage.ItemError{Code: code}
		it.release()
		c.claim.Exhausted = append(c.claim.Exhausted, storage.Exhausted{ItemID: it.ItemID, Code: code})
		return
	}
	c.taken, c.unresolved = append(c.taken, it), append(c.unresolved, it.Unresolved)
	it.State, it.LeaseOwner, it.ClaimedAt, it.LeaseExpiresAt = storage.Leased, c.req.Owner, c.now, c.now.Add(c.req.Lease)
	it.Attempts++
	if it.FirstAttemptAt.IsZero() {
		it.FirstAttemptAt = c.now
	}
}

func (c *claiming) exhausted(it *item) string {
	switch {
	case it.Attempts >= it.AttemptBudget:
		return storage.CodeAttemptsExhausted
	case !it.Unresolved:
		return ""
	case c.req.Horizon > 0 && (it.FirstUnresolvedAt.IsZero() || c.now.Sub(it.FirstUnresolvedAt) > c.req.Horizon):
		return storage.CodeHorizonPassed
	case !c.req.TrustedSince.IsZero() && it.FirstUnresolvedAt.Before(c.req.TrustedSince):
		return storage.CodeClockUntrusted
	}
	return ""
}

// fill makes the claim's items of what was taken.
func (c *claiming) fill() error {
	around, err := c.around(c.taken)
	if err != nil {
		return err
	}
	for i, it := range c.taken {
		c.claim.Items = append(c.claim.Items, storage.ClaimedItem{
			ItemID: it.ItemID, Identity: it.Identity, Digest: it.Digest, RouteID: it.RouteID, SerialKey: it.SerialKey,
			Customer: it.Customer, Payload: it.payload, Event: around.events[it.event], Mapping: around.mappings[it.Identity.MappingVersion],
			LeaseToken: it.LeaseToken, Attempts: it.Attempts, AttemptBudget: it.AttemptBudget, Unresolved: c.unresolved[i],
			FirstAttemptAt: it.FirstAttemptAt, Method: it.Method, Original: around.original(it, c.now),
		})
	}
	return nil
}
