package postgres

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qOutboxPlanner query = "outbox_planner"
	qClassLock     query = "class_lock"
	qClaimPending  query = "claim_pending"
	qClaimExpired  query = "claim_expired"
	qClaimRaise    query = "claim_raise"
	qClaimMappings query = "claim_mappings"
	qOriginals     query = "originals"
)

var _ storage.OutboxStore = (*Adapter)(nil)

// lockClassSerial is held by whoever claims items of serial keys.
const lockClassSerial int32 = 0x46505204

// maxSkipped bounds how many items whose serial key is held elsewhere one
// claim walks past: behind a deep backlog of one key, an idle poll must not
// read all of it every time.
const maxSkipped = 2000

// Claim takes items for one worker; see [storage.ClaimRequest]. An expired
// lease goes before anything pending: it is alone in its claim, and its
// horizon is running.
func (a *Adapter) Claim(ctx context.Context, req storage.ClaimRequest) (claim storage.Claim, err error) {
	const op = "claim items"
	if err := checkClaim(req); err != nil {
		return claim, storeError(ctx, op, err)
	}
	routes := slices.Compact(slices.Sorted(slices.Values(req.Routes)))
	if len(routes) == 0 {
		return claim, nil
	}
	var cl *claimer
	attempt := func(ctx context.Context, t *tx) error {
		known := a.hints.get(routes, time.Now()) //nolint:forbidigo // how long a hint is believed; decides nothing
		cl = &claimer{t: t, req: req, routes: routes, start: known, serial: known.serial}
		err := cl.run(ctx)
		if err != nil {
			a.hints.forget() // what it told may hide what it lets go
		}
		return err
	}
	w := writing{pool: deliveryPool, settings: qOutboxPlanner}
	err = a.run.write(ctx, op, w, attempt)
	if errors.Is(err, errSerial) {
		a.hints.setSerial(routes)
		err = a.run.write(ctx, op, w, attempt)
	}
	if err != nil {
		a.hints.forget() // as above: its commit failed
		return storage.Claim{}, err
	}
	return cl.claim, nil
}

func checkClaim(req storage.ClaimRequest) error {
	switch {
	case req.Owner == "":
		return sdk.Invalid("owner", "required")
	case req.Limit < 1 || req.Limit > maxPage:
		return sdk.Invalid("limit", "1 to 1000")
	case req.Lease <= 0:
		return sdk.Invalid("lease", "greater than zero")
	case req.Horizon < 0:
		return sdk.Invalid("horizon", "zero or more")
	}
	return nil
}

// errSerial: an item with a serial key turned up in a claim that is not alone
// with such keys.
var errSerial error = sdk.Unavailable("serial_key", errors.New("a serial key was met without its lock"))

// claimer is the state of one claim, inside its transaction.
type claimer struct {
	t      *tx
	req    storage.ClaimRequest
	routes []int64 // each once
	start  hint
	serial bool // the lock of serial keys is held

	claim   storage.Claim
	due     []position // of the items of the claim, in the order in which they were taken
	found   hint
	skipped int
	endTurn func() // see hints.turn; nil before
	alone   bool
	// dependsOn are the items that those of the claim depend on.
	dependsOn []int64
}

func (cl *claimer) run(ctx context.Context) error {
	if cl.serial {
		if _, err := cl.t.exec(ctx, qClassLock, lockClassSerial, cl.t.a.target.scope()); err != nil {
			return err
		}
	}
	if err := cl.expired(ctx); err != nil {
		return err
	}
	if len(cl.claim.Items) == 0 {
		if err := cl.pending(ctx); err != nil {
			return err
		}
	}
	cl.tell(cl.found)
	if err := cl.mappings(ctx); err != nil {
		return err
	}
	if err := cl.originals(ctx); err != nil {
		return err
	}
	if len(cl.claim.Items)+len(cl.claim.Exhausted) == 0 {
		return nil
	}
	return cl.t.last(qClaimRaise, incarnationInto(&cl.claim.Incarnation))
}

// tell notes how far this claim has got: now and not after its commit, since
// others need not walk what it holds.
func (cl *claimer) tell(found hint) { cl.t.a.hints.put(cl.routes, cl.start, found) }

// room is how many items the claim may still move.
func (cl *claimer) room() int {
	return cl.req.Limit - len(cl.claim.Items) - len(cl.claim.Exhausted)
}

// expiredWindow is how many expired leases are looked at for one to take.
const expiredWindow = 100

// expired looks for one expired lease to take; those that may not be sent
// again move to uncertain on the way.
func (cl *claimer) expired(ctx context.Context) error {
	at := position{at: cl.start.leased}
	for cl.room() > 0 && len(cl.claim.Items) == 0 && cl.skipped < maxSkipped {
		p, err := cl.page(ctx, qClaimExpired, at, expiredWindow, 1)
		if err != nil {
			return err
		}
		if p.seen == 0 && at == (position{at: cl.start.leased}) {
			cl.found.leased = p.now // nothing is expired, as of now
		}
		if p.moved == 0 && p.seen < expiredWindow {
			return nil
		}
		at = p.next
	}
	return nil
}

// pending takes due items, oldest due time first across the routes. Where the
// hint leads to too few, it looks again from the beginning.
func (cl *claimer) pending(ctx context.Context) error {
	hints := &cl.t.a.hints
	if cl.start.before == (position{}) {
		cl.endTurn, cl.alone = hints.turn(ctx, cl.routes)
		defer cl.endTurn()
		cl.start.pending = hints.pendingNow(cl.routes, cl.start)
	}
	if cl.start.pending != (position{}) {
		if err := cl.pendingFrom(ctx, cl.start.pending); err != nil || cl.room() == 0 {
			return err
		}
		cl.found.pending = position{}
	}
	err := cl.pendingFrom(ctx, position{})
	cl.sort()
	return err
}

