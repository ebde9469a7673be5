package wasm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
)

// abort breaks off a guest from inside a host function. The carrier turns it
// into a Fault of its kind.
type abort struct {
	kind carrier.Kind
	text string
}

func (a *abort) Error() string { return a.text }

func trapf(format string, args ...any) *abort {
	return &abort{kind: carrier.KindTrap, text: fmt.Sprintf(format, args...)}
}

// maxLogMessage bounds one line of the log capability.
const maxLogMessage = 4 << 10

// instantiateHost builds the import modules. Only capabilities that are
// declared and granted get one: a module that slipped past the import check
// would not link.
func (c *Config) instantiateHost(ctx context.Context, r wazero.Runtime) error {
	ctx = experimental.WithFunctionListenerFactory(ctx, experimental.FunctionListenerFactoryFunc(watchHost))
	type handler = func(context.Context, []byte) ([]byte, error)
	functions := map[string]map[string]any{
		moduleIO:     {"input_read": inputRead, "output_write": outputWrite},
		moduleHTTP:   {"send": sendWith(func(h *Host) handler { return h.HTTPSend }), "receive": receive},
		moduleAppend: {"send": sendWith(func(h *Host) handler { return h.AppendSend }), "receive": receive},
		moduleSQL:    {"send": sendWith(func(h *Host) handler { return h.SQLDo }), "receive": receive},
		moduleLog:    {"write": logWrite},
		moduleClock:  {"now": clockNow},
		moduleRandom: {"read": randomRead},
	}
	for module, funcs := range functions {
		if name, ok := moduleCapability(module); ok && c.checkCapability(name, module) != nil {
			continue
		}
		b := r.NewHostModuleBuilder(module)
		for name, fn := range funcs {
			b.NewFunctionBuilder().WithFunc(fn).Export(name)
		}
		if _, err := b.Instantiate(ctx); err != nil {
			return fmt.Errorf("build module %s: %w", module, err)
		}
	}
	return instantiateWASI(ctx, r)
}

// instantiateWASI offers wazero's functions of the allow-list and, for every
// other one, a function that answers "not supported".
func instantiateWASI(ctx context.Context, r wazero.Runtime) error {
	all := wasi_snapshot_preview1.NewFunctionExporter()
	probe := r.NewHostModuleBuilder(moduleWASI)
	all.ExportFunctions(probe)
	compiled, err := probe.Compile(ctx)
	if err != nil {
		return fmt.Errorf("build module %s: %w", moduleWASI, err)
	}
	definitions := compiled.ExportedFunctions()
	b := r.NewHostModuleBuilder(moduleWASI)
	all.ExportFunctions(b)
	for name, def := range definitions {
		if !wasiAllowed(name) {
			b.NewFunctionBuilder().WithGoFunction(api.GoFunc(notSupported), def.ParamTypes(), def.ResultTypes()).Export(name)
		}
	}
	if _, err := b.Instantiate(ctx); err != nil {
		return fmt.Errorf("build module %s: %w", moduleWASI, err)
	}
	return nil
}

// notSupported answers ENOSYS of WASI.
func notSupported(_ context.Context, stack []uint64) {
	if len(stack) > 0 {
		stack[0] = 52
	}
}

// read copies guest memory; what lies outside traps.
func read(mod api.Module, ptr, n uint32) []byte {
	view, ok := mod.Memory().Read(ptr, n)
	if !ok {
		panic(trapf("a pointer and length passed to a host function lie outside the memory"))
	}
	return append([]byte(nil), view...)
}

// copyOut copies the first n bytes of b, at most all, to guest memory. The
// whole range must lie in memory even if b is shorter.
func copyOut(mod api.Module, ptr, n uint32, b []byte) uint32 {
	view, ok := mod.Memory().Read(ptr, n)
	if !ok {
		panic(trapf("a pointer and length passed to a host function lie outside the memory"))
	}
	return uint32(copy(view, b))
}

func inputRead(ctx context.Context, mod api.Module, ptr, n uint32) uint32 {
	return copyOut(mod, ptr, n, instanceOf(ctx).request)
}

func outputWrite(ctx context.Context, mod api.Module, ptr, n uint32) {
	in := instanceOf(ctx)
	if most := in.cfg.Limits.MaxOutput; uint64(n) > uint64(most) {
		panic(&abort{carrier.KindProtocol, fmt.Sprintf("the answer has %d bytes, more than %d", n, most)})
	}
	in.output = read(mod, ptr, n)
}

// sendWith is the function by which a guest hands over an encoded batch; the
// answers wait for [receive]. Batches of all capabilities are counted together.
func sendWith(handler func(*Host) func(context.Context, []byte) ([]byte, error)) func(context.Context, api.Module, uint32, uint32) int32 {
	return func(ctx context.Context, mod api.Module, ptr, n uint32) int32 {
		in := instanceOf(ctx)
		in.answers = nil
		if !in.entered || uint64(n) > uint64(in.cfg.Limits.MaxHTTPBatch) || in.sends >= in.cfg.Limits.MaxHTTPSends {
			// Nothing is done: outside of a call, too large, or one too many.
			return -1
		}
		batch := read(mod, ptr, n)
		in.sends++
		answers, err := handler(&in.cfg.Host)(ctx, batch)
		if err != nil {
			return -1
		}
		if len(answers) > math.MaxInt32 {
			panic(trapf("the answers of the host are too large"))
		}
		in.answers = answers
		return int32(len(answers))
	}
}

func receive(ctx context.Context, mod api.Module, ptr, n uint32) uint32 {
	return copyOut(mod, ptr, n, instanceOf(ctx).answers)
}

func logWrite(ctx context.Context, mod api.Module, level int32, ptr, n uint32) {
	in := instanceOf(ctx)
	if in.logLines++; in.logLines > in.cfg.Limits.MaxLogLines {
		in.lines.dropped.Add(1)
		return
	}
	message := read(mod, ptr, min(n, maxLogMessage))
	in.cfg.Host.Log(ctx, capability.Level(level), strings.ToValidUTF8(string(message), "\uFFFD"))
}

func clockNow(ctx context.Context) int64 {
	return instanceOf(ctx).cfg.Host.Now().UnixMicro()
}

// randomRead fills guest memory piece by piece, so that a done context is
// noticed between the pieces.
func randomRead(ctx context.Context, mod api.Module, ptr, n uint32) {
	view, ok := mod.Memory().Read(ptr, n)
	if !ok {
		panic(trapf("a pointer and length passed to a host function lie outside the memory"))
	}
	if _, err := io.ReadFull(instanceOf(ctx), view); err != nil {
		panic(trapf("read random bytes: %v", err))
	}
}

var errNoRandom = errors.New("the random source gave no bytes")
