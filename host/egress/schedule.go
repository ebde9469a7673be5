package egress

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// keyQueues lets one request at a time through for each key, first come first
// served, over all calls of a client. A request with several keys waits in the
// queue of each. All requests of a batch are queued under one lock, so there is
// one order for all queues and nobody waits in a circle.
//
// The zero value is ready to use.
type keyQueues struct {
	mu     sync.Mutex
	queues map[string][]*ticket
}

type ticket struct {
	keys   []string // no duplicates
	behind int      // queues in which another is in front
	ready  chan struct{}
}

func newTicket(keys []string) *ticket {
	slices.Sort(keys)
	return &ticket{keys: slices.Compact(keys), ready: make(chan struct{})}
}

// enqueue takes places for tickets in order.
func (q *keyQueues) enqueue(tickets []*ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.queues == nil {
		q.queues = make(map[string][]*ticket)
	}
	for _, t := range tickets {
		for _, k := range t.keys {
			if len(q.queues[k]) > 0 {
				t.behind++
			}
			q.queues[k] = append(q.queues[k], t)
		}
		if t.behind == 0 {
			close(t.ready)
		}
	}
}

// leave gives up t's places, reached or not, and lets the next ones in.
func (q *keyQueues) leave(t *ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, k := range t.keys {
		queue := q.queues[k]
		i := slices.Index(queue, t)
		queue = slices.Delete(queue, i, i+1)
		if len(queue) == 0 {
			delete(q.queues, k)
			continue
		}
		q.queues[k] = queue
		if i == 0 {
			if queue[0].behind--; queue[0].behind == 0 {
				close(queue[0].ready)
			}
		}
	}
}

// batch is what the requests of one Send share.
type batch struct {
	call *Call // nil outside of a call

	once       sync.Once
	halted     chan struct{}
	reason     string
	retryAfter time.Duration

	answerBytes atomic.Int64
}

// keeps reports whether an answer of this size can still be handed to the
// plugin.
func (b *batch) keeps(a *answer) bool {
	size := len(a.body)
	for _, h := range a.headers {
		size += len(h.Name) + len(h.Value)
	}
	return b.answerBytes.Add(int64(size)) <= batchAnswerBytesMax
}

// halt keeps what is not yet sent from being sent. The first reason counts.
func (b *batch) halt(reason string, retryAfter time.Duration) {
	b.once.Do(func() {
		b.reason, b.retryAfter = reason, retryAfter
		close(b.halted)
	})
}

// waitTurn waits until j may be sent: those before it under its keys are done,
// a slot is free and the bucket has a token. It returns the reason if it will
// not be sent. The caller gives the slot back if there is none.
func (c *Client) waitTurn(ctx context.Context, b *batch, j *job) string {
	stop := func() string {
		select {
		case <-b.halted:
			return b.reason
		default:
			return c.reasonNotSent(ctx)
		}
	}
	select {
	case <-j.ticket.ready:
	case <-b.halted:
		return stop()
	case <-ctx.Done():
		return stop()
	}
	select {
	case c.slots <- struct{}{}:
	case <-b.halted:
		return stop()
	case <-ctx.Done():
		return stop()
	}
	reason := c.waitToken(ctx, b)
	if reason == "" {
		// The select above may have picked the slot although all were ready.
		reason = stop()
	}
	if reason != "" {
		<-c.slots
	}
	return reason
}

func (c *Client) waitToken(ctx context.Context, b *batch) string {
	r := c.bucket.Reserve()
	delay := r.Delay()
	if left, ok := timeLeft(ctx); ok && delay >= left {
		r.Cancel()
		return reasonDeadline
	}
	if delay == 0 {
		return ""
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ""
	case <-b.halted:
		r.Cancel()
		return b.reason
	case <-ctx.Done():
		r.Cancel()
		return c.reasonNotSent(ctx)
	}
}

// reasonNotSent says why nothing more may be sent in ctx, or "". It looks at
// the clock too: after a stop of the process the timer of a deadline may fire
// later than the goroutine that sends runs.
func (c *Client) reasonNotSent(ctx context.Context) string {
	left, ok := timeLeft(ctx)
	switch {
	case c.ctx.Err() != nil:
		return reasonShutdown
	case errors.Is(ctx.Err(), context.DeadlineExceeded), ok && left <= 0:
		return reasonDeadline
	case ctx.Err() != nil:
		return reasonCanceled
	}
	if left, ok := c.cfg.Left(ctx); ok && left <= 0 {
		return reasonDeadline
	}
	return ""
}

// timeLeft returns how long ctx has still to run, if it has a deadline. That is
// on the system's clock whatever clock the host stamps its records with.
func timeLeft(ctx context.Context) (time.Duration, bool) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0, false
	}
	return time.Until(deadline), true //nolint:forbidigo // see above
}
