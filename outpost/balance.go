package outpost

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/fencepost/fencepost/outpost/state"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// creditsOf are what meters are credited.
type creditsOf map[string]decimal.Decimal

// Reading is what is known of a meter of a customer here.
type Reading struct {
	Balance  decimal.Decimal // Credited less Consumed
	Credited decimal.Decimal
	// Consumed counts the engine's totals and every event that it may not have
	// counted yet.
	Consumed decimal.Decimal
	// AsOf is when the engine's totals were applied here, and ColdUntil where
	// they end.
	AsOf      time.Time
	ColdUntil time.Time
	Source    Source
}

// Source says where a reading came from.
type Source string

// The sources.
const (
	FromMemory   Source = "memory"
	FromRedis    Source = "redis"
	FromSnapshot Source = "snapshot" // the reader waited for the engine
)

// Balance reads a meter of a customer from memory, if the copy there was compared
// with Redis in the last two seconds; else from Redis; and waits for the engine's
// snapshot if there is none. // C26, C27.
//
// Errors: [ErrNotReady], also when Redis cannot be asked; [ErrUnknownMeter].
func (c *Client) Balance(ctx context.Context, customer, meter string) (Reading, error) {
	s, r, err := c.reducerOf(ctx, meter)
	if err != nil {
		return Reading{}, err
	}
	k := c.copies.of(state.Identity{Customer: customer, Reducer: r.ID})
	now := c.copies.clock()
	k.read.Store(now)
	if v := k.view.Load(); v != nil && v.usable(r) && k.valid.Load() > now && (v.until.IsZero() || c.cfg.Now().Before(v.until)) {
		return v.reading(r, meter, FromMemory)
	}
	return c.slow(ctx, s, k, meter)
}

// Fresh is Balance with one round trip to Redis: it sees what every other instance
// has tracked by now.
func (c *Client) Fresh(ctx context.Context, customer, meter string) (Reading, error) {
	s, r, err := c.reducerOf(ctx, meter)
	if err != nil {
		return Reading{}, err
	}
	k := c.copies.of(state.Identity{Customer: customer, Reducer: r.ID})
	k.read.Store(c.copies.clock())
	k.valid.Store(0)
	return c.slow(ctx, s, k, meter)
}

func (c *Client) reducerOf(ctx context.Context, meter string) (*settings, reducer, error) {
	s, err := c.settings(ctx)
	if err != nil {
		return nil, reducer{}, err
	}
	r, ok := s.reducers[s.meters[meter]]
	if !ok {
		return nil, reducer{}, ErrUnknownMeter
	}
	return s, r, nil
}

func (c *Client) slow(ctx context.Context, s *settings, k *copied, meter string) (Reading, error) {
	r := s.reducers[k.id.Reducer]
	v, err := c.copies.load(ctx, k)
	if err != nil {
		return Reading{}, errors.Join(ErrNotReady, err)
	}
	if v.usable(r) {
		return v.reading(r, meter, FromRedis)
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.SnapshotTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.ask(context.WithoutCancel(ctx), k, r) }() // a question goes on without its reader
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return Reading{}, errors.Join(ErrNotReady, err)
	}
	if v, err = c.copies.load(ctx, k); err != nil {
		return Reading{}, errors.Join(ErrNotReady, err)
	}
	return v.reading(r, meter, FromSnapshot)
}

// usable reports whether the state was kept under what the reducer means now.
func (v *view) usable(r reducer) bool {
	return v.snapshot && strings.HasSuffix(v.definition, "/"+r.Definition)
}

func (v *view) reading(r reducer, meter string, from Source) (Reading, error) {
	credited, ok := v.credits[meter]
	consumed, known := r.Function.Consumption(v.aggregate)
	if !ok || !known || !v.usable(r) { // never "0 less consumption" // C-T31
		return Reading{}, ErrNotReady
	}
	return Reading{
		Balance: credited.Sub(consumed), Credited: credited, Consumed: consumed,
		AsOf: v.appliedAt, ColdUntil: time.UnixMicro(v.coldUntil).UTC(), Source: from,
	}, nil
}
