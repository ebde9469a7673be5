package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qEventByID   query = "event_by_id"
	qReceiptByID query = "receipt_by_id"
	qTotals      query = "totals"
)

// maxPage is the largest page of the contract.
const maxPage = 1000

func checkLimit(limit int) error {
	if limit < 1 || limit > maxPage {
		return sdk.Invalid("limit", "1 to 1000")
	}
	return nil
}

func notFound(what string) error {
	return &sdk.Error{Tag: sdk.TagNotFound, Rule: what + " that exists"}
}

// optTime is NULL for the zero time.
func optTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// utc reads a time that may be NULL.
func utc(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// total reads an exact number that was selected as text.
func total(text string) (decimal.Decimal, error) { return decimal.ParseTotal(text) }

// document reads a document that may be NULL.
func document(text *string) json.RawMessage {
	if text == nil {
		return nil
	}
	return json.RawMessage(*text)
}

// LoadEvent returns one event, or not_found.
func (s store) LoadEvent(ctx context.Context, key storage.EventKey) (ev storage.Event, err error) {
	err = s.run.read(ctx, "load event", func(ctx context.Context, t *tx) error {
		found := false
		err := t.each(ctx, qEventByID, func(rows pgx.Rows) (err error) {
			found = true
			ev, err = scanEvent(rows)
			return err
		}, key.Tenant, key.EventID)
		if err == nil && !found {
			err = notFound("an event")
		}
		return err
	})
	return ev, err
}

// eventColumns are the columns of an event as every statement here selects
// them: seq, tenant_key, event_id, feature, quantity::text, effect::text, kind,
// reverses, original_event_id, occurred_at, period_start, period_end,
// period_source, plan, plan_version, dimensions, metadata, payload_hash,
// dedupe_hash, recorded_at.
type eventColumns struct {
	ev                              storage.Event
	quantity, effect                string
	original, plan, version         *string
	occurred, start, end, recorded  time.Time
	metadata                        *string
	payloadHash, dedupeHash, dimens []byte
}

func (c *eventColumns) dest() []any {
	e := &c.ev
	return []any{
		&e.Seq, &e.Tenant, &e.EventID, &e.Feature, &c.quantity, &c.effect, &e.Kind,
		&e.Reverses, &c.original, &c.occurred, &c.start, &c.end,
		&e.PeriodSource, &c.plan, &c.version, &c.dimens, &c.metadata, &c.payloadHash,
		&c.dedupeHash, &c.recorded,
	}
}

func (c *eventColumns) event() (storage.Event, error) {
	e := c.ev
	var err error
	if e.Quantity, err = total(c.quantity); err != nil {
		return e, err
	}
	if e.Effect, err = total(c.effect); err != nil {
		return e, err
	}
	e.OriginalEventID, e.Plan, e.PlanVersion = text(c.original), text(c.plan), text(c.version)
	e.OccurredAt, e.PeriodStart = c.occurred.UTC(), c.start.UTC()
	e.PeriodEnd, e.RecordedAt = c.end.UTC(), c.recorded.UTC()
	e.Metadata = document(c.metadata)
	if c.dimens != nil {
		if err := json.Unmarshal(c.dimens, &e.Dimensions); err != nil {
			return e, err
		}
	}
	if e.PayloadHash, err = hash(c.payloadHash); err != nil {
		return e, err
	}
	e.DedupeHash, err = hash(c.dedupeHash)
	return e, err
}

// text reads text that may be NULL.
func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func hash(b []byte) (h storage.Hash, err error) {
	if len(b) != len(h) {
		return h, errors.New("a hash that is not 32 bytes long")
	}
	copy(h[:], b)
	return h, nil
}

func scanEvent(rows pgx.Rows) (storage.Event, error) {
	var c eventColumns
	if err := rows.Scan(c.dest()...); err != nil {
		return storage.Event{}, err
	}
	return c.event()
}

// LoadReceipt returns the first receipt of a CloudEvent, or not_found.
func (s store) LoadReceipt(ctx context.Context, key storage.ReceiptKey) (rc storage.Receipt, err error) {
	err = s.run.read(ctx, "load receipt", func(ctx context.Context, t *tx) error {
		var body *string
		var dedupe []byte
		rc = storage.Receipt{}
		err := t.row(ctx, qReceiptByID, []any{
			&rc.Tenant, &rc.ReceiptID, &rc.Source, &rc.ID, &rc.Type, &rc.OccurredAt,
			&dedupe, &rc.Features, &body, &rc.RecordedAt,
		}, key.Tenant, key.ReceiptID)
		if errors.Is(err, pgx.ErrNoRows) {
			return notFound("a receipt")
		}
		if err != nil {
			return err
		}
		rc.OccurredAt, rc.RecordedAt, rc.Body = rc.OccurredAt.UTC(), rc.RecordedAt.UTC(), document(body)
		rc.DedupeHash, err = hash(dedupe)
		return err
	})
	if err != nil {
		return storage.Receipt{}, err
	}
	return rc, nil
}

// LoadTotals returns the totals of the active generation that q selects, in
// the order of (tenant, feature, period start). The generation is read in the
// same statement, so that an activation shows as a whole.
func (s store) LoadTotals(ctx context.Context, q storage.TotalsQuery) (all []storage.Total, err error) {
	const op = "load totals"
	if q.Tenant == "" {
		return nil, fmt.Errorf("%s: %w", op, sdk.Invalid("tenant", "required"))
	}
	err = s.run.read(ctx, op, func(ctx context.Context, t *tx) error {
		all = []storage.Total{}
		return t.each(ctx, qTotals, func(rows pgx.Rows) error {
			var x storage.Total
			var quantity string
			err := rows.Scan(&x.Tenant, &x.Feature, &x.PeriodStart, &x.PeriodEnd, &quantity, &x.Events, &x.Count)
			if err != nil {
				return err
			}
			x.PeriodStart, x.PeriodEnd = x.PeriodStart.UTC(), x.PeriodEnd.UTC()
			if x.Quantity, err = total(quantity); err != nil {
				return err
			}
			all = append(all, x)
			return nil
		}, q.Tenant, q.Feature, optTime(q.From), optTime(q.To))
	})
	return all, err
}
