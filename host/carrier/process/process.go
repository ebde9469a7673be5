package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fencepost/fencepost/host/carrier"
)

// Process is one plugin and its processes. It is safe for concurrent use. The
// zero value is not usable; see [Open].
type Process struct {
	cfg     Config
	asks    *carrier.Asks
	lines   *lineLog
	sockets *sockets
	uid     uint32
	plain   plainly

	isolation atomic.Pointer[Isolation]
	stats     counters

	tokens  chan struct{}
	closing chan struct{}
	// killed ends all running calls.
	killed context.Context
	kill   context.CancelCauseFunc

	mu     sync.Mutex
	idle   []*child
	alive  map[*child]struct{} // idle or not
	closed bool
}

var _ carrier.Caller = (*Process)(nil)

// Open prepares to run a plugin. Nothing of it runs yet: processes are started
// when calls need them.
func Open(cfg Config) (*Process, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("open plugin: %w", err)
	}
	p := &Process{
		cfg: cfg, lines: newLineLog(cfg.Logger, cfg.Host.Now), uid: uint32(max(os.Geteuid(), 0)),
		tokens: make(chan struct{}, cfg.Limits.MaxInstances), closing: make(chan struct{}), alive: map[*child]struct{}{},
	}
	if p.uid == 0 && !cfg.Sandbox.Files {
		p.uid = nobody
	}
	if p.asks, err = carrier.NewAsks(cfg.Host, cfg.Granted, cfg.Limits.Asks, cfg.Logger); err != nil {
		return nil, fmt.Errorf("open plugin %s: %w", cfg.Name, err)
	}
	if p.sockets, err = newSockets(); err != nil {
		return nil, fmt.Errorf("open plugin %s: %w", cfg.Name, err)
	}
	p.killed, p.kill = context.WithCancelCause(context.Background())
	return p, nil
}

// Isolation is that of the last process that was started, and nothing before
// the first.
func (p *Process) Isolation() Isolation {
	if i := p.isolation.Load(); i != nil {
		return *i
	}
	return Isolation{}
}

var errClosed = errors.New("the plugin is closed")

// Call implements [carrier.Caller].
func (p *Process) Call(ctx context.Context, method uint32, request []byte) ([]byte, error) {
	if most := p.cfg.Limits.MaxRequest; len(request) > most {
		return nil, p.notEntered(carrier.KindRefused, fmt.Errorf("the request has %d bytes, more than %d", len(request), most))
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Limits.CallTimeout)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(p.killed, func() { stop(errClosed) })()
	if err := p.acquire(ctx); err != nil {
		return nil, err
	}
	c, fault := p.child(ctx)
	if fault != nil {
		return nil, p.count(fault) // the token is released or with the start
	}
	answer, err := p.perform(ctx, c, carrier.SetupCall{Method: method, Request: request})
	return answer, p.count(err)
}

func (p *Process) notEntered(kind carrier.Kind, err error) *carrier.Fault {
	return &carrier.Fault{Kind: kind, Plugin: p.cfg.Name, Detail: clip(err.Error()), Err: err}
}

// ended is the fault of a call whose context is done.
func (p *Process) ended(ctx context.Context) *carrier.Fault {
	cause := context.Cause(ctx)
	if errors.Is(cause, errClosed) {
		return p.notEntered(carrier.KindClosed, cause)
	}
	return p.notEntered(carrier.KindDeadline, cause)
}

// acquire waits for the right to use one process.
func (p *Process) acquire(ctx context.Context) error {
	if ctx.Err() != nil {
		return p.ended(ctx)
	}
	select {
	case p.tokens <- struct{}{}:
	case <-p.closing:
		return p.notEntered(carrier.KindClosed, errClosed)
	case <-ctx.Done():
		return p.ended(ctx)
	}
	select {
	case <-p.closing:
		<-p.tokens
		return p.notEntered(carrier.KindClosed, errClosed)
	default:
		return nil
	}
}

// child returns a process that is set up, started if there is none. A caller
// whose context ends first goes on; the start goes on too, and keeps the token
// until it is done.
func (p *Process) child(ctx context.Context) (*child, *carrier.Fault) {
	for {
		c := p.take()
		if c == nil {
			break
		}
		if !c.gone() {
			return c, nil
		}
		p.cfg.Logger.WarnContext(ctx, "plugin process ended while nothing ran in it", "state", c.runner.state.String())
		p.drop(c)
	}
	done, gaveUp := make(chan started), make(chan struct{})
	go func() {
		c, fault := p.startChild()
		if c != nil {
			p.stats.started.Add(1)
			p.stats.running.Add(1)
		}
		select {
		case done <- started{c, fault}:
		case <-gaveUp:
			if fault != nil {
				p.cfg.Logger.WarnContext(ctx, "plugin process not started", "fault", fault.Error())
				<-p.tokens
				return
			}
			p.giveBack(c)
		}
	}()
	select {
	case s := <-done:
		if s.fault != nil {
			<-p.tokens
		}
		return s.child, s.fault
	case <-ctx.Done():
		close(gaveUp)
		return nil, p.ended(ctx)
	}
}

type started struct {
	child *child
	fault *carrier.Fault
}

