package wasm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
)

// F38, F40, F41: whatever breaks off the guest is a fault of the right kind,
// and the instance is gone.
func TestEvilGuests(t *testing.T) {
	t.Parallel()
	zero := i32c(0)
	sigRec := sig{[]byte{i32}, []byte{i32}}
	big := plugin([]imp{impOutput}, cat(i32c(0), i32c(2<<20), call(0), zero))
	big.memMin = 64
	for name, c := range map[string]struct {
		module mod
		kind   carrier.Kind
		says   string
	}{
		"unreachable":    {plugin(nil, []byte{0x00}), carrier.KindTrap, "unreachable"},
		"divide by zero": {plugin(nil, cat(i32c(1), get(2), []byte{0x6d})), carrier.KindTrap, "divide by zero"},
		"load outside":   {plugin(nil, cat(i32c(-4), []byte{0x28, 2, 0})), carrier.KindTrap, "out of bounds"},
		"stack overflow": {plugin(nil, cat(i32c(0), call(2)),
			fn{sig: sigRec, code: cat(get(0), call(2), i32c(1), []byte{0x6a})}), carrier.KindTrap, "deeper than the limit"},
		"input_read outside":   {plugin([]imp{impInput}, cat(i32c(65_530), i32c(100), call(0))), carrier.KindTrap, "outside the memory"},
		"output_write outside": {plugin([]imp{impOutput}, cat(i32c(-1), i32c(10), call(0), zero)), carrier.KindTrap, "outside the memory"},
		"send outside":         {plugin([]imp{impSend}, cat(i32c(65_530), i32c(100), call(0))), carrier.KindTrap, "outside the memory"},
		"receive outside":      {plugin([]imp{impReceive}, cat(i32c(0), i32c(65_537), call(0))), carrier.KindTrap, "outside the memory"},
		"log outside":          {plugin([]imp{impLog}, cat(i32c(0), i32c(-1), i32c(1), call(0), zero)), carrier.KindTrap, "outside the memory"},
		"random outside":       {plugin([]imp{impRandom}, cat(i32c(1), i32c(65_536), call(0), zero)), carrier.KindTrap, "outside the memory"},
		"output bomb":          {big, carrier.KindProtocol, "2097152 bytes, more than 1048576"},
		"status 2":             {plugin(nil, i32c(2)), carrier.KindProtocol, "status 2"},
		"status -1":            {plugin(nil, i32c(-1)), carrier.KindProtocol, "status -1"},
		"exit code":            {plugin([]imp{impExit}, cat(i32c(7), call(0), zero)), carrier.KindExit, "exit code 7"},
		"exit as if by deadline": {
			plugin([]imp{impExit}, cat(i32c(-0x10000001), call(0), zero)),
			carrier.KindExit, "exit code",
		},
		// Grows by a page until it cannot, then breaks off.
		"memory bomb": {
			plugin(nil, cat(loop(i32c(1), []byte{0x40, 0}, i32c(-1), []byte{0x47, opBrIf, 0}), []byte{0x00})),
			carrier.KindMemory, "unreachable",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := mustOpen(t, config(c.module.encode()))
			f := wantFault(t, m, c.kind, 1, []byte("request"), time.Minute)
			if !strings.Contains(f.Detail, c.says) {
				t.Errorf("detail %q does not mention %q", f.Detail, c.says)
			}
			if !f.Entered || f.Plugin != "evil" {
				t.Errorf("fault %+v", f)
			}
			if s := m.Stats(); s.Created != 1 || s.Discarded != 1 {
				t.Errorf("stats %+v, want one instance made and thrown away", s)
			}
		})
	}
}

