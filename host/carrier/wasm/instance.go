package wasm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/sys"

	"github.com/fencepost/fencepost/host/carrier"
)

// instance is one instantiated module with what the host functions need of the
// running call. It serves one call at a time; the pool sees to that.
type instance struct {
	cfg    *Config
	lines  *lineLog
	stderr *capture
	mod    api.Module
	call   api.Function
	// linear is the memory of mod, nil if it has none. wazero frees it with the
	// instance, but not one that it closes because a context ended.
	linear experimental.LinearMemory

	// Of the running call.
	ctx      context.Context
	entered  bool
	request  []byte
	output   []byte
	answers  []byte
	sends    int
	logLines int
	// depth counts the watched functions on the stack.
	depth int

	// ready is set once the setup calls have been answered.
	ready bool
	// calls and memory are as of the last return to the pool.
	calls  int
	memory uint64
}

type instanceKey struct{}

// instanceOf returns the instance whose call ctx belongs to, or nil.
func instanceOf(ctx context.Context) *instance {
	in, _ := ctx.Value(instanceKey{}).(*instance)
	return in
}

// context is that of the running call, for the parts of WASI that get none.
func (in *instance) context() context.Context { return in.ctx }

// newInstance instantiates the module and runs its _initialize under ctx.
func (m *Module) newInstance(ctx context.Context) (*instance, *carrier.Fault) {
	in := &instance{cfg: &m.cfg, lines: m.lines}
	in.stderr = &capture{in: in, stream: "stderr", log: m.lines}
	stdout := &capture{in: in, stream: "stdout", log: m.lines}
	in.begin(ctx, nil)
	start := m.cfg.Host.Now()
	config := wazero.NewModuleConfig().WithName("").
		WithStartFunctions("_initialize").
		WithStdout(stdout).WithStderr(in.stderr).
		WithRandSource(in).
		WithWalltime(func() (int64, int32) {
			now := m.cfg.Host.Now()
			return now.Unix(), int32(now.Nanosecond())
		}, sys.ClockResolution(time.Microsecond)).
		WithNanotime(func() int64 { return int64(m.cfg.Host.Now().Sub(start)) + 1 }, sys.ClockResolution(time.Microsecond)).
		WithNanosleep(in.sleep)
	ctx = experimental.WithMemoryAllocator(in.ctx, experimental.MemoryAllocatorFunc(func(initial, most uint64) experimental.LinearMemory {
		in.linear = m.memories.Allocate(initial, most)
		return in.linear
	}))
	mod, err := m.runtime.InstantiateModule(ctx, m.compiled, config)
	if err == nil && mod.IsClosed() {
		// wazero takes an exit with code zero in _initialize for success.
		err = sys.NewExitError(0)
	}
	if err != nil {
		f := in.fault(err)
		f.Detail = "start an instance: " + f.Detail
		in.mod = mod
		in.close()
		return nil, f
	}
	in.mod, in.call = mod, mod.ExportedFunction("fp_call")
	in.memory = uint64(mod.Memory().Size())
	m.stats.created.Add(1)
	return in, nil
}

// close frees an instance that no call uses.
func (in *instance) close() {
	if in.mod != nil {
		_ = in.mod.Close(context.Background())
	}
	if in.linear != nil {
		in.linear.Free()
	}
}

// begin prepares for a call.
func (in *instance) begin(ctx context.Context, request []byte) {
	in.ctx = context.WithValue(ctx, instanceKey{}, in)
	in.request, in.output, in.answers = request, nil, nil
	in.sends, in.logLines, in.depth = 0, 0, 0
}

// end drops what belonged to the call.
func (in *instance) end() {
	in.ctx, in.entered = context.Background(), false
	in.request, in.output, in.answers = nil, nil, nil
}

// run performs a call, after the setup calls if the instance is new. The
// instance may be used again only if the fault is nil and the context is not
// done.
func (in *instance) run(ctx context.Context, method uint32, request []byte) ([]byte, error) {
	if !in.ready {
		for _, s := range in.cfg.Setup {
			if _, err := in.enter(ctx, s.Method, s.Request); err != nil {
				if fault, ok := errors.AsType[*carrier.Fault](err); ok {
					fault.Entered = false // the call itself was not reached
					fault.Detail = "set up a new instance: " + fault.Detail
				}
				return nil, err
			}
		}
		in.ready = true
	}
	return in.enter(ctx, method, request)
}

// enter runs the guest's fp_call once.
func (in *instance) enter(ctx context.Context, method uint32, request []byte) ([]byte, error) {
	in.begin(ctx, request)
	defer in.end()
	in.entered = true
	results, err := in.call.Call(in.ctx, uint64(method), uint64(uint32(len(request))))
	in.calls++
	if err != nil {
		return nil, in.fault(err)
	}
	switch status := uint32(results[0]); status {
	case 0:
		return in.output, nil
	case 1:
		return nil, &carrier.PluginError{Payload: in.output}
	default:
		return nil, in.fault(&abort{carrier.KindProtocol, fmt.Sprintf("fp_call returned the unknown status %d", int32(status))})
	}
}

const (
	maxDetail  = 1 << 10
	maxExcerpt = 1 << 10
)

// fault classifies what broke off the guest.
func (in *instance) fault(err error) *carrier.Fault {
	f := &carrier.Fault{Kind: carrier.KindTrap, Plugin: in.cfg.Name, Entered: in.entered, Err: err}
	var ours *abort
	var exit *sys.ExitError
	switch {
	case errors.As(err, &ours) && ours.kind == carrier.KindProtocol:
		f.Kind, f.Detail = ours.kind, ours.text
	case in.ctx.Err() != nil:
		// Whatever broke off, it was too late anyway.
		f.Kind, f.Err = carrier.KindDeadline, context.Cause(in.ctx)
		f.Detail = f.Err.Error()
	case ours != nil:
		f.Kind, f.Detail = ours.kind, ours.text
	case errors.As(err, &exit):
		f.Kind, f.Detail = carrier.KindExit, fmt.Sprintf("exit code %d", exit.ExitCode())
	default:
		f.Detail = clipTo(err.Error(), maxDetail)
	}
	if (f.Kind == carrier.KindTrap || f.Kind == carrier.KindExit) && in.outOfMemory() {
		f.Kind = carrier.KindMemory
	}
	if said := in.stderr.excerpt(maxExcerpt); said != "" {
		f.Detail += "; on stderr: " + said
	}
	return f
}

// outOfMemory tells a guest that broke off at its memory limit from others. It
// is a guess for people: nothing but the name of the fault depends on it.
func (in *instance) outOfMemory() bool {
	if bytes.Contains(in.stderr.ring, []byte("out of memory")) {
		return true
	}
	return in.mod != nil && uint64(in.mod.Memory().Size()) >= uint64(in.cfg.Limits.MemoryPages)<<16
}

// Read gives random bytes to WASI and to the random capability.
func (in *instance) Read(p []byte) (int, error) {
	if err := in.context().Err(); err != nil {
		return 0, err
	}
	n, err := in.cfg.Host.Random.Read(p[:min(len(p), 64<<10)])
	if n == 0 && err == nil && len(p) > 0 {
		err = errNoRandom
	}
	return n, err
}

// sleep blocks the guest and with it the call, until the call's context is
// done: a guest sleeps in its own time.
func (in *instance) sleep(ns int64) {
	if ns <= 0 {
		return
	}
	timer := time.NewTimer(time.Duration(ns))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-in.context().Done():
	}
}
