package mysql

import (
	"context"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	counted    = "('period_buffered', 'feature_buffered')"
	summedFrom = " FROM fencepost_items AS i JOIN fencepost_routes AS r ON r.route = i.route LEFT JOIN fencepost_items AS o ON o.item = i.depends_on "
	// What a counter reports is in its windows.
	summedWhere = "r.exporter = ? AND r.account = ? AND r.mode = ? AND i.usage_at >= ? AND i.usage_at < ? AND i.superseded_by = 0 " +
		"AND NOT (i.state = 'quarantined' AND (i.quarantine_reason IN " + counted +
		" OR i.quarantine_reason = 'original_ineligible' AND COALESCE(o.state = 'quarantined' AND o.quarantine_reason IN " + counted + ", FALSE)))"
	reported   = "i.state IN ('accepted', 'confirmed') AND i.disputed = ''"
	open       = "i.state IN ('pending', 'leased', 'uncertain')"
	held       = "i.state IN ('quarantined', 'rejected')"
	fresh      = reported + " AND ? > 0 AND i.accepted_at > UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND"
	selectSums = "SELECT i.customer, i.feature, i.mapping_version, SUM(i.usage_value)"
)

// sumColumns are the counts and sums of one key, in the order of [row.sum].
var sumColumns = selectSums +
	bothOf(reported) + countOf("i.state = 'confirmed' AND i.disputed = ''") + countOf(fresh) + valueOf(fresh) +
	countOf(open) + valueOf(open) + countOf(held) + valueOf(held) + countOf("i.disputed <> ''") + valueOf("i.disputed <> ''")

func valueOf(of string) string { return ", SUM(CASE WHEN " + of + " THEN i.usage_value ELSE 0 END)" }
func countOf(of string) string { return ", COUNT(CASE WHEN " + of + " THEN 1 END)" }
func bothOf(of string) string  { return valueOf(of) + countOf(of) }

func (r *row) sum() storage.ItemSum {
	return storage.ItemSum{
		SumKey:   storage.SumKey{Customer: r.text(), Feature: r.text(), MappingVersion: r.text()},
		Recorded: r.decimal(), Reported: r.decimal(), ReportedItems: r.int(), Confirmed: r.int(), Fresh: r.int(), FreshValue: r.decimal(),
		Open: r.int(), OpenValue: r.decimal(), Held: r.int(), HeldValue: r.decimal(), Disputed: r.int(), DisputedValue: r.decimal(),
	}
}

// sums is the statement for the sums of a query with further conditions.
func sums(q *storage.SumQuery, further *condition, limit int) capability.Statement {
	lag := q.Lag.Microseconds()
	args := []any{lag, lag, lag, lag, q.Exporter, q.Account, q.Mode, q.From, q.To}
	w := where(summedWhere)
	w.and(q.Customer != "", "i.customer = ?", q.Customer)
	w.and(q.Feature != "", "i.feature = ?", q.Feature)
	if further != nil {
		w.and(true, further.text, further.args...)
	}
	args = append(append(args, w.args...), limit)
	return read(sumColumns+summedFrom+"WHERE "+w.text+
		" GROUP BY i.customer, i.feature, i.mapping_version ORDER BY i.customer, i.feature, i.mapping_version LIMIT ?", args...)
}

// SumItems implements [storage.ReconcileStore]. The sums are the database's, of
// exact decimals.
func (a *Adapter) SumItems(ctx context.Context, q storage.SumQuery) (storage.SumPage, error) {
	page := storage.SumPage{Sums: []storage.ItemSum{}, Next: q.After}
	if q.Limit < 1 || q.Limit > 1000 {
		return page, sdk.Invalid("limit", "1 to 1000")
	}
	k := q.After
	after := where("(i.customer > ? OR i.customer = ? AND (i.feature > ? OR i.feature = ? AND i.mapping_version > ?))",
		k.Customer, k.Customer, k.Feature, k.Feature, k.MappingVersion)
	if k == (storage.SumKey{}) {
		after = nil
	}
	err := a.read(ctx, "sum items", func(r []result) error {
		return r[0].each(func(r *row) {
			if len(page.Sums) == q.Limit {
				page.More = true
				return
			}
			s := r.sum()
			page.Sums, page.Next = append(page.Sums, s), s.SumKey
		})
	}, sums(&q, after, q.Limit+1))
	if err != nil {
		return storage.SumPage{}, err
	}
	return page, nil
}

// ConfirmSum implements [storage.ReconcileStore].
func (a *Adapter) ConfirmSum(ctx context.Context, c storage.SumConfirm) (n int64, err error) {
	if err := checkAction(&c.Action); err != nil {
		return 0, err
	}
	q := c.Query
	q.Customer, q.Feature = "", ""
	only := where("i.customer = ? AND i.feature = ? AND i.mapping_version = ?", c.Key.Customer, c.Key.Feature, c.Key.MappingVersion)
	err = a.writeAfter(ctx, "confirm sum", []capability.Statement{sums(&q, only, 1)}, func(t *tx, r []result) error {
		var now storage.ItemSum
		if err := r[0].each(func(r *row) { now = r.sum() }); err != nil {
			return err
		}
		n = 0
		want := &c.Expect
		if now.SumKey != c.Key || !now.Reported.Equal(want.Reported) || now.ReportedItems != want.ReportedItems ||
			now.Open != 0 || now.Disputed != 0 || want.Open != 0 || want.Disputed != 0 {
			return errUndo
		}
		list, err := t.accepted(&q, only)
		if err != nil {
			return err
		}
		for _, it := range list {
			if it.AcceptedAt.IsZero() {
				return errUndo
			}
			it.State, it.ConfirmedAt, it.ConfirmedBy, it.changed = storage.Confirmed, t.now, c.ConfirmedBy, true
			if it.SettledAt.IsZero() {
				it.settle(true, t.now)
			}
		}
		if err := t.save(list...); err != nil {
			return err
		}
		if n = int64(len(list)); n > 0 {
			t.act(&c.Action, 0)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// accepted reads the accepted items of one sum.
func (t *tx) accepted(q *storage.SumQuery, only *condition) (list []*item, err error) {
	for after, n := int64(0), maxPage; n == maxPage; {
		n = 0
		args := append([]any{q.Exporter, q.Account, q.Mode, q.From, q.To}, only.args...)
		var ids []any
		err := t.query(func(r *row) {
			after = r.int()
			ids = append(ids, after)
			n++
		}, "SELECT i.item"+summedFrom+"WHERE "+summedWhere+" AND "+only.text+" AND i.state = 'accepted' AND i.item > ? ORDER BY i.item LIMIT ?",
			append(args, after, maxPage)...)
		if err != nil {
			return nil, err
		}
		if len(ids) == 0 {
			break
		}
		if err := t.query(func(r *row) { list = append(list, r.item()) }, selectItems+"item IN "+places(len(ids))+" ORDER BY item", ids...); err != nil {
			return nil, err
		}
	}
	return list, nil
}
