package sqlite

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

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
	err = a.write(ctx, op, func(_ context.Context, c *conn) error {
		cl := &claimer{
			c: c, req: req, routes: slices.Compact(slices.Sorted(slices.Values(req.Routes))), now: a.now(), counts: countDeltas{},
			held: map[string]bool{}, mappings: map[string]storage.Mapping{},
		}
		if err := cl.run(); err != nil {
			return err
		}
		if err := cl.incarnation(); err != nil {
			return err
		}
		claim = cl.claim
		return cl.counts.write(c)
	})
	if err != nil {
		return storage.Claim{}, err
	}
	return claim, nil
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

// claimer is the state of one claim, inside its transaction.
type claimer struct {
	c      *conn
	req    storage.ClaimRequest
	routes []int64 // each once
	now    time.Time
	claim  storage.Claim
	counts countDeltas
	// held answers, for the serial keys asked about, whether somebody else
	// sends one of their items now.
	held     map[string]bool
	mappings map[string]storage.Mapping
	skipped  int
}

func (cl *claimer) run() error {
	for _, route := range cl.routes {
		if taken, err := cl.expired(route); taken || err != nil {
			return err
		}
	}
	return cl.pending()
}

// incarnation raises the count of claims if anything was taken, in the
// transaction that took it: a backup from before it is known by its count.
func (cl *claimer) incarnation() (err error) {
	if len(cl.claim.Items)+len(cl.claim.Exhausted) > 0 {
		if err := cl.c.run(qClaimsRaise); err != nil {
			return err
		}
	}
	cl.claim.Incarnation, err = incarnation(cl.c)
	return err
}

// full reports whether the claim has moved as many items as it may.
func (cl *claimer) full() bool {
	return len(cl.claim.Items)+len(cl.claim.Exhausted) >= cl.req.Limit
}

// expired looks for one expired lease to take; those that may not be sent
// again move to uncertain on the way.
func (cl *claimer) expired(route int64) (taken bool, err error) {
	l := &lane{route: route, last: first}
	for !cl.full() && cl.skipped < maxSkipped {
		if err := cl.fill(l, qClaimExpired, cl.req.Limit); err != nil {
			return false, err
		}
		if len(l.page) == 0 {
			return false, nil
		}
		if taken, err := cl.take(l.pop(), true); taken || err != nil {
			return taken, err
		}
	}
	return cl.full(), nil
}

// candidate is an item and the time it became due: of its next attempt, or of
// the end of its lease.
type candidate struct{ at, item int64 }

// first is before every candidate.
var first = candidate{at: math.MinInt64}

func (c candidate) compare(d candidate) int {
	return cmp.Or(cmp.Compare(c.at, d.at), cmp.Compare(c.item, d.item))
}

// lane is what is known of one route's candidates: a page in the order of the
// index, and where the next page starts.
type lane struct {
	route int64
	page  []candidate
	last  candidate
	done  bool
}

func (l *lane) pop() int64 {
	id := l.page[0].item
	l.page = l.page[1:]
	return id
}

// pending takes due items, oldest due time first across the routes: each
// route is a range of the index, so merging their heads sorts nothing.
func (cl *claimer) pending() error {
	lanes := make([]*lane, len(cl.routes))
	for i, route := range cl.routes {
		lanes[i] = &lane{route: route, last: first}
	}
	size := cl.req.Limit
	if len(lanes) > 1 {
		size = cl.req.Limit/len(lanes) + 1
	}
	for !cl.full() && cl.skipped < maxSkipped {
		var next *lane
		for _, l := range lanes {
			if err := cl.fill(l, qClaimPending, size); err != nil {
				return err
			}
			if len(l.page) > 0 && (next == nil || l.page[0].compare(next.page[0]) < 0) {
				next = l
			}
		}
		if next == nil {
			return nil
		}
		if _, err := cl.take(next.pop(), false); err != nil {
			return err
		}
	}
	return nil
}

// fill reads the next page of a lane that has run out.
func (cl *claimer) fill(l *lane, q query, size int) error {
	if l.done || len(l.page) > 0 {
		return nil
	}
	err := cl.c.bind(q).int(l.route).time(cl.now).int(l.last.at).int(l.last.item).int(int64(size)).
		each(func(r *row) error {
			l.page = append(l.page, candidate{at: r.int(), item: r.int()})
			return nil
		})
	if n := len(l.page); n > 0 {
		l.last = l.page[n-1]
	}
	l.done = len(l.page) < size
	return err
}

// claimRow is what decides about an item.
type claimRow struct {
	storage.ClaimedItem
	firstUnresolved time.Time
	claimedAt       time.Time
	dependsOn       int64
}

