package sqlite

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// SumItems returns the sums of the items of a destination; see
// [storage.ReconcileStore]. The destination is that of the item's route: a
// renamed exporter has the items of its old name.
//
// It goes from one customer and feature to the next, with one range of the index
// for each: a page costs what it adds up, and a seek for each one without usage
// in the stretch.
func (a *Adapter) SumItems(ctx context.Context, q storage.SumQuery) (page storage.SumPage, err error) {
	const op = "sum items"
	if err := checkLimit(q.Limit); err != nil {
		return page, fmt.Errorf("%s: %w", op, err)
	}
	err = a.read(ctx, op, func(c *conn) error {
		page = storage.SumPage{Sums: []storage.ItemSum{}, Next: q.After}
		s, err := newSummer(c, &q, q.Limit+1, a.now())
		if err == nil {
			err = s.scan(c, &q)
		}
		if err != nil {
			return err
		}
		page.Sums = append(page.Sums, s.sums...)
		if page.More = len(page.Sums) > q.Limit; page.More {
			page.Sums = page.Sums[:q.Limit]
		}
		if n := len(page.Sums); n > 0 {
			page.Next = page.Sums[n-1].SumKey
		}
		return nil
	})
	return page, err
}

// summer adds items up by key. It keeps the limit lowest keys, in order: a key
// that fell out is above the highest kept one and never comes back.
type summer struct {
	limit  int
	now    time.Time      // the store's
	routes map[int64]bool // of the destination
	sums   []storage.ItemSum
	// each, if not nil, is told of every item that counts.
	each func(it *summedItem)
}

// summedItem is one item of a sum.
type summedItem struct {
	id, route  int64
	key        storage.SumKey
	state      storage.ItemState
	disputed   bool
	unaccepted bool // no acceptance time
	open       bool // not settled
	fresh      bool // accepted less than the query's lag ago
	value      decimal.Decimal
}

// newSummer is for the items of a destination's routes.
func newSummer(c *conn, q *storage.SumQuery, limit int, now time.Time) (*summer, error) {
	s := &summer{limit: limit, now: now, routes: map[int64]bool{}}
	err := c.bind(qSumRoutes).text(q.Exporter).text(q.Account).text(q.Mode).each(func(r *row) error {
		s.routes[r.int()] = true
		return nil
	})
	return s, err
}

// scan adds up one customer and feature after the other, in order, until the
// keys that are wanted are complete.
func (s *summer) scan(c *conn, q *storage.SumQuery) error {
	at := storage.SumKey{Customer: max(q.After.Customer, q.Customer), Feature: q.Feature}
	if at.Customer == q.After.Customer {
		at.Feature = max(q.After.Feature, q.Feature)
	}
	for len(s.sums) < s.limit {
		if q.Customer != "" && at.Customer != q.Customer {
			return nil
		}
		if q.Feature == "" || at.Feature == q.Feature {
			if err := s.scanOne(c, q, at); err != nil {
				return err
			}
		}
		found, err := c.bind(qSumNext).text(at.Customer).text(at.Feature).one(func(r *row) {
			at.Customer, at.Feature = r.text(), r.text()
		})
		if err != nil || !found {
			return err
		}
	}
	return nil
}

// scanOne reads the items of one customer and feature whose usage lies in the
// stretch.
func (s *summer) scanOne(c *conn, q *storage.SumQuery, of storage.SumKey) error {
	return c.bind(qSumScan).text(of.Customer).text(of.Feature).time(q.From).time(q.To).
		each(func(r *row) error {
			it := summedItem{id: r.int(), key: storage.SumKey{Customer: of.Customer, Feature: of.Feature, MappingVersion: r.text()}}
			payload := r.json()
			it.route, it.state, it.disputed = r.int(), storage.ItemState(r.text()), r.bool()
			it.unaccepted, it.open = r.bool(), r.bool()
			accepted := r.time()
			it.fresh = q.Lag > 0 && !it.unaccepted && s.now.Sub(accepted) < q.Lag
			hasEvent := r.bool()
			if !s.routes[it.route] || compareKeys(it.key, q.After) <= 0 {
				return nil
			}
			if hasEvent {
				it.value = r.total()
			} else {
				var err error
				if _, it.value, err = windowValue(payload); err != nil {
					return err
				}
			}
			s.add(&it)
			return nil
		})
}

