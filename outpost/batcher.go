package outpost

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/outpost/state"
	"github.com/fencepost/fencepost/plugins/sdk"
)

// Delivery tunes how events reach the engine. The zero value of a field is its
// default.
type Delivery struct {
	// Events and Bytes bound a batch: 100, 512 KiB. A batch that is not full is
	// sent after Every, 1 s.
	Events int
	Bytes  int
	Every  time.Duration
	// MaxAttempts is how often a batch is tried: 10. The pauses between grow
	// from Base, 200 ms, to Cap, 30 s, with full jitter.
	MaxAttempts int
	Base, Cap   time.Duration
	// Queue bounds the events that wait, 100,000. Beyond it tracking waits.
	Queue int
}

func (d Delivery) withDefaults() Delivery {
	fill(&d.Events, 100)
	fill(&d.Bytes, 512<<10)
	fill(&d.Every, time.Second)
	fill(&d.MaxAttempts, 10)
	fill(&d.Base, 200*time.Millisecond)
	fill(&d.Cap, 30*time.Second)
	fill(&d.Queue, 100_000)
	d.Events = min(d.Events, meter.MaxBatchEvents)
	return d
}

func fill[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// queued is an event on its way.
type queued struct {
	event meter.CloudEvent
	text  []byte
	// local is what was written to Redis of it, without values if nothing was,
	// and epochs are the lives of the states that it was written to.
	local  state.Event
	epochs []string
}

// fate is what the engine did with one event.
type fate int

const (
	taken   fate = iota // stored, now or before
	refused             // for certain, and a repetition changes nothing
	held                // its id is another event's, which is stored
	unknown             // may be stored or not: again
)

// transport sends one batch. The error says why the fates are unknown.
type transport interface {
	send(ctx context.Context, batch []queued) ([]fate, error)
}

// batcher delivers events in batches, each to one of two ends: taken, or dropped.
// A failed attempt changes nothing anywhere. // C22 to C24.
type batcher struct {
	cfg Delivery
	to  transport
	// before is called with a batch that is about to be sent, each time.
	before func(context.Context, []queued)
	// taken is told what the engine has; dropped why it will not have it, or will
	// not for all that is known; left what was not delivered when the time to
	// close was over. // C-T30.
	taken   func([]queued)
	dropped func(batch []queued, why fate)
	left    func([]queued)
	uniform func(int64) int64

	mu    sync.Mutex
	queue []queued
	bytes int
	// reserved are places that somebody is about to fill.
	reserved int
	closed   bool
	wake     chan struct{} // something to look at
	room     chan struct{} // closed, and made anew, when there is room again

	hurry chan struct{} // closed: full or not, send
	done  chan struct{}
}

func newBatcher(cfg Delivery, to transport) *batcher {
	return &batcher{
		cfg: cfg.withDefaults(), to: to, uniform: rand.Int64N,
		wake: make(chan struct{}, 1), room: make(chan struct{}), hurry: make(chan struct{}), done: make(chan struct{}),
	}
}

var errClosed = &sdk.Error{Tag: sdk.TagUnavailable, Code: "closed", Rule: "a client that is open"}

// place is room for one event, which its holder fills or gives back.
type place struct{ b *batcher }

// reserve waits until there is room.
func (b *batcher) reserve(ctx context.Context) (place, error) {
	for {
		b.mu.Lock()
		room := b.room
		switch {
		case b.closed:
			b.mu.Unlock()
			return place{}, errClosed
		case len(b.queue)+b.reserved < b.cfg.Queue:
			b.reserved++
			b.mu.Unlock()
			return place{b}, nil
		}
		b.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return place{}, sdk.Unavailable("queue_full", ctx.Err())
		}
	}
}

// put fills the place. Also after close: what was promised is delivered, as long
// as somebody waits for it.
func (p place) put(q queued) error {
	text, err := json.Marshal(q.event)
	if err != nil {
		p.give()
		return sdk.Invalid("data", "JSON")
	}
	b := p.b
	b.mu.Lock()
	b.reserved--
	q.text = text
	b.queue = append(b.queue, q)
	b.bytes += len(text)
	b.mu.Unlock()
	b.look()
	return nil
}

