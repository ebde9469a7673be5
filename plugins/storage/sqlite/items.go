package sqlite

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// LoadItem returns one item with its payload and attempts, or not_found.
func (a *Adapter) LoadItem(ctx context.Context, id int64) (d storage.ItemDetail, err error) {
	err = a.read(ctx, "load item", func(c *conn) (err error) {
		d, err = loadItem(c, id, a.now())
		return err
	})
	return d, err
}

func loadItem(c *conn, id int64, now time.Time) (d storage.ItemDetail, err error) {
	var seq int64
	found, err := c.bind(qItem).int(id).one(func(r *row) {
		d.Item = r.item()
		seq = r.int()
		d.Payload = r.json()
	})
	if err == nil && !found {
		err = notFound("an outbox item")
	}
	if err != nil {
		return d, err
	}
	if _, err := c.bind(qEventBySeq).int(seq).one(func(r *row) {
		ev := r.event()
		d.Event = &ev
	}); err != nil {
		return d, err
	}
	if v := d.Item.Identity.MappingVersion; v != "" {
		if d.Mapping, err = loadMapping(c, v); err != nil {
			return d, err
		}
	}
	d.Attempts = []storage.Attempt{}
	err = c.bind(qItemAttempts).int(id).each(func(r *row) error {
		d.Attempts = append(d.Attempts, r.attempt())
		return nil
	})
	if err != nil {
		return d, err
	}
	if d.Original, err = originalItem(c, d.Item.DependsOn, now); err != nil {
		return d, err
	}
	page, err := listActions(c, storage.ActionQuery{ItemID: id, Limit: maxRows})
	d.Actions = page.Actions
	return d, err
}

// item reads the columns of an item in the order of every statement here.
func (r *row) item() (it storage.Item) {
	it.ItemID = r.int()
	it.Identity = r.identity()
	it.Digest, it.RouteID, it.Feature = r.hash(), r.int(), r.text()
	it.Customer, it.SerialKey = r.text(), r.text()
	it.State, it.Attempts, it.AttemptBudget = storage.ItemState(r.text()), int(r.int()), int(r.int())
	it.Unresolved, it.FirstAttemptAt, it.FirstUnresolvedAt = r.bool(), r.time(), r.time()
	it.NextAttemptAt, it.ClaimedAt = r.time(), r.time()
	it.LeaseOwner, it.LeaseExpiresAt, it.LeaseToken = r.text(), r.time(), r.int()
	it.ProviderRef, it.AcceptedAt, it.ConfirmedAt = r.text(), r.time(), r.time()
	it.ConfirmedBy, it.Disputed = r.text(), r.text()
	r.decode(&it.LastError)
	it.QuarantineReason, it.SettledAt = r.text(), r.time()
	it.SupersededBy, it.CreatedAt = r.int(), r.time()
	it.Method, it.DependsOn, it.Waits = r.text(), r.int(), r.bool()
	return it
}

func (r *row) attempt() (at storage.Attempt) {
	at.ItemID, at.LeaseToken, at.Owner = r.int(), r.int(), r.text()
	at.StartedAt, at.FinishedAt = r.time(), r.time()
	at.HostClass, at.Outcome, at.Evidence = r.text(), r.text(), r.text()
	at.Status, at.RequestID = int(r.int()), r.text()
	at.Code, at.Message = r.text(), r.text()
	at.Decided, at.Fenced = storage.ItemState(r.text()), r.bool()
	return at
}

// ListItems returns a page of items in id order.
func (a *Adapter) ListItems(ctx context.Context, q storage.ItemQuery) (page storage.ItemPage, err error) {
	const op = "list items"
	if err := checkLimit(q.Limit); err != nil {
		return page, fmt.Errorf("%s: %w", op, err)
	}
	if len(q.Digests) > maxDigests {
		return page, fmt.Errorf("%s: %w", op, sdk.Invalid("digests", "at most 100"))
	}
	if len(q.Events) > maxPage {
		return page, fmt.Errorf("%s: %w", op, sdk.Invalid("events", "at most 1000"))
	}
	err = a.read(ctx, op, func(c *conn) (err error) {
		page, err = listItems(c, q, a.now())
		return err
	})
	return page, err
}

// maxDigests is the largest number of identities of one query.
const maxDigests = 100