// perform sets the process up if it is new, and makes the call. The process is
// used again only if it answered.
func (p *Process) perform(ctx context.Context, c *child, call carrier.SetupCall) ([]byte, error) {
	if !c.ready {
		if err := p.setUp(ctx, c); err != nil {
			return nil, err
		}
	}
	p.stats.calls.Add(1)
	answer, entered, err := c.call(ctx, call)
	if err = p.settle(ctx, c, err, entered); err != nil {
		return nil, err
	}
	if most := p.cfg.Limits.HighWater; most > 0 && c.memory() > uint64(most) {
		// What a process has taken it seldom gives back.
		p.stats.recycled.Add(1)
		p.drop(c)
		<-p.tokens
		return answer, nil
	}
	p.giveBack(c)
	return answer, nil
}

// setUp answers for the process if it fails: nothing of the call was seen.
func (p *Process) setUp(ctx context.Context, c *child) error {
	limited, cancel := context.WithTimeout(ctx, p.cfg.Limits.StartTimeout)
	defer cancel()
	for _, s := range p.cfg.Setup {
		_, _, err := c.call(limited, s)
		if err != nil && late(limited, err) && ctx.Err() == nil {
			// The plugin's own time is up, not the caller's: it is to blame.
			err = protocolError{"it did not finish its setup within " + p.cfg.Limits.StartTimeout.String()}
		}
		if err = p.settle(ctx, c, err, false); err != nil {
			if fault, ok := errors.AsType[*carrier.Fault](err); ok {
				fault.Detail = "set up a new process: " + fault.Detail
			}
			return err
		}
	}
	c.ready = true
	return nil
}

// settle turns the end of a call into what Call returns. The process goes back
// if it answered, if only with an Error message, and ends if it did not.
func (p *Process) settle(ctx context.Context, c *child, err error, entered bool) error {
	if err == nil {
		return nil
	}
	if answered, ok := errors.AsType[*carrier.PluginError](err); ok {
		p.giveBack(c)
		return answered
	}
	if inside, ok := errors.AsType[*carrier.Fault](err); ok {
		p.giveBack(c)
		return inside
	}
	var f *carrier.Fault
	if late(ctx, err) {
		f = p.ended(ctx)
		f.Entered = entered
		if said := c.runner.stderr.excerpt(maxExcerpt); said != "" {
			f.Detail += "; on stderr: " + said
		}
	} else {
		f = c.broke(err, entered)
	}
	p.cfg.Logger.WarnContext(ctx, "plugin process ended", "kind", string(f.Kind))
	p.drop(c)
	<-p.tokens
	return f
}

// late reports whether the deadline ended the call. The other side of the
// connection knows the deadline too and may be a moment ahead of our own clock.
func late(ctx context.Context, err error) bool {
	deadline, ok := ctx.Deadline()
	if ok && status.Code(err) == codes.DeadlineExceeded && time.Until(deadline) < time.Second { //nolint:forbidigo // what is left of a deadline, on the clock that contexts use
		<-ctx.Done()
	}
	return ctx.Err() != nil
}

func (p *Process) take() *child {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return nil
	}
	c := p.idle[n-1]
	p.idle = p.idle[:n-1]
	return c
}

func (p *Process) giveBack(c *child) {
	p.mu.Lock()
	p.idle = append(p.idle, c)
	p.mu.Unlock()
	<-p.tokens
}

func (p *Process) drop(c *child) {
	c.end()
	p.stats.running.Add(-1)
}

// Close implements [carrier.Caller].
func (p *Process) Close(ctx context.Context) error {
	p.mu.Lock()
	again := p.closed
	p.closed = true
	p.mu.Unlock()
	if again {
		return nil
	}
	close(p.closing)
	for held := 0; held < cap(p.tokens); {
		select {
		case p.tokens <- struct{}{}:
			held++
		case <-ctx.Done():
			p.kill(errClosed) // and every process with it
			ctx = context.WithoutCancel(ctx)
		}
	}
	p.kill(errClosed)
	for c := p.take(); c != nil; c = p.take() {
		p.drop(c)
	}
	if err := p.sockets.close(); err != nil {
		return fmt.Errorf("close plugin %s: %w", p.cfg.Name, err)
	}
	return nil
}

// Stats are counts since Open, and gauges of now.
type Stats struct {
	// Calls reached a process; Faults are calls and starts that broke off.
	Calls, Faults uint64
	// Started counts processes, Recycled those of them that were replaced for
	// their memory.
	Started, Recycled uint64
	// LinesDropped counts lines of the plugin that a limit kept from the log.
	LinesDropped uint64
	// Running are the processes of now.
	Running int
}

type counters struct {
	calls, faults, started, recycled atomic.Uint64
	running                          atomic.Int64
}

// Usage implements [carrier.Measured].
func (p *Process) Usage() carrier.Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	var u carrier.Usage
	for c := range p.alive {
		u.Instances++
		u.MemoryBytes += c.memory()
	}
	return u
}

// born and died keep the list of processes that exist.
func (p *Process) born(c *child) { p.mu.Lock(); defer p.mu.Unlock(); p.alive[c] = struct{}{} }
func (p *Process) died(c *child) { p.mu.Lock(); defer p.mu.Unlock(); delete(p.alive, c) }

func (p *Process) count(err error) error {
	if _, broke := errors.AsType[*carrier.Fault](err); broke {
		p.stats.faults.Add(1)
	}
	return err
}

// Stats returns the counters. They are not one snapshot.
func (p *Process) Stats() Stats {
	return Stats{
		Calls: p.stats.calls.Load(), Faults: p.stats.faults.Load(), Started: p.stats.started.Load(), Recycled: p.stats.recycled.Load(),
		LinesDropped: p.lines.dropped.Load(), Running: int(p.stats.running.Load()),
	}
}
