package mysql

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	eventColumns = "seq, tenant, event_id, feature, quantity, kind, effect, reverses, original_id, occurred_at, period_start, " +
		"period_end, period_source, plan, plan_version, dimensions, metadata, payload_hash, dedupe_hash, recorded_at"
	selectEvents   = "SELECT " + eventColumns + " FROM fencepost_events WHERE "
	eventCount     = 22
	insertEvents   = "INSERT INTO fencepost_events (event_key, original_key, " + eventColumns + ") VALUES "
	receiptColumns = "tenant, receipt_id, source, id, type, occurred_at, dedupe_hash, features, entries, body, recorded_at"
	insertReceipt  = "INSERT INTO fencepost_receipts (receipt_key, " + receiptColumns + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
	selectReceipts = "SELECT receipt_key, " + receiptColumns + " FROM fencepost_receipts WHERE receipt_key IN "
)

func (r *row) event() storage.Event {
	ev := storage.Event{
		Seq: r.int(), Tenant: r.text(), EventID: r.text(), Feature: r.text(), Quantity: r.decimal(), Kind: storage.Kind(r.text()),
		Effect: r.decimal(), Reverses: r.bool(), OriginalEventID: r.text(), OccurredAt: r.time(), PeriodStart: r.time(),
		PeriodEnd: r.time(), PeriodSource: storage.PeriodSource(r.text()), Plan: r.text(), PlanVersion: r.text(),
	}
	r.decode(&ev.Dimensions)
	ev.Metadata, ev.PayloadHash, ev.DedupeHash, ev.RecordedAt = r.json(), r.hash(), r.hash(), r.time()
	return ev
}

// eventArgs are the values of insertEvents for one event.
func eventArgs(ev *storage.Event) ([]any, error) {
	dimensions, err := document(ev.Dimensions)
	if err != nil {
		return nil, err
	}
	var original any
	if ev.OriginalEventID != "" {
		original = key(ev.Tenant, ev.OriginalEventID)
	}
	return []any{
		key(ev.Tenant, ev.EventID), original, ev.Seq, ev.Tenant, ev.EventID, ev.Feature, ev.Quantity, string(ev.Kind), ev.Effect,
		ev.Reverses, ev.OriginalEventID, ev.OccurredAt, ev.PeriodStart, ev.PeriodEnd, string(ev.PeriodSource), ev.Plan, ev.PlanVersion,
		dimensions, ev.Metadata, ev.PayloadHash, ev.DedupeHash, ev.RecordedAt,
	}, nil
}

// document is nil for none.
func document(m map[string]string) (json.RawMessage, error) {
	if len(m) == 0 {
		return nil, nil
	}
	return json.Marshal(m)
}

// insertAll keeps inserts of events, as many in one statement as it takes.
func (t *tx) insertAll(events []storage.Event) error {
	const most = 200
	for len(events) > 0 {
		n := min(most, len(events))
		args := make([]any, 0, n*eventCount)
		size := 0
		for i := range n {
			a, err := eventArgs(&events[i])
			if err != nil {
				return err
			}
			args = append(args, a...)
			if size += len(events[i].Metadata) + 1000; size > maxPendingSize/2 {
				n = i + 1
				break
			}
		}
		row := places(eventCount)
		t.exec(int64(n), insertEvents+strings.TrimSuffix(strings.Repeat(row+", ", n), ", "), args...)
		if err := t.room(); err != nil {
			return err
		}
		events = events[n:]
	}
	return nil
}

// oneEvent reads the event that a condition names, or answers false.
func oneEvent(r result) (ev storage.Event, found bool, err error) {
	err = r.each(func(r *row) { ev, found = r.event(), true })
	return ev, found, err
}

func eventByKey(k storage.EventKey) capability.Statement {
	return read(selectEvents+"event_key = ?", eventKey(k))
}

// LoadEvent implements [storage.EventStore].
func (a *Adapter) LoadEvent(ctx context.Context, k storage.EventKey) (loaded storage.Event, err error) {
	err = a.read(ctx, "load event", func(r []result) error {
		ev, found, err := oneEvent(r[0])
		loaded = ev
		if err == nil && !found {
			err = notFound("an event")
		}
		return err
	}, eventByKey(k))
	if err != nil {
		return storage.Event{}, err
	}
	return loaded, nil
}

// storedReceipt is a receipt and what it became.
type storedReceipt struct {
	storage.Receipt
	entries []storage.EntryResult
}

