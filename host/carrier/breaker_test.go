package carrier_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/host/carrier"
)

// stub answers with what the test says.
type stub struct {
	err   error
	calls int
}

func (s *stub) Call(context.Context, uint32, []byte) ([]byte, error) { s.calls++; return nil, s.err }
func (s *stub) Close(context.Context) error                          { return nil }

// world is a clock that moves when something sleeps.
type world struct {
	now    time.Duration
	slept  []time.Duration
	parked []bool
}

func (w *world) supervision() carrier.Supervision {
	return carrier.Supervision{
		Base: time.Second, Cap: 5 * time.Second, Threshold: 6, Park: time.Minute,
		Elapsed: func() time.Duration { return w.now },
		Sleep: func(ctx context.Context, d time.Duration) error {
			w.slept = append(w.slept, d)
			w.now += d
			return ctx.Err()
		},
		Parked: func(p bool) { w.parked = append(w.parked, p) },
	}
}

func trap() error { return &carrier.Fault{Kind: carrier.KindTrap, Plugin: "p", Entered: true} }

// F38, F46: a plugin that breaks off is tried again later and later, then
// parked and tried once a minute, until it answers.
func TestSupervision(t *testing.T) {
	t.Parallel()
	w, s := &world{}, &stub{err: trap()}
	p := carrier.Supervise("p", s, w.supervision())
	call := func() error { _, err := p.Call(t.Context(), 1, nil); return err }
	for range 6 {
		_ = call()
	}
	want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second}
	if !slices.Equal(w.slept, want) || !slices.Equal(w.parked, []bool{true}) {
		t.Errorf("slept %v, parked %v", w.slept, w.parked)
	}
	err := call()
	f, _ := errors.AsType[*carrier.Fault](err)
	if s.calls != 6 || !errors.Is(err, carrier.ErrParked) || f.Entered || f.Kind != carrier.KindRefused {
		t.Errorf("call %d: %v", s.calls, err)
	}
	w.now += time.Minute
	if err := call(); s.calls != 7 || errors.Is(err, carrier.ErrParked) {
		t.Errorf("no trial after the park: %v", err)
	}
	if err := call(); s.calls != 7 || !errors.Is(err, carrier.ErrParked) {
		t.Errorf("a second trial: %v", err)
	}
	w.now += time.Minute
	s.err = &carrier.PluginError{} // an answer, if not a glad one
	_ = call()
	s.err = nil
	if err := call(); err != nil || s.calls != 9 || !slices.Equal(w.parked, []bool{true, false}) || len(w.slept) != len(want) {
		t.Errorf("%v, call %d, parked %v, slept %v", err, s.calls, w.parked, w.slept)
	}
}

// While a trial runs, nobody else gets through.
func TestOneTrial(t *testing.T) {
	t.Parallel()
	w, s := &world{}, &stub{err: trap()}
	cfg := w.supervision()
	cfg.Threshold = 1
	running := make(chan struct{})
	inner := callerFunc(func(ctx context.Context) error {
		if s.calls++; s.calls == 2 {
			close(running)
			<-ctx.Done()
		}
		return trap()
	})
	p := carrier.Supervise("p", inner, cfg)
	_, _ = p.Call(t.Context(), 1, nil)
	w.now += time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _, _ = p.Call(ctx, 1, nil) }()
	<-running
	if _, err := p.Call(t.Context(), 1, nil); !errors.Is(err, carrier.ErrParked) {
		t.Errorf("beside the trial: %v", err)
	}
	cancel()
	<-done
}

type callerFunc func(ctx context.Context) error

func (f callerFunc) Call(ctx context.Context, _ uint32, _ []byte) ([]byte, error) { return nil, f(ctx) }
func (callerFunc) Close(context.Context) error                                    { return nil }

