package wasm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
)

// scratch holds the built guest and the compile cache that the tests share.
var scratch string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "carrier-wasm-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	scratch = dir
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

var buildGuest = sync.OnceValues(func() ([]byte, error) {
	out := filepath.Join(scratch, "guest.wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-o", out, ".")
	cmd.Dir = filepath.Join("testdata", "goguest")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
	if b, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the guest: %w: %s", err, b)
	}
	return os.ReadFile(out)
})

// Methods of testdata/goguest, in its order.
const (
	guestEcho = iota + 1
	guestWork
	guestPanics
	guestExits
	guestDeadlocks
	guestFloods
	guestSends
	guestAllocates
	guestSleeps
	guestRecurses
	guestSpins
	guestLogs
	guestTimes
	guestFails
	guestStatus7
	guestCalls
	guestAmbient
	guestOutputBomb
	guestClosureRecursion
)

var allCapabilities = []capability.Name{capability.HTTPName, capability.LogName, capability.ClockName, capability.RandomName}

func config(module []byte) Config {
	return Config{
		Name: "evil", Version: "1.2.3", Module: module,
		Declared: allCapabilities, Granted: allCapabilities,
		Host: Host{HTTPSend: func(_ context.Context, batch []byte) ([]byte, error) {
			return append([]byte("answered "), batch...), nil
		}},
	}
}

func guestConfig(t *testing.T) Config {
	t.Helper()
	module, err := buildGuest()
	if err != nil {
		t.Fatal(err)
	}
	cfg := config(module)
	cfg.Name = "goguest"
	cfg.CacheDir = filepath.Join(scratch, "cache")
	return cfg
}

func mustOpen(t *testing.T, cfg Config) *Module {
	t.Helper()
	m, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if s := m.Stats(); s.Instances != 0 || s.MemoryBytes != 0 {
			t.Errorf("after Close: %d instances, %d bytes", s.Instances, s.MemoryBytes)
		}
	})
	return m
}

func mustCall(t *testing.T, m *Module, method uint32, request string) string {
	t.Helper()
	answer, err := m.Call(t.Context(), method, []byte(request))
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

// wantFault calls with a timeout and returns the fault, which must be of the
// kind and leave no instance behind.
func wantFault(t *testing.T, m *Module, kind carrier.Kind, method uint32, request []byte, timeout time.Duration) *carrier.Fault {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	answer, err := m.Call(ctx, method, request)
	var f *carrier.Fault
	if !errors.As(err, &f) {
		t.Fatalf("answer of %d bytes and error %v, want a fault of kind %s", len(answer), err, kind)
	}
	if f.Kind != kind {
		t.Errorf("kind %s, want %s: %v", f.Kind, kind, f)
	}
	if len(f.Error()) > 8<<10 {
		t.Errorf("the fault's text has %d bytes", len(f.Error()))
	}
	if s := m.Stats(); s.Instances != 0 {
		t.Errorf("%d instances left after a fault", s.Instances)
	}
	return f
}

func wantRefused(t *testing.T, cfg Config, code string, mentions ...string) {
	t.Helper()
	m, err := Open(t.Context(), cfg)
	if err == nil {
		_ = m.Close(t.Context())
		t.Fatal("opened")
	}
	if !errors.Is(err, &sdk.Error{Tag: sdk.TagInvalid, Code: code}) {
		t.Errorf("error %v, want code %s", err, code)
	}
	for _, s := range mentions {
		if !bytes.Contains([]byte(err.Error()), []byte(s)) {
			t.Errorf("error %q does not mention %q", err, s)
		}
	}
}