// take leases an item, or moves it to uncertain when it may not be sent again,
// or skips it when its serial key is held. It reports whether it was leased.
func (cl *claimer) take(id int64, expired bool) (bool, error) {
	it, err := cl.load(id)
	if err != nil {
		return false, err
	}
	if held, err := cl.serialHeld(it.SerialKey); held || err != nil {
		cl.skipped++
		return false, err
	}
	from := storage.Pending
	if expired {
		from = storage.Leased
		it.Unresolved = true
		if it.firstUnresolved.IsZero() {
			it.firstUnresolved = it.claimedAt
		}
	}
	if code := cl.exhausted(&it); code != "" {
		return false, cl.exhaust(&it, from, code)
	}
	n, err := cl.c.bind(qClaimLease).int(id).text(cl.req.Owner).time(cl.now).time(cl.now.Add(cl.req.Lease)).
		bool(it.Unresolved).optTime(it.firstUnresolved).int(it.LeaseToken).run()
	if err != nil {
		return false, err
	}
	if n != 1 {
		return false, errRowMoved
	}
	cl.counts.add(it.RouteID, from, -1, true)
	cl.counts.add(it.RouteID, storage.Leased, 1, true)
	it.LeaseToken++
	it.Attempts++
	if it.FirstAttemptAt.IsZero() {
		it.FirstAttemptAt = cl.now
	}
	if it.Mapping, err = cl.mapping(it.Identity.MappingVersion); err != nil {
		return false, err
	}
	if it.Original, err = originalItem(cl.c, it.dependsOn, cl.now); err != nil {
		return false, err
	}
	cl.claim.Items = append(cl.claim.Items, it.ClaimedItem)
	return true, nil
}

// exhausted answers why the item may not be sent again, on the values after
// the rule for re-claimed leases; empty when it may.
func (cl *claimer) exhausted(it *claimRow) string {
	if it.Attempts >= it.AttemptBudget {
		return storage.CodeAttemptsExhausted
	}
	if !it.Unresolved {
		return ""
	}
	absent := it.firstUnresolved.IsZero()
	if cl.req.Horizon > 0 && (absent || cl.now.Sub(it.firstUnresolved) > cl.req.Horizon) {
		return storage.CodeHorizonPassed
	}
	if since := cl.req.TrustedSince; !since.IsZero() && (absent || it.firstUnresolved.Before(since)) {
		return storage.CodeClockUntrusted
	}
	return ""
}

func (cl *claimer) exhaust(it *claimRow, from storage.ItemState, code string) error {
	doc, err := json.Marshal(storage.ItemError{Code: code})
	if err != nil {
		return err
	}
	n, err := cl.c.bind(qClaimExhaust).int(it.ItemID).text(string(doc)).bool(it.Unresolved).
		optTime(it.firstUnresolved).int(it.LeaseToken).run()
	if err != nil {
		return err
	}
	if n != 1 {
		return errRowMoved
	}
	cl.counts.add(it.RouteID, from, -1, true)
	cl.counts.add(it.RouteID, storage.Uncertain, 1, true)
	cl.claim.Exhausted = append(cl.claim.Exhausted, storage.Exhausted{ItemID: it.ItemID, Code: code})
	return nil
}

func (cl *claimer) load(id int64) (it claimRow, err error) {
	it.ItemID = id
	found, err := cl.c.bind(qClaimRow).int(id).one(func(r *row) {
		it.RouteID, it.SerialKey = r.int(), r.text()
		it.Attempts, it.AttemptBudget = int(r.int()), int(r.int())
		it.Unresolved, it.firstUnresolved = r.bool(), r.time()
		it.FirstAttemptAt, it.claimedAt, it.LeaseToken = r.time(), r.time(), r.int()
		it.Identity = r.identity()
		it.Digest, it.Customer, it.Payload = r.hash(), r.text(), r.json()
		it.dependsOn, it.Method = r.int(), r.text()
		if hasEvent := r.bool(); hasEvent {
			it.Event = r.event()
		}
	})
	if err == nil && !found {
		err = errRowMoved
	}
	return it, err
}

func (r *row) identity() storage.Identity {
	return storage.Identity{
		Tenant: r.text(), SubjectKind: storage.SubjectKind(r.text()), SubjectRef: r.text(),
		Exporter: r.text(), Account: r.text(), Mode: r.text(), MappingVersion: r.text(),
	}
}

// serialHeld asks whether a live lease of an earlier claim has the key. The
// answer holds for the whole claim: what this claim takes itself is no reason
// to stop.
func (cl *claimer) serialHeld(key string) (bool, error) {
	if key == "" {
		return false, nil
	}
	held, known := cl.held[key]
	if known {
		return held, nil
	}
	held, err := cl.c.bind(qClaimSerialHeld).text(key).time(cl.now).one(func(*row) {})
	cl.held[key] = held
	return held, err
}

// mapping reads a mapping once for the claim. A quarantined item that was
// requeued may have none.
func (cl *claimer) mapping(version string) (storage.Mapping, error) {
	if version == "" {
		return storage.Mapping{}, nil
	}
	m, known := cl.mappings[version]
	if known {
		return m, nil
	}
	m, err := loadMapping(cl.c, version)
	cl.mappings[version] = m
	return m, err
}
