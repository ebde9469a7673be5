package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// session is the store as one caller reaches it. A host that dies does so at
// one of its calls.
type session struct {
	w    *world
	s    *store
	lane int
	host bool
}

var errStore = errors.New("connection lost")

// call makes one call of the store: it may not arrive, arrive late, lose its
// answer, or be the last that its caller does.
func (c session) call(ctx context.Context, apply func()) error {
	if err := ctx.Err(); err != nil {
		return sdk.Unavailable("canceled", err)
	}
	c.w.mu.Lock()
	there, back := c.w.between(time.Millisecond, 20*time.Millisecond), c.w.between(time.Millisecond, 10*time.Millisecond)
	luck := 100
	if c.w.chance(c.w.phase.store) {
		luck = c.w.draw(5)
	}
	dies := -1
	if c.host && c.w.chance(c.w.phase.crash) {
		dies = c.w.draw(2)
	}
	late := c.w.between(time.Second, 10*time.Minute)
	life := c.s.life
	c.w.mu.Unlock()
	if dies == 0 {
		c.w.die()
	}
	arrived := c.w.sleep(ctx, c.lane, there)
	c.w.mu.Lock()
	lost := true
	switch {
	case !arrived || luck == 0 || life != c.s.life || c.s.downUntil > c.w.since():
		c.w.count("call of the store lost")
	case luck == 1: // the caller gives up, and then it commits
		c.w.count("commit after the caller gave up")
		c.w.after(late, func() {
			if !c.w.over && life == c.s.life {
				apply()
			}
		})
	case luck == 2:
		c.w.count("answer of the store lost")
		apply()
	default:
		lost = false
		apply()
	}
	c.w.mu.Unlock()
	if dies == 1 {
		c.w.die()
	}
	if lost {
		c.w.sleep(ctx, c.lane, back)
		return sdk.Unavailable("unknown", errStore)
	}
	c.stopped()
	c.w.sleep(context.Background(), c.lane, back)
	return nil
}

// stopped is SIGSTOP and, some time later, SIGCONT.
func (c session) stopped() {
	c.w.mu.Lock()
	stop := c.host && c.w.chance(c.w.phase.stop)
	d := c.w.between(time.Minute, 30*time.Minute)
	if stop {
		c.w.count("host stopped for a while")
		if c.w.draw(3) == 0 {
			d = c.w.between(time.Hour, 40*time.Hour)
		}
		d = min(d, max(c.w.heals-c.w.since(), time.Minute))
		if c.lane < laneReporter {
			c.w.pause(c.lane)
			c.w.machines[c.lane].running = false
		}
	}
	c.w.mu.Unlock()
	if stop {
		c.w.sleep(context.Background(), c.lane, d)
		if c.lane < laneReporter {
			c.w.mu.Lock()
			c.w.starts(c.lane)
			c.w.mu.Unlock()
		}
	}
}

func (c session) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claim, error) {
	c.w.mu.Lock()
	seen := c.s.look(&req)
	c.w.mu.Unlock()
	var claim storage.Claim
	err := c.call(ctx, func() { claim = c.s.take(&req, seen) })
	if err != nil {
		return storage.Claim{}, err
	}
	return claim, nil
}

func (c session) Transition(ctx context.Context, moves []storage.Transition) ([]storage.TransitionResult, error) {
	var done []storage.TransitionResult
	if err := c.call(ctx, func() { done = c.s.apply(moves) }); err != nil {
		return nil, err
	}
	return done, nil
}

func (c session) LoadItem(ctx context.Context, id int64) (storage.ItemDetail, error) {
	var d storage.ItemDetail
	var none bool
	err := c.call(ctx, func() {
		r := c.s.row(id)
		if none = r.lost; none {
			return
		}
		d = storage.ItemDetail{Item: r.Item, Mapping: r.frozen.Mapping, Payload: r.frozen.Payload, Attempts: slices.Clone(r.attempts), Original: c.s.original(r), Actions: slices.Clone(r.actions)}
		if r.Identity.SubjectKind == storage.SubjectEvent {
			ev := r.frozen.Event
			d.Event = &ev
		}
	})
	if err == nil && none {
		err = sdk.ErrNotFound
	}
	return d, err
}

func (c session) ListItems(ctx context.Context, q storage.ItemQuery) (storage.ItemPage, error) {
	page := storage.ItemPage{Next: q.After}
	err := c.call(ctx, func() {
		page = storage.ItemPage{Next: q.After}
		for _, r := range c.s.rows {
			if r.ItemID <= q.After || (q.State != "" && r.State != q.State) || (q.Open && !r.SettledAt.IsZero()) ||
				(q.DependsOn != 0 && r.DependsOn != q.DependsOn) {
				continue
			}
			if len(page.Items) == q.Limit {
				page.More = true
				return
			}
			page.Items, page.Next = append(page.Items, r.Item), r.ItemID
		}
	})
	return page, err
}

func (c session) OutboxStats(context.Context) (storage.OutboxStats, error) {
	return storage.OutboxStats{}, fmt.Errorf("count: %w", sdk.ErrUnsupported)
}