// windowValue reads the frozen payload of a window.
func windowValue(raw json.RawMessage) (time.Time, decimal.Decimal, error) {
	var payload struct {
		Value     string    `json:"value"`
		Timestamp time.Time `json:"timestamp"`
	}
	if err := json.Unmarshal(raw, &payload); err != nil {
		return time.Time{}, decimal.Decimal{}, sdk.Unavailable("corrupt", fmt.Errorf("the payload of a window: %w", err))
	}
	value, err := decimal.ParseTotal(payload.Value)
	return payload.Timestamp, value, err
}

func compareSums(a storage.ItemSum, k storage.SumKey) int { return compareKeys(a.SumKey, k) }

func compareKeys(a, k storage.SumKey) int {
	return cmp.Or(cmp.Compare(a.Customer, k.Customer), cmp.Compare(a.Feature, k.Feature),
		cmp.Compare(a.MappingVersion, k.MappingVersion))
}

func (s *summer) add(it *summedItem) {
	i, found := slices.BinarySearchFunc(s.sums, it.key, compareSums)
	if !found {
		if i == s.limit {
			return
		}
		s.sums = slices.Insert(s.sums, i, storage.ItemSum{SumKey: it.key})
		s.sums = s.sums[:min(len(s.sums), s.limit)]
	}
	it.addTo(&s.sums[i])
	if s.each != nil {
		s.each(it)
	}
}

func (it *summedItem) addTo(sum *storage.ItemSum) {
	sum.Recorded = sum.Recorded.Add(it.value)
	if it.disputed {
		sum.Disputed++
		sum.DisputedValue = sum.DisputedValue.Add(it.value)
	}
	switch it.state {
	case storage.Accepted, storage.Confirmed:
		if it.disputed {
			return
		}
		sum.Reported = sum.Reported.Add(it.value)
		sum.ReportedItems++
		if it.state == storage.Confirmed {
			sum.Confirmed++
		}
		if it.fresh {
			sum.Fresh++
			sum.FreshValue = sum.FreshValue.Add(it.value)
		}
	case storage.Pending, storage.Leased, storage.Uncertain:
		sum.Open++
		sum.OpenValue = sum.OpenValue.Add(it.value)
	case storage.Quarantined, storage.Rejected:
		sum.Held++
		sum.HeldValue = sum.HeldValue.Add(it.value)
	}
}

// ConfirmSum confirms the accepted items of one sum; see
// [storage.ReconcileStore] (Q24).
func (a *Adapter) ConfirmSum(ctx context.Context, req storage.SumConfirm) (n int64, err error) {
	const op = "confirm a sum"
	if e := checkAction(&req.Action); e != nil {
		return 0, fmt.Errorf("%s: %w", op, e)
	}
	err = a.write(ctx, op, func(_ context.Context, c *conn) (err error) {
		n, err = confirmSum(c, &req, a.now())
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

func confirmSum(c *conn, req *storage.SumConfirm, now time.Time) (int64, error) {
	q := req.Query
	q.After = storage.SumKey{}
	var sum storage.ItemSum
	var accepted []summedItem
	complete := true
	s, err := newSummer(c, &q, maxPage, now)
	if err != nil {
		return 0, err
	}
	s.each = func(it *summedItem) {
		if it.key != req.Key {
			return
		}
		it.addTo(&sum)
		if it.state == storage.Accepted {
			accepted = append(accepted, *it)
			complete = complete && !it.unaccepted
		}
	}
	if err := s.scanOne(c, &q, req.Key); err != nil {
		return 0, err
	}
	want := &req.Expect
	if !complete || sum.Open != 0 || sum.Disputed != 0 || want.Open != 0 || want.Disputed != 0 ||
		sum.ReportedItems != want.ReportedItems || !sum.Reported.Equal(want.Reported) || len(accepted) == 0 {
		return 0, nil
	}
	counts := countDeltas{}
	for i := range accepted {
		it := &accepted[i]
		rows, err := c.bind(qSumConfirm).int(it.id).time(now).text(req.ConfirmedBy).run()
		if err != nil {
			return 0, err
		}
		if rows != 1 {
			return 0, errRowMoved
		}
		counts.moved(it.route, storage.Accepted, it.open, storage.Confirmed, false)
	}
	if err := counts.write(c); err != nil {
		return 0, err
	}
	return int64(len(accepted)), appendAction(c, &req.Action, now)
}
