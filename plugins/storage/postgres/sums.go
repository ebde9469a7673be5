package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qSumItems   query = "sum_items"
	qSumHold    query = "sum_hold"
	qSumConfirm query = "sum_confirm"
)

var _ storage.ReconcileStore = (*Adapter)(nil)

// SumItems returns the sums of the items of a destination; see
// [storage.ReconcileStore]. The destination is that of the item's route: a
// renamed exporter has the items of its old name.
func (a *Adapter) SumItems(ctx context.Context, q storage.SumQuery) (page storage.SumPage, err error) {
	const op = "sum items"
	if err := checkLimit(q.Limit); err != nil {
		return page, fmt.Errorf("%s: %w", op, err)
	}
	err = a.run.read(ctx, op, func(ctx context.Context, t *tx) error {
		page = storage.SumPage{Next: q.After}
		page.Sums, err = itemSums(ctx, t, &q, sumFilter{optText(q.Customer), optText(q.Feature), nil})
		if page.More = len(page.Sums) > q.Limit; page.More {
			page.Sums = page.Sums[:q.Limit]
		}
		return err
	})
	if err != nil {
		return storage.SumPage{}, err
	}
	if n := len(page.Sums); n > 0 {
		page.Next = page.Sums[n-1].SumKey
	}
	return page, nil
}

// sumFilter narrows sums by the parts of their key; nil: all.
type sumFilter struct{ customer, feature, mapping *string }

func itemSums(ctx context.Context, t *tx, q *storage.SumQuery, f sumFilter) ([]storage.ItemSum, error) {
	all := []storage.ItemSum{}
	err := t.each(ctx, qSumItems, func(rows pgx.Rows) error {
		var s storage.ItemSum
		err := rows.Scan(&s.Customer, &s.Feature, &s.MappingVersion, decimalInto{&s.Recorded},
			decimalInto{&s.Reported}, &s.ReportedItems, &s.Confirmed, &s.Open, decimalInto{&s.OpenValue},
			&s.Held, decimalInto{&s.HeldValue}, &s.Disputed, decimalInto{&s.DisputedValue},
			&s.Fresh, decimalInto{&s.FreshValue})
		all = append(all, s)
		return err
	}, q.Exporter, q.Account, q.Mode, q.From, q.To, f.customer, f.feature, f.mapping,
		q.After.Customer, q.After.Feature, q.After.MappingVersion, q.Limit+1, q.Lag.Microseconds())
	return all, err
}

// ConfirmSum confirms the accepted items of one sum; see
// [storage.ReconcileStore]. The items are held before they are added up: what is
// compared is what is confirmed (Q24).
func (a *Adapter) ConfirmSum(ctx context.Context, req storage.SumConfirm) (confirmed int64, err error) {
	const op = "confirm a sum"
	if err := checkAction(req.Action); err != nil {
		return 0, storeError(ctx, op, err)
	}
	err = a.run.write(ctx, op, writing{}, func(ctx context.Context, t *tx) (err error) {
		confirmed, err = confirmSum(ctx, t, &req)
		return err
	})
	if err != nil {
		return 0, err
	}
	return confirmed, nil
}

func confirmSum(ctx context.Context, t *tx, req *storage.SumConfirm) (int64, error) {
	q, key := req.Query, &req.Key
	var accepted []int64
	complete := true
	err := t.each(ctx, qSumHold, func(rows pgx.Rows) error {
		var id int64
		var state storage.ItemState
		var unaccepted bool
		err := rows.Scan(&id, textInto(&state), &unaccepted)
		if state == storage.Accepted {
			accepted = append(accepted, id)
			complete = complete && !unaccepted
		}
		return err
	}, q.Exporter, q.Account, q.Mode, q.From, q.To, key.Customer, key.Feature, key.MappingVersion)
	if err != nil || len(accepted) == 0 || !complete {
		return 0, err
	}
	q.After, q.Limit = storage.SumKey{}, 1
	found, err := itemSums(ctx, t, &q, sumFilter{&key.Customer, &key.Feature, &key.MappingVersion})
	if err != nil || len(found) != 1 || !confirmable(&found[0], &req.Expect) {
		return 0, err
	}
	var n int64
	if err := t.row(ctx, qSumConfirm, []any{&n}, accepted, clean(req.ConfirmedBy)); err != nil {
		return 0, err
	}
	if n != int64(len(accepted)) {
		return 0, errGone
	}
	return n, t.appendActions(ctx, []storage.Action{req.Action})
}

// confirmable: the sum is what the provider's was compared with, and nothing of
// it may still move.
func confirmable(is, want *storage.ItemSum) bool {
	return is.Open == 0 && want.Open == 0 && is.Disputed == 0 && want.Disputed == 0 &&
		is.ReportedItems == want.ReportedItems && is.Reported.Equal(want.Reported)
}
