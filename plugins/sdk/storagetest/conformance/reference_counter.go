package conformance

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Subscriptions returns those that exist.
func (s *Reference) Subscriptions(ctx context.Context, tenants []string) ([]storage.Subscription, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	all := []storage.Subscription{}
	for _, t := range tenants {
		if sub, ok := s.subscriptions[t]; ok {
			all = append(all, sub)
		}
	}
	return all, nil
}

// PutSubscription creates or replaces one.
func (s *Reference) PutSubscription(ctx context.Context, sub storage.Subscription) (storage.Subscription, error) {
	if err := s.begin(ctx); err != nil {
		return storage.Subscription{}, err
	}
	defer s.mu.Unlock()
	sub.Customers = maps.Clone(sub.Customers)
	sub.Revision = s.subscriptions[sub.Tenant].Revision + 1
	sub.UpdatedAt = s.clock()
	s.subscriptions[sub.Tenant] = sub
	return sub, nil
}

// ListSubscriptions pages in tenant order.
func (s *Reference) ListSubscriptions(ctx context.Context, after string, limit int) ([]storage.Subscription, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	all := []storage.Subscription{}
	for _, t := range slices.Sorted(maps.Keys(s.subscriptions)) {
		if t > after && len(all) < limit {
			all = append(all, s.subscriptions[t])
		}
	}
	if s.flaws.has(flawPagesByOffset) && after != "" && len(all) > 0 {
		all = all[1:]
	}
	return all, nil
}

func counterKey(c storage.CounterKey) storage.CounterKey {
	c.PeriodStart = c.PeriodStart.UTC()
	return c
}

func compareCounters(a, b storage.CounterKey) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Feature, b.Feature), a.PeriodStart.Compare(b.PeriodStart))
}

// UpsertCounters sets counters.
func (s *Reference) UpsertCounters(ctx context.Context, counters []storage.Counter) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, c := range counters {
		s.counters[counterKey(c.CounterKey)] = c
	}
	return nil
}

// AddCounters adds to counters.
func (s *Reference) AddCounters(ctx context.Context, deltas []storage.Counter) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.addCounters(deltas)
	return nil
}

func (s *Reference) addCounters(deltas []storage.Counter) {
	for _, d := range deltas {
		k := counterKey(d.CounterKey)
		d.Value = s.counters[k].Value.Add(d.Value)
		s.counters[k] = d
	}
}

// LoadCounter returns one counter.
func (s *Reference) LoadCounter(ctx context.Context, key storage.CounterKey) (storage.Counter, error) {
	if err := s.begin(ctx); err != nil {
		return storage.Counter{}, err
	}
	defer s.mu.Unlock()
	if c, ok := s.counters[counterKey(key)]; ok {
		return c, nil
	}
	return storage.Counter{CounterKey: key}, nil
}

// StreamCounters pages in key order.
func (s *Reference) StreamCounters(ctx context.Context, q storage.CounterQuery) (storage.CounterPage, error) {
	if err := s.begin(ctx); err != nil {
		return storage.CounterPage{}, err
	}
	defer s.mu.Unlock()
	page := storage.CounterPage{Next: q.After}
	for _, k := range slices.SortedFunc(maps.Keys(s.counters), compareCounters) {
		if compareCounters(k, q.After) <= 0 || (q.Tenant != "" && k.Tenant != q.Tenant) || (q.Feature != "" && k.Feature != q.Feature) {
			continue
		}
		if len(page.Counters) == q.Limit {
			page.More = true
			break
		}
		page.Counters = append(page.Counters, s.counters[k])
		page.Next = k
	}
	return page, nil
}

// FlushBatch applies a batch once.
func (s *Reference) FlushBatch(ctx context.Context, b storage.FlushBatch) (storage.FlushResult, error) {
	if err := s.begin(ctx); err != nil {
		return storage.FlushResult{}, err
	}
	defer s.mu.Unlock()
	res := storage.FlushResult{Counters: make([]storage.Counter, len(b.Counters))}
	if _, known := s.batches[b.ID]; !known || s.flaws.has(flawFlushTwice) {
		res.Applied = true
		s.batches[b.ID] = s.clock()
		s.addCounters(b.Counters)
		s.addHistory(b.History)
	}
	for i, c := range b.Counters {
		current, ok := s.counters[counterKey(c.CounterKey)]
		if !ok { // a repeat may name what the first delivery did not
			current.CounterKey = counterKey(c.CounterKey)
		}
		res.Counters[i] = current
		if s.flaws.has(flawRedeliveryOldTotals) && !res.Applied {
			res.Counters[i] = c
		}
	}
	return res, nil
}

func historyKey(k storage.HistoryKey) storage.HistoryKey {
	k.Start = k.Start.UTC()
	return k
}

// UpsertHistory sets steps.
func (s *Reference) UpsertHistory(ctx context.Context, points []storage.HistoryPoint) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, p := range points {
		s.history[historyKey(p.HistoryKey)] = p.Value
	}
	return nil
}

// AddHistory adds to steps.
func (s *Reference) AddHistory(ctx context.Context, deltas []storage.HistoryPoint) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.addHistory(deltas)
	return nil
}

func (s *Reference) addHistory(deltas []storage.HistoryPoint) {
	for _, d := range deltas {
		k := historyKey(d.HistoryKey)
		s.history[k] = s.history[k].Add(d.Value)
	}
}

// LoadHistory returns one step.
func (s *Reference) LoadHistory(ctx context.Context, key storage.HistoryKey) (storage.HistoryPoint, error) {
	if err := s.begin(ctx); err != nil {
		return storage.HistoryPoint{}, err
	}
	defer s.mu.Unlock()
	return storage.HistoryPoint{HistoryKey: key, Value: s.history[historyKey(key)]}, nil
}

// LoadHistoryRange returns the steps of a range.
func (s *Reference) LoadHistoryRange(ctx context.Context, q storage.HistoryQuery) ([]storage.HistoryPoint, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	points := []storage.HistoryPoint{}
	for k, v := range s.history {
		if k.Tenant == q.Tenant && k.Feature == q.Feature && within(k.Start, q.From, q.To) {
			points = append(points, storage.HistoryPoint{HistoryKey: k, Value: v})
		}
	}
	slices.SortFunc(points, func(a, b storage.HistoryPoint) int { return a.Start.Compare(b.Start) })
	if len(points) > q.Limit {
		points = points[:q.Limit]
	}
	return points, nil
}
