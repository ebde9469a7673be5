package redis

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// maxRange is how many steps one answer may have.
const maxRange = 100_000

// UpsertHistory sets steps; of two with one key the later one stands.
func (a *Adapter) UpsertHistory(ctx context.Context, points []storage.HistoryPoint) error {
	return a.write(ctx, "set history", change{mode: modeSet, history: points})
}

// AddHistory adds to steps. What is repeated counts again.
func (a *Adapter) AddHistory(ctx context.Context, deltas []storage.HistoryPoint) error {
	return a.write(ctx, "add to history", change{mode: modeAdd, history: deltas})
}

// LoadHistory returns one step; zero when absent.
func (a *Adapter) LoadHistory(ctx context.Context, key storage.HistoryKey) (storage.HistoryPoint, error) {
	found, err := a.points(ctx, key, []time.Time{key.Start})
	if err != nil {
		return storage.HistoryPoint{}, fmt.Errorf("load history: %w", err)
	}
	return found[0], nil
}

// points are the steps of key's feature that start at the given instants.
func (a *Adapter) points(ctx context.Context, key storage.HistoryKey, starts []time.Time) ([]storage.HistoryPoint, error) {
	members := make([]string, len(starts))
	for i, at := range starts {
		members[i] = member(key.Tenant, key.Feature, at)
	}
	stored, err := a.values(ctx, a.keys.history, members)
	if err != nil {
		return nil, err
	}
	points := make([]storage.HistoryPoint, len(starts))
	for i, at := range starts {
		points[i].HistoryKey = storage.HistoryKey{Tenant: key.Tenant, Feature: key.Feature, Start: at}
		if stored[i] == "" {
			continue
		}
		if points[i].Value, err = parseScaled(stored[i]); err != nil {
			return nil, errAnswer
		}
	}
	return points, nil
}

// LoadHistoryRange returns the steps that exist in [q.From, q.To), in order.
func (a *Adapter) LoadHistoryRange(ctx context.Context, q storage.HistoryQuery) ([]storage.HistoryPoint, error) {
	const op = "load history range"
	if q.Limit < 1 || q.Limit > maxRange {
		return nil, fmt.Errorf("%s: %w", op, sdk.Invalid("limit", "1 to 100,000"))
	}
	members, err := a.client.ZRangeArgs(ctx, redis.ZRangeArgs{
		Key: a.keys.historyOrder, ByLex: true, Count: int64(q.Limit),
		Start: "[" + member(q.Tenant, q.Feature, q.From), Stop: "(" + member(q.Tenant, q.Feature, q.To),
	}).Result()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, a.fault(ctx, err))
	}
	points := make([]storage.HistoryPoint, 0, len(members))
	for some := range slices.Chunk(members, part) {
		starts := make([]time.Time, len(some))
		for i, m := range some {
			if _, _, starts[i], err = parseMember(m); err != nil {
				return nil, fmt.Errorf("%s: %w", op, errAnswer)
			}
		}
		read, err := a.points(ctx, storage.HistoryKey{Tenant: q.Tenant, Feature: q.Feature}, starts)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", op, err)
		}
		points = append(points, read...)
	}
	return points, nil
}
