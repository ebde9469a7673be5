package process

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/plugins/sdk/guest/subprocess"
)

// Shared is a plugin in one process that answers calls side by side: one whose
// state, such as an open store, is worth more than what one call may break. It
// is safe for concurrent use. The zero value is not usable; see [OpenShared].
//
// A call that is given up, or whose deadline passes, is over for its caller at
// once. The plugin is told the deadline and has a grace to end the call; only
// then is the process killed, with all that runs in it.
type Shared struct {
	process *Process
	grace   time.Duration

	mu  sync.Mutex
	now *shared
	// failed counts starts that led to no answer, one after another.
	failed int
}

var _ carrier.Caller = (*Shared)(nil)

// shared is a process that is being started, or runs.
type shared struct {
	started chan struct{} // closed when child or fault is set
	child   *child
	fault   *carrier.Fault
}

// DefaultGrace is how long after its deadline a call may still end.
const DefaultGrace = 10 * time.Second

// OpenShared prepares to run a plugin. Limits.MaxInstances is how many calls may
// run at once, 64 by default, and there is one process for all of them, started
// when a call needs it. A grace of zero is [DefaultGrace].
func OpenShared(cfg Config, grace time.Duration) (*Shared, error) {
	orDefault(&cfg.Limits.MaxInstances, 64)
	orDefault(&grace, DefaultGrace)
	p, err := Open(cfg)
	if err != nil {
		return nil, err
	}
	return &Shared{process: p, grace: grace}, nil
}

// Isolation and Stats are those of the process; see [Process].
func (s *Shared) Isolation() Isolation { return s.process.Isolation() }

// Stats returns the counters. They are not one snapshot.
func (s *Shared) Stats() Stats { return s.process.Stats() }

// Usage implements [carrier.Measured].
func (s *Shared) Usage() carrier.Usage { return s.process.Usage() }

// Call implements [carrier.Caller].
func (s *Shared) Call(ctx context.Context, method uint32, request []byte) ([]byte, error) {
	p := s.process
	if most := p.cfg.Limits.MaxRequest; len(request) > most {
		return nil, p.notEntered(carrier.KindRefused, fmt.Errorf("the request has %d bytes, more than %d", len(request), most))
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Limits.CallTimeout)
	defer cancel()
	if err := p.acquire(ctx); err != nil {
		return nil, err
	}
	r, fault := s.running(ctx)
	if fault != nil {
		<-p.tokens
		return nil, p.count(fault)
	}
	deadline, _ := ctx.Deadline()
	done := make(chan result, 1)
	go func() { // goes on when the caller is gone, and holds the token until the plugin has ended the call
		answer, err := s.perform(context.WithoutCancel(ctx), r, deadline, carrier.SetupCall{Method: method, Request: request})
		<-p.tokens
		done <- result{answer, err}
	}()
	select {
	case res := <-done:
		return res.answer, p.count(res.err)
	case <-ctx.Done():
		f := p.ended(ctx)
		f.Entered = true
		return nil, p.count(f)
	}
}

type result struct {
	answer []byte
	err    error
}

// running returns the process, started if there is none. A caller whose context
// ends first goes on, and so does the start.
func (s *Shared) running(ctx context.Context) (*shared, *carrier.Fault) {
	s.mu.Lock()
	r := s.now
	if r == nil || r.gone() {
		if r != nil {
			s.process.cfg.Logger.WarnContext(ctx, "plugin process ended while nothing ran in it")
			s.process.drop(r.child)
		}
		r = &shared{started: make(chan struct{})}
		s.now = r
		go s.start(r)
	}
	s.mu.Unlock()
	select {
	case <-r.started:
		return r, r.fault
	case <-ctx.Done():
		return nil, s.process.ended(ctx)
	}
}

func (r *shared) gone() bool {
	select {
	case <-r.started:
		return r.child != nil && r.child.gone()
	default:
		return false
	}
}

// start starts a process and makes the setup calls.
func (s *Shared) start(r *shared) {
	p := s.process
	defer close(r.started)
	s.wait()
	r.child, r.fault = p.startChild()
	if r.fault == nil {
		p.stats.started.Add(1)
		p.stats.running.Add(1)
		r.fault = s.setUp(r.child)
	}
	if r.fault != nil {
		s.mu.Lock()
		s.now = nil
		s.mu.Unlock()
	}
}

// Waits before a start that follows failures: doubled with each one.
const (
	firstWait = 100 * time.Millisecond
	longest   = 10 * time.Second
)

// wait keeps a plugin that breaks off again and again from being started as
// often as it is called.
func (s *Shared) wait() {
	s.mu.Lock()
	failed := s.failed
	s.failed++ // until a call is answered
	s.mu.Unlock()
	if failed == 0 {
		return
	}
	pause := time.NewTimer(min(firstWait<<min(failed-1, 10), longest))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-s.process.killed.Done():
	}
}

func (s *Shared) answered() {
	s.mu.Lock()
	s.failed = 0
	s.mu.Unlock()
}

func (s *Shared) setUp(c *child) *carrier.Fault {
	ctx, cancel := context.WithTimeout(s.process.killed, s.process.cfg.Limits.StartTimeout)
	defer cancel()
	for _, call := range s.process.cfg.Setup {
		if _, _, err := c.call(ctx, call); err != nil {
			f := c.broke(err, false)
			f.Detail = "set up a new process: " + f.Detail
			s.process.stats.running.Add(-1)
			return f
		}
	}
	return nil
}

// perform makes one call, and ends the process if it is not answered in time.
// ctx has the values of the caller's, which the host's handlers look for, and
// ends with the process.
func (s *Shared) perform(ctx context.Context, r *shared, deadline time.Time, call carrier.SetupCall) ([]byte, error) {
	left := time.Until(deadline) //nolint:forbidigo // contexts go by this clock
	ctx, cancel := context.WithTimeout(ctx, left+s.grace)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(s.process.killed, func() { stop(context.Cause(s.process.killed)) })()
	told := metadata.AppendToOutgoingContext(ctx, subprocess.Timeout, strconv.FormatInt(max(left.Microseconds(), 1), 10))
	s.process.stats.calls.Add(1)
	answer, entered, err := r.child.call(told, call)
	if err == nil {
		s.answered()
		return answer, nil
	}
	if answered, ok := errors.AsType[*carrier.PluginError](err); ok {
		s.answered()
		return nil, answered
	}
	if inside, ok := errors.AsType[*carrier.Fault](err); ok {
		return nil, inside
	}
	return nil, s.broken(ctx, r, err, entered)
}

// broken ends the process in which a call broke off, and says why it did. Every
// other call in it comes here, too.
func (s *Shared) broken(ctx context.Context, r *shared, err error, entered bool) *carrier.Fault {
	s.mu.Lock()
	first := s.now == r
	if first {
		s.now = nil
	}
	s.mu.Unlock()
	var f *carrier.Fault
	if late(ctx, err) {
		f = s.process.ended(ctx)
		f.Entered = entered
		r.child.end()
	} else {
		f = r.child.broke(err, entered)
	}
	if first {
		s.process.stats.running.Add(-1)
		s.process.cfg.Logger.WarnContext(ctx, "plugin process ended", "kind", string(f.Kind))
	}
	return f
}

// Close implements [carrier.Caller].
func (s *Shared) Close(ctx context.Context) error {
	err := s.process.Close(ctx)
	s.mu.Lock()
	r := s.now
	s.now = nil
	s.mu.Unlock()
	if r != nil {
		<-r.started // it is killed by now, or was, and ends
		if r.fault == nil {
			s.process.drop(r.child)
		}
	}
	return err
}
