package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/host/carrier/process"
	"github.com/fencepost/fencepost/host/carrier/wasm"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// scratch holds the built guest and the compile cache that the tests share.
var scratch string

// The test's own program is the worker of these tests.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "plugin-worker" {
		if err := Serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "locked-down" {
		playLockedDown()
		return
	}
	dir, err := os.MkdirTemp("", "carrier-worker-")
	if err != nil {
		panic(err)
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
	cmd.Dir = filepath.Join("..", "wasm", "testdata", "goguest")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
	if b, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the guest: %w: %s", err, b)
	}
	return os.ReadFile(out)
})

// Methods of host/carrier/wasm/testdata/goguest.
const (
	guestEcho     = 1
	guestPanics   = 3
	guestExits    = 4
	guestFloods   = 6
	guestSends    = 7
	guestAllocate = 8
	guestSleeps   = 9
	guestRecurses = 10
	guestSpins    = 11
	guestLogs     = 12
	guestFails    = 14
	guestStatus7  = 15
	guestCalls    = 16
)

var all = []capability.Name{capability.HTTPName, capability.LogName, capability.ClockName, capability.RandomName}

func open(t *testing.T, change func(*Config)) *process.Process {
	t.Helper()
	module, err := buildGuest()
	if err != nil {
		t.Fatal(err)
	}
	image, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = image.Close() })
	cfg := Config{
		Name: "goguest", Version: "1", Image: image, Args: []string{"plugin-worker"}, Module: module,
		Declared: all, Granted: all, CacheDir: filepath.Join(scratch, "cache"), Memory: -1,
		Host: carrier.Host{HTTPSend: func(_ context.Context, batch []byte) ([]byte, error) {
			return append([]byte("answered "), batch...), nil
		}},
	}
	if change != nil {
		change(&cfg)
	}
	p, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if s := p.Stats(); s.Running != 0 {
			t.Errorf("after Close: %d children", s.Running)
		}
	})
	return p
}

func call(t *testing.T, p *process.Process, method uint32, request string) string {
	t.Helper()
	answer, err := p.Call(t.Context(), method, []byte(request))
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

func TestCalls(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var lines []string
	p := open(t, func(c *Config) {
		c.Setup = []carrier.SetupCall{{Method: guestEcho}, {Method: guestEcho}}
		c.Host.Log = func(_ context.Context, _ capability.Level, line string) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, line)
		}
	})
	if got := call(t, p, guestEcho, "hello"); got != "hello" {
		t.Errorf("echo %q", got)
	}
	if got := call(t, p, guestCalls, ""); got != "4" {
		t.Errorf("counted %s, want the setup calls inside", got)
	}
	if got := call(t, p, guestSends, "batch"); !strings.Contains(got, "answered batch") {
		t.Errorf("sent: %q", got)
	}
	call(t, p, guestLogs, "3")
	mu.Lock()
	if len(lines) == 0 {
		t.Error("no line reached the host")
	}
	mu.Unlock()
	_, err := p.Call(t.Context(), guestFails, []byte("why"))
	if answered, ok := errors.AsType[*carrier.PluginError](err); !ok || string(answered.Payload) != "why" {
		t.Error(err)
	}
}

// F38, F39, F40: what breaks off inside is told by the child, which lives on:
// the next call finds a new instance and no new process.
func TestFaultsInside(t *testing.T) {
	t.Parallel()
	p := open(t, nil)
	call(t, p, guestEcho, "")
	for name, c := range map[string]struct {
		method  uint32
		request string
		kind    carrier.Kind
	}{
		"panic":     {guestPanics, "", carrier.KindTrap},
		"exit":      {guestExits, "3", carrier.KindExit},
		"status":    {guestStatus7, "", carrier.KindProtocol},
		"memory":    {guestAllocate, "100000000", carrier.KindMemory},
		"spin":      {guestSpins, "", carrier.KindDeadline},
		"recursion": {guestRecurses, "60", carrier.KindDeadline},
		"sleep":     {guestSleeps, "1h", carrier.KindDeadline},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if c.kind == carrier.KindDeadline {
			ctx, cancel = context.WithTimeout(t.Context(), 2*time.Second)
		}
		_, err := p.Call(ctx, c.method, []byte(c.request))
		cancel()
		if f, ok := errors.AsType[*carrier.Fault](err); !ok || f.Kind != c.kind || !f.Entered || f.Plugin != "goguest" {
			t.Errorf("%s: %v, want %s", name, err, c.kind)
		}
		if got := call(t, p, guestCalls, ""); got != "1" {
			t.Errorf("%s: counted %s: not a new instance", name, got)
		}
	}
	if s := p.Stats(); s.Started != 1 {
		t.Errorf("%+v, want one child", s)
	}
}

