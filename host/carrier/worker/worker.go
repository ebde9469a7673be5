// Package worker carries calls to a WebAssembly module in a child of this
// program, which can be killed: no module keeps the host from collecting its
// garbage, takes its memory, or outlives its deadline by more than it takes to
// kill a process.
//
// The child is this program again, started with arguments at which it calls
// [Serve]. It gets the bytes that the host verified, and asks the host for what
// the module asks; it holds no secret and, once the module is loaded, can open
// neither file nor socket.
package worker

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/host/carrier/process"
	"github.com/fencepost/fencepost/host/carrier/wasm"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
)

// Config says what to load and what it may do. Zero fields take the defaults
// that their comments name.
type Config struct {
	// Name and Version name the plugin in errors, logs and faults. Name is
	// required.
	Name, Version string
	// Image is this program, and Args what makes it a worker. Required.
	Image *process.Image
	Args  []string
	// Module is the WebAssembly binary, checked as [wasm.Config.Module] is.
	Module []byte
	// Declared, Granted and InertFiles are those of [wasm.Config].
	Declared, Granted []capability.Name
	InertFiles        bool
	// Host acts for the plugin. Its clock and randomness are the child's own.
	Host carrier.Host
	// Setup are calls that every new instance answers before its first call.
	Setup []carrier.SetupCall
	// Limits of the module. MaxInstances is the number of children.
	Limits wasm.Limits
	// Memory is what a child may have for data, in bytes. Default 2 GiB;
	// negative: no limit.
	Memory int64
	// CacheDir holds compiled code, as [wasm.Config.CacheDir] does.
	CacheDir string
	// Started is told of every child that was started.
	Started func()
	// Logger gets what happens to children and what they write. Default:
	// discarded.
	Logger *slog.Logger
}

// loadTimeout bounds a start. A large module compiles for seconds where there is
// no cache, and for minutes on a machine that does much else; no code of the
// module runs meanwhile.
const loadTimeout = 5 * time.Minute

// Open prepares to run a module. Children are started when calls need them; a
// module that is refused makes the first call end with the Error message of
// [wasm.Open].
func Open(cfg Config) (*process.Process, error) {
	load := loading{
		Name: cfg.Name, Version: cfg.Version, Declared: cfg.Declared, Granted: cfg.Granted,
		InertFiles: cfg.InertFiles, Setup: cfg.Setup, Limits: cfg.Limits, CacheDir: cfg.CacheDir,
	}
	load.Limits.MaxInstances = 1
	message, err := load.encode(cfg.Module)
	if err != nil {
		return nil, fmt.Errorf("open plugin %s: %w", cfg.Name, err)
	}
	return process.Open(process.Config{
		Name: cfg.Name, Version: cfg.Version, Image: cfg.Image, Args: cfg.Args,
		Granted: cfg.Granted, Host: cfg.Host,
		Setup: []carrier.SetupCall{{Method: methodLoad, Request: message}},
		// It writes compiled code before it gives that up.
		Sandbox: process.Sandbox{Files: true},
		Limits: process.Limits{
			MaxInstances: cfg.Limits.MaxInstances, MaxRequest: cfg.Limits.MaxRequest, MaxOutput: cfg.Limits.MaxOutput,
			Asks: carrier.AskLimits{
				MaxHTTPBatch: cfg.Limits.MaxHTTPBatch, MaxHTTPSends: cfg.Limits.MaxHTTPSends, MaxLogLines: cfg.Limits.MaxLogLines,
			},
			CallTimeout: cfg.Limits.CallTimeout, StartTimeout: loadTimeout, Memory: cfg.Memory,
		},
		Fault: func(payload []byte) *carrier.Fault { return decodeFault(cfg.Name, payload) }, Started: cfg.Started, Logger: cfg.Logger,
	})
}

// methodLoad is no method of a plugin, and means nothing to a child that has
// its module.
const methodLoad = 0xfe000001

// loading is what a child is told of its module, before the bytes of it. Both
// sides are the same program, so no version of it needs to be kept.
type loading struct {
	Name, Version     string
	Declared, Granted []capability.Name
	InertFiles        bool
	Setup             []carrier.SetupCall
	Limits            wasm.Limits
	CacheDir          string
}

func (l loading) encode(module []byte) ([]byte, error) {
	head, err := json.Marshal(l)
	if err != nil || len(head) > math.MaxInt32 {
		return nil, fmt.Errorf("encode what a worker loads: %w", err)
	}
	out := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(head)+len(module)), uint32(len(head)))
	return append(append(out, head...), module...), nil
}

func decodeLoading(b []byte) (l loading, module []byte, err error) {
	if len(b) < 4 || uint64(len(b)) < 4+uint64(binary.LittleEndian.Uint32(b)) {
		return l, nil, errors.New("truncated")
	}
	n := int(binary.LittleEndian.Uint32(b))
	err = json.Unmarshal(b[4:4+n], &l)
	return l, b[4+n:], err
}

// broken is a [carrier.Fault] between child and host.
type broken struct {
	Kind    carrier.Kind
	Detail  string
	Entered bool
}

func encodeFault(f *carrier.Fault) []byte {
	b, _ := json.Marshal(broken{Kind: f.Kind, Detail: f.Detail, Entered: f.Entered}) // strings and a bool: it cannot fail
	return b
}

// maxDetail bounds what a child may say. It is ours, but the module in it may
// have got out.
const maxDetail = 4 << 10

func decodeFault(plugin string, payload []byte) *carrier.Fault {
	var b broken
	if err := json.Unmarshal(payload, &b); err != nil {
		return &carrier.Fault{Kind: carrier.KindProtocol, Plugin: plugin, Detail: "a fault that cannot be read", Entered: true}
	}
	// Only what broke off inside is the child's to tell. If it lies about
	// having been entered, the host's own record of exchanges still decides
	// what was sent: there is no other way out of the child.
	switch b.Kind {
	case carrier.KindTrap, carrier.KindDeadline, carrier.KindProtocol, carrier.KindRefused, carrier.KindMemory, carrier.KindExit:
	default:
		b.Kind = carrier.KindProtocol
	}
	f := &carrier.Fault{Kind: b.Kind, Plugin: plugin, Detail: b.Detail[:min(len(b.Detail), maxDetail)], Entered: b.Entered}
	if b.Kind == carrier.KindDeadline {
		f.Err = errDeadline
	}
	return f
}

var errDeadline = errors.New("the deadline passed in the worker")
