package sqlite

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// UpsertCounters sets counters; of two with one key the later one stands.
func (a *Adapter) UpsertCounters(ctx context.Context, counters []storage.Counter) error {
	return a.write(ctx, "set counters", func(_ context.Context, c *conn) error {
		return writeCounters(c, qCounterSet, counters)
	})
}

// AddCounters adds to counters.
func (a *Adapter) AddCounters(ctx context.Context, deltas []storage.Counter) error {
	return a.write(ctx, "add to counters", func(_ context.Context, c *conn) error {
		return writeCounters(c, qCounterAdd, deltas)
	})
}

// counted is what recorded events add to the counters that own their period.
type counted map[totalKey]*storage.Counter

func (d *counted) add(ev *storage.Event, effect decimal.Decimal) {
	if *d == nil {
		*d = counted{}
	}
	k := totalKey{ev.Tenant, ev.Feature, ev.PeriodStart.UnixMicro()}
	n := (*d)[k]
	if n == nil {
		key := storage.CounterKey{Tenant: ev.Tenant, Feature: ev.Feature, PeriodStart: ev.PeriodStart}
		n = &storage.Counter{CounterKey: key, PeriodEnd: ev.PeriodEnd}
		(*d)[k] = n
	}
	n.Value = n.Value.Add(effect)
}

func (d counted) write(c *conn) error {
	all := make([]storage.Counter, 0, len(d))
	for _, n := range d {
		all = append(all, *n)
	}
	return writeCounters(c, qCounterAdd, all)
}

func compareCounters(a, b storage.Counter) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Feature, b.Feature), a.PeriodStart.Compare(b.PeriodStart))
}

func writeCounters(c *conn, q query, counters []storage.Counter) error {
	for _, n := range slices.SortedStableFunc(slices.Values(counters), compareCounters) {
		if n.Tenant == "" || n.Feature == "" {
			return sdk.Invalid("counters", "a tenant and a feature")
		}
		if _, err := c.bind(q).text(n.Tenant).text(n.Feature).time(n.PeriodStart).time(n.PeriodEnd).decimal(n.Value).run(); err != nil {
			return err
		}
	}
	return nil
}

// LoadCounter returns one counter; zero when absent, with a zero PeriodEnd.
func (a *Adapter) LoadCounter(ctx context.Context, key storage.CounterKey) (n storage.Counter, err error) {
	err = a.read(ctx, "load counter", func(c *conn) (err error) {
		n, err = loadCounter(c, key)
		return err
	})
	return n, err
}

func loadCounter(c *conn, key storage.CounterKey) (storage.Counter, error) {
	n := storage.Counter{CounterKey: key}
	_, err := c.bind(qCounter).text(key.Tenant).text(key.Feature).time(key.PeriodStart).one(func(r *row) { n = r.counter() })
	return n, err
}

func (r *row) counter() storage.Counter {
	return storage.Counter{
		CounterKey: storage.CounterKey{Tenant: r.text(), Feature: r.text(), PeriodStart: r.time()},
		PeriodEnd:  r.time(), Value: r.total(),
	}
}

// StreamCounters returns a page of counters in key order.
func (a *Adapter) StreamCounters(ctx context.Context, q storage.CounterQuery) (page storage.CounterPage, err error) {
	const op = "stream counters"
	if err := checkLimit(q.Limit); err != nil {
		return page, fmt.Errorf("%s: %w", op, err)
	}
	err = a.read(ctx, op, func(c *conn) error {
		page = storage.CounterPage{Counters: []storage.Counter{}, Next: q.After}
		statement, after := qCounters, q.After
		if q.Tenant != "" {
			statement = qCountersTenant
			switch cmp.Compare(q.After.Tenant, q.Tenant) {
			case -1:
				after = storage.CounterKey{Tenant: q.Tenant}
			case 1:
				return nil
			}
		}
		err := c.bind(statement).text(after.Tenant).text(after.Feature).time(after.PeriodStart).
			int(int64(q.Limit) + 1).optText(q.Feature).
			each(func(r *row) error {
				page.Counters = append(page.Counters, r.counter())
				return nil
			})
		if page.More = len(page.Counters) > q.Limit; page.More {
			page.Counters = page.Counters[:q.Limit]
		}
		if n := len(page.Counters); n > 0 {
			page.Next = page.Counters[n-1].CounterKey
		}
		return err
	})
	return page, err
}

