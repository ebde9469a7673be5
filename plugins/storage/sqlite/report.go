package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// routesMoved: an item was computed from routes that are not these any more.
func routesMoved(c *conn, revision int64) error {
	var now int64
	if _, err := c.bind(qRoutesRevision).one(func(r *row) { now = r.int() }); err != nil {
		return err
	}
	if now != revision {
		return routeConflict("routes_moved", "the revision of the routes as they are")
	}
	return nil
}

func (b *binder) boundKey(k *storage.BoundKey) *binder {
	return b.text(k.Exporter).text(k.Account).text(k.Mode).text(k.Tenant).text(k.Feature).time(k.PeriodStart)
}

func (r *row) bound() storage.Bound {
	b := storage.Bound{BoundKey: storage.BoundKey{
		Exporter: r.text(), Account: r.text(), Mode: r.text(), Tenant: r.text(), Feature: r.text(), PeriodStart: r.time(),
	}}
	b.PeriodEnd, b.Acked, b.StagedTo, b.ItemID = r.time(), r.total(), r.ptrTotal(), r.int()
	b.ItemState, b.ItemSettled, b.UpdatedAt = storage.ItemState(r.text()), r.bool(), r.time()
	return b
}

func loadBound(c *conn, key *storage.BoundKey) (b storage.Bound, found bool, err error) {
	found, err = c.bind(qBound).boundKey(key).one(func(r *row) { b = r.bound() })
	return b, found, err
}

func putBound(c *conn, b *storage.Bound) error {
	_, err := c.bind(qBoundPut).boundKey(&b.BoundKey).time(b.PeriodEnd).decimal(b.Acked).ptrDecimal(b.StagedTo).
		optInt(b.ItemID).time(b.UpdatedAt).run()
	return err
}

// ReportBounds returns a page of bounds in key order.
func (a *Adapter) ReportBounds(ctx context.Context, q storage.BoundQuery) (page storage.BoundPage, err error) {
	const op = "list report bounds"
	if len(q.Keys) > maxPage {
		return page, fmt.Errorf("%s: %w", op, sdk.Invalid("keys", "at most 1000"))
	}
	if len(q.Keys) == 0 {
		if err := checkLimit(q.Limit); err != nil {
			return page, fmt.Errorf("%s: %w", op, err)
		}
	}
	err = a.read(ctx, op, func(c *conn) (err error) {
		page = storage.BoundPage{Bounds: []storage.Bound{}, Next: q.After}
		if len(q.Keys) > 0 {
			return namedBounds(c, q.Keys, &page)
		}
		err = c.bind(qBounds).boundKey(&q.After).int(int64(q.Limit) + 1).optText(q.Exporter).optText(q.Tenant).
			optText(q.Feature).bool(q.Staged).each(func(r *row) error {
			page.Bounds = append(page.Bounds, r.bound())
			return nil
		})
		if page.More = len(page.Bounds) > q.Limit; page.More {
			page.Bounds = page.Bounds[:q.Limit]
		}
		return err
	})
	if n := len(page.Bounds); n > 0 {
		page.Next = page.Bounds[n-1].BoundKey
	}
	return page, err
}

func compareBounds(a, b storage.BoundKey) int {
	return cmp.Or(cmp.Compare(a.Exporter, b.Exporter), cmp.Compare(a.Account, b.Account), cmp.Compare(a.Mode, b.Mode),
		cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Feature, b.Feature), a.PeriodStart.Compare(b.PeriodStart))
}

// namedBounds reads bounds one by one, in key order.
func namedBounds(c *conn, keys []storage.BoundKey, page *storage.BoundPage) error {
	sorted := slices.SortedFunc(slices.Values(keys), compareBounds)
	for _, k := range slices.CompactFunc(sorted, func(a, b storage.BoundKey) bool { return compareBounds(a, b) == 0 }) {
		b, found, err := loadBound(c, &k)
		if err != nil {
			return err
		}
		if found {
			page.Bounds = append(page.Bounds, b)
		}
	}
	return nil
}

// StageWindow stages a window and its item; see [storage.ReportStore].
func (a *Adapter) StageWindow(ctx context.Context, w storage.WindowStage) (res storage.WindowResult, err error) {
	err = a.write(ctx, "stage a window", func(_ context.Context, c *conn) (err error) {
		if w.Item.Identity.SubjectKind != storage.SubjectWindow || len(w.Item.Payload) == 0 {
			return sdk.Invalid("item", "a usage window with a payload")
		}
		res, err = stageWindow(c, &w, a.now())
		return err
	})
	if errors.Is(err, errUndo) {
		err = nil
	}
	if err != nil {
		return storage.WindowResult{}, err
	}
	return res, nil
}