// F41: the length that the guest is told and what it may read are the host's;
// asking for more copies no more than there is.
func TestInputReadIsBounded(t *testing.T) {
	t.Parallel()
	// Reads 1000 bytes to 0, writes back as many as it got.
	m := mustOpen(t, config(plugin([]imp{impInput, impOutput},
		cat(i32c(0), i32c(0), i32c(1000), call(0), call(1), i32c(0))).encode()))
	if got := mustCall(t, m, 1, "abc"); got != "abc" {
		t.Errorf("answer %q", got)
	}
	// Nothing of the first request is left for the second.
	if got := mustCall(t, m, 1, "x"); got != "x" {
		t.Errorf("answer %q", got)
	}
	cfg := config(plugin(nil, i32c(0)).encode())
	cfg.Limits.MaxRequest = 3
	small := mustOpen(t, cfg)
	mustCall(t, small, 1, "abc")
	_, err := small.Call(t.Context(), 1, []byte("abcd"))
	var f *carrier.Fault
	if !errors.As(err, &f) || f.Kind != carrier.KindRefused || f.Entered {
		t.Errorf("error %v, want refused", err)
	}
}

func TestGoGuest(t *testing.T) {
	t.Parallel()
	m := mustOpen(t, guestConfig(t))
	if got := mustCall(t, m, guestEcho, "hello"); got != "hello" {
		t.Errorf("echo: %q", got)
	}
	if got := mustCall(t, m, guestEcho, ""); got != "" {
		t.Errorf("echo of nothing: %q", got)
	}
	if got := mustCall(t, m, guestSends, "batch"); got != "answered batch" {
		t.Errorf("send: %q", got)
	}
	if got := mustCall(t, m, guestAmbient, ""); got != "args=0 env=0" {
		t.Errorf("ambient authority: %q", got)
	}
	_, err := m.Call(t.Context(), guestFails, []byte("payload"))
	var answered *carrier.PluginError
	if !errors.As(err, &answered) || string(answered.Payload) != "payload" {
		t.Errorf("error %v, want the plugin's own", err)
	}
	// An Error message is an answer: the instance lives on.
	if got := mustCall(t, m, guestCalls, ""); got != "6" {
		t.Errorf("the instance counted %s calls, want 6", got)
	}
	if s := m.Stats(); s.Calls != 6 || s.PluginErrors != 1 || s.Created != 1 || s.Instances != 1 || s.MemoryBytes == 0 {
		t.Errorf("stats %+v", s)
	}
}

// F38 and finding 6: after a panic a Go guest would answer the next call, in
// whatever state it is in. It must not get one.
func TestBrokenGoGuestIsThrownAway(t *testing.T) {
	t.Parallel()
	m := mustOpen(t, guestConfig(t))
	for name, c := range map[string]struct {
		method  uint32
		request string
		kind    carrier.Kind
		says    string
	}{
		"panic":     {guestPanics, "x", carrier.KindTrap, "assignment to entry in nil map"},
		"exit":      {guestExits, "", carrier.KindExit, "exit code 3"},
		"deadlock":  {guestDeadlocks, "", carrier.KindTrap, "deadlock"},
		"stderr":    {guestFloods, "", carrier.KindTrap, "flooded"},
		"memory":    {guestAllocates, "100000000", carrier.KindMemory, "out of memory"},
		"status":    {guestStatus7, "x", carrier.KindProtocol, "status 7"},
		"too large": {guestOutputBomb, "1048577", carrier.KindProtocol, "more than 1048576"},
	} {
		if got := mustCall(t, m, guestCalls, ""); got != "1" {
			t.Errorf("before %s: the instance counted %s calls, so it is not new", name, got)
		}
		f := wantFault(t, m, c.kind, c.method, []byte(c.request), time.Minute)
		if !strings.Contains(f.Detail, c.says) {
			t.Errorf("%s: detail %q does not mention %q", name, f.Detail, c.says)
		}
	}
	if s := m.Stats(); s.LinesDropped < 9_000 {
		t.Errorf("%d lines kept from the log, want the flood", s.LinesDropped)
	}
}

