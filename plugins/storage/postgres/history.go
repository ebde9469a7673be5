package postgres

import (
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
	qHistorySet   query = "history_set"
	qHistoryAdd   query = "history_add"
	qHistoryRange query = "history_range"
)

// UpsertHistory sets steps to absolute values. Where a key occurs twice the
// last one counts.
func (s store) UpsertHistory(ctx context.Context, points []storage.HistoryPoint) error {
	return s.run.write(ctx, "upsert history", writing{}, func(ctx context.Context, t *tx) error {
		return writeHistory(ctx, t, qHistorySet, foldHistory(points, lastOf))
	})
}

// AddHistory adds to steps, creating those that are absent.
func (s store) AddHistory(ctx context.Context, deltas []storage.HistoryPoint) error {
	return s.run.write(ctx, "add history", writing{}, func(ctx context.Context, t *tx) error {
		return writeHistory(ctx, t, qHistoryAdd, foldHistory(deltas, decimal.Decimal.Add))
	})
}

// LoadHistory returns one step; zero when absent.
func (s store) LoadHistory(ctx context.Context, key storage.HistoryKey) (storage.HistoryPoint, error) {
	points, err := s.history(ctx, "load history", storage.HistoryQuery{
		Tenant: key.Tenant, Feature: key.Feature, From: key.Start, To: key.Start.Add(time.Microsecond), Limit: 1,
	})
	if err != nil || len(points) == 0 {
		return storage.HistoryPoint{HistoryKey: key}, err
	}
	return points[0], nil
}

// LoadHistoryRange returns the steps that exist in [q.From, q.To), in order, at
// most q.Limit.
func (s store) LoadHistoryRange(ctx context.Context, q storage.HistoryQuery) ([]storage.HistoryPoint, error) {
	const op = "load history range"
	if q.Limit < 1 || q.Limit > maxRows {
		return nil, fmt.Errorf("%s: %w", op, sdk.Invalid("limit", "1 to 100000"))
	}
	return s.history(ctx, op, q)
}

func (s store) history(ctx context.Context, op string, q storage.HistoryQuery) (points []storage.HistoryPoint, err error) {
	err = s.run.read(ctx, op, func(ctx context.Context, t *tx) error {
		points = []storage.HistoryPoint{}
		return t.each(ctx, qHistoryRange, func(r pgx.Rows) error {
			p := storage.HistoryPoint{HistoryKey: storage.HistoryKey{Tenant: q.Tenant, Feature: q.Feature}}
			err := r.Scan(utcInto{&p.Start}, decimalInto{&p.Value})
			points = append(points, p)
			return err
		}, q.Tenant, q.Feature, q.From, q.To, q.Limit)
	})
	if err != nil {
		return nil, err
	}
	return points, nil
}

func stepOf(k storage.HistoryKey) counterKey {
	return counterKey{k.Tenant, k.Feature, k.Start.UnixMicro()}
}

// foldHistory answers each step once, in the order of keys, as foldCounters.
func foldHistory(points []storage.HistoryPoint, join func(a, b decimal.Decimal) decimal.Decimal) []storage.HistoryPoint {
	all := make([]storage.HistoryPoint, 0, len(points))
	at := make(map[counterKey]int, len(points))
	for _, p := range points {
		k := stepOf(p.HistoryKey)
		if i, ok := at[k]; ok {
			all[i].Value = join(all[i].Value, p.Value)
			continue
		}
		at[k] = len(all)
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b storage.HistoryPoint) int {
		return stepOf(a.HistoryKey).compare(stepOf(b.HistoryKey))
	})
	return all
}

func writeHistory(ctx context.Context, t *tx, q query, points []storage.HistoryPoint) error {
	if len(points) == 0 {
		return nil
	}
	n := len(points)
	tenants, features := make([]string, n), make([]string, n)
	starts, values := make([]time.Time, n), make([]string, n)
	for i, p := range points {
		tenants[i], features[i], starts[i] = p.Tenant, p.Feature, p.Start
		values[i] = p.Value.String()
	}
	_, err := t.exec(ctx, q, tenants, features, starts, values)
	return err
}
