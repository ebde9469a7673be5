package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	modeSet = "set"
	modeAdd = "add"
)

var errAnswer = sdk.Unavailable("corrupt", errors.New("the store holds something that this adapter did not write"))

// change is what move.lua does at once.
type change struct {
	mode     string
	batch    string // the id of the receipt; empty for none
	owner    string
	counters []storage.Counter
	history  []storage.HistoryPoint
}

func (c *change) check() error {
	for i := range c.counters {
		if c.counters[i].Tenant == "" || c.counters[i].Feature == "" {
			return sdk.Invalid("counters", "a tenant and a feature")
		}
	}
	for i := range c.history {
		if c.history[i].Tenant == "" || c.history[i].Feature == "" {
			return sdk.Invalid("history", "a tenant and a feature")
		}
	}
	return nil
}

func (a *Adapter) run(ctx context.Context, c change) (storage.FlushResult, error) {
	var res storage.FlushResult
	if err := c.check(); err != nil {
		return res, err
	}
	names := []string{a.keys.layout, a.keys.counterOrder, a.keys.counters, a.keys.historyOrder, a.keys.history}
	if c.batch != "" {
		names = append(names, a.keys.receipt+c.batch)
	}
	args := make([]any, 0, 4+3*len(c.counters)+2*len(c.history))
	args = append(args, c.mode, receiptFor.Milliseconds(), c.owner, len(c.counters))
	for _, n := range c.counters {
		args = append(args, member(n.Tenant, n.Feature, n.PeriodStart), n.PeriodEnd.UnixMicro(), scaled(n.Value))
	}
	for _, p := range c.history {
		args = append(args, member(p.Tenant, p.Feature, p.Start), scaled(p.Value))
	}
	answer, err := a.move.Run(ctx, a.client, names, args...).Slice()
	if err != nil {
		return res, a.fault(ctx, err)
	}
	if len(answer) != 1+2*len(c.counters) {
		return res, errAnswer
	}
	res.Applied = answer[0] == int64(1)
	res.Counters = make([]storage.Counter, len(c.counters))
	for i := range c.counters {
		to, _ := answer[1+2*i].(string)
		value, _ := answer[2+2*i].(string)
		if res.Counters[i], err = counterOf(c.counters[i].CounterKey, to, value); err != nil {
			return storage.FlushResult{}, err
		}
	}
	return res, nil
}

// counterOf reads a counter as it is stored: no end where it is absent.
func counterOf(key storage.CounterKey, to, value string) (storage.Counter, error) {
	n := storage.Counter{CounterKey: key}
	if to == "" {
		return n, nil
	}
	micro, err := strconv.ParseInt(to, 10, 64)
	if err != nil {
		return n, errAnswer
	}
	if n.Value, err = parseScaled(value); err != nil {
		return n, errAnswer
	}
	n.PeriodEnd = time.UnixMicro(micro).UTC()
	return n, nil
}

// UpsertCounters sets counters; of two with one key the later one stands.
func (a *Adapter) UpsertCounters(ctx context.Context, counters []storage.Counter) error {
	return a.write(ctx, "set counters", change{mode: modeSet, counters: counters})
}

// AddCounters adds to counters. What is repeated counts again.
func (a *Adapter) AddCounters(ctx context.Context, deltas []storage.Counter) error {
	return a.write(ctx, "add to counters", change{mode: modeAdd, counters: deltas})
}

