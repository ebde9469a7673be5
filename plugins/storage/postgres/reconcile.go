package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qReconciliationPut    query = "reconciliation_put"
	qReconciliationAppend query = "reconciliation_append"
	qReconciliations      query = "reconciliations"
	qReconciliationLines  query = "reconciliation_lines"
)

// SaveReconciliation stores a run and appends its new lines.
func (a *Adapter) SaveReconciliation(ctx context.Context, r storage.Reconciliation) error {
	const op = "save a reconciliation"
	if r.ID == "" {
		return storeError(ctx, op, sdk.Invalid("id", "required"))
	}
	return a.run.write(ctx, op, writing{}, func(ctx context.Context, t *tx) error {
		n, err := t.exec(ctx, qReconciliationPut, r.ID, r.Exporter, r.Account, r.Mode, r.From, r.To, r.StartedAt,
			optTime(r.FinishedAt), clean(r.Error), r.Lines, r.Differing, r.Confirmed)
		if err == nil && n == 0 {
			err = &sdk.Error{
				Tag: sdk.TagConflict, Code: "reconciliation_finished", Field: "id", Rule: "a run that is not finished",
			}
		}
		if err != nil || len(r.NewLines) == 0 {
			return err
		}
		_, err = t.exec(ctx, qReconciliationAppend, append([]any{r.ID}, lineArgs(r.NewLines)...)...)
		return err
	})
}

func lineArgs(lines []storage.ReconciliationLine) []any {
	n := len(lines)
	var text [6][]string
	for c := range text {
		text[c] = make([]string, n)
	}
	from, to, confirmed := make([]time.Time, n), make([]time.Time, n), make([]int64, n)
	provider, difference := make([]*string, n), make([]*string, n)
	for i := range lines {
		l := &lines[i]
		for c, s := range [...]string{l.Customer, l.Feature, l.Meter, l.Recorded.String(), l.Reported.String(), l.Cause} {
			text[c][i] = clean(s)
		}
		from[i], to[i], confirmed[i] = l.From, l.To, l.Confirmed
		provider[i], difference[i] = optDecimal(l.Provider), optDecimal(l.Difference)
	}
	return []any{text[0], text[1], text[2], from, to, text[3], text[4], provider, difference, text[5], confirmed}
}

// Reconciliations returns runs, latest first, without lines.
func (a *Adapter) Reconciliations(ctx context.Context, q storage.ReconciliationQuery) (all []storage.Reconciliation, err error) {
	const op = "list reconciliations"
	if err := checkLimit(q.Limit); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	err = a.run.read(ctx, op, func(ctx context.Context, t *tx) error {
		all = []storage.Reconciliation{}
		return t.each(ctx, qReconciliations, func(rows pgx.Rows) error {
			var r storage.Reconciliation
			err := rows.Scan(&r.ID, &r.Exporter, &r.Account, &r.Mode, utcInto{&r.From}, utcInto{&r.To}, utcInto{&r.StartedAt},
				utcInto{&r.FinishedAt}, &r.Error, &r.Lines, &r.Differing, &r.Confirmed)
			all = append(all, r)
			return err
		}, optText(q.Exporter), optTime(q.Before), optText(q.ID), q.Limit)
	})
	return all, err
}

// ReconciliationLines returns the lines of one run in order.
func (a *Adapter) ReconciliationLines(ctx context.Context, run string, after int64, limit int) (all []storage.ReconciliationLine, err error) {
	const op = "list reconciliation lines"
	if err := checkLimit(limit); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	err = a.run.read(ctx, op, func(ctx context.Context, t *tx) error {
		all = []storage.ReconciliationLine{}
		return t.each(ctx, qReconciliationLines, func(rows pgx.Rows) error {
			var l storage.ReconciliationLine
			err := rows.Scan(&l.Line, &l.Customer, &l.Feature, &l.Meter, utcInto{&l.From}, utcInto{&l.To},
				decimalInto{&l.Recorded}, decimalInto{&l.Reported}, optDecimalInto{&l.Provider}, optDecimalInto{&l.Difference},
				&l.Cause, &l.Confirmed)
			all = append(all, l)
			return err
		}, run, after, limit)
	})
	return all, err
}
