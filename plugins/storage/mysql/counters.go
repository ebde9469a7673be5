package mysql

import (
	"cmp"
	"context"
	"slices"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	selectCounters = "SELECT tenant, feature, period_start, period_end, value FROM fencepost_counters WHERE "
	insertCounter  = "INSERT INTO fencepost_counters (tenant, feature, period_start, period_end, value) VALUES (?, ?, ?, ?, ?) " +
		"ON DUPLICATE KEY UPDATE period_end = VALUES(period_end), value = "
	selectHistory = "SELECT tenant, feature, start, value FROM fencepost_history WHERE "
	insertHistory = "INSERT INTO fencepost_history (tenant, feature, start, value) VALUES (?, ?, ?, ?) ON DUPLICATE KEY UPDATE value = "
	// What VALUES names has the column's type: the sum is one of decimals.
	toSet = "VALUES(value)"
	toAdd = "value + VALUES(value)"
)

func (r *row) counter() storage.Counter {
	return storage.Counter{
		CounterKey: storage.CounterKey{Tenant: r.text(), Feature: r.text(), PeriodStart: r.time()}, PeriodEnd: r.time(), Value: r.decimal(),
	}
}

func compareCounters(a, b storage.CounterKey) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Feature, b.Feature), a.PeriodStart.Compare(b.PeriodStart))
}

// putCounters keeps counters, in the order of their keys.
func (t *tx) putCounters(list []storage.Counter, how string) error {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b storage.Counter) int { return compareCounters(a.CounterKey, b.CounterKey) })
	for _, c := range list {
		t.exec(anyRows, insertCounter+how, c.Tenant, c.Feature, c.PeriodStart, c.PeriodEnd, c.Value)
		if err := t.room(); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) putHistory(list []storage.HistoryPoint, how string) error {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b storage.HistoryPoint) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Feature, b.Feature), a.Start.Compare(b.Start))
	})
	for _, p := range list {
		t.exec(anyRows, insertHistory+how, p.Tenant, p.Feature, p.Start, p.Value)
		if err := t.room(); err != nil {
			return err
		}
	}
	return nil
}

// UpsertCounters implements [storage.CounterStore].
func (a *Adapter) UpsertCounters(ctx context.Context, counters []storage.Counter) error {
	return a.write(ctx, "upsert counters", func(t *tx) error { return t.putCounters(counters, toSet) })
}

// AddCounters implements [storage.CounterStore].
func (a *Adapter) AddCounters(ctx context.Context, deltas []storage.Counter) error {
	return a.write(ctx, "add counters", func(t *tx) error { return t.putCounters(deltas, toAdd) })
}

func counterByKey(k storage.CounterKey) capability.Statement {
	return read(selectCounters+"tenant = ? AND feature = ? AND period_start = ?", k.Tenant, k.Feature, k.PeriodStart)
}

// LoadCounter implements [storage.CounterStore].
func (a *Adapter) LoadCounter(ctx context.Context, k storage.CounterKey) (storage.Counter, error) {
	c := storage.Counter{CounterKey: k}
	err := a.read(ctx, "load counter", func(r []result) error { return r[0].each(func(r *row) { c = r.counter() }) }, counterByKey(k))
	return c, err
}

// StreamCounters implements [storage.CounterStore].
func (a *Adapter) StreamCounters(ctx context.Context, q storage.CounterQuery) (storage.CounterPage, error) {
	page := storage.CounterPage{Counters: []storage.Counter{}, Next: q.After}
	if q.Limit < 1 || q.Limit > 1000 {
		return page, sdk.Invalid("limit", "1 to 1000")
	}
	k := q.After
	w := where("TRUE")
	w.and(k.Tenant != "" || k.Feature != "" || !k.PeriodStart.IsZero(), "(tenant > ? OR tenant = ? AND (feature > ? OR feature = ? AND period_start > ?))",
		k.Tenant, k.Tenant, k.Feature, k.Feature, k.PeriodStart)
	w.and(q.Tenant != "", "tenant = ?", q.Tenant)
	w.and(q.Feature != "", "feature = ?", q.Feature)
	err := a.read(ctx, "stream counters", func(r []result) error {
		return r[0].each(func(r *row) {
			if len(page.Counters) == q.Limit {
				page.More = true
				return
			}
			c := r.counter()
			page.Counters, page.Next = append(page.Counters, c), c.CounterKey
		})
	}, read(selectCounters+w.text+" ORDER BY tenant, feature, period_start LIMIT ?", append(w.args, q.Limit+1)...))
	if err != nil {
		return storage.CounterPage{}, err
	}
	return page, nil
}

