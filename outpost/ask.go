package outpost

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost/fencepost/outpost/state"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// link is the way to the engine's snapshots.
type link interface {
	// run keeps the link up until ctx ends, and tells h what comes over it.
	run(ctx context.Context, h handler)
	// ask puts one question and waits for its answer, while the link is up.
	ask(ctx context.Context, q question) (snapshot, error)
	// interested says of which identities to be told.
	interested(ids []state.Identity)
}

// handler is told what the engine says unasked. Its methods do not block.
type handler interface {
	configure(s *settings)
	// changed is a hint that an answer about an identity would be another now;
	// an empty reducer means all of the customer's.
	changed(customer, reducer string)
	// connected is told when questions may be put again.
	connected()
}

// question is what the engine is asked about one identity.
type question struct {
	customer, reducer string
	definition        string
	coldFloor         int64 // microseconds; 0: none
	bootstrap         bool
	ids               []string // names of events, see [state.EventID]
}

// snapshot is the engine's answer.
type snapshot struct {
	version, coldUntil, windowStart int64
	totals                          state.Aggregate
	credits                         map[string]decimal.Decimal
	confirmed                       []string
}

// What a link answers that is no snapshot.
var (
	errRegressed = errors.New("the engine cannot answer from where this state has discarded its events")
	errDown      = errors.New("the engine is not connected")
)

// ask brings an identity's state up to the engine's, once for all who wait.
func (c *Client) ask(ctx context.Context, k *copied, r reducer) error {
	k.asking.Lock()
	defer k.asking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, state.QuestionLife)
	defer cancel()
	if v, err := c.copies.load(ctx, k); err != nil {
		return err
	} else if v.usable(r) && v.appliedAt.After(c.cfg.Now().Add(-time.Second)) {
		return nil // somebody else asked a moment ago
	}
	for {
		again, err := c.askOnce(ctx, k, r)
		if !again {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// askOnce puts one question. Again says that the state had to be discarded.
func (c *Client) askOnce(ctx context.Context, k *copied, r reducer) (again bool, err error) {
	q, err := c.store.Ask(ctx, k.id, r.Definition)
	if errors.Is(err, state.ErrDefinition) {
		return true, c.discard(ctx, k.id)
	}
	if err != nil {
		return false, err
	}
	// What may be counted by now, or will be by a bootstrap: the ids are collected
	// after the question was opened. // C38, C-T1.
	before := state.BucketOf(c.cfg.Now()) + state.Width.Microseconds()
	ids, _, err := c.store.PendingIDs(ctx, k.id, before, state.MaxIDs)
	if err != nil {
		return false, err
	}
	ans, err := c.link.ask(ctx, question{
		customer: k.id.Customer, reducer: r.ID, definition: r.Definition, coldFloor: q.ColdUntil, bootstrap: !q.Snapshot, ids: ids,
	})
	switch {
	case errors.Is(err, errRegressed):
		return true, c.discard(ctx, k.id)
	case err != nil:
		return false, err
	}
	done, err := c.store.Apply(ctx, k.id, state.Answer{
		Token: q.Token, Version: ans.version, ColdUntil: ans.coldUntil, WindowStart: ans.windowStart,
		Totals: ans.totals, Credits: ans.credits, Confirmed: ans.confirmed,
	})
	switch {
	case errors.Is(err, state.ErrOldVersion):
		return false, nil // another instance was told more
	case errors.Is(err, state.ErrStaleQuestion), errors.Is(err, state.ErrColdRegressed):
		return true, nil
	case err != nil:
		return false, err
	}
	c.copies.apply(done.Message)
	c.link.interested([]state.Identity{k.id})
	return false, nil
}
