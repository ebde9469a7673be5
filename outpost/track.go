package outpost

import (
	"context"
	"errors"
	"slices"

	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/outpost/state"
	"github.com/fencepost/fencepost/plugins/sdk"
)

// Track counts an event locally, in every instance that shares the Redis, and has
// it delivered. When it returns nil, reads on this instance count it. // C8, C19.
//
// Errors: invalid, or a conflict when the event's id is pending with another
// bucket or value: nothing was written and nothing is delivered. [ErrNotLocal]: it
// is delivered, and balances may not show it. [ErrNotReady]: the engine's
// configuration has never come, nothing is delivered. Unavailable, code
// "queue_full" or "closed": nothing was written.
func (c *Client) Track(ctx context.Context, e Event) error {
	ev, err := c.filled(e)
	if err != nil {
		return err
	}
	s, err := c.settings(ctx)
	if err != nil {
		return err
	}
	values, err := s.values(ev)
	if err != nil {
		return err
	}
	// Room first, then Redis, then delivery: what is written is delivered.
	place, err := c.batch.reserve(ctx)
	if err != nil {
		return err
	}
	q := queued{event: ev, local: state.Event{Customer: ev.Subject, ID: name(ev), Bucket: state.BucketOf(ev.Time), Values: values}}
	var local error
	if len(values) > 0 {
		q.epochs, local = c.write(ctx, q.local)
	}
	if errors.Is(local, state.ErrConflict) {
		place.give()
		return local
	}
	if err := place.put(q); err != nil {
		return err
	}
	if local != nil {
		return errors.Join(ErrNotLocal, local)
	}
	return nil
}

// write counts an event in Redis and in this instance's copies. It answers which
// lives of the states have it.
func (c *Client) write(ctx context.Context, e state.Event) ([]string, error) {
	changes, err := c.store.Track(ctx, e)
	for range e.Values { // each state may be of an older definition
		refusal, changed := definitionChanged(err)
		if !changed {
			break
		}
		id := state.Identity{Customer: e.Customer, Reducer: e.Values[refusal].Reducer}
		if err := c.discard(ctx, id); err != nil {
			return nil, err
		}
		changes, err = c.store.Track(ctx, e)
	}
	if err != nil {
		for _, v := range e.Values { // it may have happened
			c.copies.doubt(state.Identity{Customer: e.Customer, Reducer: v.Reducer})
		}
		return nil, err
	}
	epochs := make([]string, len(changes))
	for i, ch := range changes {
		epochs[i] = ch.Message.Epoch
		c.copies.apply(ch.Message)
	}
	return epochs, nil
}

// retrack writes events again that a loss of Redis has taken, before the engine
// stores them: what it counts must count here. // I1, F8.
func (c *Client) retrack(ctx context.Context, batch []queued) {
	var ids []state.Identity
	for _, q := range batch {
		for _, v := range q.local.Values {
			ids = append(ids, state.Identity{Customer: q.local.Customer, Reducer: v.Reducer})
		}
	}
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.SnapshotTimeout)
	defer cancel()
	tips, err := c.store.Tips(ctx, ids)
	if err != nil {
		return // Redis is away: nothing is read from it either
	}
	at := 0
	for i := range batch {
		q := &batch[i]
		lives := tips[at : at+len(q.local.Values)]
		at += len(lives)
		same := len(q.epochs) == len(lives)
		for j := range lives {
			same = same && lives[j].Epoch == q.epochs[j]
		}
		if same {
			continue
		}
		if epochs, err := c.write(ctx, q.local); err == nil {
			q.epochs = epochs
		}
	}
}

// definitionChanged reports which value of an event met a state of another
// definition.
func definitionChanged(err error) (index int, ok bool) {
	e, is := errors.AsType[*sdk.Error](err)
	if !is || !errors.Is(e, state.ErrDefinition) {
		return 0, false
	}
	return e.ItemIndex()
}

