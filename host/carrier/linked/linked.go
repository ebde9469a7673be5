// Package linked carries calls to a plugin that is part of this program. The
// same encoded messages travel as to a Wasm module or a process, so that a
// plugin behaves alike wherever it runs.
//
// Nothing isolates such a plugin. A panic costs its call only; a call that
// hangs is given up at its deadline and keeps its instance; what exits, runs
// out of memory or races takes the program with it.
package linked

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/guest"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// Callee answers numbered calls, one at a time: a [guest.Dispatcher].
type Callee interface {
	Call(ctx context.Context, method wirev1.Method, request []byte) ([]byte, wirev1.Status)
}

// Config says what to call and what it may ask. Zero fields take the defaults
// that their comments name.
type Config struct {
	// Name names the plugin in errors, logs and faults. Required.
	Name string
	// New builds one instance of the plugin on what the host grants. Required.
	New func(host capability.Host) Callee
	// Granted are the capabilities that the plugin gets.
	Granted []capability.Name
	// Host acts for the plugin.
	Host carrier.Host
	// Setup are calls that every new instance answers before its first call.
	Setup []carrier.SetupCall
	// Asks bound what one call asks of the host.
	Asks carrier.AskLimits
	// MaxInstances is how many calls may run at once; others wait. Default 2.
	MaxInstances int
	// CallTimeout bounds a call whose context has no earlier deadline.
	// Default 2 minutes.
	CallTimeout time.Duration
	// Logger gets what happens to instances. Default: discarded.
	Logger *slog.Logger
}

// Plugin is one plugin of this program. It is safe for concurrent use.
type Plugin struct {
	cfg  Config
	asks *carrier.Asks

	tokens  chan struct{}
	closing chan struct{}
	// killed ends the contexts of all running calls.
	killed context.Context
	kill   context.CancelCauseFunc

	mu     sync.Mutex
	idle   []*instance
	closed bool
}

var _ carrier.Caller = (*Plugin)(nil)

// instance is one built plugin. It serves one call at a time.
type instance struct {
	callee Callee
	ready  bool
	// ctx and asked are of the running call, for the capabilities that have
	// no context of their own.
	mu    sync.Mutex
	ctx   context.Context
	asked *carrier.Asked
}

// Open checks cfg. The plugin's code runs at the first call.
func Open(cfg Config) (*Plugin, error) {
	if cfg.Name == "" || cfg.New == nil {
		return nil, errors.New("open plugin: name and constructor are required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Logger = cfg.Logger.With("plugin", cfg.Name)
	if cfg.MaxInstances <= 0 {
		cfg.MaxInstances = 2
	}
	if cfg.CallTimeout <= 0 {
		cfg.CallTimeout = 2 * time.Minute
	}
	asks, err := carrier.NewAsks(cfg.Host, cfg.Granted, cfg.Asks, cfg.Logger)
	if err != nil {
		return nil, fmt.Errorf("open plugin %s: %w", cfg.Name, err)
	}
	p := &Plugin{cfg: cfg, asks: asks, tokens: make(chan struct{}, cfg.MaxInstances), closing: make(chan struct{})}
	p.killed, p.kill = context.WithCancelCause(context.Background())
	return p, nil
}

// result is how one call ended.
type result struct {
	answer []byte
	err    error
}

// Call implements [carrier.Caller].
func (p *Plugin) Call(ctx context.Context, method uint32, request []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.CallTimeout)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(p.killed, func() { stop(errClosed) })()
	if ctx.Err() != nil {
		return nil, p.ended(ctx)
	}
	select {
	case <-p.closing:
		return nil, p.fault(carrier.KindClosed, errClosed)
	default:
	}
	select {
	case p.tokens <- struct{}{}:
	case <-p.closing:
		return nil, p.fault(carrier.KindClosed, errClosed)
	case <-ctx.Done():
		return nil, p.ended(ctx)
	}
	// The goroutine holds the token, so that a call which outlives its
	// deadline goes on counting against the instances.
	done := make(chan result, 1)
	var entered atomic.Bool
	go func() {
		defer func() { <-p.tokens }()
		in := p.take()
		r := p.run(ctx, in, &entered, carrier.SetupCall{Method: method, Request: request})
		if fault, broke := errors.AsType[*carrier.Fault](r.err); broke {
			p.cfg.Logger.WarnContext(ctx, "plugin instance thrown away", "kind", string(fault.Kind))
		} else {
			p.giveBack(in)
		}
		done <- r
	}()
	select {
	case r := <-done:
		return r.answer, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done: // both at once: the answer counts
		return r.answer, r.err
	default:
	}
	f := p.ended(ctx)
	f.Entered = entered.Load()
	return nil, f
}

var errClosed = errors.New("the plugin is closed")

func (p *Plugin) fault(kind carrier.Kind, err error) *carrier.Fault {
	return &carrier.Fault{Kind: kind, Plugin: p.cfg.Name, Detail: err.Error(), Err: err}
}

// ended is the fault of a call whose context is done.
func (p *Plugin) ended(ctx context.Context) *carrier.Fault {
	cause := context.Cause(ctx)
	if errors.Is(cause, errClosed) {
		return p.fault(carrier.KindClosed, cause)
	}
	return p.fault(carrier.KindDeadline, cause)
}

func (p *Plugin) take() *instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		in := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return in
	}
	return &instance{}
}

