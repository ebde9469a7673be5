package sqlite

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// maxPage is the largest page of the contract.
const maxPage = 1000

// maxRows is the largest answer of the contract.
const maxRows = 100_000

func checkLimit(limit int) error {
	if limit < 1 || limit > maxPage {
		return sdk.Invalid("limit", "1 to 1000")
	}
	return nil
}

func notFound(what string) error {
	return &sdk.Error{Tag: sdk.TagNotFound, Rule: what + " that exists"}
}

// LoadEvent returns one event, or not_found.
func (a *Adapter) LoadEvent(ctx context.Context, key storage.EventKey) (ev storage.Event, err error) {
	err = a.read(ctx, "load event", func(c *conn) (err error) {
		ev, err = loadEvent(c, key)
		return err
	})
	return ev, err
}

func loadEvent(c *conn, key storage.EventKey) (ev storage.Event, err error) {
	found, err := c.bind(qEventByID).text(key.Tenant).text(key.EventID).one(func(r *row) { ev = r.event() })
	if err == nil && !found {
		err = notFound("an event")
	}
	return ev, err
}

// event reads the columns of an event in the order of every statement here.
func (r *row) event() (ev storage.Event) {
	ev.Seq = r.int()
	ev.Tenant = r.text()
	ev.EventID = r.text()
	ev.Feature = r.text()
	ev.Quantity = r.total()
	ev.Kind = storage.Kind(r.text())
	ev.Effect = ev.Quantity
	if effect := r.ptrTotal(); effect != nil {
		ev.Effect = *effect
	}
	ev.Reverses = r.bool()
	ev.OriginalEventID = r.text()
	ev.OccurredAt = r.time()
	ev.PeriodStart = r.time()
	ev.PeriodEnd = r.time()
	ev.PeriodSource = storage.PeriodSource(r.text())
	ev.Plan = r.text()
	ev.PlanVersion = r.text()
	r.decode(&ev.Dimensions)
	ev.Metadata = r.json()
	ev.PayloadHash = r.hash()
	ev.DedupeHash = r.hash()
	ev.RecordedAt = r.time()
	return ev
}

// LoadReceipt returns the first receipt of a CloudEvent, or not_found.
func (a *Adapter) LoadReceipt(ctx context.Context, key storage.ReceiptKey) (rc storage.Receipt, err error) {
	err = a.read(ctx, "load receipt", func(c *conn) (err error) {
		rc, err = loadReceipt(c, key)
		return err
	})
	return rc, err
}

func loadReceipt(c *conn, key storage.ReceiptKey) (rc storage.Receipt, err error) {
	found, err := c.bind(qReceiptByID).text(key.Tenant).text(key.ReceiptID).one(func(r *row) {
		rc.Tenant, rc.ReceiptID, rc.Source, rc.ID, rc.Type = r.text(), r.text(), r.text(), r.text(), r.text()
		rc.OccurredAt = r.time()
		rc.DedupeHash = r.hash()
		r.decode(&rc.Features)
		rc.Body = r.json()
		rc.RecordedAt = r.time()
	})
	if err == nil && !found {
		err = notFound("a receipt")
	}
	return rc, err
}

// LoadTotals returns the totals of the active generation that q selects, in
// the order of (tenant, feature, period start).
func (a *Adapter) LoadTotals(ctx context.Context, q storage.TotalsQuery) (all []storage.Total, err error) {
	err = a.read(ctx, "load totals", func(c *conn) (err error) {
		all, err = loadTotals(c, q)
		return err
	})
	return all, err
}

func loadTotals(c *conn, q storage.TotalsQuery) ([]storage.Total, error) {
	if q.Tenant == "" {
		return nil, sdk.Invalid("tenant", "required")
	}
	statement := qTotals
	if q.Feature != "" {
		statement = qTotalsFeature
	}
	b := c.bind(statement).text(q.Tenant).optTime(q.From).optTime(q.To)
	if q.Feature != "" {
		b.text(q.Feature)
	}
	all := []storage.Total{}
	err := b.each(func(r *row) error {
		all = append(all, storage.Total{
			Tenant: r.text(), Feature: r.text(), PeriodStart: r.time(), PeriodEnd: r.time(),
			Quantity: r.total(), Events: r.int(), Count: r.int(),
		})
		return nil
	})
	return all, err
}

// StreamEvents returns events in insertion order after a cursor. With one
// writer a lower seq never commits later.
func (a *Adapter) StreamEvents(ctx context.Context, q storage.StreamQuery) (page storage.EventPage, err error) {
	const op = "stream events"
	if err := checkLimit(q.Limit); err != nil {
		return page, fmt.Errorf("%s: %w", op, err)
	}
	err = a.read(ctx, op, func(c *conn) (err error) {
		page, err = streamEvents(c, q)
		return err
	})
	return page, err
}

func streamEvents(c *conn, q storage.StreamQuery) (storage.EventPage, error) {
	filtered := q.Tenant != "" || q.Feature != ""
	statement := qEventsAfter
	if filtered {
		statement = qEventsAfterFiltered
	}
	b := c.bind(statement).int(q.After).int(int64(q.Limit) + 1)
	if filtered {
		b.optText(q.Tenant).optText(q.Feature)
	}
	page := storage.EventPage{Events: []storage.Event{}, Next: q.After}
	err := b.each(func(r *row) error {
		page.Events = append(page.Events, r.event())
		return nil
	})
	if err != nil {
		return storage.EventPage{}, err
	}
	if page.More = len(page.Events) > q.Limit; page.More {
		page.Events = page.Events[:q.Limit]
	}
	if n := len(page.Events); n > 0 {
		page.Next = page.Events[n-1].Seq
	}
	if filtered && !page.More {
		// What was scanned and did not match is not scanned again.
		_, err = c.bind(qLastEvent).one(func(r *row) { page.Next = max(page.Next, r.int()) })
	}
	return page, err
}
