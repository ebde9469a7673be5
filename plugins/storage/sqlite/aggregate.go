package sqlite

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// scanShare says when a tenant has so large a part of the events that reading
// all of them in their order is quicker than finding the tenant's one by one.
const scanShare = 4

// Aggregate adds up the events that q selects; see [storage.Aggregator]. There
// is no index of events by time: it would cost a tenth of the speed of
// recording. A query reads all events of its tenant, or all events; where that
// takes too long the feature needs buckets.
//
// More than 2,000,000 distinct values in one query are invalid, code
// "too_many_values".
func (a *Adapter) Aggregate(ctx context.Context, q storage.AggregateQuery) (res storage.Aggregates, err error) {
	const op = "aggregate"
	g, err := newCells(&q)
	if err != nil {
		return res, fmt.Errorf("%s: %w", op, err)
	}
	err = a.read(ctx, op, func(c *conn) error {
		if err := g.events(c); err != nil {
			return err
		}
		res = g.answer()
		_, err := c.bind(qPrunedBefore).text(q.Tenant).text(q.Feature).int(g.from()).int(g.to()).
			one(func(r *row) { res.PrunedBefore = r.time() })
		return err
	})
	if err != nil {
		return storage.Aggregates{}, err
	}
	return res, nil
}

// events reads every event that the query selects, in no particular order.
func (g *cells) events(c *conn) error {
	statement, err := g.statement(c)
	if err != nil {
		return err
	}
	single := g.q.Extremes || g.q.Unique != ""
	return c.bind(statement).text(g.q.Tenant).text(g.q.Feature).int(g.from()).int(g.to()).bool(single).
		each(func(r *row) error {
			ev := r.countedEvent()
			if r.err != nil {
				return r.err
			}
			return g.event(c, &ev)
		})
}

func (g *cells) statement(c *conn) (query, error) {
	var own, all int64
	if _, err := c.bind(qTenantEvents).text(g.q.Tenant).one(func(r *row) { own = r.int() }); err != nil {
		return 0, err
	}
	if _, err := c.bind(qLastEvent).one(func(r *row) { all = r.int() }); err != nil {
		return 0, err
	}
	if own*scanShare > all {
		return qAggregateScan, nil
	}
	return qAggregateTenant, nil
}

// countedEvent is an event as an aggregation reads it.
type countedEvent struct {
	seq, at          int64
	usage, reverses  bool
	quantity, effect decimal.Decimal
	dimensions, id   string
	corrected        bool // there are corrections of it
}

func (r *row) countedEvent() (ev countedEvent) {
	ev.seq, ev.at, ev.usage = r.int(), r.int(), storage.Kind(r.text()) == storage.Usage
	ev.quantity = r.total()
	ev.effect = ev.quantity
	if effect := r.ptrTotal(); effect != nil {
		ev.effect = *effect
	}
	ev.reverses, ev.dimensions, ev.id, ev.corrected = r.bool(), r.text(), r.text(), r.bool()
	return ev
}

func (g *cells) event(c *conn, ev *countedEvent) error {
	s, err := g.selectDimensions(ev.dimensions)
	if err != nil || s.out {
		return err
	}
	to := g.cell(ev.at, s)
	if to == nil {
		return nil
	}
	to.Sum = to.Sum.Add(ev.effect)
	if !ev.usage {
		if ev.reverses {
			to.Count--
		}
		return nil
	}
	to.Count++
	left := ev.quantity
	if ev.corrected {
		sum, err := corrected(c, storage.EventKey{Tenant: g.q.Tenant, EventID: ev.id})
		if err != nil {
			return err
		}
		if sum.Equal(ev.quantity.Abs()) {
			return nil // nothing is left of it
		}
		if left = ev.quantity.Sub(sum); ev.quantity.Sign() < 0 {
			left = ev.quantity.Add(sum)
		}
	}
	if g.q.Extremes {
		g.usage(to, left, ev.at, ev.seq)
	}
	if s.value != nil {
		return g.value(to, *s.value)
	}
	return nil
}
