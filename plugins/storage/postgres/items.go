package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qItem           query = "item"
	qItemAttempts   query = "item_attempts"
	qItems          query = "items"
	qItemsAttention query = "items_attention"
	qItemsPending   query = "items_pending"
	qItemsOfEvent   query = "items_of_event"
	qItemsOfEvents  query = "items_of_events"
	qItemsOfDigest  query = "items_of_digest"
	qItemsOf        query = "items_of_original"
	qItemsDisputed  query = "items_disputed"
	qUnconfirmed    query = "items_unconfirmed"
	qEventIsStored  query = "event_is_stored"
	qCounts         query = "counts"
	qCountsFold     query = "counts_fold"
	qFencedAttempts query = "fenced_attempts"
	qOldestPending  query = "oldest_pending"
	qOldestAccepted query = "oldest_accepted"
	qDisputed       query = "disputed"
)

// LoadItem returns one item with its payload and attempts, or not_found.
func (a *Adapter) LoadItem(ctx context.Context, id int64) (d storage.ItemDetail, err error) {
	err = a.run.snapshot(ctx, "load item", func(ctx context.Context, t *tx) (err error) {
		d, err = loadItem(ctx, t, id)
		return err
	})
	return d, err
}

func loadItem(ctx context.Context, t *tx, id int64) (d storage.ItemDetail, err error) {
	var ev storage.Event
	var mapping storage.Mapping
	dest := append(itemInto(&d.Item), documentInto{&d.Payload}, textInto(&mapping.Label), documentInto{&mapping.Content})
	err = t.row(ctx, qItem, append(dest, eventInto(&ev)...), id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = notFound("an outbox item")
	}
	if err != nil {
		return d, err
	}
	if ev.Seq != 0 {
		d.Event = &ev
	}
	if mapping.Content != nil {
		d.Mapping = mapping
		d.Mapping.Version = d.Item.Identity.MappingVersion
	}
	d.Attempts = []storage.Attempt{}
	err = t.each(ctx, qItemAttempts, func(rows pgx.Rows) error {
		var at storage.Attempt
		if err := rows.Scan(attemptInto(&at)...); err != nil {
			return err
		}
		d.Attempts = append(d.Attempts, at)
		return nil
	}, id)
	if err != nil {
		return d, err
	}
	if of := d.Item.DependsOn; of != 0 {
		found, err := originals(ctx, t, []int64{of})
		if err != nil {
			return d, err
		}
		d.Original = found[of]
	}
	d.Actions, err = actions(ctx, t, storage.ActionQuery{ItemID: id}, maxActions)
	return d, err
}

// maxActions bounds how many actions of one item are read.
const maxActions = 10_000

// itemInto receives the columns of an item in the order of every statement
// here.
func itemInto(it *storage.Item) []any {
	d := append([]any{intInto(&it.ItemID)}, identityInto(&it.Identity)...)
	return append(d,
		hashInto{&it.Digest}, intInto(&it.RouteID), textInto(&it.Feature), textInto(&it.Customer),
		textInto(&it.SerialKey), textInto(&it.State), countInto{&it.Attempts}, countInto{&it.AttemptBudget},
		boolInto{&it.Unresolved}, utcInto{&it.FirstAttemptAt}, utcInto{&it.FirstUnresolvedAt},
		utcInto{&it.NextAttemptAt}, utcInto{&it.ClaimedAt}, textInto(&it.LeaseOwner), utcInto{&it.LeaseExpiresAt},
		intInto(&it.LeaseToken), textInto(&it.ProviderRef), utcInto{&it.AcceptedAt}, utcInto{&it.ConfirmedAt},
		textInto(&it.ConfirmedBy), textInto(&it.Disputed), itemErrorInto{&it.LastError},
		textInto(&it.QuarantineReason), utcInto{&it.SettledAt}, intInto(&it.SupersededBy), utcInto{&it.CreatedAt},
		textInto(&it.Method), intInto(&it.DependsOn), boolInto{&it.Waits})
}

// itemErrorInto reads a last error. NULL is nil.
type itemErrorInto struct{ e **storage.ItemError }

// ScanText implements pgtype.TextScanner.
func (s itemErrorInto) ScanText(v pgtype.Text) error {
	*s.e = nil
	if !v.Valid {
		return nil
	}
	return json.Unmarshal([]byte(v.String), s.e)
}

func attemptInto(at *storage.Attempt) []any {
	return []any{
		&at.ItemID, &at.LeaseToken, &at.Owner,
		utcInto{&at.StartedAt},
		utcInto{&at.FinishedAt},
		&at.HostClass, &at.Outcome, &at.Evidence, &at.Status, &at.RequestID, &at.Code, &at.Message,
		textInto(&at.Decided), &at.Fenced,
	}
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
	err = a.run.read(ctx, op, func(ctx context.Context, t *tx) (err error) {
		page, err = listItems(ctx, t, q)
		return err
	})
	return page, err
}

