package mysql

import (
	"context"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// LoadItem implements [storage.OutboxStore].
func (a *Adapter) LoadItem(ctx context.Context, id int64) (d storage.ItemDetail, err error) {
	err = a.scan(ctx, "load item", func(t *tx) error {
		r, err := t.queries(
			read(selectItems+"item = ?", id), read("SELECT UTC_TIMESTAMP(6)"),
			read("SELECT content, fenced FROM fencepost_attempts WHERE item = ? ORDER BY attempt LIMIT ?", id, maxPage),
			read(selectActions+"item = ? ORDER BY action LIMIT ?", id, maxPage),
		)
		if err != nil {
			return err
		}
		var it *item
		var now time.Time
		d = storage.ItemDetail{Attempts: []storage.Attempt{}, Actions: []storage.Action{}}
		for i, f := range []func(*row){
			func(r *row) { it = r.item() }, func(r *row) { now = r.time() },
			func(r *row) {
				var at storage.Attempt
				r.decode(&at)
				at.ItemID, at.Fenced = id, r.bool()
				d.Attempts = append(d.Attempts, at)
			},
			func(r *row) { d.Actions = append(d.Actions, r.action()) },
		} {
			if err := r[i].each(f); err != nil {
				return err
			}
		}
		if it == nil {
			return notFound("an item")
		}
		around, err := t.around([]*item{it})
		if err != nil {
			return err
		}
		d.Item, d.Payload, d.Mapping, d.Original = it.Item, it.payload, around.mappings[it.Identity.MappingVersion], around.original(it, now)
		if ev, ok := around.events[it.event]; ok {
			d.Event = &ev
		}
		return nil
	})
	if err != nil {
		return storage.ItemDetail{}, err
	}
	return d, nil
}

// ListItems implements [storage.OutboxStore].
func (a *Adapter) ListItems(ctx context.Context, q storage.ItemQuery) (storage.ItemPage, error) {
	page := storage.ItemPage{Items: []storage.Item{}, Next: q.After}
	switch {
	case q.Limit < 1 || q.Limit > 1000:
		return page, sdk.Invalid("limit", "1 to 1000")
	case len(q.Digests) > 100:
		return page, sdk.Invalid("digests", "at most 100")
	case len(q.Events) > 1000:
		return page, sdk.Invalid("events", "at most 1000")
	}
	w := where("item > ?", q.After)
	w.and(q.State != "", "state = ?", string(q.State))
	for _, f := range [][2]string{
		{"tenant", q.Tenant},
		{"feature", q.Feature},
		{"quarantine_reason", q.Reason},
		{"subject_ref", q.SubjectRef},
		{"account", q.Account},
		{"mode", q.Mode},
	} {
		w.and(f[1] != "", f[0]+" = ?", f[1])
	}
	w.and(q.Exporter != "", "(route IN (SELECT route FROM fencepost_routes WHERE exporter = ?) OR "+
		"exporter = ? AND NOT EXISTS (SELECT 1 FROM fencepost_routes AS r WHERE r.exporter = ?))", q.Exporter, q.Exporter, q.Exporter)
	w.and(q.Open, "settled_at IS NULL")
	w.and(q.Disputed, "disputed <> ''")
	w.and(q.Unconfirmed > 0, "state = 'accepted' AND superseded_by = 0 AND accepted_at <= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND", q.Unconfirmed.Microseconds())
	w.and(len(q.Digests) > 0, "digest IN "+places(max(len(q.Digests), 1)), anys(q.Digests)...)
	w.and(len(q.Events) > 0, "event_seq <> 0 AND event_seq IN (SELECT seq FROM fencepost_events WHERE event_key IN "+places(max(len(q.Events), 1))+")", eventKeys(q.Events)...)
	w.and(q.DependsOn != 0, "depends_on = ?", q.DependsOn)
	err := a.read(ctx, "list items", func(r []result) error {
		return r[0].each(func(r *row) {
			if len(page.Items) == q.Limit {
				page.More = true
				return
			}
			it := r.item()
			page.Items, page.Next = append(page.Items, it.Item), it.ItemID
		})
	}, read(selectItems+w.text+" ORDER BY item LIMIT ?", append(w.args, q.Limit+1)...))
	if err != nil {
		return storage.ItemPage{}, err
	}
	return page, nil
}

// OutboxStats implements [storage.OutboxStore]. Items count for the exporter
// that their route has now.
func (a *Adapter) OutboxStats(ctx context.Context) (s storage.OutboxStats, err error) {
	err = a.read(ctx, "outbox stats", func(r []result) error {
		s = storage.OutboxStats{}
		for i, f := range []func(*row){
			func(r *row) {
				s.Counts = append(s.Counts, storage.ItemCount{Exporter: r.text(), State: storage.ItemState(r.text()), Items: r.int(), Open: r.int()})
			},
			func(r *row) {
				now, pending, accepted := r.time(), r.time(), r.time()
				if !pending.IsZero() {
					s.OldestPending = now.Sub(pending)
				}
				if !accepted.IsZero() {
					s.OldestAccepted = now.Sub(accepted)
				}
				s.Disputed, s.FencedAttempts = r.int(), r.int()
			},
		} {
			if err := r[i].each(f); err != nil {
				return err
			}
		}
		return nil
	}, read("SELECT r.exporter, i.state, COUNT(*), COUNT(*) - COUNT(i.settled_at) FROM fencepost_items AS i JOIN fencepost_routes AS r ON r.route = i.route "+
		"GROUP BY r.exporter, i.state ORDER BY r.exporter, i.state"),
		read("SELECT UTC_TIMESTAMP(6), (SELECT MIN(created_at) FROM fencepost_items WHERE state = 'pending' AND superseded_by = 0), "+
			"(SELECT MIN(accepted_at) FROM fencepost_items WHERE state = 'accepted' AND superseded_by = 0), "+
			"(SELECT COUNT(*) FROM fencepost_items WHERE disputed <> '' AND settled_at IS NULL AND superseded_by = 0), "+
			"(SELECT COUNT(*) FROM fencepost_attempts WHERE fenced = 1)"))
	if err != nil {
		return storage.OutboxStats{}, err
	}
	return s, nil
}

func eventKeys(list []storage.EventKey) []any {
	out := make([]any, len(list))
	for i, k := range list {
		out[i] = eventKey(k)
	}
	return out
}