func (p place) give() {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	p.b.reserved--
	p.b.freed()
}

// freed wakes those who wait for room. b.mu is held.
func (b *batcher) freed() {
	close(b.room)
	b.room = make(chan struct{})
	b.look()
}

func (b *batcher) look() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// run delivers until close; ctx ends what is under way.
func (b *batcher) run(ctx context.Context) {
	defer close(b.done)
	for {
		batch, last := b.next(ctx)
		if len(batch) > 0 {
			b.deliver(ctx, batch)
		}
		if last {
			return
		}
	}
}

// next waits for a batch: a full one, or what there is after a while. Last says
// that nothing comes after it.
func (b *batcher) next(ctx context.Context) (batch []queued, last bool) {
	var due <-chan time.Time
	for {
		b.mu.Lock()
		n, ended := len(b.queue), b.closed && b.reserved == 0
		hurry := b.hurry
		if b.closed {
			hurry = nil // heard
		}
		full := n >= b.cfg.Events || b.bytes >= b.cfg.Bytes
		b.mu.Unlock()
		if full || (ended && n > 0) {
			batch = b.cut()
			return batch, ended && b.empty()
		}
		if ended {
			return nil, true
		}
		if n > 0 && due == nil {
			timer := time.NewTimer(b.cfg.Every)
			defer timer.Stop()
			due = timer.C
		}
		select {
		case <-b.wake:
		case <-hurry:
		case <-due:
			return b.cut(), false
		case <-ctx.Done():
			return nil, true
		}
	}
}

func (b *batcher) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue) == 0 && b.reserved == 0
}

// cut takes the next batch off the queue.
func (b *batcher) cut() []queued {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, bytes := 0, 0
	for n < len(b.queue) && n < b.cfg.Events && (n == 0 || bytes+len(b.queue[n].text) <= b.cfg.Bytes) {
		bytes += len(b.queue[n].text)
		n++
	}
	batch := b.queue[:n:n]
	b.queue, b.bytes = b.queue[n:], b.bytes-bytes
	if len(b.queue) == 0 {
		b.queue = nil // lets go of what was sent
	}
	b.freed()
	return batch
}

// deliver ends a batch, whatever the number of attempts. What the engine refuses
// is dropped alone; the rest goes on.
func (b *batcher) deliver(ctx context.Context, batch []queued) {
	for attempt := 1; len(batch) > 0; attempt++ {
		b.before(ctx, batch)
		fates, err := b.to.send(ctx, batch)
		var by [4][]queued
		for i, q := range batch {
			f := unknown
			if i < len(fates) {
				f = fates[i]
			}
			by[f] = append(by[f], q)
		}
		if len(by[taken]) > 0 {
			b.taken(by[taken])
		}
		for _, why := range []fate{refused, held} {
			if len(by[why]) > 0 {
				b.dropped(by[why], why)
			}
		}
		switch batch = by[unknown]; {
		case len(batch) == 0:
			return
		case ctx.Err() != nil:
			b.left(batch)
			return
		case attempt >= b.cfg.MaxAttempts:
			b.dropped(batch, unknown)
			return
		}
		b.pause(ctx, attempt, err)
	}
}

// pause waits before the next attempt: full jitter below a bound that doubles, and
// no less than the engine asked for.
func (b *batcher) pause(ctx context.Context, attempt int, err error) {
	bound := b.cfg.Cap
	if shift := attempt - 1; shift < 30 && b.cfg.Base<<shift < b.cfg.Cap {
		bound = b.cfg.Base << shift
	}
	wait := time.Duration(b.uniform(int64(bound)) + 1)
	if asked, ok := errors.AsType[waitError](err); ok {
		wait = max(wait, min(time.Duration(asked), b.cfg.Cap))
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// waitError is how long the engine wants to be left alone.
type waitError time.Duration

func (r waitError) Error() string { return "asked to wait " + time.Duration(r).String() }

// close sends what waits, and returns when that has ended or ctx has.
func (b *batcher) close(ctx context.Context) error {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.hurry)
	}
	b.mu.Unlock()
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return sdk.Unavailable("undelivered", ctx.Err())
	}
}