func (a *Adapter) write(ctx context.Context, op string, c change) error {
	if _, err := a.run(ctx, c); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

// FlushBatch applies a batch once and answers the counters as they are (B3, B4).
func (a *Adapter) FlushBatch(ctx context.Context, b storage.FlushBatch) (storage.FlushResult, error) {
	const op = "flush batch"
	if b.ID == "" {
		return storage.FlushResult{}, fmt.Errorf("%s: %w", op, sdk.Invalid("id", "required"))
	}
	res, err := a.run(ctx, change{mode: modeAdd, batch: b.ID, owner: b.Owner, counters: b.Counters, history: b.History})
	if err != nil {
		return storage.FlushResult{}, fmt.Errorf("%s: %w", op, err)
	}
	return res, nil
}

// LoadCounter returns one counter; zero when absent, with a zero PeriodEnd.
func (a *Adapter) LoadCounter(ctx context.Context, key storage.CounterKey) (storage.Counter, error) {
	const op = "load counter"
	found, err := a.loadCounters(ctx, []storage.CounterKey{key})
	if err != nil {
		return storage.Counter{}, fmt.Errorf("%s: %w", op, err)
	}
	return found[0], nil
}

func (a *Adapter) loadCounters(ctx context.Context, wanted []storage.CounterKey) ([]storage.Counter, error) {
	members := make([]string, len(wanted))
	for i, k := range wanted {
		members[i] = member(k.Tenant, k.Feature, k.PeriodStart)
	}
	stored, err := a.values(ctx, a.keys.counters, members)
	if err != nil {
		return nil, err
	}
	counters := make([]storage.Counter, len(wanted))
	for i, k := range wanted {
		to, value, _ := strings.Cut(stored[i], " ")
		if counters[i], err = counterOf(k, to, value); err != nil {
			return nil, err
		}
	}
	return counters, nil
}

// values reads fields of a hash, "" for each that is not there.
func (a *Adapter) values(ctx context.Context, hash string, members []string) ([]string, error) {
	if len(members) == 0 {
		return nil, nil
	}
	answer, err := a.client.HMGet(ctx, hash, members...).Result()
	if err != nil {
		return nil, a.fault(ctx, err)
	}
	stored := make([]string, len(answer))
	for i := range answer {
		stored[i], _ = answer[i].(string)
	}
	return stored, nil
}

// StreamCounters returns a page of counters in key order.
func (a *Adapter) StreamCounters(ctx context.Context, q storage.CounterQuery) (storage.CounterPage, error) {
	const op = "stream counters"
	if q.Limit < 1 || q.Limit > part {
		return storage.CounterPage{}, fmt.Errorf("%s: %w", op, sdk.Invalid("limit", "1 to 1000"))
	}
	page := storage.CounterPage{Counters: []storage.Counter{}, Next: q.After}
	found, err := a.counterKeys(ctx, q)
	if err != nil {
		return page, fmt.Errorf("%s: %w", op, err)
	}
	if page.More = len(found) > q.Limit; page.More {
		found = found[:q.Limit]
	}
	if page.Counters, err = a.loadCounters(ctx, found); err != nil {
		return storage.CounterPage{}, fmt.Errorf("%s: %w", op, err)
	}
	if len(found) > 0 {
		page.Next = found[len(found)-1]
	}
	return page, nil
}

// counterKeys are the keys that q selects, up to one more than its limit.
func (a *Adapter) counterKeys(ctx context.Context, q storage.CounterQuery) ([]storage.CounterKey, error) {
	after := "(" + member(q.After.Tenant, q.After.Feature, q.After.PeriodStart)
	until := "+"
	if q.Tenant != "" {
		from := scope(q.Tenant, q.Feature) + textEnd
		if after[1:] < from {
			after = "[" + from
		}
		until = "(" + scope(q.Tenant, q.Feature) + textBeyond
	}
	var found []storage.CounterKey
	for {
		members, err := a.client.ZRangeArgs(ctx, redis.ZRangeArgs{
			Key: a.keys.counterOrder, ByLex: true, Start: after, Stop: until, Count: part + 1,
		}).Result()
		if err != nil {
			return nil, a.fault(ctx, err)
		}
		for _, m := range members {
			key := storage.CounterKey{}
			if key.Tenant, key.Feature, key.PeriodStart, err = parseMember(m); err != nil {
				return nil, errAnswer
			}
			if q.Feature == "" || key.Feature == q.Feature {
				found = append(found, key)
			}
			after = "(" + m
		}
		if len(members) <= part || len(found) > q.Limit {
			return found, nil
		}
	}
}