// sort brings what several statements took into the order in which it was due.
func (cl *claimer) sort() {
	if slices.IsSortedFunc(cl.due, position.compare) {
		return
	}
	at := make(map[int64]position, len(cl.due))
	for _, d := range cl.due {
		at[d.item] = d
	}
	slices.SortFunc(cl.claim.Items, func(a, b storage.ClaimedItem) int {
		return at[a.ItemID].compare(at[b.ItemID])
	})
}

func (cl *claimer) pendingFrom(ctx context.Context, at position) error {
	for cl.room() > 0 && cl.skipped < maxSkipped {
		room := cl.room()
		window := room + 100 // others may hold what comes first
		if !cl.alone {
			window += room
		}
		p, err := cl.page(ctx, qClaimPending, at, window, room)
		if err != nil {
			return err
		}
		if p.moved == room {
			cl.found.pending = p.next
			return nil
		}
		if p.seen < window {
			return nil
		}
		at = p.next
	}
	return nil
}

// page is what one statement did.
type page struct {
	now        time.Time
	seen, held int
	moved      int
	// next is where to go on: after the last that moved if the statement had
	// its fill, after all that it saw if not.
	next position
	// aim is the last that moves if nobody holds anything; zero if there are
	// too few.
	aim position
}

// page runs a statement that looks at a window of candidates and moves at most
// take of them.
func (cl *claimer) page(ctx context.Context, q query, at position, window, take int) (p page, err error) {
	var r claimRow
	var last position
	dest := r.dest(&p)
	err = cl.t.each(ctx, q, func(rows pgx.Rows) error {
		r = claimRow{} // at the same place: dest stays
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		if r.it.ItemID == 0 { // nothing moved
			return nil
		}
		if p.moved++; p.moved == 1 && cl.endTurn != nil {
			if p.aim != (position{}) {
				cl.tell(hint{pending: p.aim})
			}
			cl.endTurn()
		}
		if at := (position{r.at, r.it.ItemID}); last.compare(at) < 0 {
			last = at
		}
		r.complete()
		return cl.take(&r)
	}, cl.routes, at.time(), at.item, window, take, cl.req.Owner, cl.req.Lease, cl.req.Horizon, optTime(cl.req.TrustedSince))
	if p.moved == take {
		p.next = last
	} else {
		cl.skipped += p.held
	}
	return p, err
}

// take notes what became of one item.
func (cl *claimer) take(r *claimRow) error {
	if r.code != "" {
		cl.claim.Exhausted = append(cl.claim.Exhausted, storage.Exhausted{ItemID: r.it.ItemID, Code: r.code})
		return nil
	}
	if r.it.SerialKey != "" && !cl.serial {
		return errSerial
	}
	if r.dependsOn != 0 {
		cl.dependsOn = append(cl.dependsOn, r.dependsOn)
		r.it.Original = &storage.OriginalItem{ItemID: r.dependsOn}
	}
	if cl.claim.Items == nil {
		cl.claim.Items = make([]storage.ClaimedItem, 0, cl.room())
	}
	cl.claim.Items = append(cl.claim.Items, r.it)
	cl.due = append(cl.due, position{r.at, r.it.ItemID})
	return nil
}

// originals fills in what the items depend on, as it is by now. There are few:
// corrections alone depend on anything.
func (cl *claimer) originals(ctx context.Context) error {
	if len(cl.dependsOn) == 0 {
		return nil
	}
	found, err := originals(ctx, cl.t, cl.dependsOn)
	for i := range cl.claim.Items {
		if of := cl.claim.Items[i].Original; of != nil {
			cl.claim.Items[i].Original = found[of.ItemID] // nil: it was removed
		}
	}
	return err
}

// originals reads items that others depend on.
func originals(ctx context.Context, t *tx, ids []int64) (map[int64]*storage.OriginalItem, error) {
	found := make(map[int64]*storage.OriginalItem, len(ids))
	err := t.each(ctx, qOriginals, func(rows pgx.Rows) error {
		var of storage.OriginalItem
		err := rows.Scan(&of.ItemID, hashInto{&of.Digest}, textInto(&of.State), &of.Unresolved,
			textInto(&of.Disputed), &of.SinceFirstAttempt, &of.Dependents)
		found[of.ItemID] = &of
		return err
	}, ids)
	return found, err
}

// mappings fills in the mappings of what was taken. A mapping never changes:
// what was read once is kept. An item that was quarantined and requeued may
// have none.
func (cl *claimer) mappings(ctx context.Context) error {
	cache := &cl.t.a.mappings
	var missing []string
	for i := range cl.claim.Items {
		it := &cl.claim.Items[i]
		v := it.Identity.MappingVersion
		m, known := cache.Load(v)
		if known {
			it.Mapping, _ = m.(storage.Mapping) // nothing else is stored
		} else if v != "" && !slices.Contains(missing, v) {
			missing = append(missing, v)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	read := map[string]storage.Mapping{}
	err := cl.t.each(ctx, qClaimMappings, func(rows pgx.Rows) error {
		var m storage.Mapping
		var content string
		if err := rows.Scan(&m.Version, &m.Label, &content); err != nil {
			return err
		}
		m.Content = []byte(content)
		read[m.Version] = m
		return nil
	}, missing)
	for i := range cl.claim.Items {
		it := &cl.claim.Items[i]
		if m, ok := read[it.Identity.MappingVersion]; ok {
			it.Mapping = m
			cache.Store(m.Version, m)
		}
	}
	return err
}
