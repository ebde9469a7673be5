package mysql

import (
	"context"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	selectBounds = "SELECT b.exporter, b.account, b.mode, b.tenant, b.feature, b.period_start, b.period_end, b.acked, b.staged_to, b.item, " +
		"i.state, i.settled_at IS NOT NULL, b.updated_at FROM fencepost_bounds AS b LEFT JOIN fencepost_items AS i ON i.item = b.item AND b.item <> 0 WHERE "
	boundIs     = "b.exporter = ? AND b.account = ? AND b.mode = ? AND b.tenant = ? AND b.feature = ? AND b.period_start = ?"
	boundOrder  = " ORDER BY b.exporter, b.account, b.mode, b.tenant, b.feature, b.period_start LIMIT ?"
	insertBound = "INSERT INTO fencepost_bounds (exporter, account, mode, tenant, feature, period_start, period_end, acked, staged_to, item, updated_at) " +
		"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON DUPLICATE KEY UPDATE acked = VALUES(acked), staged_to = VALUES(staged_to), item = VALUES(item), " +
		"updated_at = VALUES(updated_at)"
)

func (r *row) bound() storage.Bound {
	b := storage.Bound{
		BoundKey:  storage.BoundKey{Exporter: r.text(), Account: r.text(), Mode: r.text(), Tenant: r.text(), Feature: r.text(), PeriodStart: r.time()},
		PeriodEnd: r.time(), Acked: r.decimal(), StagedTo: r.ptrDecimal(), ItemID: r.int(), ItemState: storage.ItemState(r.text()),
		ItemSettled: r.bool(), UpdatedAt: r.time(),
	}
	if b.ItemState == "" {
		b.ItemSettled = false
	}
	return b
}

func boundArgs(k storage.BoundKey) []any {
	return []any{k.Exporter, k.Account, k.Mode, k.Tenant, k.Feature, k.PeriodStart}
}

func boundByKey(k storage.BoundKey) capability.Statement {
	return read(selectBounds+boundIs, boundArgs(k)...)
}

// ReportBounds implements [storage.ReportStore].
func (a *Adapter) ReportBounds(ctx context.Context, q storage.BoundQuery) (storage.BoundPage, error) {
	page := storage.BoundPage{Bounds: []storage.Bound{}, Next: q.After}
	if len(q.Keys) > 0 {
		return a.boundsOf(ctx, q.Keys)
	}
	if q.Limit < 1 || q.Limit > 1000 {
		return page, sdk.Invalid("limit", "1 to 1000")
	}
	k := q.After
	w := where("TRUE")
	if k != (storage.BoundKey{}) {
		w.and(true, "(b.exporter > ? OR b.exporter = ? AND (b.account > ? OR b.account = ? AND (b.mode > ? OR b.mode = ? AND "+
			"(b.tenant > ? OR b.tenant = ? AND (b.feature > ? OR b.feature = ? AND b.period_start > ?)))))",
			k.Exporter, k.Exporter, k.Account, k.Account, k.Mode, k.Mode, k.Tenant, k.Tenant, k.Feature, k.Feature, k.PeriodStart)
	}
	w.and(q.Exporter != "", "b.exporter = ?", q.Exporter)
	w.and(q.Tenant != "", "b.tenant = ?", q.Tenant)
	w.and(q.Feature != "", "b.feature = ?", q.Feature)
	w.and(q.Staged, "b.staged_to IS NOT NULL")
	err := a.read(ctx, "report bounds", func(r []result) error {
		return r[0].each(func(r *row) {
			if len(page.Bounds) == q.Limit {
				page.More = true
				return
			}
			b := r.bound()
			page.Bounds, page.Next = append(page.Bounds, b), b.BoundKey
		})
	}, read(selectBounds+w.text+boundOrder, append(w.args, q.Limit+1)...))
	if err != nil {
		return storage.BoundPage{}, err
	}
	return page, nil
}

func (a *Adapter) boundsOf(ctx context.Context, keys []storage.BoundKey) (storage.BoundPage, error) {
	page := storage.BoundPage{Bounds: []storage.Bound{}}
	if len(keys) > 1000 {
		return page, sdk.Invalid("keys", "at most 1000")
	}
	var args []any
	for _, k := range keys {
		args = append(args, boundArgs(k)...)
	}
	text := strings.TrimSuffix(strings.Repeat(boundIs+" OR ", len(keys)), " OR ")
	err := a.read(ctx, "report bounds", func(r []result) error {
		return r[0].each(func(r *row) { page.Bounds = append(page.Bounds, r.bound()) })
	}, read(selectBounds+"("+text+")"+boundOrder, append(args, len(keys))...))
	if err != nil {
		return storage.BoundPage{}, err
	}
	return page, nil
}

func (t *tx) putBound(b *storage.Bound) {
	b.UpdatedAt = t.now
	t.exec(anyRows, insertBound, append(boundArgs(b.BoundKey), b.PeriodEnd, b.Acked, b.StagedTo, b.ItemID, b.UpdatedAt)...)
}

