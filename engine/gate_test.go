package engine_test

import (
	"context"
	"testing"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

func admitting(n int) func(*engine.Config) {
	return func(c *engine.Config) { c.RecordConcurrency = n }
}

// Seed section 4 item 6: one call more than may run at a time is refused at
// once and writes nothing, gathered or not; when a call ends, the next one is
// admitted.
func TestAdmissionGate(t *testing.T) {
	t.Parallel()
	f := open(t)
	g := gatherOver(t, f, admitting(2))
	out := make(chan answered, 2)
	g.call(t.Context(), out, plain("single", "1")) // gathered
	<-g.entered
	go func() {
		res, err := g.Record(t.Context(), plain("b1", "1"), plain("b2", "1"))
		out <- answered{"batch", res, err}
	}()
	<-g.entered
	for _, events := range [][]engine.Event{{plain("over", "1")}, {plain("over", "1"), plain("over2", "1")}} {
		_, err := g.Record(t.Context(), events...)
		tagIs(t, err, sdk.TagUnavailable, "overloaded")
	}
	close(g.release)
	for range 2 {
		if a := <-out; a.err != nil {
			t.Errorf("%s, which was admitted: %v", a.id, a.err)
		}
	}
	if got := f.total("tokens"); got != "3/3" {
		t.Errorf("total %s, want that of the admitted calls: 3/3", got)
	}
	res, err := g.Record(t.Context(), plain("over", "1"))
	if err != nil || outcomes(res) != "inserted" {
		t.Errorf("asked again: %s, %v", outcomes(res), err)
	}
}

// A permit lives as long as its call, whatever ends it: a caller that gives up
// and a panic of the store give it back.
func TestPermitsEndWithTheirCalls(t *testing.T) {
	t.Parallel()
	f := open(t)
	g := gatherOver(t, f, admitting(1))
	ctx, cancel := context.WithCancel(t.Context())
	out := make(chan answered, 2)
	g.call(ctx, out, plain("a", "1"))
	<-g.entered
	cancel()
	a := <-out
	tagIs(t, a.err, sdk.TagUnavailable, "canceled")
	go func() {
		res, err := g.Record(t.Context(), plain("b", "1"), plain("c", "1"))
		out <- answered{"b", res, err}
	}()
	if <-g.entered; true { // admitted
		close(g.release)
	}
	if b := <-out; b.err != nil {
		t.Errorf("after a call that gave up: %v", b.err)
	}

	panics := true
	e := over(t, &wrapped{Adapter: f.store, record: func(ctx context.Context, req storage.RecordRequest) (storage.RecordResult, error) {
		if panics {
			panic("the store")
		}
		return f.store.RecordEvents(ctx, req)
	}}, admitting(1))
	func() {
		defer func() { _ = recover() }()
		_, _ = e.Record(t.Context(), plain("d", "1"), plain("e", "1"))
	}()
	panics = false
	if _, err := e.Record(t.Context(), plain("d", "1"), plain("e", "1")); err != nil {
		t.Errorf("after a panic: %v", err)
	}
}

// The limit is 64 where nobody says otherwise, and a negative one is none.
func TestAdmissionDefaults(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int]int{0: 64, -1: 80} {
		f := open(t)
		g := gatherOver(t, f, admitting(limit), func(c *engine.Config) { c.Coalesce = -1 })
		out := make(chan answered, 80)
		for range want {
			g.call(t.Context(), out, plain("same", "1"))
			<-g.entered
		}
		if limit == 0 {
			_, err := g.Record(t.Context(), plain("more", "1"))
			tagIs(t, err, sdk.TagUnavailable, "overloaded")
		}
		close(g.release)
		for range want {
			if a := <-out; a.err != nil {
				t.Errorf("limit %d: %v", limit, a.err)
			}
		}
	}
}

// What is recorded in a caller's transaction works on the caller's connection
// and is not counted.
func TestBoundCallsAreNotCounted(t *testing.T) {
	t.Parallel()
	f := open(t)
	g := gatherOver(t, f, admitting(1))
	out := make(chan answered, 1)
	g.call(t.Context(), out, plain("a", "1"))
	<-g.entered
	err := f.store.WithTx(t.Context(), func(tx *sqlite.Tx) error {
		_, err := g.In(tx.Store()).Record(t.Context(), plain("b", "1"))
		return err
	})
	if err != nil {
		t.Errorf("in a transaction of the caller: %v", err)
	}
	close(g.release)
	<-out
}
