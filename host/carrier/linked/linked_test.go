package linked_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/host/carrier/linked"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scripted is a plugin whose methods each do one thing.
type scripted struct {
	host  capability.Host
	calls int
	hold  chan struct{}
}

const (
	echo = iota + 1
	count
	panics
	fails
	status7
	hangs
	asks
)

func (s *scripted) Call(ctx context.Context, method wirev1.Method, request []byte) ([]byte, wirev1.Status) {
	s.calls++
	switch method {
	case echo:
		return request, wirev1.StatusAnswer
	case count:
		return []byte{byte(s.calls)}, wirev1.StatusAnswer
	case panics:
		panic("a bug of the plugin")
	case fails:
		return request, wirev1.StatusError
	case status7:
		return nil, 7
	case hangs:
		<-s.hold
	case asks:
		return s.ask(ctx)
	}
	return nil, wirev1.StatusAnswer
}

func (s *scripted) ask(ctx context.Context) ([]byte, wirev1.Status) {
	s.host.Log.Write(capability.LevelWarn, "asked")
	random := make([]byte, 100_000)
	if err := s.host.Random.Read(random); err != nil {
		return []byte(err.Error()), wirev1.StatusError
	}
	responses, err := s.host.HTTP.Send(ctx, []capability.Request{{Method: "POST", URL: "https://api.example.com/"}})
	if err != nil {
		return []byte(err.Error()), wirev1.StatusError
	}
	answer, _ := json.Marshal([]any{random[99_999], s.host.Clock.Now(), responses[0].Status})
	return answer, wirev1.StatusAnswer
}

type ones struct{}

func (ones) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 1
	}
	return len(p), nil
}

type key struct{}

func config(t *testing.T) (linked.Config, chan struct{}) {
	t.Helper()
	hold := make(chan struct{})
	t.Cleanup(sync.OnceFunc(func() { close(hold) }))
	return linked.Config{
		Name:    "p",
		New:     func(h capability.Host) linked.Callee { return &scripted{host: h, hold: hold} },
		Granted: []capability.Name{capability.HTTPName, capability.LogName, capability.ClockName, capability.RandomName},
		Host: carrier.Host{
			HTTPSend: func(ctx context.Context, _ []byte) ([]byte, error) {
				status, _ := ctx.Value(key{}).(int)
				return wirev1.EncodeResponses([]capability.Response{{Status: status}}, nil), nil
			},
			Now:    func() time.Time { return time.UnixMicro(1_000_001) },
			Random: ones{},
		},
	}, hold
}