func stageWindow(c *conn, w *storage.WindowStage, now time.Time) (storage.WindowResult, error) {
	if err := routesMoved(c, w.RoutesRevision); err != nil {
		return storage.WindowResult{}, err
	}
	b, found, err := loadBound(c, &w.Key)
	if err != nil {
		return storage.WindowResult{}, err
	}
	if !found {
		b = storage.Bound{BoundKey: w.Key, PeriodEnd: w.PeriodEnd}
	}
	if b.StagedTo != nil || !b.Acked.Equal(w.From) {
		return storage.WindowResult{Bound: b}, errUndo
	}
	ids, err := insertItems(c, []newItem{{NewItem: &w.Item, feature: w.Key.Feature}}, now)
	if err != nil {
		return storage.WindowResult{}, err
	}
	if ids[0] == 0 {
		return storage.WindowResult{}, &sdk.Error{
			Tag: sdk.TagConflict, Code: "window_exists", Field: "item", Rule: "a window that was not staged before",
		}
	}
	b.StagedTo, b.ItemID, b.UpdatedAt = &w.To, ids[0], now
	if err := putBound(c, &b); err != nil {
		return storage.WindowResult{}, err
	}
	b, _, err = loadBound(c, &w.Key)
	return storage.WindowResult{Changed: true, Bound: b, ItemID: ids[0]}, err
}

// SettleWindow ends a staged window; see [storage.ReportStore].
func (a *Adapter) SettleWindow(ctx context.Context, s storage.WindowSettle) (res storage.WindowResult, err error) {
	err = a.write(ctx, "settle a window", func(_ context.Context, c *conn) (err error) {
		switch s.Disposition {
		case storage.WindowAcknowledged, storage.WindowWrittenOff, storage.WindowRestage:
		default:
			return sdk.Invalid("disposition", "acknowledged, write_off or restage")
		}
		if s.Action != nil {
			if e := checkAction(s.Action); e != nil {
				return e
			}
		}
		res, err = settleWindow(c, &s, a.now())
		return err
	})
	if err != nil {
		return storage.WindowResult{}, err
	}
	return res, nil
}

func settleWindow(c *conn, s *storage.WindowSettle, now time.Time) (storage.WindowResult, error) {
	b, found, err := loadBound(c, &s.Key)
	if err != nil {
		return storage.WindowResult{}, err
	}
	if !found {
		return storage.WindowResult{Bound: storage.Bound{BoundKey: s.Key}}, nil
	}
	if b.StagedTo == nil || b.ItemID != s.ItemID || !slices.Contains(s.States, b.ItemState) || s.Settled && !b.ItemSettled {
		return storage.WindowResult{Bound: b}, nil
	}
	if s.Disposition != storage.WindowRestage {
		b.Acked = *b.StagedTo
	}
	b.StagedTo, b.ItemID, b.ItemState, b.ItemSettled, b.UpdatedAt = nil, 0, "", false, now
	if err := putBound(c, &b); err != nil {
		return storage.WindowResult{}, err
	}
	if s.Action != nil {
		action := *s.Action
		action.ItemID = s.ItemID
		if err := appendAction(c, &action, now); err != nil {
			return storage.WindowResult{}, err
		}
	}
	return storage.WindowResult{Changed: true, Bound: b}, nil
}

// DecideCutovers stores what is not decided yet, and answers what is stored.
func (a *Adapter) DecideCutovers(ctx context.Context, list []storage.Cutover) (stored []storage.Cutover, err error) {
	err = a.write(ctx, "decide cutovers", func(_ context.Context, c *conn) (err error) {
		stored, err = decideCutovers(c, list)
		return err
	})
	return stored, err
}

func decideCutovers(c *conn, list []storage.Cutover) ([]storage.Cutover, error) {
	stored := make([]storage.Cutover, len(list))
	for i, o := range list {
		if o.Tenant == "" || o.Feature == "" || o.DurableFrom.IsZero() {
			return nil, sdk.Invalid("cutovers", "a tenant, a feature and a time").At(i)
		}
		if _, err := c.bind(qCutoverInsert).text(o.Tenant).text(o.Feature).time(o.DurableFrom).run(); err != nil {
			return nil, err
		}
		if _, err := c.bind(qCutover).text(o.Tenant).text(o.Feature).one(func(r *row) { stored[i] = r.cutover() }); err != nil {
			return nil, err
		}
	}
	return stored, nil
}

func (r *row) cutover() storage.Cutover {
	return storage.Cutover{Tenant: r.text(), Feature: r.text(), DurableFrom: r.time()}
}

// Cutovers returns a page in key order.
func (a *Adapter) Cutovers(ctx context.Context, after storage.Cutover, limit int) (all []storage.Cutover, err error) {
	const op = "list cutovers"
	if err := checkLimit(limit); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	err = a.read(ctx, op, func(c *conn) error {
		all = []storage.Cutover{}
		return c.bind(qCutovers).text(after.Tenant).text(after.Feature).int(int64(limit)).each(func(r *row) error {
			all = append(all, r.cutover())
			return nil
		})
	})
	return all, err
}