// Finding 1 of the design: a loop in a module does not stop the host's garbage
// collector.
func TestHostCollectsDuringALoop(t *testing.T) {
	t.Parallel()
	p := open(t, nil)
	call(t, p, guestEcho, "")
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_, _ = p.Call(ctx, guestSpins, nil)
	}()
	var worst time.Duration
	for running := true; running; {
		start := time.Now()
		runtime.GC()
		worst = max(worst, time.Since(start))
		select {
		case <-done:
			running = false
		default:
		}
	}
	t.Logf("longest runtime.GC() beside the loop: %v", worst)
}

// F43, Q29: a module that is refused is refused in the child as in the host,
// with the same error, and its code does not run.
func TestRefusedModule(t *testing.T) {
	t.Parallel()
	p := open(t, func(c *Config) { c.Declared = []capability.Name{capability.LogName} })
	_, err := p.Call(t.Context(), guestEcho, nil)
	answered, ok := errors.AsType[*carrier.PluginError](err)
	if !ok {
		t.Fatal(err)
	}
	decoded, err := wirev1.DecodeError(answered.Payload)
	if err != nil || !errors.Is(decoded, &sdk.Error{Tag: sdk.TagInvalid, Code: wasm.CodeNotDeclared}) || !strings.Contains(decoded.Error(), "goguest 1") {
		t.Errorf("%v, %v", decoded, err)
	}
	p = open(t, func(c *Config) { c.Module = []byte("no module") })
	if _, err := p.Call(t.Context(), guestEcho, nil); err == nil {
		t.Error("ran what is no module")
	}
}

// playLockedDown tries what a module that got out of its sandbox would.
func playLockedDown() {
	if err := lockDown(); err != nil {
		fmt.Println(err)
		return
	}
	_, file := os.Open("/etc/passwd")
	_, dial := net.Dial("tcp", "127.0.0.1:1")
	_, pipe := net.Listen("unix", filepath.Join(os.TempDir(), "x"))
	fmt.Println(file != nil && strings.Contains(file.Error(), "too many open files"),
		dial != nil && strings.Contains(dial.Error(), "too many open files"), pipe != nil)
}

// P8: once the module is loaded, its process opens neither file nor socket.
func TestLockedDown(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "/proc/self/exe", "locked-down").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "true true true" {
		t.Errorf("%v: %s", err, out)
	}
	out, err = exec.CommandContext(t.Context(), "/proc/self/exe", "plugin-worker").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "started by fencepost itself") {
		t.Errorf("%v: %s", err, out)
	}
}

// What a child says of a fault is bounded and never of a kind that only the
// host can know.
func TestDecodeFault(t *testing.T) {
	t.Parallel()
	f := &carrier.Fault{Kind: carrier.KindTrap, Detail: strings.Repeat("x", 10_000), Entered: true}
	if got := decodeFault("p", encodeFault(f)); got.Kind != f.Kind || !got.Entered || len(got.Detail) != maxDetail || got.Plugin != "p" {
		t.Errorf("%v, %d", got.Kind, len(got.Detail))
	}
	for _, payload := range []string{"", "{", `{"Kind":"closed"}`, `{"Kind":"x"}`} {
		if got := decodeFault("p", []byte(payload)); got.Kind != carrier.KindProtocol {
			t.Errorf("%q: %v", payload, got)
		}
	}
	l := loading{Name: "p", Granted: all, Setup: []carrier.SetupCall{{Method: 2, Request: []byte{0, 255}}}}
	b, err := l.encode([]byte("module"))
	if err != nil {
		t.Fatal(err)
	}
	got, module, err := decodeLoading(b)
	if err != nil || string(module) != "module" || !slices.Equal(got.Setup[0].Request, l.Setup[0].Request) || len(got.Granted) != 4 {
		t.Errorf("%+v, %q, %v", got, module, err)
	}
	for n := range 4 {
		if _, _, err := decodeLoading(b[:n]); err == nil {
			t.Errorf("decoded %d bytes", n)
		}
	}
}