func (r *row) receipt() storedReceipt {
	s := storedReceipt{Receipt: storage.Receipt{
		Tenant: r.text(), ReceiptID: r.text(), Source: r.text(), ID: r.text(), Type: r.text(), OccurredAt: r.time(), DedupeHash: r.hash(),
	}}
	r.decode(&s.Features)
	r.decode(&s.entries)
	s.Body, s.RecordedAt = r.json(), r.time()
	return s
}

// LoadReceipt implements [storage.EventStore].
func (a *Adapter) LoadReceipt(ctx context.Context, k storage.ReceiptKey) (found storage.Receipt, err error) {
	err = a.read(ctx, "load receipt", func(r []result) error {
		known := false
		err := r[0].each(func(r *row) {
			_ = r.bytes()
			found, known = r.receipt().Receipt, true
		})
		if err == nil && !known {
			err = notFound("a receipt")
		}
		return err
	}, read(selectReceipts+"(?)", key(k.Tenant, k.ReceiptID)))
	if err != nil {
		return storage.Receipt{}, err
	}
	return found, nil
}

// LoadTotals implements [storage.EventStore].
func (a *Adapter) LoadTotals(ctx context.Context, q storage.TotalsQuery) ([]storage.Total, error) {
	all := []storage.Total{}
	err := a.scan(ctx, "load totals", func(t *tx) error {
		after := storage.Total{}
		for {
			w := where("tenant = ?", q.Tenant)
			w.and(q.Feature != "", "feature = ?", q.Feature)
			w.and(!q.From.IsZero(), "period_start >= ?", q.From)
			w.and(!q.To.IsZero(), "period_start < ?", q.To)
			w.and(len(all) > 0, "(feature > ? OR feature = ? AND period_start > ?)", after.Feature, after.Feature, after.PeriodStart)
			n := len(all)
			err := t.query(func(r *row) {
				after = storage.Total{
					Tenant: r.text(), Feature: r.text(), PeriodStart: r.time(), PeriodEnd: r.time(), Quantity: r.decimal(), Events: r.int(), Count: r.int(),
				}
				all = append(all, after)
			}, "SELECT tenant, feature, period_start, period_end, quantity, events, net FROM fencepost_totals WHERE "+w.text+
				" ORDER BY feature, period_start LIMIT ?", append(w.args, maxPage)...)
			if err != nil || len(all)-n < maxPage {
				return err
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// StreamEvents implements [storage.EventStreamer]. Events are numbered under the
// lock, so that one which commits later has a higher number.
func (a *Adapter) StreamEvents(ctx context.Context, q storage.StreamQuery) (storage.EventPage, error) {
	w := where("seq > ?", q.After)
	w.and(q.Tenant != "", "tenant = ?", q.Tenant)
	w.and(q.Feature != "", "feature = ?", q.Feature)
	return a.eventPage(ctx, "stream events", w, q.After, q.Limit)
}

// ListCorrections implements [storage.CorrectionLister].
func (a *Adapter) ListCorrections(ctx context.Context, original storage.EventKey, after int64, limit int) (storage.EventPage, error) {
	w := where("original_key = ? AND seq > ?", eventKey(original), after)
	return a.eventPage(ctx, "list corrections", w, after, limit)
}

func (a *Adapter) eventPage(ctx context.Context, op string, w *condition, after int64, limit int) (storage.EventPage, error) {
	page := storage.EventPage{Events: []storage.Event{}, Next: after}
	if limit < 1 || limit > 1000 {
		return page, sdk.Invalid("limit", "1 to 1000")
	}
	err := a.read(ctx, op, func(r []result) error {
		return r[0].each(func(r *row) {
			if len(page.Events) == limit {
				page.More = true
				return
			}
			ev := r.event()
			page.Events, page.Next = append(page.Events, ev), ev.Seq
		})
	}, read(selectEvents+w.text+" ORDER BY seq LIMIT ?", append(w.args, limit+1)...))
	if err != nil {
		return storage.EventPage{}, err
	}
	return page, nil
}

// condition is what rows have to fulfil. Every value is bound.
type condition struct {
	text string
	args []any
}

func where(text string, args ...any) *condition { return &condition{text: text, args: args} }

// and adds a part, if asked for.
func (c *condition) and(yes bool, text string, args ...any) {
	if yes {
		c.text += " AND " + text
		c.args = append(c.args, args...)
	}
}
