package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qBounds       query = "bounds"
	qBoundsStaged query = "bounds_staged"
	qBoundsNamed  query = "bounds_named"
	qBoundPut     query = "bound_put"
	qBoundLock    query = "bound_lock"
	qBoundItem    query = "bound_item"
	qBoundStage   query = "bound_stage"
	qBoundSettle  query = "bound_settle"
)

var _ storage.ReportStore = (*Adapter)(nil)

// maxPageOfKeys is how many bounds one query may name.
const maxPageOfKeys = 1000

// ReportBounds returns a page of bounds in key order.
func (a *Adapter) ReportBounds(ctx context.Context, q storage.BoundQuery) (page storage.BoundPage, err error) {
	const op = "list report bounds"
	switch {
	case len(q.Keys) > maxPageOfKeys:
		err = sdk.Invalid("keys", "at most 1000")
	case len(q.Keys) == 0:
		err = checkLimit(q.Limit)
	}
	if err != nil {
		return page, fmt.Errorf("%s: %w", op, err)
	}
	err = a.run.read(ctx, op, func(ctx context.Context, t *tx) (err error) {
		page = storage.BoundPage{Next: q.After}
		if len(q.Keys) > 0 {
			page.Bounds, err = boundsNamed(ctx, t, q.Keys)
			return err
		}
		statement := qBounds
		if q.Staged {
			statement = qBoundsStaged
		}
		page.Bounds, err = bounds(ctx, t, statement, append(keyArgs(&q.After), q.Limit+1,
			optText(q.Exporter), optText(q.Tenant), optText(q.Feature), q.Staged)...)
		if page.More = len(page.Bounds) > q.Limit; page.More {
			page.Bounds = page.Bounds[:q.Limit]
		}
		return err
	})
	if err != nil {
		return storage.BoundPage{}, err
	}
	if n := len(page.Bounds); n > 0 {
		page.Next = page.Bounds[n-1].BoundKey
	}
	return page, nil
}

func bounds(ctx context.Context, t *tx, q query, args ...any) ([]storage.Bound, error) {
	all := []storage.Bound{}
	err := t.each(ctx, q, func(rows pgx.Rows) error {
		var b storage.Bound
		err := rows.Scan(&b.Exporter, &b.Account, &b.Mode, &b.Tenant, &b.Feature, utcInto{&b.PeriodStart}, utcInto{&b.PeriodEnd},
			decimalInto{&b.Acked}, optDecimalInto{&b.StagedTo}, intInto(&b.ItemID), textInto(&b.ItemState),
			boolInto{&b.ItemSettled}, utcInto{&b.UpdatedAt})
		all = append(all, b)
		return err
	}, args...)
	return all, err
}

func boundsNamed(ctx context.Context, t *tx, keys []storage.BoundKey) ([]storage.Bound, error) {
	var text [5][]string
	starts := make([]time.Time, len(keys))
	for i, k := range keys {
		for c, s := range [...]string{k.Exporter, k.Account, k.Mode, k.Tenant, k.Feature} {
			text[c] = append(text[c], s)
		}
		starts[i] = k.PeriodStart
	}
	return bounds(ctx, t, qBoundsNamed, text[0], text[1], text[2], text[3], text[4], starts)
}

// boundOf reads one bound; without a row only its key is set.
func boundOf(ctx context.Context, t *tx, key storage.BoundKey) (storage.Bound, error) {
	found, err := boundsNamed(ctx, t, []storage.BoundKey{key})
	if err != nil || len(found) == 0 {
		return storage.Bound{BoundKey: key}, err
	}
	return found[0], nil
}

func keyArgs(k *storage.BoundKey) []any {
	return []any{k.Exporter, k.Account, k.Mode, k.Tenant, k.Feature, k.PeriodStart}
}

// lockedBound is a bound under its lock.
type lockedBound struct {
	acked  decimal.Decimal
	staged *decimal.Decimal
	item   int64
}

func lockBound(ctx context.Context, t *tx, key *storage.BoundKey) (b lockedBound, err error) {
	err = t.row(ctx, qBoundLock, []any{decimalInto{&b.acked}, optDecimalInto{&b.staged}, intInto(&b.item)}, keyArgs(key)...)
	return b, err
}