func listItems(ctx context.Context, t *tx, q storage.ItemQuery) (storage.ItemPage, error) {
	page := storage.ItemPage{Items: []storage.Item{}, Next: q.After}
	statement, err := itemsStatement(ctx, t, q)
	if err != nil {
		return page, err
	}
	args := []any{
		q.After, q.Limit + 1, optText(string(q.State)), optText(q.Tenant), optText(q.Exporter), optText(q.Feature),
		optText(q.Reason), optText(q.SubjectRef), optText(q.Account), optText(q.Mode), q.Open, q.Disputed,
		optDuration(q.Unconfirmed), digestsOf(q.Digests), optInt(q.DependsOn),
	}
	if statement == qItemsOfEvents {
		tenants, ids := make([]string, len(q.Events)), make([]string, len(q.Events))
		for i, k := range q.Events {
			tenants[i], ids[i] = k.Tenant, k.EventID
		}
		args = append(args, tenants, ids)
	}
	err = t.each(ctx, statement, func(rows pgx.Rows) error {
		var it storage.Item
		if err := rows.Scan(itemInto(&it)...); err != nil {
			return err
		}
		page.Items = append(page.Items, it)
		return nil
	}, args...)
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

// itemsStatement picks the statement that has an index for q: what needs a
// human is few among many, and so are the items of one event.
func itemsStatement(ctx context.Context, t *tx, q storage.ItemQuery) (query, error) {
	switch {
	case len(q.Events) > 0:
		return qItemsOfEvents, nil
	case len(q.Digests) > 0:
		return qItemsOfDigest, nil
	case q.DependsOn != 0:
		return qItemsOf, nil
	case q.Disputed:
		return qItemsDisputed, nil
	case q.Unconfirmed != 0:
		return qUnconfirmed, nil
	}
	if q.SubjectRef != "" && q.Tenant != "" {
		isEvent := false
		err := t.row(ctx, qEventIsStored, []any{&isEvent}, q.Tenant, q.SubjectRef)
		if isEvent || err != nil {
			return qItemsOfEvent, err
		}
	}
	switch q.State {
	case storage.Uncertain, storage.Rejected, storage.Quarantined:
		return qItemsAttention, nil
	case storage.Pending:
		return qItemsPending, nil
	default:
		return qItems, nil
	}
}

// maxDigests is how many identities one query may name.
const maxDigests = 100

// digestsOf is NULL for none.
func digestsOf(digests []storage.Hash) [][]byte {
	if len(digests) == 0 {
		return nil
	}
	all := make([][]byte, len(digests))
	for i := range digests {
		all[i] = digests[i][:]
	}
	return all
}

// optDuration is NULL for zero.
func optDuration(d time.Duration) *time.Duration {
	if d == 0 {
		return nil
	}
	return &d
}

// optInt is NULL for zero.
func optInt(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

// The gauge is folded when it has this many lines, so many at a time.
const (
	manyLines = 1000
	foldLines = 10_000
)

// OutboxStats counts items by exporter and state. Whoever moves items appends
// lines to the gauge, so that no two wait for each other; this adds them up,
// and folds them when there are many.
func (a *Adapter) OutboxStats(ctx context.Context) (stats storage.OutboxStats, err error) {
	var lines int64
	err = a.run.snapshot(ctx, "outbox stats", func(ctx context.Context, t *tx) error {
		stats, lines = storage.OutboxStats{Counts: []storage.ItemCount{}}, 0
		err := t.each(ctx, qCounts, func(rows pgx.Rows) error {
			var n storage.ItemCount
			var added int64
			if err := rows.Scan(&n.Exporter, textInto(&n.State), &n.Items, &n.Open, &added); err != nil {
				return err
			}
			lines += added
			if n.Items != 0 || n.Open != 0 {
				stats.Counts = append(stats.Counts, n)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := t.row(ctx, qFencedAttempts, []any{&stats.FencedAttempts}); err != nil {
			return err
		}
		if err := t.row(ctx, qDisputed, []any{&stats.Disputed}); err != nil {
			return err
		}
		for q, age := range map[query]*time.Duration{
			qOldestPending: &stats.OldestPending, qOldestAccepted: &stats.OldestAccepted,
		} {
			if err := t.row(ctx, q, []any{age}); err != nil && !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
		}
		return nil
	})
	if err == nil && lines >= manyLines {
		a.foldCounts(ctx)
	}
	return stats, err
}

// foldCounts folds the lines of the gauge until few are left. What it says
// stays the same: a failure here is the next call's to mend.
func (a *Adapter) foldCounts(ctx context.Context) {
	for lines := int64(foldLines); lines == foldLines; {
		err := a.run.write(ctx, "fold the gauge", writing{pool: deliveryPool}, func(ctx context.Context, t *tx) error {
			return t.row(ctx, qCountsFold, []any{&lines}, foldLines)
		})
		if err != nil {
			return
		}
	}
}
