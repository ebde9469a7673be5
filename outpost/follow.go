package outpost

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost/fencepost/outpost/state"
	"github.com/fencepost/fencepost/plugins/sdk"
)

// listen subscribes to the changes of all instances, and follows them. It returns
// when Redis has confirmed: what is loaded afterwards misses none. // C-T12.
func (c *Client) listen(ctx, loops context.Context) error {
	sub := c.store.Subscribe(loops)
	for confirmed := 0; confirmed < state.Channels; {
		m, err := sub.Receive(ctx)
		if err != nil {
			_ = sub.Close()
			return sdk.Unavailable("subscribe", err)
		}
		if _, ok := m.(*redis.Subscription); ok {
			confirmed++
		}
	}
	c.loops.Go(func() {
		<-loops.Done()
		_ = sub.Close()
	})
	c.loops.Go(func() { c.hear(loops, sub) })
	return nil
}

// hear applies what is published. After any trouble of the connection every copy
// is doubted: what was said meanwhile is not known.
func (c *Client) hear(ctx context.Context, sub *redis.PubSub) {
	for ctx.Err() == nil {
		m, err := sub.Receive(ctx)
		if err != nil {
			c.copies.doubtAll()
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		switch m := m.(type) {
		case *redis.Subscription:
			c.copies.doubtAll() // subscribed anew
		case *redis.Message:
			changes, err := state.ParseMessages(m.Payload)
			if err != nil {
				c.cfg.Logger.WarnContext(ctx, "outpost: a message that is none of ours", "channel", m.Channel)
				continue
			}
			for _, ch := range changes {
				c.copies.apply(ch)
			}
		}
	}
}

func (c *copies) doubtAll() {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, k := range c.byKey {
		k.forget()
	}
}

// refreshers bounds the questions that hints lead to at a time.
const refreshers = 8

// follower hears what the engine says unasked.
type follower struct {
	client  *Client
	ctx     context.Context //nolint:containedctx // the life of the link
	places  chan struct{}
	running sync.WaitGroup

	mu  sync.Mutex
	due map[string]bool // keys of copies about which a question waits
}

func (f *follower) configure(s *settings) {
	f.client.conf.Store(s)
	f.client.once.Do(func() { close(f.client.arrived) })
}

// connected asks again about everything that is read: what was said while the link
// was down is not known. // F4.
func (f *follower) connected() {
	warm := f.client.copies.warm(true)
	ids := make([]state.Identity, len(warm))
	for i, k := range warm {
		ids[i] = k.id
	}
	f.client.link.interested(ids)
	for _, k := range f.client.copies.warm(false) {
		f.refresh(k)
	}
}

func (f *follower) changed(customer, reducer string) {
	s := f.client.conf.Load()
	if s == nil {
		return
	}
	for id := range s.reducers {
		if reducer != "" && reducer != id {
			continue
		}
		if k := f.client.copies.loaded(state.Identity{Customer: customer, Reducer: id}); k != nil {
			f.refresh(k)
		}
	}
}

// loaded is the copy of an identity, if there is one.
func (c *copies) loaded(id state.Identity) *copied {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byKey[c.store.Key(id)]
}

// refresh asks about an identity, some at a time and each once. // C-T27, C-T29.
func (f *follower) refresh(k *copied) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.due[k.key] || f.ctx.Err() != nil {
		return
	}
	if f.due == nil {
		f.due = map[string]bool{}
	}
	f.due[k.key] = true
	f.running.Go(func() {
		select {
		case f.places <- struct{}{}:
			defer func() { <-f.places }()
		case <-f.ctx.Done():
		}
		f.mu.Lock()
		delete(f.due, k.key) // a hint from now on leads to another question
		f.mu.Unlock()
		f.ask(k)
	})
}

func (f *follower) ask(k *copied) {
	c := f.client
	s := c.conf.Load()
	r, ok := s.reducers[k.id.Reducer]
	if !ok || f.ctx.Err() != nil {
		return
	}
	if mine, err := c.store.Claim(f.ctx, k.id); err != nil || !mine {
		return // another instance asks, and the channel tells what it heard
	}
	k.asking.Lock()
	defer k.asking.Unlock()
	ctx, cancel := context.WithTimeout(f.ctx, state.QuestionLife)
	defer cancel()
	for range 3 {
		again, err := c.askOnce(ctx, k, r)
		if err != nil && !errors.Is(err, context.Canceled) {
			c.cfg.Logger.Debug("outpost: a question to the engine", "reducer", r.ID, "error", err)
		}
		if !again {
			return
		}
	}
}