// StageWindow stages a window and its item; see [storage.ReportStore]. Of two
// hosts that stage one counter, the second waits at the bound and finds it
// staged.
func (a *Adapter) StageWindow(ctx context.Context, w storage.WindowStage) (res storage.WindowResult, err error) {
	const op = "stage a window"
	if w.Item.Identity.SubjectKind != storage.SubjectWindow || len(w.Item.Payload) == 0 {
		return res, storeError(ctx, op, sdk.Invalid("item", "a usage window with a payload"))
	}
	err = a.run.write(ctx, op, writing{lock: lockShared}, func(ctx context.Context, t *tx) (err error) {
		res, err = stageWindow(ctx, t, &w)
		return err
	})
	if err != nil {
		return storage.WindowResult{}, err
	}
	return res, nil
}

func stageWindow(ctx context.Context, t *tx, w *storage.WindowStage) (res storage.WindowResult, err error) {
	if err := routesMoved(ctx, t, w.RoutesRevision); err != nil {
		return res, err
	}
	if _, err := t.exec(ctx, qBoundPut, append(keyArgs(&w.Key), w.PeriodEnd)...); err != nil {
		return res, err
	}
	b, err := lockBound(ctx, t, &w.Key)
	if err != nil {
		return res, err
	}
	if b.staged != nil || !b.acked.Equal(w.From) {
		if res.Bound, err = boundOf(ctx, t, w.Key); err == nil {
			err = errUndo // with the bound that this call made
		}
		return res, err
	}
	done, err := insertItems(ctx, t, []itemOf{{new: &w.Item, feature: w.Key.Feature}})
	if err == nil && (len(done.ids) != 1 || done.ids[0] == 0) {
		err = &sdk.Error{
			Tag: sdk.TagConflict, Code: "window_exists", Field: "item", Rule: "a window that was not staged before",
		}
	}
	if err != nil {
		return res, err
	}
	n, err := t.exec(ctx, qBoundStage, append(keyArgs(&w.Key), w.From.String(), w.To.String(), done.ids[0])...)
	if err != nil || n != 1 {
		return res, oneRow(err)
	}
	res.Changed, res.ItemID = true, done.ids[0]
	res.Bound, err = boundOf(ctx, t, w.Key)
	return res, err
}

// SettleWindow ends a staged window; see [storage.ReportStore].
func (a *Adapter) SettleWindow(ctx context.Context, s storage.WindowSettle) (res storage.WindowResult, err error) {
	const op = "settle a window"
	switch s.Disposition {
	case storage.WindowAcknowledged, storage.WindowWrittenOff, storage.WindowRestage:
		if s.Action != nil {
			err = checkAction(*s.Action)
		}
	default:
		err = sdk.Invalid("disposition", "acknowledged, write_off or restage")
	}
	if err != nil {
		return res, storeError(ctx, op, err)
	}
	err = a.run.write(ctx, op, writing{}, func(ctx context.Context, t *tx) (err error) {
		res = storage.WindowResult{}
		if res.Changed, err = settleWindow(ctx, t, &s); err != nil {
			return err
		}
		res.Bound, err = boundOf(ctx, t, s.Key)
		return err
	})
	if err != nil {
		return storage.WindowResult{}, err
	}
	return res, nil
}

func settleWindow(ctx context.Context, t *tx, s *storage.WindowSettle) (changed bool, err error) {
	b, err := lockBound(ctx, t, &s.Key)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil || b.staged == nil || b.item != s.ItemID {
		return false, err
	}
	var state storage.ItemState
	var settled bool
	if err := t.row(ctx, qBoundItem, []any{textInto(&state), &settled}, s.ItemID); err != nil {
		return false, err
	}
	if !slices.Contains(s.States, state) || s.Settled && !settled {
		return false, nil
	}
	n, err := t.exec(ctx, qBoundSettle, append(keyArgs(&s.Key), s.ItemID, s.Disposition != storage.WindowRestage)...)
	if err != nil || n != 1 {
		return false, oneRow(err)
	}
	if s.Action == nil {
		return true, nil
	}
	action := *s.Action
	action.ItemID = s.ItemID
	return true, t.appendActions(ctx, []storage.Action{action})
}