// discard removes a state whose reducer means something else now; the next read
// asks the engine anew. // F18.
func (c *Client) discard(ctx context.Context, id state.Identity) error {
	st, err := c.store.Load(ctx, id)
	if err != nil || st.Epoch == "" {
		return err
	}
	if err := c.store.Reset(ctx, id, st.Epoch); err != nil && !errors.Is(err, state.ErrMoved) && !errors.Is(err, state.ErrAbsent) {
		return err
	}
	return nil
}

// taken tells Redis that the engine has events. Where Redis does not know them in
// the life that they were written to, the engine is asked: it counts what is
// missing here. // C23, F8.
func (c *Client) taken(list []queued) {
	for _, d := range deliveries(list) {
		ctx, cancel := context.WithTimeout(context.Background(), c.cfg.SnapshotTimeout)
		messages, err := c.store.Acknowledge(ctx, d.Delivered)
		cancel()
		if err != nil {
			// They stay pending, and a snapshot settles them. // F11.
			c.cfg.Logger.Warn("outpost: what the engine has was not written", "events", len(d.IDs), "error", err)
		}
		known := map[string]string{}
		for _, m := range messages {
			known[m.Key] = m.Epoch
			c.copies.apply(m)
		}
		for i, r := range d.Reducers {
			k := c.copies.loaded(state.Identity{Customer: d.Customer, Reducer: r})
			if k != nil && err == nil && (i >= len(d.epochs) || known[k.key] != d.epochs[i]) {
				k.forget()
				c.follower.refresh(k)
			}
		}
	}
}

// dropped ends events that the engine will not count, as far as anybody knows. An
// id that is another event's is stored: it stays until a snapshot has counted
// that one, so that nothing is too high meanwhile. // C24, C25.
func (c *Client) dropped(list []queued, why fate) {
	c.cfg.Logger.Error("outpost: events dropped", "events", len(list), "certain", why != unknown)
	if why == held {
		c.taken(list)
	} else {
		c.confirm(list)
	}
	c.cfg.OnDropped(tracked(list), why != unknown)
}

func (c *Client) confirm(list []queued) {
	for _, d := range deliveries(list) {
		ctx, cancel := context.WithTimeout(context.Background(), c.cfg.SnapshotTimeout)
		messages, err := c.store.Confirm(ctx, d.Delivered)
		cancel()
		if err != nil {
			c.cfg.Logger.Warn("outpost: what was dropped was not written", "events", len(d.IDs), "error", err)
		}
		for _, m := range messages {
			c.copies.apply(m)
		}
	}
}

// delivery is what has ended of one customer, in one set of states.
type delivery struct {
	state.Delivered

	epochs []string
}

// deliveries groups events by customer, reducers and the lives of their states.
func deliveries(list []queued) []*delivery {
	by := map[string]*delivery{}
	var out []*delivery
	for _, q := range list {
		if len(q.local.Values) == 0 {
			continue
		}
		reducers := make([]string, len(q.local.Values))
		for i, v := range q.local.Values {
			reducers[i] = v.Reducer
		}
		key := canon.Join(slices.Concat([]string{q.local.Customer}, reducers, q.epochs)...)
		d := by[key]
		if d == nil { // a batch has fewer events than a call takes ids
			d = &delivery{state.Delivered{Customer: q.local.Customer, Reducers: reducers}, q.epochs}
			by[key] = d
			out = append(out, d)
		}
		d.IDs, d.Buckets = append(d.IDs, q.local.ID), append(d.Buckets, q.local.Bucket)
	}
	return out
}

// tracked are events as the application knows them.
func tracked(list []queued) []Event {
	out := make([]Event, len(list))
	for i, q := range list {
		e := q.event
		out[i] = Event{ID: e.ID, Source: e.Source, Type: e.Type, Customer: e.Subject, Time: e.Time, Data: e.Data}
	}
	return out
}
