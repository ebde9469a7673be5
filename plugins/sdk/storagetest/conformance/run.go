package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// run is one case in progress. What a case calls from goroutines of its own is
// errorf; fatalf is for the goroutine of the case.
type run struct {
	ctx      context.Context //nolint:containedctx // of the case: the run ends with it
	opts     Options
	store    storage.Adapter
	manifest storage.Manifest
	prefix   string

	after []func() error // of the case's goroutine, when it has ended

	mu       sync.Mutex
	messages []string
}

// maxMessages bounds what one case reports.
const maxMessages = 12

// stop ends a case.
type stop struct{}

// protect runs f and turns a panic into a message.
func (r *run) protect(f func()) {
	defer func() {
		switch v := recover().(type) {
		case nil, stop:
		default:
			r.errorf("panic: %v\n%s", v, trimStack(string(debug.Stack())))
		}
	}()
	f()
}

// trimStack keeps the part of a stack that says where the panic was.
func trimStack(s string) string {
	lines := strings.Split(s, "\n")
	return strings.Join(lines[:min(len(lines), 16)], "\n")
}

func (r *run) errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.messages) < maxMessages {
		r.messages = append(r.messages, fmt.Sprintf(format, args...))
	}
}

func (r *run) fatalf(format string, args ...any) {
	r.errorf(format, args...)
	panic(stop{})
}

// must ends the case if a call failed.
func (r *run) must(what string, err error) {
	if err != nil {
		r.fatalf("%s: %v", what, err)
	}
}

// same compares what two values look like.
func (r *run) same(what string, got, want any) {
	g, w := text(got), text(want)
	if g != w {
		r.errorf("%s: got %s, want %s", what, shorten(g), shorten(w))
	}
}

func shorten(s string) string {
	const limit = 1500
	if len(s) > limit {
		return s[:limit] + "…"
	}
	return s
}

// text renders a value so that equal values, and only those, look the same: a
// decimal by its canonical text, a time in UTC.
func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%#v", v)
	}
	return string(b)
}

// tagIs checks the tag and, if it is not empty, the code of an error.
func (r *run) tagIs(what string, err error, tag sdk.Tag, code string) {
	if err == nil {
		r.errorf("%s: no error, want one of tag %s", what, tag)
		return
	}
	e, ok := errors.AsType[*sdk.Error](err)
	if !ok {
		r.errorf("%s: the error has no tag, want %s: %v", what, tag, err)
		return
	}
	if e.Tag != tag || (code != "" && e.Code != code) {
		r.errorf("%s: tag %s and code %q, want %s and %q: %v", what, e.Tag, e.Code, tag, code, err)
	}
}

// need is what the engine does before every call: it looks at the manifest,
// answers unsupported itself, and reaches a method only if it is declared: B8,
// B9.
func need[T any](a storage.Adapter, c storage.Capability) (T, error) {
	var zero T
	m := a.Describe()
	if !m.Has(c) {
		return zero, &sdk.Error{
			Tag: sdk.TagUnsupported, Code: string(c),
			Rule: "the storage adapter " + m.Name + " does not declare " + string(c),
		}
	}
	impl, ok := storage.As[T](a)
	if !ok {
		return zero, &sdk.Error{
			Tag: sdk.TagUnsupported, Code: string(c),
			Rule: "the storage adapter " + m.Name + " declares " + string(c) + " and does not implement it",
		}
	}
	return impl, nil
}

// use is need for a case whose capabilities are declared.
func use[T any](r *run, c storage.Capability) T {
	impl, err := need[T](r.store, c)
	r.must("reach "+string(c), err)
	return impl
}

// beside is another host's adapter on the same store, or nil. It is closed when
// the case is over.
func (r *run) beside() storage.Adapter {
	if r.opts.Beside == nil {
		return nil
	}
	other, err := r.opts.Beside(r.ctx)
	if e, ok := tagged(err); ok && e.Code == "store_locked" {
		return nil
	}
	r.must("open the store beside", err)
	r.after = append(r.after, other.Close)
	return other
}

func (r *run) eventStore() storage.EventStore {
	return use[storage.EventStore](r, storage.DurableEvents)
}

func (r *run) streamer() storage.EventStreamer {
	return use[storage.EventStreamer](r, storage.EventStreaming)
}

func (r *run) corrections() storage.CorrectionStore {
	return use[storage.CorrectionStore](r, storage.Corrections)
}

func (r *run) outbox() storage.OutboxStore {
	return use[storage.OutboxStore](r, storage.Outbox)
}

// until calls f until it answers true, at most until the case's time is over.
// It waits a little longer each time: how long something takes decides nothing.
func (r *run) until(what string, f func() bool) {
	wait := time.Millisecond
	for !f() {
		timer := time.NewTimer(wait)
		select {
		case <-r.ctx.Done():
			timer.Stop()
			r.fatalf("%s: not before the case's time was over", what)
		case <-timer.C:
		}
		wait = min(2*wait, 100*time.Millisecond)
	}
}

// together runs n functions at once, from one starting line, and waits for all.
func (r *run) together(n int, f func(i int)) {
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			ready.Done()
			<-start
			r.protect(func() { f(i) })
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
}

// tagged returns the tagged error in err's chain.
func tagged(err error) (*sdk.Error, bool) { return errors.AsType[*sdk.Error](err) }
