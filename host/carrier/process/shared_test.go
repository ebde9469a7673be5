package process

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/plugins/sdk/guest/subprocess"
)

// sideBySide is a plugin that takes calls at once.
type sideBySide struct {
	mu      sync.Mutex
	waiting chan struct{}
}

// Methods of it.
const (
	says      = iota + 1 // the request
	meets                // another call, or never
	ends                 // when its context does
	neverEnds            // not then either
	dies
)

func (*sideBySide) Concurrent() bool { return true }

func (p *sideBySide) Call(ctx context.Context, method uint32, request []byte, _ subprocess.Ask) ([]byte, int32) {
	switch method {
	case meets:
		p.mu.Lock()
		other := p.waiting
		if other == nil {
			p.waiting = make(chan struct{})
			other = p.waiting
			p.mu.Unlock()
			<-other
			return request, 0
		}
		p.mu.Unlock()
		close(other)
	case ends:
		<-ctx.Done()
	case neverEnds:
		select {}
	case dies:
		panic("a bug")
	}
	return request, 0
}

func openShared(t *testing.T, grace time.Duration) *Shared {
	t.Helper()
	s, err := OpenShared(config(t, "shared"), grace)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(context.Background()), s.Close(context.Background())); err != nil {
			t.Error(err)
		}
		if st := s.Stats(); st.Running != 0 {
			t.Errorf("after Close: %d processes", st.Running)
		}
		if exists(s.process.sockets.dir) {
			t.Error("the folder of sockets is left")
		}
	})
	return s
}

func (s *Shared) mustSay(t *testing.T) {
	t.Helper()
	if answer, err := s.Call(t.Context(), says, []byte("hello")); err != nil || string(answer) != "hello" {
		t.Fatalf("%q, %v", answer, err)
	}
}

// Two calls meet in one process: neither would end alone.
func TestSharedSideBySide(t *testing.T) {
	t.Parallel()
	s := openShared(t, 0)
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if _, err := s.Call(t.Context(), meets, nil); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if st := s.Stats(); st.Started != 1 {
		t.Errorf("%d processes", st.Started)
	}
}

// A call whose deadline passes, or whose caller goes, is over for the caller at
// once, as one that may have happened; a plugin that ends it keeps its process.
func TestSharedKeepsItsProcess(t *testing.T) {
	t.Parallel()
	s := openShared(t, time.Minute)
	s.mustSay(t)
	over := func(ctx context.Context, cancel context.CancelFunc) error {
		defer cancel()
		_, err := s.Call(ctx, ends, nil)
		f, ok := errors.AsType[*carrier.Fault](err)
		if err != nil && (!ok || f.Kind != carrier.KindDeadline || !f.Entered) {
			t.Errorf("%v", err)
		}
		return err
	}
	// At the deadline the plugin may answer, and be as fast as the fault.
	_ = over(context.WithTimeout(t.Context(), 100*time.Millisecond))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	time.AfterFunc(50*time.Millisecond, cancel)
	if over(ctx, cancel) == nil {
		t.Error("a call whose caller went away was answered")
	}
	s.mustSay(t)
	if st := s.Stats(); st.Started != 1 {
		t.Errorf("%d processes", st.Started)
	}
}

// A call that does not end after its deadline costs the process when the grace
// is over, with all that runs in it; the next call starts another (F39, D7).
func TestSharedKillsWhatHangs(t *testing.T) {
	t.Parallel()
	s := openShared(t, 300*time.Millisecond)
	s.mustSay(t)
	beside := make(chan error, 1)
	go func() {
		_, err := s.Call(t.Context(), neverEnds, nil) // with two minutes of its own
		beside <- err
	}()
	for s.Stats().Calls < 2 { // it is in the process
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.Call(ctx, neverEnds, nil); err == nil {
		t.Fatal("answered")
	}
	f, ok := errors.AsType[*carrier.Fault](<-beside)
	if !ok || !f.Entered {
		t.Errorf("the call beside it: %v", f)
	}
	s.mustSay(t)
	if st := s.Stats(); st.Started != 2 || st.Running != 1 {
		t.Errorf("%+v", st)
	}
}

// A crash is a trap of every call in the process, and does not last.
func TestSharedCrash(t *testing.T) {
	t.Parallel()
	s := openShared(t, 0)
	for range 2 {
		_, err := s.Call(t.Context(), dies, nil)
		f, ok := errors.AsType[*carrier.Fault](err)
		if !ok || f.Kind != carrier.KindTrap || !f.Entered {
			t.Errorf("%v", err)
		}
		s.mustSay(t)
	}
	if st := s.Stats(); st.Started != 3 || st.Running != 1 {
		t.Errorf("%+v", st)
	}
}

// A plugin that does not start is not started as often as it is called.
func TestSharedStartsAreSpaced(t *testing.T) {
	t.Parallel()
	cfg := config(t, "no handshake")
	cfg.Limits.StartTimeout = 5 * time.Second
	s, err := OpenShared(cfg, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(context.Background()) }()
	s.failed = 20
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = s.Call(ctx, says, nil)
	if f, ok := errors.AsType[*carrier.Fault](err); !ok || f.Entered || time.Since(began) < 150*time.Millisecond {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	if st := s.Stats(); st.Started != 0 {
		t.Errorf("%d processes", st.Started)
	}
}

// Closing ends what runs, when its time is over, and refuses what comes.
func TestSharedClose(t *testing.T) {
	t.Parallel()
	s := openShared(t, time.Minute)
	s.mustSay(t)
	running := make(chan error, 1)
	go func() {
		_, err := s.Call(t.Context(), neverEnds, nil)
		running <- err
	}()
	for s.Stats().Calls < 2 {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
	if f, ok := errors.AsType[*carrier.Fault](<-running); !ok || f.Kind != carrier.KindClosed || !f.Entered {
		t.Errorf("the running call: %v", f)
	}
	if _, err := s.Call(t.Context(), says, nil); err == nil {
		t.Error("a call after Close")
	}
}