// FlushBatch implements [storage.CounterStore]. A batch is known by its id for
// good: this adapter has no retention.
func (a *Adapter) FlushBatch(ctx context.Context, b storage.FlushBatch) (res storage.FlushResult, err error) {
	err = a.write(ctx, "flush batch", func(t *tx) error {
		res = storage.FlushResult{Applied: true, Counters: make([]storage.Counter, len(b.Counters))}
		if err := t.query(func(*row) { res.Applied = false }, "SELECT 1 FROM fencepost_batches WHERE batch_key = ?", key(b.ID)); err != nil {
			return err
		}
		if res.Applied {
			t.exec(1, "INSERT INTO fencepost_batches (batch_key, owner, applied_at) VALUES (?, ?, ?)", key(b.ID), b.Owner, t.now)
			if err := t.putCounters(b.Counters, toAdd); err != nil {
				return err
			}
			if err := t.putHistory(b.History, toAdd); err != nil {
				return err
			}
		}
		const most = 200
		for i := 0; i < len(b.Counters); i += most {
			some := b.Counters[i:min(len(b.Counters), i+most)]
			list := make([]capability.Statement, len(some))
			for j := range some {
				res.Counters[i+j] = storage.Counter{CounterKey: some[j].CounterKey}
				list[j] = counterByKey(some[j].CounterKey)
			}
			results, err := t.queries(list...)
			if err != nil {
				return err
			}
			for j, r := range results {
				if err := r.each(func(r *row) { res.Counters[i+j] = r.counter() }); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return storage.FlushResult{}, err
	}
	return res, nil
}

// UpsertHistory implements [storage.HistoryStore].
func (a *Adapter) UpsertHistory(ctx context.Context, points []storage.HistoryPoint) error {
	return a.write(ctx, "upsert history", func(t *tx) error { return t.putHistory(points, toSet) })
}

// AddHistory implements [storage.HistoryStore].
func (a *Adapter) AddHistory(ctx context.Context, deltas []storage.HistoryPoint) error {
	return a.write(ctx, "add history", func(t *tx) error { return t.putHistory(deltas, toAdd) })
}

func (r *row) point() storage.HistoryPoint {
	return storage.HistoryPoint{HistoryKey: storage.HistoryKey{Tenant: r.text(), Feature: r.text(), Start: r.time()}, Value: r.decimal()}
}

// LoadHistory implements [storage.HistoryStore].
func (a *Adapter) LoadHistory(ctx context.Context, k storage.HistoryKey) (storage.HistoryPoint, error) {
	p := storage.HistoryPoint{HistoryKey: k}
	err := a.read(ctx, "load history", func(r []result) error { return r[0].each(func(r *row) { p = r.point() }) },
		read(selectHistory+"tenant = ? AND feature = ? AND start = ?", k.Tenant, k.Feature, k.Start))
	return p, err
}

// LoadHistoryRange implements [storage.HistoryStore].
func (a *Adapter) LoadHistoryRange(ctx context.Context, q storage.HistoryQuery) ([]storage.HistoryPoint, error) {
	if q.Limit < 1 || q.Limit > 100_000 {
		return nil, sdk.Invalid("limit", "1 to 100,000")
	}
	all := []storage.HistoryPoint{}
	err := a.scan(ctx, "load history", func(t *tx) error {
		for from, n := q.From, maxPage; n == maxPage && len(all) < q.Limit; {
			w := where("tenant = ? AND feature = ? AND start < ?", q.Tenant, q.Feature, q.To)
			w.and(len(all) == 0, "start >= ?", from)
			w.and(len(all) > 0, "start > ?", from)
			n = 0
			err := t.query(func(r *row) {
				p := r.point()
				all, from = append(all, p), p.Start
				n++
			}, selectHistory+w.text+" ORDER BY start LIMIT ?", append(w.args, min(maxPage, q.Limit-len(all)))...)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}
