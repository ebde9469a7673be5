package egress

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// job is one request on its way through Send.
type job struct {
	*prepared
	refusal string // of the rules; empty: may be sent
	x       *exchange
	ticket  *ticket
}

// Send performs a batch, see [capability.HTTP]. ctx comes from [Client.Begin]
// if requests cover items.
//
// Requests of one serial key, or of one item, go one after another in the order
// given, also across batches; others at once, up to Concurrency. A request for
// which ctx or the rate leaves no time is not sent. After an answer 429, or 401,
// 403, 404 or 410 that no pattern explains, what the batch has not sent yet is
// not sent.
//
// The class of an answer: 429 is throttled. Patterns come next, on any complete
// answer but 1xx, 408, 429 and 5xx; where a request covers several items, a
// pattern counts only for the item whose identifier the answer names, unless it
// says that nothing of the request was taken. With records, a complete 2xx says
// of each what the pattern of its list says; without, it is success. Everything
// else is indefinite, 401, 403, 404 and 410 included: a proxy may give those
// after it has forwarded the request. They carry Breaker.
//
// The error has tag invalid if the batch is too long; then nothing was sent.
func (c *Client) Send(ctx context.Context, requests []capability.Request) ([]capability.Response, error) {
	if len(requests) > c.cfg.MaxBatch {
		return nil, sdk.Invalid("requests", "at most "+strconv.Itoa(c.cfg.MaxBatch)+" in one batch")
	}
	open := c.enter()
	if open {
		defer c.active.Done()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()

	call, _ := ctx.Value(callKey{c}).(*Call)
	b := &batch{call: call, halted: make(chan struct{})}
	jobs := make([]*job, len(requests))
	var tickets []*ticket
	for i := range requests {
		jobs[i] = c.newJob(call, &requests[i])
		if !open {
			jobs[i].refusal = reasonShutdown
		}
		if jobs[i].refusal == "" {
			tickets = append(tickets, jobs[i].ticket)
		}
	}
	c.keys.enqueue(tickets)

	responses := make([]capability.Response, len(requests))
	var wg sync.WaitGroup
	for i, j := range jobs {
		wg.Go(func() { responses[i] = c.run(ctx, b, j) })
	}
	wg.Wait()
	return responses, nil
}

func (c *Client) newJob(call *Call, req *capability.Request) *job {
	p, refusal := c.prepare(call, req)
	j := &job{prepared: p, refusal: refusal, x: &exchange{items: p.items}}
	var keys []string
	for _, it := range p.items {
		// Both kinds of key share one map, hence the tags. Two requests for one
		// item are one after another whatever its serial key.
		keys = append(keys, "item:"+it.ID)
		if it.SerialKey != "" {
			keys = append(keys, "serial:"+it.SerialKey)
		}
	}
	j.ticket = newTicket(keys)
	return j
}

// run takes one request from the queue to its record.
func (c *Client) run(ctx context.Context, b *batch, j *job) capability.Response {
	a := c.attempt(ctx, b, j)
	a.read = reads(j.method)
	verdicts := make([]exporter.Exchange, max(1, len(j.x.items)))
	for i := range verdicts {
		var it CallItem
		if len(j.x.items) > 0 {
			it = j.x.items[i]
		}
		verdicts[i] = c.classify(a, it, len(j.x.items) <= 1)
	}
	if a.status != 0 && verdicts[0].Class != exporter.ClassSuccess {
		switch {
		case a.status == 429:
			b.halt(reasonThrottled, a.retryAfter)
		case verdicts[0].Breaker && (len(j.x.items) > 0 || a.status != 404):
			// A read may well ask for what does not exist.
			b.halt(reasonBreakerOpen, 0)
		}
	}
	if b.call != nil {
		b.call.finish(j.x, verdicts)
	}
	if j.refusal == "" {
		// Only now: whoever is next must find the halt and the record in place.
		c.keys.leave(j.ticket)
		if a.admitted {
			<-c.slots
		}
	}
	c.record(ctx, j, a, verdicts[0].Class)
	if !b.keeps(&a) {
		// The host has read it and knows; the plugin is told that it does not.
		a.failure, a.reason, a.headers, a.body = capability.FailureUnknown, reasonTooLarge, nil, nil
	}
	return capability.Response{Failure: a.failure, Reason: a.responseReason(), Status: a.status, Headers: a.headers, Body: a.body}
}

// attempt waits for j's turn and sends it, or says why not.
func (c *Client) attempt(ctx context.Context, b *batch, j *job) answer {
	started := c.now()
	notSent := func(reason string) answer {
		return answer{failure: capability.FailureNotSent, reason: reason, started: started, finished: c.now()}
	}
	if j.refusal != "" {
		return notSent(j.refusal)
	}
	if reason := c.waitTurn(ctx, b, j); reason != "" {
		a := notSent(reason)
		if reason == reasonThrottled {
			a.retryAfter = b.retryAfter
		}
		return a
	}
	started = c.now()
	if j.signer != nil {
		j.signer.sign(j.prepared, j.scope, started)
	}
	var a answer
	switch {
	case b.call == nil:
		a = c.exchange(ctx, j.prepared, 0)
	default:
		j.x.started = started
		if b.call.start(j.x) {
			a = c.exchange(ctx, j.prepared, b.call.sendBefore)
		} else {
			a = notSent(reasonCallEnded)
		}
	}
	a.started, a.finished, a.admitted = started, c.now(), true
	return a
}

// now is the host's time as stored: UTC, microseconds.
func (c *Client) now() time.Time { return c.cfg.Now().UTC().Truncate(time.Microsecond) }

// record counts a request and logs it: no path, no query, no body.
func (c *Client) record(ctx context.Context, j *job, a answer, class exporter.HostClass) {
	c.counts.add(func(s *Stats) {
		s.Requests[class]++
		if j.refusal != "" && j.refusal != reasonShutdown {
			s.Refused++
		}
	})
	c.cfg.Observe(class)
	if !c.cfg.Logger.Enabled(ctx, slog.LevelDebug) {
		return
	}
	c.cfg.Logger.LogAttrs(ctx, slog.LevelDebug, "egress request",
		slog.String("plugin", c.cfg.Plugin),
		slog.String("class", string(class)),
		slog.Int("status", a.status),
		slog.String("reason", a.reason),
		slog.String("method", j.method),
		slog.String("host", j.hostPort),
		slog.Int("items", len(j.x.items)),
		slog.Duration("duration", a.finished.Sub(a.started)),
		slog.String("request_id", a.requestID),
	)
}