func listItems(c *conn, q storage.ItemQuery, now time.Time) (storage.ItemPage, error) {
	page := storage.ItemPage{Items: []storage.Item{}, Next: q.After}
	statement, err := itemsStatement(c, q)
	if err != nil {
		return page, err
	}
	var acceptedBefore time.Time
	if q.Unconfirmed > 0 {
		acceptedBefore = now.Add(-q.Unconfirmed)
	}
	b := c.bind(statement).int(q.After).int(int64(q.Limit) + 1).optText(string(q.State)).
		optText(q.Tenant).optText(q.Exporter).optText(q.Feature).optText(q.Reason).optText(q.SubjectRef).
		optText(q.Account).optText(q.Mode).bool(q.Open).bool(q.Disputed).optTime(acceptedBefore)
	if len(q.Digests) > 0 {
		b.text(digestList(q.Digests))
	} else {
		b.null()
	}
	b.optInt(q.DependsOn)
	if statement == qItemsOfEvents {
		b.text(keyList(q.Events))
	}
	err = b.each(func(r *row) error {
		page.Items = append(page.Items, r.item())
		return nil
	})
	if err != nil {
		return storage.ItemPage{}, err
	}
	if page.More = len(page.Items) > q.Limit; page.More {
		page.Items = page.Items[:q.Limit]
	}
	if n := len(page.Items); n > 0 {
		page.Next = page.Items[n-1].ItemID
	}
	return page, nil
}

// digestList is a JSON array of digests in hex.
func digestList(digests []storage.Hash) string {
	all := make([]string, len(digests))
	for i := range digests {
		all[i] = hex.EncodeToString(digests[i][:])
	}
	b, _ := json.Marshal(all) //nolint:errchkjson // of strings it does not fail
	return string(b)
}

// keyList is a JSON array of pairs.
func keyList(keys []storage.EventKey) string {
	all := make([][2]string, len(keys))
	for i, k := range keys {
		all[i] = [2]string{k.Tenant, k.EventID}
	}
	b, _ := json.Marshal(all) //nolint:errchkjson // of strings it does not fail
	return string(b)
}

// itemsStatement picks the statement that has an index for q: what needs a
// human is few among many, and so are the items of one event.
func itemsStatement(c *conn, q storage.ItemQuery) (query, error) {
	if len(q.Events) > 0 {
		return qItemsOfEvents, nil
	}
	if len(q.Digests) > 0 {
		return qItemsOfDigest, nil
	}
	if q.DependsOn != 0 {
		return qItemsOfOriginal, nil
	}
	if q.SubjectRef != "" && q.Tenant != "" {
		isEvent, err := c.bind(qEventDedupe).text(q.Tenant).text(q.SubjectRef).one(func(*row) {})
		if isEvent || err != nil {
			return qItemsOfEvent, err
		}
	}
	switch q.State {
	case storage.Uncertain, storage.Rejected, storage.Quarantined:
		return qItemsAttention, nil
	default:
		return qItems, nil
	}
}

// OutboxStats counts items by exporter and state.
func (a *Adapter) OutboxStats(ctx context.Context) (stats storage.OutboxStats, err error) {
	from, generation := a.oldest.start()
	err = a.read(ctx, "outbox stats", func(c *conn) error {
		stats = storage.OutboxStats{Counts: []storage.ItemCount{}}
		err := c.bind(qCounts).each(func(r *row) error {
			stats.Counts = append(stats.Counts, storage.ItemCount{
				Exporter: r.text(), State: storage.ItemState(r.text()), Items: r.int(), Open: r.int(),
			})
			return nil
		})
		if err != nil {
			return err
		}
		if err := a.gauges(c, &stats); err != nil {
			return err
		}
		for _, n := range stats.Counts {
			if n.State == storage.Pending {
				return a.oldestPending(c, from, generation, &stats)
			}
		}
		return nil
	})
	return stats, err
}

// gauges counts what is not a count of a state.
func (a *Adapter) gauges(c *conn, stats *storage.OutboxStats) error {
	if _, err := c.bind(qFencedAttempts).one(func(r *row) { stats.FencedAttempts = r.int() }); err != nil {
		return err
	}
	if _, err := c.bind(qDisputed).one(func(r *row) { stats.Disputed = r.int() }); err != nil {
		return err
	}
	var accepted time.Time
	found, err := c.bind(qOldestAccepted).one(func(r *row) { accepted = r.time() })
	if err == nil && found {
		stats.OldestAccepted = max(a.now().Sub(accepted), 0)
	}
	return err
}

func (a *Adapter) oldestPending(c *conn, from int64, generation uint64, stats *storage.OutboxStats) error {
	var id int64
	var created time.Time
	found, err := c.bind(qOldestPending).int(from).one(func(r *row) { id, created = r.int(), r.time() })
	if err != nil || !found {
		return err
	}
	a.oldest.raise(id, generation)
	stats.OldestPending = max(a.now().Sub(created), 0)
	return nil
}

// oldestPending remembers an item below which nothing is pending, so that the
// gauge does not walk over everything that was ever delivered. The zero value
// knows nothing. Safe for concurrent use.
type oldestPending struct {
	mu         sync.Mutex
	item       int64
	generation uint64
}

func (o *oldestPending) start() (item int64, generation uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.item, o.generation
}

// raise stores what a search found, unless something became pending since the
// search began.
func (o *oldestPending) raise(item int64, generation uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.generation == generation {
		o.item = item
	}
}

// lower is told of an item that became pending again, after its commit; 0 for
// none.
func (o *oldestPending) lower(item int64) {
	if item == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.item = min(o.item, item)
	o.generation++
}