// What says nothing about the plugin counts for nothing.
func TestSupervisionBlamesThePlugin(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault  carrier.Fault
		blamed bool
	}{
		"exit":                  {carrier.Fault{Kind: carrier.KindExit}, true},
		"protocol":              {carrier.Fault{Kind: carrier.KindProtocol}, true},
		"memory":                {carrier.Fault{Kind: carrier.KindMemory}, true},
		"deadline in the call":  {carrier.Fault{Kind: carrier.KindDeadline, Entered: true, Err: context.DeadlineExceeded}, true},
		"waiting for its turn":  {carrier.Fault{Kind: carrier.KindDeadline, Err: context.DeadlineExceeded}, false},
		"the caller gave up":    {carrier.Fault{Kind: carrier.KindDeadline, Entered: true, Err: context.Canceled}, false},
		"closed":                {carrier.Fault{Kind: carrier.KindClosed, Entered: true}, false},
		"too large for carrier": {carrier.Fault{Kind: carrier.KindRefused}, false},
	} {
		w := &world{}
		p := carrier.Supervise("p", &stub{err: &c.fault}, w.supervision())
		_, _ = p.Call(t.Context(), 1, nil)
		_, _ = p.Call(t.Context(), 1, nil)
		if blamed := len(w.slept) > 0; blamed != c.blamed {
			t.Errorf("%s: blamed %v", name, blamed)
		}
	}
}

// The jitter takes away up to half.
func TestSupervisionJitter(t *testing.T) {
	t.Parallel()
	w := &world{}
	cfg := w.supervision()
	cfg.Uniform = func(n int64) int64 { return n - 1 }
	p := carrier.Supervise("p", &stub{err: trap()}, cfg)
	for range 3 {
		_, _ = p.Call(t.Context(), 1, nil)
	}
	if want := []time.Duration{time.Second / 2, time.Second}; !slices.Equal(w.slept, want) {
		t.Errorf("slept %v, want %v", w.slept, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := p.Call(ctx, 1, nil)
	if f, ok := errors.AsType[*carrier.Fault](err); !ok || f.Kind != carrier.KindDeadline || f.Entered {
		t.Errorf("a caller that gave up while waiting: %v", err)
	}
}

// together answers all callers at once, when so many wait, as a process does
// that ends with all that runs in it.
type together struct {
	wait sync.WaitGroup
	err  error
}

func (g *together) Call(context.Context, uint32, []byte) ([]byte, error) {
	g.wait.Done()
	g.wait.Wait()
	return nil, g.err
}

func (*together) Close(context.Context) error { return nil }

// What ends many calls at once is one failure: a process that died once is not
// parked for as many calls as it had.
func TestOneDeathIsOneFailure(t *testing.T) {
	t.Parallel()
	w, g := &world{}, &together{err: trap()}
	p := carrier.Supervise("p", g, w.supervision())
	for range 2 {
		var all sync.WaitGroup
		g.wait.Add(10)
		for range 10 {
			all.Go(func() { _, _ = p.Call(t.Context(), 1, nil) })
		}
		all.Wait()
		if len(w.parked) != 0 {
			t.Fatalf("parked %v", w.parked)
		}
		w.now += time.Minute // past the wait, so that nobody sleeps side by side
	}
	for range 4 {
		g.wait.Add(1)
		_, _ = p.Call(t.Context(), 1, nil)
		w.now += time.Minute
	}
	if !slices.Equal(w.parked, []bool{true}) {
		t.Errorf("parked %v after six deaths", w.parked)
	}
}

// What counts is for whoever supervises to say.
func TestBlames(t *testing.T) {
	t.Parallel()
	w := &world{}
	s := &stub{err: &carrier.Fault{Kind: carrier.KindDeadline, Plugin: "p", Entered: true}}
	cfg := w.supervision()
	cfg.Blames = func(f *carrier.Fault) bool { return f.Kind == carrier.KindTrap }
	p := carrier.Supervise("p", s, cfg)
	for range 20 {
		_, _ = p.Call(t.Context(), 1, nil)
	}
	if s.calls != 20 || len(w.slept) != 0 {
		t.Errorf("%d calls, slept %v", s.calls, w.slept)
	}
	s.err = trap()
	for range 6 {
		_, _ = p.Call(t.Context(), 1, nil)
	}
	if !slices.Equal(w.parked, []bool{true}) {
		t.Errorf("parked %v", w.parked)
	}
}
