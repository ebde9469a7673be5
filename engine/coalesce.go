package engine

import (
	"context"
	"sync"
	"time"
)

// coalescer turns concurrent one-event calls into batches, as a database's
// group commit does. It has no timer: a flusher takes what waits, writes it,
// answers, and takes what has come meanwhile, so an idle system adds no delay
// and a busy one grows its batches by itself.
//
// A call in the queue has promised nothing yet. A caller that gives up gets
// unavailable, because its event may be in the batch being written; and no
// caller waits longer than timeout, whatever its own context says: the batches
// before it may each take that long.
type coalescer struct {
	write   func(ctx context.Context, inputs []Input) []Result
	timeout time.Duration
	max     int

	queue chan *waiting
	stop  chan struct{} // closed: take no more calls
	ended chan struct{} // closed: the last flusher has gone
	done  sync.WaitGroup
	once  sync.Once
}

// waiting is one caller.
type waiting struct {
	input  Input
	answer chan Result // buffered: the flusher never waits for a caller
}

func newCoalescer(write func(context.Context, []Input) []Result, flushers, limit int, timeout time.Duration) *coalescer {
	c := &coalescer{
		write: write, timeout: timeout, max: limit,
		queue: make(chan *waiting, limit), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	for range flushers {
		c.done.Go(c.flush)
	}
	return c
}

// record hands in one event and waits for its result.
func (c *coalescer) record(ctx context.Context, in Input) Result {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	w := &waiting{input: in, answer: make(chan Result, 1)}
	select {
	case <-c.stop:
		return Result{ID: in.id(), Err: closedError()}
	default:
	}
	select {
	case c.queue <- w:
	case <-c.stop:
		return Result{ID: in.id(), Err: closedError()}
	case <-ctx.Done():
		return Result{ID: in.id(), Err: contextError(ctx)}
	}
	select {
	case r := <-w.answer:
		return r
	case <-ctx.Done():
		return Result{ID: in.id(), Err: contextError(ctx)}
	case <-c.ended:
	}
	// The flushers are gone: either they answered before, or they never saw it.
	select {
	case r := <-w.answer:
		return r
	default:
		return Result{ID: in.id(), Err: closedError()}
	}
}

func (c *coalescer) flush() {
	for {
		select {
		case w := <-c.queue:
			c.run(c.drain(w))
		case <-c.stop:
			// Whoever was queued before the stop is still served.
			for {
				select {
				case w := <-c.queue:
					c.run(c.drain(w))
				default:
					return
				}
			}
		}
	}
}

func (c *coalescer) drain(first *waiting) []*waiting {
	batch := []*waiting{first}
	for len(batch) < c.max {
		select {
		case w := <-c.queue:
			batch = append(batch, w)
		default:
			return batch
		}
	}
	return batch
}

func (c *coalescer) run(batch []*waiting) {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	inputs := make([]Input, len(batch))
	for i, w := range batch {
		inputs[i] = w.input
	}
	for i, r := range c.write(ctx, inputs) {
		r.Index = 0
		batch[i].answer <- r
	}
}

// unknown answers every input with one error.
func unknown(inputs []Input, err error) []Result {
	results := make([]Result, len(inputs))
	for i, in := range inputs {
		results[i] = Result{Index: i, ID: in.id(), Err: err}
	}
	return results
}

// close serves what is queued and stops the flushers. It may be called twice.
func (c *coalescer) close() {
	c.once.Do(func() {
		close(c.stop)
		c.done.Wait()
		close(c.ended)
	})
	<-c.ended
}
