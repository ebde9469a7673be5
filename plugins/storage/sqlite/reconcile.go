package sqlite

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// SaveReconciliation stores a run and appends its new lines.
func (a *Adapter) SaveReconciliation(ctx context.Context, rec storage.Reconciliation) error {
	return a.write(ctx, "save a reconciliation", func(_ context.Context, c *conn) error {
		if rec.ID == "" {
			return sdk.Invalid("id", "required")
		}
		finished := false
		if _, err := c.bind(qReconciliation).text(rec.ID).one(func(r *row) { finished = r.bool() }); err != nil {
			return err
		}
		if finished {
			return &sdk.Error{
				Tag: sdk.TagConflict, Code: "reconciliation_finished", Field: "id", Rule: "a run that is not finished",
			}
		}
		if _, err := c.bind(qReconciliationPut).text(rec.ID).text(rec.Exporter).text(rec.Account).text(rec.Mode).
			time(rec.From).time(rec.To).time(rec.StartedAt).optTime(rec.FinishedAt).text(rec.Error).
			int(rec.Lines).int(rec.Differing).int(rec.Confirmed).run(); err != nil {
			return err
		}
		return appendLines(c, &rec)
	})
}

func appendLines(c *conn, rec *storage.Reconciliation) error {
	var last int64
	if _, err := c.bind(qReconciliationLast).text(rec.ID).one(func(r *row) { last = r.int() }); err != nil {
		return err
	}
	for i := range rec.NewLines {
		l := &rec.NewLines[i]
		last++
		if _, err := c.bind(qReconciliationLineInsert).text(rec.ID).int(last).text(l.Customer).text(l.Feature).text(l.Meter).
			time(l.From).time(l.To).decimal(l.Recorded).decimal(l.Reported).ptrDecimal(l.Provider).ptrDecimal(l.Difference).
			text(l.Cause).int(l.Confirmed).run(); err != nil {
			return err
		}
	}
	return nil
}

// Reconciliations returns runs, latest first, without lines.
func (a *Adapter) Reconciliations(ctx context.Context, q storage.ReconciliationQuery) (all []storage.Reconciliation, err error) {
	const op = "list reconciliations"
	if err := checkLimit(q.Limit); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	err = a.read(ctx, op, func(c *conn) error {
		all = []storage.Reconciliation{}
		return c.bind(qReconciliations).optText(q.Exporter).optTime(q.Before).optText(q.ID).int(int64(q.Limit)).
			each(func(r *row) error {
				all = append(all, storage.Reconciliation{
					ID: r.text(), Exporter: r.text(), Account: r.text(), Mode: r.text(), From: r.time(), To: r.time(),
					StartedAt: r.time(), FinishedAt: r.time(), Error: r.text(), Lines: r.int(), Differing: r.int(), Confirmed: r.int(),
				})
				return nil
			})
	})
	return all, err
}

// ReconciliationLines returns the lines of one run in order.
func (a *Adapter) ReconciliationLines(ctx context.Context, run string, after int64, limit int) (all []storage.ReconciliationLine, err error) {
	const op = "list reconciliation lines"
	if err := checkLimit(limit); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	err = a.read(ctx, op, func(c *conn) error {
		all = []storage.ReconciliationLine{}
		return c.bind(qReconciliationLines).text(run).int(after).int(int64(limit)).each(func(r *row) error {
			all = append(all, storage.ReconciliationLine{
				Line: r.int(), Customer: r.text(), Feature: r.text(), Meter: r.text(), From: r.time(), To: r.time(),
				Recorded: r.total(), Reported: r.total(), Provider: r.ptrTotal(), Difference: r.ptrTotal(),
				Cause: r.text(), Confirmed: r.int(),
			})
			return nil
		})
	})
	return all, err
}