// StageWindow implements [storage.ReportStore].
func (a *Adapter) StageWindow(ctx context.Context, w storage.WindowStage) (res storage.WindowResult, err error) {
	k := &keys{}
	k.item(&w.Item)
	k.split()
	x := newItem{NewItem: &w.Item}
	if err := x.ofWindow(); err != nil {
		return res, err
	}
	x.feature = w.Key.Feature
	err = a.writeAfter(ctx, "stage window", append(k.statements(), boundByKey(w.Key)), func(t *tx, r []result) error {
		n := newKnown()
		if err := n.read(k, r); err != nil {
			return err
		}
		if t.state.routes != w.RoutesRevision {
			return conflict("routes_moved")
		}
		b := storage.Bound{BoundKey: w.Key, PeriodEnd: w.PeriodEnd.UTC()}
		b.PeriodStart = b.PeriodStart.UTC()
		if err := r[len(k.parts)].each(func(r *row) { b = r.bound() }); err != nil {
			return err
		}
		if b.StagedTo != nil || !b.Acked.Equal(w.From) {
			res = storage.WindowResult{Bound: b}
			return errUndo
		}
		id, _ := t.insertItem(&n, &x)
		if id == 0 {
			return conflict("window_exists")
		}
		to := w.To
		b.StagedTo, b.ItemID = &to, id
		b.ItemState, b.ItemSettled = storage.Pending, w.Item.Settled
		if w.Item.QuarantineReason != "" {
			b.ItemState = storage.Quarantined
		}
		t.putBound(&b)
		res = storage.WindowResult{Changed: true, Bound: b, ItemID: id}
		return nil
	})
	if err != nil {
		return storage.WindowResult{}, err
	}
	return res, nil
}

// SettleWindow implements [storage.ReportStore].
func (a *Adapter) SettleWindow(ctx context.Context, w storage.WindowSettle) (res storage.WindowResult, err error) {
	switch w.Disposition {
	case storage.WindowAcknowledged, storage.WindowWrittenOff, storage.WindowRestage:
	default:
		return res, sdk.Invalid("disposition", "one of the closed list")
	}
	if w.Action != nil {
		if err := checkAction(w.Action); err != nil {
			return res, err
		}
	}
	err = a.writeAfter(ctx, "settle window", []capability.Statement{boundByKey(w.Key)}, func(t *tx, r []result) error {
		b := storage.Bound{BoundKey: w.Key}
		b.PeriodStart = b.PeriodStart.UTC()
		if err := r[0].each(func(r *row) { b = r.bound() }); err != nil {
			return err
		}
		fits := slices.Contains(w.States, b.ItemState) && (!w.Settled || b.ItemSettled)
		if b.StagedTo == nil || b.ItemID != w.ItemID || !fits {
			res = storage.WindowResult{Bound: b}
			return errUndo
		}
		if w.Disposition != storage.WindowRestage {
			b.Acked = *b.StagedTo
		}
		b.StagedTo, b.ItemID, b.ItemState, b.ItemSettled = nil, 0, "", false
		t.putBound(&b)
		if w.Action != nil {
			t.act(w.Action, w.ItemID)
		}
		res = storage.WindowResult{Changed: true, Bound: b}
		return nil
	})
	if err != nil {
		return storage.WindowResult{}, err
	}
	return res, nil
}

const selectCutovers = "SELECT tenant, feature, durable_from FROM fencepost_cutovers WHERE "

func (r *row) cutover() storage.Cutover {
	return storage.Cutover{Tenant: r.text(), Feature: r.text(), DurableFrom: r.time()}
}

// DecideCutovers implements [storage.ReportStore].
func (a *Adapter) DecideCutovers(ctx context.Context, list []storage.Cutover) (stored []storage.Cutover, err error) {
	if len(list) > maxPending {
		return nil, sdk.Invalid("list", "at most 200")
	}
	err = a.write(ctx, "decide cutovers", func(t *tx) error {
		stored = make([]storage.Cutover, len(list))
		reads := make([]capability.Statement, len(list))
		for i, c := range list {
			t.exec(anyRows, "INSERT INTO fencepost_cutovers (tenant, feature, durable_from) VALUES (?, ?, ?) ON DUPLICATE KEY UPDATE tenant = tenant",
				c.Tenant, c.Feature, c.DurableFrom)
			reads[i] = read(selectCutovers+"tenant = ? AND feature = ?", c.Tenant, c.Feature)
		}
		if len(list) == 0 {
			return nil
		}
		results, err := t.queries(reads...)
		if err != nil {
			return err
		}
		for i, r := range results {
			if err := r.each(func(r *row) { stored[i] = r.cutover() }); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return stored, nil
}

// Cutovers implements [storage.ReportStore].
func (a *Adapter) Cutovers(ctx context.Context, after storage.Cutover, limit int) ([]storage.Cutover, error) {
	all := []storage.Cutover{}
	if limit < 1 || limit > maxPage {
		return nil, sdk.Invalid("limit", "1 to 4000")
	}
	err := a.read(ctx, "cutovers", func(r []result) error {
		return r[0].each(func(r *row) { all = append(all, r.cutover()) })
	}, read(selectCutovers+"(tenant > ? OR tenant = ? AND feature > ?) ORDER BY tenant, feature LIMIT ?", after.Tenant, after.Tenant, after.Feature, limit))
	if err != nil {
		return nil, err
	}
	return all, nil
}
