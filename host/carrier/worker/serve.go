package worker

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/host/carrier/wasm"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/guest/subprocess"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// Serve makes this process a worker until its host ends it. It returns an error
// at once if no host started it.
func Serve() error {
	if !subprocess.Started() {
		return &sdk.Error{
			Tag: sdk.TagInvalid, Code: "not_a_command", Field: "plugin-worker",
			Rule: "started by fencepost itself, to run a plugin in", Hint: "fencepost serve",
		}
	}
	subprocess.Serve(&child{})
	return nil
}

// child is the worker's side: one module, one call at a time.
type child struct{ module *wasm.Module }

// Statuses beside those of wire/v1.
const (
	statusAnswer = 0
	statusError  = 1
	statusFault  = 2
)

// margin is by how much a call ends before the host's deadline: the host learns
// what broke off, and the child lives on.
func margin(left time.Duration) time.Duration { return min(100*time.Millisecond, left/10) }

func (c *child) Call(ctx context.Context, method uint32, request []byte, ask subprocess.Ask) ([]byte, int32) {
	if method == methodLoad && c.module == nil {
		if err := c.load(ctx, request); err != nil {
			return wirev1.EncodeError(err), statusError
		}
		return nil, statusAnswer
	}
	if c.module == nil {
		return wirev1.EncodeError(&sdk.Error{Tag: sdk.TagUnsupported, Code: "no_module"}), statusError
	}
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-margin(time.Until(deadline)))) //nolint:forbidigo // what is left of a deadline, on the clock that contexts use
		defer cancel()
	}
	answer, err := c.module.Call(context.WithValue(ctx, askKey{}, ask), method, request)
	if answered, ok := errors.AsType[*carrier.PluginError](err); ok {
		return answered.Payload, statusError
	}
	if fault, ok := errors.AsType[*carrier.Fault](err); ok {
		return encodeFault(fault), statusFault
	}
	return answer, statusAnswer
}

func (c *child) load(ctx context.Context, message []byte) error {
	l, module, err := decodeLoading(message)
	if err != nil {
		return err
	}
	c.module, err = wasm.Open(ctx, wasm.Config{
		Name: l.Name, Version: l.Version, Module: module, Declared: l.Declared, Granted: l.Granted, InertFiles: l.InertFiles,
		Host: wasm.Host{HTTPSend: through(capability.HTTPName), AppendSend: through(capability.AppendName), SQLDo: through(capability.SQLName), Log: logThrough}, Setup: l.Setup, Limits: l.Limits, CacheDir: l.CacheDir,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	return lockDown() // before any code of the module runs
}

type askKey struct{}

// through passes what the module asks on to the host.
func through(name capability.Name) func(ctx context.Context, payload []byte) ([]byte, error) {
	return func(ctx context.Context, payload []byte) ([]byte, error) {
		ask, _ := ctx.Value(askKey{}).(subprocess.Ask)
		answer, refused, err := ask(ctx, name, payload)
		if err != nil && !refused {
			// The host may have acted. The connection is lost, so the host
			// ends this process; until then the module must not go on as if
			// nothing had been done.
			<-ctx.Done()
		}
		return answer, err
	}
}

func logThrough(ctx context.Context, level capability.Level, line string) {
	ask, _ := ctx.Value(askKey{}).(subprocess.Ask)
	_, _, _ = ask(ctx, capability.LogName, append([]byte{byte(int8(level))}, line...)) // a line is never worth a call
}
