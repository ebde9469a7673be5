package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qCountersSet     query = "counters_set"
	qCountersAdd     query = "counters_add"
	qCountersOf      query = "counters_of"
	qCountersPage    query = "counters_page"
	qCountersReceipt query = "counters_receipt"
)

var (
	_ storage.CounterStore = (*Adapter)(nil)
	_ storage.HistoryStore = (*Adapter)(nil)
	_ storage.CounterStore = BoundStore{}
	_ storage.HistoryStore = BoundStore{}
)

// UpsertCounters sets counters to absolute values. Where a key occurs twice the
// last one counts.
func (s store) UpsertCounters(ctx context.Context, counters []storage.Counter) error {
	return s.run.write(ctx, "upsert counters", writing{}, func(ctx context.Context, t *tx) error {
		return writeCounters(ctx, t, qCountersSet, foldCounters(counters, lastOf))
	})
}

// AddCounters adds to counters, creating those that are absent. A counter that
// exists keeps its period end.
func (s store) AddCounters(ctx context.Context, deltas []storage.Counter) error {
	return s.run.write(ctx, "add counters", writing{}, func(ctx context.Context, t *tx) error {
		return writeCounters(ctx, t, qCountersAdd, foldCounters(deltas, decimal.Decimal.Add))
	})
}

// LoadCounter returns one counter; zero when absent, with a zero PeriodEnd.
func (s store) LoadCounter(ctx context.Context, key storage.CounterKey) (c storage.Counter, err error) {
	err = s.run.read(ctx, "load counter", func(ctx context.Context, t *tx) error {
		found, err := countersOf(ctx, t, []storage.Counter{{CounterKey: key}})
		if err == nil {
			c = found[0]
		}
		return err
	})
	return c, err
}

// StreamCounters returns a page of counters in key order.
func (s store) StreamCounters(ctx context.Context, q storage.CounterQuery) (page storage.CounterPage, err error) {
	const op = "stream counters"
	if err := checkLimit(q.Limit); err != nil {
		return page, fmt.Errorf("%s: %w", op, err)
	}
	err = s.run.read(ctx, op, func(ctx context.Context, t *tx) error {
		page = storage.CounterPage{Counters: []storage.Counter{}, Next: q.After}
		return t.each(ctx, qCountersPage, func(r pgx.Rows) error {
			c, err := scanCounter(r)
			page.Counters = append(page.Counters, c)
			return err
		}, q.After.Tenant, q.After.Feature, q.After.PeriodStart, q.Tenant, q.Feature, q.Limit+1)
	})
	if err != nil {
		return storage.CounterPage{}, err
	}
	if page.More = len(page.Counters) > q.Limit; page.More {
		page.Counters = page.Counters[:q.Limit]
	}
	if n := len(page.Counters); n > 0 {
		page.Next = page.Counters[n-1].CounterKey
	}
	return page, nil
}

// FlushBatch applies a batch once, receipt first: a second delivery waits at
// the receipt of the first, and finds it there or gone. A batch of nothing
// leaves a receipt too.
func (s store) FlushBatch(ctx context.Context, b storage.FlushBatch) (res storage.FlushResult, err error) {
	const op = "flush batch"
	if b.ID == "" {
		return res, fmt.Errorf("%s: %w", op, sdk.Invalid("id", "required"))
	}
	err = s.run.write(ctx, op, writing{}, func(ctx context.Context, t *tx) error {
		n, err := t.exec(ctx, qCountersReceipt, b.ID, b.Owner)
		if err != nil {
			return err
		}
		if res.Applied = n == 1; res.Applied {
			if err := writeCounters(ctx, t, qCountersAdd, foldCounters(b.Counters, decimal.Decimal.Add)); err != nil {
				return err
			}
			if err := writeHistory(ctx, t, qHistoryAdd, foldHistory(b.History, decimal.Decimal.Add)); err != nil {
				return err
			}
		}
		// A statement of its own: its snapshot holds what was waited for.
		res.Counters, err = countersOf(ctx, t, b.Counters)
		return err
	})
	if err != nil {
		return storage.FlushResult{}, err
	}
	return res, nil
}

func lastOf(_, last decimal.Decimal) decimal.Decimal { return last }

// counterKey is a key as the store compares it: by microseconds.
type counterKey struct {
	tenant, feature string
	start           int64
}

func keyOf(k storage.CounterKey) counterKey {
	return counterKey{k.Tenant, k.Feature, k.PeriodStart.UnixMicro()}
}

func (k counterKey) compare(o counterKey) int {
	return cmp.Or(cmp.Compare(k.tenant, o.tenant), cmp.Compare(k.feature, o.feature), cmp.Compare(k.start, o.start))
}

// foldCounters answers each key once, in the order of keys: one statement
// cannot change a row twice, and two that lock the same rows in different
// orders wait for each other (B35).
func foldCounters(counters []storage.Counter, join func(a, b decimal.Decimal) decimal.Decimal) []storage.Counter {
	all := make([]storage.Counter, 0, len(counters))
	at := make(map[counterKey]int, len(counters))
	for _, c := range counters {
		k := keyOf(c.CounterKey)
		if i, ok := at[k]; ok {
			all[i].Value = join(all[i].Value, c.Value)
			all[i].PeriodEnd = c.PeriodEnd
			continue
		}
		at[k] = len(all)
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b storage.Counter) int { return keyOf(a.CounterKey).compare(keyOf(b.CounterKey)) })
	return all
}

func writeCounters(ctx context.Context, t *tx, q query, counters []storage.Counter) error {
	if len(counters) == 0 {
		return nil
	}
	n := len(counters)
	tenants, features := make([]string, n), make([]string, n)
	starts, ends := make([]time.Time, n), make([]time.Time, n)
	values := make([]string, n)
	for i, c := range counters {
		tenants[i], features[i] = c.Tenant, c.Feature
		starts[i], ends[i] = c.PeriodStart, c.PeriodEnd
		values[i] = c.Value.String()
	}
	_, err := t.exec(ctx, q, tenants, features, starts, ends, values)
	return err
}

// countersOf answers the stored counter of each key, in the order of keys;
// zero where there is none.
func countersOf(ctx context.Context, t *tx, keys []storage.Counter) ([]storage.Counter, error) {
	all := make([]storage.Counter, len(keys))
	tenants, features, starts := make([]string, len(keys)), make([]string, len(keys)), make([]time.Time, len(keys))
	for i, c := range keys {
		all[i] = storage.Counter{CounterKey: c.CounterKey}
		tenants[i], features[i], starts[i] = c.Tenant, c.Feature, c.PeriodStart
	}
	if len(keys) == 0 {
		return all, nil
	}
	found := make(map[counterKey]storage.Counter, len(keys))
	err := t.each(ctx, qCountersOf, func(r pgx.Rows) error {
		c, err := scanCounter(r)
		found[keyOf(c.CounterKey)] = c
		return err
	}, tenants, features, starts)
	if err != nil {
		return nil, err
	}
	for i, c := range keys {
		if stored, ok := found[keyOf(c.CounterKey)]; ok {
			all[i] = stored
		}
	}
	return all, nil
}

func scanCounter(r pgx.Rows) (c storage.Counter, err error) {
	err = r.Scan(&c.Tenant, &c.Feature, utcInto{&c.PeriodStart}, utcInto{&c.PeriodEnd}, decimalInto{&c.Value})
	return c, err
}
