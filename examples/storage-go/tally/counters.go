package tally

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// UpsertCounters sets counters.
func (a *Adapter) UpsertCounters(ctx context.Context, counters []storage.Counter) error {
	return a.write(ctx, entryOf(true, counters, nil))
}

// AddCounters adds to counters.
func (a *Adapter) AddCounters(ctx context.Context, deltas []storage.Counter) error {
	return a.write(ctx, entryOf(false, deltas, nil))
}

// UpsertHistory sets steps.
func (a *Adapter) UpsertHistory(ctx context.Context, points []storage.HistoryPoint) error {
	return a.write(ctx, entryOf(true, nil, points))
}

// AddHistory adds to steps.
func (a *Adapter) AddHistory(ctx context.Context, deltas []storage.HistoryPoint) error {
	return a.write(ctx, entryOf(false, nil, deltas))
}

// FlushBatch applies a batch once: its line has the batch's id.
func (a *Adapter) FlushBatch(ctx context.Context, b storage.FlushBatch) (storage.FlushResult, error) {
	if err := a.begin(ctx); err != nil {
		return storage.FlushResult{}, err
	}
	defer a.mu.Unlock()
	res := storage.FlushResult{Counters: make([]storage.Counter, len(b.Counters))}
	if _, known := a.batches[b.ID]; !known {
		e := entryOf(false, b.Counters, b.History)
		e.Batch = b.ID
		if err := a.append(e); err != nil {
			return storage.FlushResult{}, err
		}
		res.Applied = true
	}
	for i, c := range b.Counters {
		current, ok := a.counters[counterKey(c.CounterKey)]
		if !ok { // a repetition may name what the first did not
			current.CounterKey = counterKey(c.CounterKey)
		}
		res.Counters[i] = current
	}
	return res, nil
}

// LoadCounter returns one counter.
func (a *Adapter) LoadCounter(ctx context.Context, key storage.CounterKey) (storage.Counter, error) {
	if err := a.begin(ctx); err != nil {
		return storage.Counter{}, err
	}
	defer a.mu.Unlock()
	if c, ok := a.counters[counterKey(key)]; ok {
		return c, nil
	}
	return storage.Counter{CounterKey: key}, nil
}

// StreamCounters returns a page in the order of the keys.
func (a *Adapter) StreamCounters(ctx context.Context, q storage.CounterQuery) (storage.CounterPage, error) {
	if err := a.begin(ctx); err != nil {
		return storage.CounterPage{}, err
	}
	defer a.mu.Unlock()
	page := storage.CounterPage{Next: q.After}
	for _, k := range slices.SortedFunc(maps.Keys(a.counters), compareKeys) {
		if compareKeys(k, q.After) <= 0 || q.Tenant != "" && k.Tenant != q.Tenant || q.Feature != "" && k.Feature != q.Feature {
			continue
		}
		if len(page.Counters) == q.Limit {
			page.More = true
			break
		}
		page.Counters = append(page.Counters, a.counters[k])
		page.Next = k
	}
	return page, nil
}

// LoadHistory returns one step.
func (a *Adapter) LoadHistory(ctx context.Context, key storage.HistoryKey) (storage.HistoryPoint, error) {
	if err := a.begin(ctx); err != nil {
		return storage.HistoryPoint{}, err
	}
	defer a.mu.Unlock()
	return storage.HistoryPoint{HistoryKey: key, Value: a.history[historyKey(key)]}, nil
}

// LoadHistoryRange returns the steps of a range, in order.
func (a *Adapter) LoadHistoryRange(ctx context.Context, q storage.HistoryQuery) ([]storage.HistoryPoint, error) {
	if err := a.begin(ctx); err != nil {
		return nil, err
	}
	defer a.mu.Unlock()
	points := []storage.HistoryPoint{}
	for k, v := range a.history {
		if k.Tenant == q.Tenant && k.Feature == q.Feature && !k.Start.Before(q.From) && k.Start.Before(q.To) {
			points = append(points, storage.HistoryPoint{HistoryKey: k, Value: v})
		}
	}
	slices.SortFunc(points, func(a, b storage.HistoryPoint) int { return a.Start.Compare(b.Start) })
	return points[:min(len(points), q.Limit)], nil
}

// counterKey and historyKey make keys comparable: times in UTC.
func counterKey(k storage.CounterKey) storage.CounterKey {
	k.PeriodStart = k.PeriodStart.UTC()
	return k
}

func historyKey(k storage.HistoryKey) storage.HistoryKey {
	k.Start = k.Start.UTC()
	return k
}

func compareKeys(a, b storage.CounterKey) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Feature, b.Feature), a.PeriodStart.Compare(b.PeriodStart))
}
