package process

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/guest/subprocess"
)

// The test's own program is also every plugin of these tests: its arguments say
// which.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "plugin":
		playPlugin(os.Args[2:])
	case len(os.Args) > 1 && os.Args[1] == "host":
		playHost(os.Args[2:])
	default:
		goleak.VerifyTestMain(m)
	}
}

// self is the image of all plugins here.
func self(t testing.TB) *Image {
	t.Helper()
	i, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = i.Close() })
	return i
}

func config(t testing.TB, args ...string) Config {
	t.Helper()
	return Config{
		Name: "evil", Version: "1.2.3", Image: self(t), Args: append([]string{"plugin"}, args...),
		Granted: []capability.Name{capability.HTTPName, capability.LogName, capability.ClockName, capability.RandomName},
		Host: carrier.Host{HTTPSend: func(_ context.Context, batch []byte) ([]byte, error) {
			return append([]byte("answered "), batch...), nil
		}},
		Limits: Limits{Memory: memoryLimit},
	}
}

func open(t testing.TB, cfg Config) *Process {
	t.Helper()
	p, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(p.Close(context.Background()), p.Close(context.Background())); err != nil {
			t.Error(err)
		}
		if s := p.Stats(); s.Running != 0 {
			t.Errorf("after Close: %d processes", s.Running)
		}
		if exists(p.sockets.dir) {
			t.Error("the folder of sockets is left")
		}
	})
	return p
}

func call(t testing.TB, p *Process, method uint32, request string) string {
	t.Helper()
	answer, err := p.Call(t.Context(), method, []byte(request))
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

// wantFault calls with a deadline and returns the fault, after which no process
// is left.
func wantFault(t *testing.T, p *Process, want carrier.Fault, method uint32, deadline time.Duration) *carrier.Fault {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	start := time.Now()
	answer, err := p.Call(ctx, method, nil)
	f, ok := errors.AsType[*carrier.Fault](err)
	if !ok {
		t.Fatalf("answer of %d bytes and error %v, want a fault", len(answer), err)
	}
	if f.Kind != want.Kind || f.Entered != want.Entered || f.Plugin != "evil" || !strings.Contains(f.Detail, want.Detail) {
		t.Errorf("fault %v, want %v", f, &want)
	}
	if len(f.Error()) > 8<<10 {
		t.Errorf("the fault's text has %d bytes", len(f.Error()))
	}
	if s := p.Stats(); s.Running != 0 {
		t.Errorf("%d processes left after a fault", s.Running)
	}
	t.Logf("%v after %v", f.Kind, time.Since(start).Round(time.Millisecond))
	return f
}

// Methods of the plugin of these tests.
const (
	echo = iota + 1
	fails
	status7
	count
	asksHTTP
	asksMuch
	hangs
	panics
	exits0
	exits3
	floodsOut
	floodsErr
	longLine
	bomb
	grandchild
	forks
	memory
	ambient
	writesFile
	dials
	pids
	asksAfter
	garbage
	grows
)

func playPlugin(args []string) {
	mode := ""
	if len(args) > 0 {
		mode = args[0]
	}
	if mode == "sleep" { // a grandchild
		time.Sleep(time.Hour)
	}
	if !subprocess.Started() {
		_, _ = os.Stderr.WriteString("not started by a host")
		os.Exit(9)
	}
	playStart(mode)
	if mode == "shared" {
		subprocess.Serve(&sideBySide{})
		return
	}
	subprocess.Serve(&evil{})
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
