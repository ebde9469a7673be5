package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
)

func TestCalls(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Setup = []carrier.SetupCall{{Method: echo, Request: []byte("a")}, {Method: echo, Request: []byte("b")}}
	p := open(t, cfg)
	if got := call(t, p, echo, "hello"); got != "hello" {
		t.Errorf("echo %q", got)
	}
	if got := call(t, p, count, ""); got != "4" {
		t.Errorf("counted %s, want two setup calls before the first", got)
	}
	_, err := p.Call(t.Context(), fails, []byte("why"))
	if answered, ok := errors.AsType[*carrier.PluginError](err); !ok || string(answered.Payload) != "why" {
		t.Error(err)
	}
	if got := call(t, p, count, ""); got != "6" {
		t.Errorf("counted %s: an Error message is no fault", got)
	}
	if got := call(t, p, asksHTTP, "batch"); got != "answered batch false <nil>" {
		t.Errorf("asked: %s", got)
	}
	if s := p.Stats(); s.Started != 1 || s.Running != 1 {
		t.Errorf("%+v", s)
	}
}

// F38, F41, F46: whatever breaks off the process is a fault of the right kind,
// the call may have had any effect, and the next call gets a new process.
func TestEvilCalls(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method   uint32
		want     carrier.Fault
		deadline time.Duration
	}{
		"panic":             {panics, carrier.Fault{Kind: carrier.KindTrap, Detail: "a bug of the plugin"}, time.Minute},
		"exit 0":            {exits0, carrier.Fault{Kind: carrier.KindExit, Detail: "exit status 0"}, time.Minute},
		"exit 3":            {exits3, carrier.Fault{Kind: carrier.KindExit, Detail: "exit status 3"}, time.Minute},
		"unknown status":    {status7, carrier.Fault{Kind: carrier.KindProtocol, Detail: "status 7"}, time.Minute},
		"output bomb":       {bomb, carrier.Fault{Kind: carrier.KindProtocol, Detail: "2097152 bytes, more than 1048576"}, time.Minute},
		"hang":              {hangs, carrier.Fault{Kind: carrier.KindDeadline, Detail: "deadline"}, 2 * time.Second},
		"endless questions": {asksMuch, carrier.Fault{Kind: carrier.KindProtocol, Detail: "questions"}, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := open(t, config(t))
			call(t, p, echo, "") // a process runs
			c.want.Entered = true
			wantFault(t, p, c.want, c.method, c.deadline)
			if got := call(t, p, count, ""); got != "1" {
				t.Errorf("counted %s: not a new process", got)
			}
			if s := p.Stats(); s.Started != 2 || s.Faults != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// F46: what cannot be started or does not shake hands is a fault before the
// call, and names what it was.
func TestEvilStarts(t *testing.T) {
	t.Parallel()
	for mode, says := range map[string]string{
		"exits":         "no license",
		"silent":        "timeout",
		"stopped":       "timeout",
		"chatty":        "hello, I am a plugin",
		"endless":       "0123456789",
		"other-version": "Plugin version: 99",
		"other-core":    "incompatible core API version",
		"netrpc":        "unsupported plugin protocol",
		"tcp":           "does not listen on a unix socket",
		"elsewhere":     "does not listen on a unix socket",
		"up":            "does not listen on a unix socket",
		"link":          "does not listen on the socket",
		"no-cert":       "handshake",
		"garbage":       "handshake",
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			cfg := config(t, mode)
			cfg.Limits.StartTimeout = 3 * time.Second
			cfg.Setup = []carrier.SetupCall{{Method: echo}} // connecting is part of the start
			p := open(t, cfg)
			if mode == "stopped" {
				p.plain.set() // the first process of a namespace cannot stop itself
			}
			_, err := p.Call(t.Context(), echo, nil)
			f, ok := errors.AsType[*carrier.Fault](err)
			if !ok || f.Entered || (f.Kind != carrier.KindProtocol && f.Kind != carrier.KindExit) || !strings.Contains(f.Detail, says) {
				t.Errorf("%v, want one that says %q", err, says)
			}
			if s := p.Stats(); s.Running != 0 {
				t.Errorf("%+v", s)
			}
			if left, _ := os.ReadDir(p.sockets.dir); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// F47: a flood of output neither stops the plugin nor reaches the log, and what
// looks like a second handshake is a line like others.
func TestFloods(t *testing.T) {
	t.Parallel()
	p := open(t, config(t))
	for _, method := range []uint32{floodsOut, floodsErr, longLine} {
		call(t, p, method, "")
		if got := call(t, p, echo, "still here"); got != "still here" {
			t.Errorf("method %d: %q", method, got)
		}
	}
	s := p.Stats()
	if s.Started != 1 || s.LinesDropped < 1_000_000 {
		t.Errorf("%+v", s)
	}
}

// F47: with one line a few seconds, a log is whole.
func TestOutputIsBounded(t *testing.T) {
	t.Parallel()
	o := &output{stream: "stdout", log: newLineLog(slog.New(slog.DiscardHandler), time.Now)}
	for range 1000 {
		o.write([]byte(strings.Repeat("y", 10_000)))
	}
	o.write([]byte("\npanic: why\n\ngoroutine 1 [running]\n"))
	if len(o.line) > maxLine || len(o.ring) > kept || cap(o.ring) > 4*kept {
		t.Errorf("line %d, ring %d of %d", len(o.line), len(o.ring), cap(o.ring))
	}
	if got := o.excerpt(10); got != "panic: why" {
		t.Errorf("excerpt %q", got)
	}
}

// P8, D7: a process finds nothing of the host around it.
func TestAmbient(t *testing.T) {
	t.Setenv("FENCEPOST_CANARY", "secret")
	// A descriptor that leaks into the host does not leak further.
	leak, err := unix.Open(t.TempDir(), unix.O_DIRECTORY, 0) // no close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(leak) }()
	p := open(t, config(t))
	var found struct {
		Env, FDs, Args []string
		UID, GID       int
		WD             string
		PGID           bool
	}
	if err := json.Unmarshal([]byte(call(t, p, ambient, "")), &found); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range found.Env {
		name, _, _ := strings.Cut(e, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	want := []string{
		"FENCEPOST_PLUGIN", "PLUGIN_CLIENT_CERT", "PLUGIN_MAX_PORT", "PLUGIN_MIN_PORT", "PLUGIN_PROTOCOL_VERSIONS", "PLUGIN_UNIX_SOCKET_DIR",
	}
	if !slices.Equal(names, want) {
		t.Errorf("environment %v, want %v", names, want)
	}
	for _, fd := range found.FDs {
		n, to, _ := strings.Cut(fd, " ")
		switch {
		case to == "": // that of looking
		case n == "0" && to == "/dev/null", (n == "1" || n == "2") && to == "pipe":
		case strings.HasPrefix(to, "/proc/"), to == "socket", to == "pipe", to == "anon_inode": // its own
		case strings.HasSuffix(to, "/cgroup/cpu,cpuacct/cpu.cfs_quota_us"), strings.Contains(to, "/cgroup"): // the Go runtime's
		default:
			t.Errorf("descriptor %s", fd)
		}
	}
	if os.Geteuid() == 0 && (found.UID != nobody || found.GID != nobody) {
		t.Errorf("runs as %d:%d", found.UID, found.GID)
	}
	if found.WD != "/" || !found.PGID || found.Args[0] != "evil" {
		t.Errorf("%+v", found)
	}
}

// P8: a process reaches the network and files only if it may, where the kernel
// has the means.
func TestSandbox(t *testing.T) {
	t.Parallel()
	p := open(t, config(t))
	wrote := call(t, p, writesFile, "") // SIGXFSZ would end a program without a handler
	if !strings.Contains(wrote, "file too large") {
		t.Errorf("wrote a file: %s", wrote)
	}
	dialled := call(t, p, dials, "")
	if i := p.Isolation(); i.Network && !strings.Contains(dialled, "unreachable") {
		t.Errorf("dialled: %s", dialled)
	} else if !i.Network {
		t.Log("this kernel gives no network namespace")
	}
	cfg := config(t)
	cfg.Sandbox = Sandbox{Network: true, Files: true}
	p = open(t, cfg)
	if wrote := call(t, p, writesFile, ""); wrote != "<nil>" {
		t.Errorf("wrote no file: %s", wrote)
	}
	if p.Isolation().Network {
		t.Error("isolated from a network that it may use")
	}
}

// F40, F46: memory and tasks end at a limit; the host and the next call do not
// notice.
func TestLimits(t *testing.T) {
	t.Parallel()
	if memoryLimit > 0 {
		cfg := config(t)
		cfg.Limits.Memory = 1 << 30
		wantFault(t, open(t, cfg), carrier.Fault{Kind: carrier.KindMemory, Entered: true}, memory, time.Minute)
	}
	cfg := config(t)
	cfg.Limits.Tasks = 60
	p := open(t, cfg)
	n, err := strconv.Atoi(call(t, p, forks, ""))
	if err != nil || n >= 60 {
		t.Errorf("forked %d times, %v", n, err)
	}
	t.Logf("forked %d times", n)
	if got := call(t, p, echo, "x"); got != "x" {
		t.Error(got)
	}
}

// A process that has grown is replaced after its call, and what all have
// together is told while they live.
func TestGrownProcessIsReplaced(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Limits.HighWater, cfg.Limits.MaxInstances = 96<<20, 1
	p := open(t, cfg)
	if u := p.Usage(); u != (carrier.Usage{}) {
		t.Errorf("before the first call: %+v", u)
	}
	call(t, p, echo, "x")
	if u := p.Usage(); u.Instances != 1 || u.MemoryBytes < 1<<20 {
		t.Errorf("%+v", u)
	}
	if got := call(t, p, grows, ""); got != "2" {
		t.Errorf("call %s of its process", got)
	}
	if u := p.Usage(); u != (carrier.Usage{}) {
		t.Errorf("a grown process is left: %+v", u)
	}
	if got := call(t, p, count, ""); got != "1" {
		t.Errorf("call %s of its process, want a new one", got)
	}
	if s := p.Stats(); s.Recycled != 1 || s.Started != 2 || s.Faults != 0 {
		t.Errorf("%+v", s)
	}
}

// F46: everything that a process started ends with it.
func TestNobodySurvives(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{false, true} {
		p := open(t, config(t))
		if plain {
			p.plain.set() // as where the kernel gives no namespaces
		}
		call(t, p, grandchild, "")
		pid := p.idle[0].runner.pid
		during := append(children(pid), pid)
		if len(during) < 3 {
			t.Fatalf("processes %v, want one and two below it", during)
		}
		wantFault(t, p, carrier.Fault{Kind: carrier.KindDeadline, Entered: true}, hangs, time.Second)
		left := alive(during)
		if plain {
			// The one that left the group is beyond a signal to the group.
			for _, pid := range left {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
			if len(left) > 1 {
				t.Errorf("without namespaces: %v left, want at most the one that left the group", left)
			}
		} else if len(left) != 0 && p.Isolation().Tree {
			t.Errorf("left: %v", left)
		}
	}
}

// The capability that is not granted and the call that is over get nothing.
func TestAsksAreOfTheCall(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	p := open(t, cfg)
	call(t, p, asksAfter, "")
	if got := call(t, p, asksAfter, ""); got != "true the call is over" {
		t.Errorf("asked in the name of another call: %s", got)
	}
	cfg.Granted = []capability.Name{capability.LogName}
	if got := call(t, open(t, cfg), asksHTTP, "batch"); !strings.Contains(got, " true ") || !strings.Contains(got, "not granted") {
		t.Errorf("asked without a grant: %s", got)
	}
	cfg.Granted, cfg.Host.HTTPSend = []capability.Name{capability.HTTPName}, nil
	if _, err := Open(cfg); err == nil {
		t.Error("opened without a way to send")
	}
}

// F48: what runs is what was hashed, whatever became of the file.
func TestSwappedBinary(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "plugin")
	if err := os.WriteFile(file, program, 0o700); err != nil {
		t.Fatal(err)
	}
	verified, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	image, err := NewImage("plugin", verified)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = image.Close() }()
	// Between hash and start, the file and the slice become something else.
	if err := os.WriteFile(file, []byte("#!/bin/sh\nexit 7\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	clear(verified)
	cfg := config(t)
	cfg.Image = image
	p := open(t, cfg)
	if got := call(t, p, echo, "original"); got != "original" {
		t.Error(got)
	}
	// Nobody can write to the image, not even this process.
	if _, err := image.file.WriteAt([]byte("x"), 0); err == nil {
		t.Error("wrote to a sealed image")
	}
	if _, err := NewImage("script", []byte("#!/bin/sh\n")); err == nil {
		t.Error("made an image of a script")
	}
}

// Calls wait for their turn, and those that give up were never seen.
func TestPoolIsBounded(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Limits.MaxInstances = 1
	entered, proceed := make(chan struct{}), make(chan struct{})
	cfg.Host.HTTPSend = func(context.Context, []byte) ([]byte, error) {
		entered <- struct{}{}
		<-proceed
		return nil, nil
	}
	p := open(t, cfg)
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = p.Call(context.Background(), asksHTTP, nil) })
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := p.Call(ctx, echo, nil)
	if f, ok := errors.AsType[*carrier.Fault](err); !ok || f.Kind != carrier.KindDeadline || f.Entered {
		t.Error(err)
	}
	close(proceed)
	wg.Wait()
	if _, err := p.Call(t.Context(), echo, make([]byte, 5<<20)); err == nil {
		t.Error("sent a request that is too large")
	}
}

// Close waits for calls; when it may not, it ends them, and starts too.
func TestCloseEndsCalls(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"silent"}} {
		p := open(t, config(t, args...))
		result := make(chan error, 1)
		go func() {
			_, err := p.Call(context.Background(), hangs, nil)
			result <- err
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		if f, ok := errors.AsType[*carrier.Fault](<-result); !ok || f.Kind != carrier.KindClosed {
			t.Errorf("%v: %v, want closed", args, f)
		}
	}
}

// D6, F46: a stopped process is killed at the deadline like any other.
func TestStopped(t *testing.T) {
	t.Parallel()
	p := open(t, config(t))
	call(t, p, echo, "")
	pid := p.idle[0].runner.pid
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for stopped := false; !stopped; { // threads stop one by one
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		stopped = strings.Contains(string(status), "State:\tT")
	}
	wantFault(t, p, carrier.Fault{Kind: carrier.KindDeadline, Entered: true}, echo, time.Second)
	if got := call(t, p, count, ""); got != "1" {
		t.Errorf("counted %s: not a new process", got)
	}
}

// A process that ends between calls costs nobody a call.
func TestEndBetweenCalls(t *testing.T) {
	t.Parallel()
	p := open(t, config(t))
	call(t, p, echo, "")
	p.mu.Lock()
	c := p.idle[0]
	p.mu.Unlock()
	_ = unix.Kill(c.runner.pid, unix.SIGKILL)
	<-c.runner.exited
	if got := call(t, p, count, ""); got != "1" {
		t.Errorf("counted %s", got)
	}
}