func open(t *testing.T, cfg linked.Config) *linked.Plugin {
	t.Helper()
	p, err := linked.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := errors.Join(p.Close(ctx), p.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	return p
}

func wantFault(t *testing.T, err error, want carrier.Fault) {
	t.Helper()
	f, ok := errors.AsType[*carrier.Fault](err)
	if !ok || f.Kind != want.Kind || f.Entered != want.Entered || f.Plugin != "p" || !strings.Contains(f.Detail, want.Detail) {
		t.Errorf("%v, want %+v", err, want)
	}
}

func TestCalls(t *testing.T) {
	t.Parallel()
	cfg, _ := config(t)
	p := open(t, cfg)
	if answer, err := p.Call(t.Context(), echo, []byte("x")); err != nil || string(answer) != "x" {
		t.Errorf("%q, %v", answer, err)
	}
	_, err := p.Call(t.Context(), fails, []byte("why"))
	if refused, ok := errors.AsType[*carrier.PluginError](err); !ok || string(refused.Payload) != "why" {
		t.Error(err)
	}
	_, err = p.Call(t.Context(), status7, nil)
	wantFault(t, err, carrier.Fault{Kind: carrier.KindProtocol, Entered: true, Detail: "status 7"})
}

// F38: a panic costs its call, and nothing of the instance is used again.
func TestPanicIsAFault(t *testing.T) {
	t.Parallel()
	cfg, _ := config(t)
	cfg.Setup = []carrier.SetupCall{{Method: echo}, {Method: echo}}
	p := open(t, cfg)
	for _, want := range []byte{3, 4} {
		if answer, err := p.Call(t.Context(), count, nil); err != nil || answer[0] != want {
			t.Errorf("%v, %v, want %d", answer, err, want)
		}
	}
	_, err := p.Call(t.Context(), panics, nil)
	wantFault(t, err, carrier.Fault{Kind: carrier.KindTrap, Entered: true, Detail: "a bug of the plugin"})
	if answer, err := p.Call(t.Context(), count, nil); err != nil || answer[0] != 3 {
		t.Errorf("%v, %v: not a new instance", answer, err)
	}
	cfg.Setup = []carrier.SetupCall{{Method: panics}}
	_, err = open(t, cfg).Call(t.Context(), echo, nil)
	wantFault(t, err, carrier.Fault{Kind: carrier.KindTrap})
	cfg.Setup = []carrier.SetupCall{{Method: fails, Request: []byte("not configured")}}
	_, err = open(t, cfg).Call(t.Context(), echo, nil)
	if refused, ok := errors.AsType[*carrier.PluginError](err); !ok || string(refused.Payload) != "not configured" {
		t.Error(err)
	}
}

// F39, as far as it can hold here: the caller goes on at the deadline, and the
// hanging call keeps its place, so that hangs are bounded.
func TestHangIsGivenUp(t *testing.T) {
	t.Parallel()
	cfg, _ := config(t)
	cfg.MaxInstances = 1
	p := open(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := p.Call(ctx, hangs, nil)
	wantFault(t, err, carrier.Fault{Kind: carrier.KindDeadline, Entered: true})
	_, err = p.Call(ctx, echo, nil)
	wantFault(t, err, carrier.Fault{Kind: carrier.KindDeadline})
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = p.Call(ctx, echo, nil)
	wantFault(t, err, carrier.Fault{Kind: carrier.KindDeadline})
}

func TestCloseEndsCalls(t *testing.T) {
	t.Parallel()
	cfg, _ := config(t)
	p := open(t, cfg)
	result := make(chan error, 1)
	go func() {
		_, err := p.Call(context.Background(), hangs, nil) // an answer in the same moment would count
		result <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
	if f, ok := errors.AsType[*carrier.Fault](<-result); !ok || f.Kind != carrier.KindClosed {
		t.Error(f)
	}
	_, err := p.Call(t.Context(), echo, nil)
	wantFault(t, err, carrier.Fault{Kind: carrier.KindClosed})
}

// P8: a plugin gets what was granted and no more, and what it asks runs in the
// context of its call.
func TestAsks(t *testing.T) {
	t.Parallel()
	cfg, _ := config(t)
	var line string
	cfg.Host.Log = func(_ context.Context, level capability.Level, s string) { line = string(rune('0'+level)) + s }
	p := open(t, cfg)
	answer, err := p.Call(context.WithValue(t.Context(), key{}, 201), asks, nil)
	if err != nil || string(answer) != `[1,"1970-01-01T00:00:01.000001Z",201]` || line != "4asked" {
		t.Errorf("%s, %v, line %q", answer, err, line)
	}
	cfg.Asks.MaxHTTPBatch = 1
	_, err = open(t, cfg).Call(t.Context(), asks, nil)
	if refused, ok := errors.AsType[*carrier.PluginError](err); !ok || !strings.Contains(string(refused.Payload), "batch_refused") {
		t.Error(err)
	}
	cfg.Granted = []capability.Name{capability.LogName}
	_, err = open(t, cfg).Call(t.Context(), asks, nil)
	wantFault(t, err, carrier.Fault{Kind: carrier.KindTrap, Entered: true, Detail: "nil pointer"})
	cfg.Granted, cfg.Host.HTTPSend = []capability.Name{capability.HTTPName}, nil
	if _, err := linked.Open(cfg); err == nil {
		t.Error("opened without a way to send")
	}
}
