package mysql

import (
	"context"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	runColumns  = "run, exporter, account, mode, from_time, to_time, started_at, finished_at, error, line_count, differing, confirmed"
	lineColumns = "line, customer, feature, meter, from_time, to_time, recorded, reported, provider, difference, cause, confirmed"
	putRun      = "INSERT INTO fencepost_reconciliations (" + runColumns + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) " +
		"ON DUPLICATE KEY UPDATE exporter = VALUES(exporter), account = VALUES(account), mode = VALUES(mode), from_time = VALUES(from_time), " +
		"to_time = VALUES(to_time), started_at = VALUES(started_at), finished_at = VALUES(finished_at), error = VALUES(error), " +
		"line_count = VALUES(line_count), differing = VALUES(differing), confirmed = VALUES(confirmed)"
)

// SaveReconciliation implements [storage.ReconcileStore].
func (a *Adapter) SaveReconciliation(ctx context.Context, x storage.Reconciliation) error {
	return a.write(ctx, "save reconciliation", func(t *tx) error {
		finished, last := false, int64(0)
		err := t.query(func(r *row) { finished = r.bool() }, "SELECT finished_at IS NOT NULL FROM fencepost_reconciliations WHERE run = ?", x.ID)
		if err != nil {
			return err
		}
		if finished {
			return conflict("reconciliation_finished")
		}
		if err := t.query(func(r *row) { last = r.int() }, "SELECT MAX(line) FROM fencepost_reconciliation_lines WHERE run = ?", x.ID); err != nil {
			return err
		}
		t.exec(anyRows, putRun, x.ID, x.Exporter, x.Account, x.Mode, x.From, x.To, x.StartedAt, x.FinishedAt, x.Error, x.Lines, x.Differing, x.Confirmed)
		for i := range x.NewLines {
			l := &x.NewLines[i]
			last++
			t.exec(1, "INSERT INTO fencepost_reconciliation_lines (run, "+lineColumns+") VALUES "+places(13),
				x.ID, last, l.Customer, l.Feature, l.Meter, l.From, l.To, l.Recorded, l.Reported, l.Provider, l.Difference, l.Cause, l.Confirmed)
			if err := t.room(); err != nil {
				return err
			}
		}
		return nil
	})
}

// Reconciliations implements [storage.ReconcileStore].
func (a *Adapter) Reconciliations(ctx context.Context, q storage.ReconciliationQuery) ([]storage.Reconciliation, error) {
	if q.Limit < 1 || q.Limit > 1000 {
		return nil, sdk.Invalid("limit", "1 to 1000")
	}
	w := where("TRUE")
	w.and(q.Exporter != "", "exporter = ?", q.Exporter)
	w.and(q.ID != "", "run = ?", q.ID)
	w.and(!q.Before.IsZero(), "started_at < ?", q.Before)
	all := []storage.Reconciliation{}
	err := a.read(ctx, "reconciliations", func(r []result) error {
		return r[0].each(func(r *row) {
			all = append(all, storage.Reconciliation{
				ID: r.text(), Exporter: r.text(), Account: r.text(), Mode: r.text(), From: r.time(), To: r.time(), StartedAt: r.time(),
				FinishedAt: r.time(), Error: r.text(), Lines: r.int(), Differing: r.int(), Confirmed: r.int(),
			})
		})
	}, read("SELECT "+runColumns+" FROM fencepost_reconciliations WHERE "+w.text+" ORDER BY started_at DESC, run DESC LIMIT ?", append(w.args, q.Limit)...))
	if err != nil {
		return nil, err
	}
	return all, nil
}

// ReconciliationLines implements [storage.ReconcileStore].
func (a *Adapter) ReconciliationLines(ctx context.Context, run string, after int64, limit int) ([]storage.ReconciliationLine, error) {
	if limit < 1 || limit > 1000 {
		return nil, sdk.Invalid("limit", "1 to 1000")
	}
	all := []storage.ReconciliationLine{}
	err := a.read(ctx, "reconciliation lines", func(r []result) error {
		return r[0].each(func(r *row) {
			all = append(all, storage.ReconciliationLine{
				Line: r.int(), Customer: r.text(), Feature: r.text(), Meter: r.text(), From: r.time(), To: r.time(), Recorded: r.decimal(),
				Reported: r.decimal(), Provider: r.ptrDecimal(), Difference: r.ptrDecimal(), Cause: r.text(), Confirmed: r.int(),
			})
		})
	}, read("SELECT "+lineColumns+" FROM fencepost_reconciliation_lines WHERE run = ? AND line > ? ORDER BY line LIMIT ?", run, after, limit))
	if err != nil {
		return nil, err
	}
	return all, nil
}