// FlushBatch applies a batch once and answers the counters as they are (B3, B4).
func (a *Adapter) FlushBatch(ctx context.Context, b storage.FlushBatch) (res storage.FlushResult, err error) {
	err = a.write(ctx, "flush batch", func(_ context.Context, c *conn) error {
		if b.ID == "" {
			return sdk.Invalid("id", "required")
		}
		n, err := c.bind(qBatchInsert).text(b.ID).text(b.Owner).time(a.now()).run()
		if err != nil {
			return err
		}
		res = storage.FlushResult{Applied: n == 1, Counters: make([]storage.Counter, 0, len(b.Counters))}
		if res.Applied {
			if err := writeCounters(c, qCounterAdd, b.Counters); err != nil {
				return err
			}
			if err := writeHistory(c, qHistoryAdd, b.History); err != nil {
				return err
			}
		}
		for _, delta := range b.Counters {
			now, err := loadCounter(c, delta.CounterKey)
			if err != nil {
				return err
			}
			res.Counters = append(res.Counters, now)
		}
		return nil
	})
	if err != nil {
		return storage.FlushResult{}, err
	}
	return res, nil
}

// UpsertHistory sets steps; of two with one key the later one stands.
func (a *Adapter) UpsertHistory(ctx context.Context, points []storage.HistoryPoint) error {
	return a.write(ctx, "set history", func(_ context.Context, c *conn) error {
		return writeHistory(c, qHistorySet, points)
	})
}

// AddHistory adds to steps.
func (a *Adapter) AddHistory(ctx context.Context, deltas []storage.HistoryPoint) error {
	return a.write(ctx, "add to history", func(_ context.Context, c *conn) error {
		return writeHistory(c, qHistoryAdd, deltas)
	})
}

func comparePoints(a, b storage.HistoryPoint) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Feature, b.Feature), a.Start.Compare(b.Start))
}

func writeHistory(c *conn, q query, points []storage.HistoryPoint) error {
	for _, p := range slices.SortedStableFunc(slices.Values(points), comparePoints) {
		if p.Tenant == "" || p.Feature == "" {
			return sdk.Invalid("history", "a tenant and a feature")
		}
		if _, err := c.bind(q).text(p.Tenant).text(p.Feature).time(p.Start).decimal(p.Value).run(); err != nil {
			return err
		}
	}
	return nil
}

// LoadHistory returns one step; zero when absent.
func (a *Adapter) LoadHistory(ctx context.Context, key storage.HistoryKey) (p storage.HistoryPoint, err error) {
	p.HistoryKey = key
	err = a.read(ctx, "load history", func(c *conn) error {
		_, err := c.bind(qHistoryStep).text(key.Tenant).text(key.Feature).time(key.Start).one(func(r *row) { p.Value = r.total() })
		return err
	})
	return p, err
}

// LoadHistoryRange returns the steps that exist in [q.From, q.To), in order.
func (a *Adapter) LoadHistoryRange(ctx context.Context, q storage.HistoryQuery) (points []storage.HistoryPoint, err error) {
	const op = "load history range"
	if q.Limit < 1 || q.Limit > maxRows {
		return nil, fmt.Errorf("%s: %w", op, sdk.Invalid("limit", "1 to 100,000"))
	}
	err = a.read(ctx, op, func(c *conn) error {
		points = []storage.HistoryPoint{}
		return c.bind(qHistoryRange).text(q.Tenant).text(q.Feature).time(q.From).time(q.To).int(int64(q.Limit)).
			each(func(r *row) error {
				points = append(points, storage.HistoryPoint{
					HistoryKey: storage.HistoryKey{Tenant: q.Tenant, Feature: q.Feature, Start: r.time()}, Value: r.total(),
				})
				return nil
			})
	})
	return points, err
}