// Finding 4: time and randomness are the system's, or what the host says.
func TestClockAndRandom(t *testing.T) {
	t.Parallel()
	cfg := guestConfig(t)
	base := time.Date(2031, 2, 3, 4, 5, 6, 789_000, time.UTC)
	started := time.Now()
	cfg.Host.Now = func() time.Time { return base.Add(time.Since(started)) }
	m := mustOpen(t, cfg)
	other := mustOpen(t, cfg)
	a, b := mustCall(t, m, guestTimes, ""), mustCall(t, other, guestTimes, "")
	for i, at := range []string{a[:8], a[8:16]} {
		got := time.UnixMicro(int64(binary.LittleEndian.Uint64([]byte(at)))).UTC()
		if got.Before(base) || got.After(base.Add(time.Hour)) {
			t.Errorf("clock %d: %v, want soon after %v", i, got, base)
		}
	}
	if a[16:32] == b[16:32] || a[32:] == b[32:] {
		t.Error("two instances got the same random bytes")
	}
	fixed := guestConfig(t)
	fixed.Host.Random = zeros{}
	if got := mustCall(t, mustOpen(t, fixed), guestTimes, ""); got[16:32] != strings.Repeat("\x00", 16) {
		t.Error("the random capability does not read the configured source")
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// F44: lines and batches of one call are bounded, and the guest is told about
// a refused batch, not about a sent one.
func TestHostFunctionLimits(t *testing.T) {
	t.Parallel()
	cfg := guestConfig(t)
	lines, sent := 0, 0
	cfg.Host.Log = func(context.Context, capability.Level, string) { lines++ }
	cfg.Host.HTTPSend = func(_ context.Context, b []byte) ([]byte, error) {
		if sent++; string(b) == "bad" {
			return nil, errors.New("does not parse")
		}
		return nil, nil
	}
	cfg.Limits.MaxLogLines, cfg.Limits.MaxHTTPBatch = 7, 10
	m := mustOpen(t, cfg)
	mustCall(t, m, guestLogs, "100")
	if lines != 7 || m.Stats().LinesDropped != 93 {
		t.Errorf("%d lines, %d dropped", lines, m.Stats().LinesDropped)
	}
	for request, want := range map[string]string{"0123456789": "", "0123456789a": "refused", "bad": "refused"} {
		if got := mustCall(t, m, guestSends, request); got != want {
			t.Errorf("send %q: %q, want %q", request, got, want)
		}
	}
	if sent != 2 {
		t.Errorf("the host was asked %d times, want 2", sent)
	}

	// Sends 10,000 times; answers how often it was not refused.
	count := plugin([]imp{impSend, impOutput}, cat(
		loop(i32c(0), i32c(1), call(0), i32c(-1), []byte{0x47}, iff(i32c(0), i32c(0), []byte{0x28, 2, 0}, i32c(1), []byte{0x6a, 0x36, 2, 0}),
			get(2), i32c(1), []byte{0x6a, 0x22, 2}, i32c(10_000), []byte{0x49, opBrIf, 0}),
		i32c(0), i32c(4), call(1), i32c(0)))
	evil := config(count.encode())
	evil.Limits.MaxHTTPSends = 25
	if got := mustCall(t, mustOpen(t, evil), 1, ""); binary.LittleEndian.Uint32([]byte(got)) != 25 {
		t.Errorf("%x batches went out, want 25", got)
	}
}

type contextKey struct{}

// The handler gets the values and the deadline of the caller's context.
func TestContextReachesHTTP(t *testing.T) {
	t.Parallel()
	cfg := guestConfig(t)
	var value any
	var until time.Time
	cfg.Host.HTTPSend = func(ctx context.Context, _ []byte) ([]byte, error) {
		value = ctx.Value(contextKey{})
		until, _ = ctx.Deadline()
		return nil, nil
	}
	m := mustOpen(t, cfg)
	want := time.Now().Add(time.Minute)
	ctx, cancel := context.WithDeadline(context.WithValue(t.Context(), contextKey{}, "batch 7"), want)
	defer cancel()
	if _, err := m.Call(ctx, guestSends, nil); err != nil {
		t.Fatal(err)
	}
	if value != "batch 7" || !until.Equal(want) {
		t.Errorf("value %v, deadline %v", value, until)
	}
}

// A handler that panics costs the call, not the process.
func TestHandlerPanics(t *testing.T) {
	t.Parallel()
	cfg := guestConfig(t)
	cfg.Host.HTTPSend = func(context.Context, []byte) ([]byte, error) { panic("handler") }
	wantFault(t, mustOpen(t, cfg), carrier.KindTrap, guestSends, nil, time.Minute)
}

// Every new instance answers the setup calls before its first call.
func TestSetup(t *testing.T) {
	t.Parallel()
	cfg := guestConfig(t)
	cfg.Setup = []SetupCall{{Method: guestEcho, Request: []byte("a")}, {Method: guestEcho, Request: []byte("b")}}
	m := mustOpen(t, cfg)
	for i, want := range []string{"3", "4"} {
		if got := mustCall(t, m, guestCalls, ""); got != want {
			t.Errorf("call %d: the instance counted %s calls, want %s", i, got, want)
		}
	}
	wantFault(t, m, carrier.KindTrap, guestPanics, nil, time.Minute)
	if got := mustCall(t, m, guestCalls, ""); got != "3" {
		t.Errorf("the new instance counted %s calls, want 3", got)
	}

	cfg.Setup = []SetupCall{{Method: guestPanics, Request: nil}}
	f := wantFault(t, mustOpen(t, cfg), carrier.KindTrap, guestEcho, nil, time.Minute)
	if f.Entered || !strings.Contains(f.Detail, "set up") {
		t.Errorf("fault %+v, want one before the call", f)
	}
	cfg.Setup = []SetupCall{{Method: guestFails, Request: []byte("not configured")}}
	_, err := mustOpen(t, cfg).Call(t.Context(), guestEcho, nil)
	var answered *carrier.PluginError
	if !errors.As(err, &answered) || string(answered.Payload) != "not configured" {
		t.Errorf("error %v, want that of the setup", err)
	}
}

// An instance that cannot start is a fault that did not enter the call.
func TestInstanceDoesNotStart(t *testing.T) {
	t.Parallel()
	for name, code := range map[string][]byte{
		"trap": {0x00},
		"exit": cat(i32c(0), call(0)),
		"http": cat(i32c(0), i32c(1), call(1), i32c(-1), []byte{0x47}, iff(loop(br(0)))),
	} {
		m := plugin([]imp{impExit, impSend}, i32c(0), fn{sig: sigVoid, code: code, export: "_initialize"})
		cfg := config(m.encode())
		cfg.Host.HTTPSend = func(context.Context, []byte) ([]byte, error) {
			t.Errorf("%s: something was sent outside of a call", name)
			return nil, nil
		}
		opened := mustOpen(t, cfg)
		answer, err := opened.Call(t.Context(), 1, nil)
		if name == "http" {
			if err != nil {
				t.Errorf("http: %v", err)
			}
			continue
		}
		var f *carrier.Fault
		if !errors.As(err, &f) || f.Entered {
			t.Errorf("%s: answer %q, error %v", name, answer, err)
		}
	}
}

func ExampleModule() {
	module := plugin([]imp{impInput, impOutput}, cat(i32c(0), i32c(0), get(1), call(0), call(1), i32c(0))).encode()
	m, err := Open(context.Background(), Config{Name: "echo", Module: module})
	if err != nil {
		fmt.Println(err)
		return
	}
	answer, err := m.Call(context.Background(), 1, []byte("hello"))
	fmt.Println(string(answer), err, m.Close(context.Background()))
	// Output: hello <nil> <nil>
}