func (p *Plugin) giveBack(in *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, in)
}

// run builds and sets up the instance if it is new, and performs the call.
func (p *Plugin) run(ctx context.Context, in *instance, entered *atomic.Bool, call carrier.SetupCall) (r result) {
	defer func() {
		if v := recover(); v != nil {
			p.cfg.Logger.ErrorContext(ctx, "plugin panicked", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			f := p.fault(carrier.KindTrap, fmt.Errorf("panic: %.1000s", fmt.Sprint(v)))
			f.Entered = entered.Load()
			r = result{err: f}
		}
	}()
	in.begin(ctx)
	defer in.end()
	if !in.ready {
		in.callee = p.cfg.New(guest.HostOver(p.ask(in), p.cfg.Granted...))
		for _, s := range p.cfg.Setup {
			if r := p.enter(ctx, in, s); r.err != nil {
				return r
			}
		}
		in.ready = true
	}
	entered.Store(true)
	return p.enter(ctx, in, call)
}

func (p *Plugin) enter(ctx context.Context, in *instance, call carrier.SetupCall) result {
	answer, status := in.callee.Call(ctx, wirev1.Method(call.Method), call.Request)
	switch status {
	case wirev1.StatusAnswer:
		return result{answer: answer}
	case wirev1.StatusError:
		return result{err: &carrier.PluginError{Payload: answer}}
	default:
		f := p.fault(carrier.KindProtocol, fmt.Errorf("the call returned the unknown status %d", status))
		f.Entered = true
		return result{err: f}
	}
}

func (in *instance) begin(ctx context.Context) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ctx, in.asked = ctx, &carrier.Asked{}
}

func (in *instance) end() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ctx, in.asked = nil, nil
}

// ask is the host of one instance. The call's context counts, whatever the
// plugin passes: it carries the deadline and what the host's handlers look for.
func (p *Plugin) ask(in *instance) guest.Ask {
	return func(_ context.Context, name capability.Name, payload []byte) ([]byte, bool, error) {
		in.mu.Lock()
		ctx, asked := in.ctx, in.asked
		in.mu.Unlock()
		if ctx == nil {
			return nil, true, errors.New("no call is running")
		}
		answer, err := p.asks.Answer(ctx, asked, name, payload)
		return answer, errors.Is(err, carrier.ErrRefused), err
	}
}

// Close implements [carrier.Caller]. A call that ignores its context cannot be
// ended: when ctx is done, its caller gets a fault and Close leaves it behind.
func (p *Plugin) Close(ctx context.Context) error {
	p.mu.Lock()
	again := p.closed
	p.closed = true
	p.mu.Unlock()
	if again {
		return nil
	}
	close(p.closing)
	defer p.kill(errClosed)
	for held := range cap(p.tokens) {
		select {
		case p.tokens <- struct{}{}:
			continue
		case <-ctx.Done():
		}
		p.cfg.Logger.WarnContext(ctx, "plugin calls left behind", "calls", cap(p.tokens)-held)
		return nil
	}
	return nil
}
