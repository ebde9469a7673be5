package carrier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// ErrParked is the cause of a Fault whose plugin is not called because it
// failed again and again. What waits for it stays where it is.
var ErrParked = errors.New("the plugin is parked")

// Supervision says when a failing plugin is tried again. Zero fields take the
// default.
type Supervision struct {
	// Base is the wait after the first failure; it doubles with each one that
	// follows, up to Cap, less a random half. Defaults 200 ms and 30 s.
	Base, Cap time.Duration
	// Threshold is the number of failures in a row that park the plugin: then
	// one call every Park is let through, as a trial, until one is answered.
	// Defaults 5 and 1 minute.
	Threshold int
	Park      time.Duration
	// Elapsed is a clock that never steps. Default: monotonic time.
	Elapsed func() time.Duration
	// Sleep waits, or fails when ctx is done. Default: a timer.
	Sleep func(ctx context.Context, d time.Duration) error
	// Uniform draws from [0, n). Default: no jitter.
	Uniform func(n int64) int64
	// Blames says which faults count against the plugin. Default: it broke
	// off, broke the protocol, or let its deadline pass.
	Blames func(f *Fault) bool
	// Parked is told when the plugin is parked and when it is back.
	Parked func(parked bool)
	// Logger is told the same. Default: discarded.
	Logger *slog.Logger
}

func (s Supervision) withDefaults() Supervision {
	setDuration(&s.Base, 200*time.Millisecond)
	setDuration(&s.Cap, 30*time.Second)
	setDuration(&s.Park, time.Minute)
	set(&s.Threshold, 5)
	if s.Elapsed == nil {
		start := time.Now()                                           //nolint:forbidigo // the default clock
		s.Elapsed = func() time.Duration { return time.Since(start) } //nolint:forbidigo // the default clock
	}
	if s.Sleep == nil {
		s.Sleep = sleep
	}
	if s.Uniform == nil {
		s.Uniform = func(int64) int64 { return 0 }
	}
	if s.Blames == nil {
		s.Blames = (*Fault).blames
	}
	if s.Parked == nil {
		s.Parked = func(bool) {}
	}
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	return s
}

func setDuration(v *time.Duration, def time.Duration) {
	if *v <= 0 {
		*v = def
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Supervised calls a plugin as long as it is worth it. It is safe for
// concurrent use.
type Supervised struct {
	plugin string
	inner  Caller
	cfg    Supervision

	mu       sync.Mutex
	failures int
	// counted is how many failures have been counted, for calls that run side
	// by side: what ends them all is one.
	counted int
	// until is when the plugin may be called again, by cfg.Elapsed.
	until time.Duration
}

var _ Caller = (*Supervised)(nil)

// Supervise returns inner, the named plugin, under supervision.
func Supervise(plugin string, inner Caller, cfg Supervision) *Supervised {
	cfg = cfg.withDefaults()
	cfg.Logger = cfg.Logger.With("plugin", plugin)
	return &Supervised{plugin: plugin, inner: inner, cfg: cfg}
}

// Call implements [Caller]. After a failure it waits before it calls; while the
// plugin is parked it returns a Fault of kind refused and cause [ErrParked].
func (s *Supervised) Call(ctx context.Context, method uint32, request []byte) ([]byte, error) {
	wait, parked := s.wait()
	if parked {
		return nil, &Fault{
			Kind: KindRefused, Plugin: s.plugin, Err: ErrParked,
			Detail: fmt.Sprintf("parked after %d failures in a row; tried again in %s", s.cfg.Threshold, wait.Round(time.Second)),
		}
	}
	if wait > 0 {
		if err := s.cfg.Sleep(ctx, wait); err != nil {
			return nil, &Fault{Kind: KindDeadline, Plugin: s.plugin, Err: err, Detail: "while waiting to start it again: " + err.Error()}
		}
	}
	s.mu.Lock()
	counted := s.counted
	s.mu.Unlock()
	answer, err := s.inner.Call(ctx, method, request)
	s.ended(err, counted)
	return answer, err
}

// Close implements [Caller].
func (s *Supervised) Close(ctx context.Context) error { return s.inner.Close(ctx) }

// wait returns how long a call must wait, and whether it must not be made. The
// first call after a parked time is the trial; others go on being refused.
func (s *Supervised) wait() (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := max(0, s.until-s.cfg.Elapsed())
	if s.failures < s.cfg.Threshold {
		return left, false
	}
	if left > 0 {
		return left, true
	}
	s.until = s.cfg.Elapsed() + s.cfg.Park
	return 0, false
}

// ended notes how a call ended that began after so many failures.
func (s *Supervised) ended(err error, counted int) {
	fault, broke := errors.AsType[*Fault](err)
	if broke && !s.cfg.Blames(fault) {
		return // says nothing about the plugin
	}
	s.mu.Lock()
	if broke && counted != s.counted {
		s.mu.Unlock()
		return // it ended with another one
	}
	before := s.failures
	if broke {
		s.failures++
		s.counted++
		s.until = s.cfg.Elapsed() + s.pause()
	} else {
		s.failures, s.until = 0, 0
	}
	after := s.failures
	s.mu.Unlock()
	switch {
	case before < s.cfg.Threshold && after == s.cfg.Threshold:
		s.cfg.Logger.Error("plugin parked: what waits for it stays in the queue", "failures", after, "fault", fault.Error())
		s.cfg.Parked(true)
	case before >= s.cfg.Threshold && after == 0:
		s.cfg.Logger.Info("plugin answers again and is no longer parked")
		s.cfg.Parked(false)
	}
}

// pause is the wait after the failure just counted.
func (s *Supervised) pause() time.Duration {
	if s.failures >= s.cfg.Threshold {
		return s.cfg.Park
	}
	d := s.cfg.Cap
	if doublings := s.failures - 1; doublings < 30 {
		d = min(d, s.cfg.Base<<doublings)
	}
	return d - time.Duration(s.cfg.Uniform(int64(d/2)+1))
}

// blames reports whether the plugin is to blame: it broke off, broke the
// protocol, or let its deadline pass.
func (e *Fault) blames() bool {
	switch e.Kind {
	case KindTrap, KindProtocol, KindMemory, KindExit:
		return true
	case KindDeadline:
		return e.Entered && !errors.Is(e.Err, context.Canceled)
	case KindRefused, KindClosed:
		return false
	}
	return false
}
