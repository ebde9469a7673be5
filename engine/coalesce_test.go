package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// A call that is written together with others sees its own answer: every caller
// sends a new event, a repeat, a conflict and an invalid one, all at once.
func TestGatheredCallsGetTheirOwnAnswers(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.want(f.each(plain("shared", "1")), "inserted")
	var wg sync.WaitGroup
	for i := range 40 {
		mine := plain(fmt.Sprintf("own-%d", i), "2")
		wg.Go(func() {
			for range 2 {
				for _, call := range []struct {
					event engine.Event
					tag   sdk.Tag
				}{
					{mine, ""},
					{plain("shared", "1"), ""},
					{plain("shared", strconv.Itoa(i+2)), sdk.TagConflict},
					{plain("bad", "-1"), sdk.TagInvalid},
				} {
					res, err := f.Record(t.Context(), call.event)
					switch {
					case sdk.TagOf(err) != call.tag:
						t.Errorf("%s %s: %v, want tag %q", call.event.ID, call.event.Quantity, err, call.tag)
					case err == nil && (len(res) != 1 || res[0].ID != call.event.ID || res[0].Index != 0):
						t.Errorf("%s: result %+v", call.event.ID, res)
					}
				}
			}
		})
	}
	wg.Wait()
	if got := f.total("tokens"); got != "81/41" {
		t.Errorf("total %s, want 81/41", got)
	}
}

// gathering is an engine whose first transaction waits, so that what comes
// meanwhile is gathered into the second.
type gathering struct {
	*engine.Engine
	f       *fixture
	entered chan int // units of each transaction
	release chan struct{}
}

func gatherOver(t *testing.T, f *fixture, change ...func(*engine.Config)) *gathering {
	t.Helper()
	g := &gathering{f: f, entered: make(chan int, 100), release: make(chan struct{})}
	g.Engine = over(t, &wrapped{Adapter: f.store, record: func(ctx context.Context, req storage.RecordRequest) (storage.RecordResult, error) {
		g.entered <- len(req.Units)
		select {
		case <-g.release:
		case <-ctx.Done():
			return storage.RecordResult{}, ctx.Err()
		}
		return f.store.RecordEvents(ctx, req)
	}}, change...)
	return g
}

// answered is what one caller got.
type answered struct {
	id  string
	res []engine.Result
	err error
}

// call records one event in a goroutine and sends what came of it.
func (g *gathering) call(ctx context.Context, to chan<- answered, e engine.Event) {
	go func() {
		res, err := g.Record(ctx, e)
		to <- answered{e.ID, res, err}
	}()
}

// Whichever event of an id comes first in a gathered batch, the delivery of
// what is stored is a duplicate: another caller's mistake is not ours.
func TestGatheredRedeliveryIsNoConflict(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.want(f.each(plain("a", "1")), "inserted")
	g := gatherOver(t, f)
	out := make(chan answered, 4)
	g.call(t.Context(), out, plain("first", "1"))
	<-g.entered
	wrong, right := g.waiting(t, plain("a", "2")), g.waiting(t, plain("a", "1"))
	close(g.release)
	if a := <-out; a.err != nil {
		t.Fatal(a.err)
	}
	a, b := <-wrong, <-right
	tagIs(t, a.err, sdk.TagConflict, "")
	if b.err != nil || outcomes(b.res) != "duplicate" {
		t.Errorf("the redelivery: %v, %v", outcomes(b.res), b.err)
	}
}

// waiting starts a call and gives it time to reach the queue. Order in the
// queue is not promised, so the tests hold for any.
func (g *gathering) waiting(t *testing.T, e engine.Event) chan answered {
	t.Helper()
	to := make(chan answered, 1)
	g.call(t.Context(), to, e)
	return to
}

// Close while calls are running: each gets an answer; who is told "closed" is
// not in the store, and who is told "inserted" is.
func TestCloseAnswersEveryCall(t *testing.T) {
	t.Parallel()
	for _, flushers := range []int{1, 3, -1} {
		t.Run(fmt.Sprint(flushers, " flushers"), func(t *testing.T) {
			t.Parallel()
			f := open(t)
			e := over(t, f.store, func(c *engine.Config) { c.Coalesce = flushers })
			const callers, calls = 16, 30
			out := make(chan answered, 2*callers*calls)
			begun := make(chan struct{}, callers*calls)
			var wg sync.WaitGroup
			for i := range callers {
				wg.Go(func() {
					for n := range calls {
						ev := plain(fmt.Sprintf("%d-%d", i, n), "1")
						events := []engine.Event{ev}
						if n%5 == 4 { // a batch, which is not gathered
							events = append(events, plain(ev.ID+"b", "1"))
						}
						begun <- struct{}{}
						res, err := e.Record(context.Background(), events...)
						for _, ev := range events {
							out <- answered{ev.ID, res, err}
						}
					}
				})
			}
			for range callers * 2 {
				<-begun
			}
			e.Close()
			stored := map[string]bool{} // nothing may come after Close
			for _, ev := range f.events() {
				stored[ev.EventID] = true
			}
			wg.Wait()
			close(out)
			told := 0
			for a := range out {
				switch {
				case a.err == nil && !stored[a.id]:
					t.Errorf("%s was inserted and is not in the store", a.id)
				case a.err != nil:
					tagIs(t, a.err, sdk.TagUnavailable, "closed")
					if stored[a.id] {
						t.Errorf("%s was refused and is in the store", a.id)
					}
					told++
				}
			}
			if n := len(f.events()); n != len(stored) {
				t.Errorf("%d events came after Close", n-len(stored))
			}
			if told == 0 || len(stored) == 0 {
				t.Errorf("%d refused, %d stored: the test proves nothing", told, len(stored))
			}
			e.Close() // again
		})
	}
}

// A caller that gives up is told that nobody knows, and its event may well be
// in the store; with the same id it can ask again.
func TestCallerGivesUp(t *testing.T) {
	t.Parallel()
	f := open(t)
	g := gatherOver(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	out := make(chan answered, 1)
	g.call(ctx, out, plain("a", "1"))
	<-g.entered
	cancel()
	a := <-out
	tagIs(t, a.err, sdk.TagUnavailable, "canceled")
	close(g.release)
	res, err := g.Record(t.Context(), plain("a", "1"))
	if err != nil || outcomes(res) != "duplicate" {
		t.Errorf("asked again: %v, %v", outcomes(res), err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, events := range [][]engine.Event{{plain("b", "1")}, {plain("b", "1"), plain("c", "1")}} {
		_, err = g.Record(gone, events...)
		tagIs(t, err, sdk.TagUnavailable, "")
	}
}

// B46: a store that stalls is unavailable within the bound, for every caller,
// also for those who wait behind a batch that takes all of it.
func TestStalledStoreIsUnavailableInTime(t *testing.T) {
	t.Parallel()
	f := open(t)
	const bound = 300 * time.Millisecond
	g := gatherOver(t, f, func(c *engine.Config) { c.RecordTimeout = bound })
	begin := time.Now()
	out := make(chan answered, 20)
	for i := range 20 {
		g.call(context.Background(), out, plain(strconv.Itoa(i), "1"))
	}
	for range 20 {
		a := <-out
		tagIs(t, a.err, sdk.TagUnavailable, "timeout")
	}
	_, err := g.Record(context.Background(), plain("x", "1"), plain("y", "1"))
	tagIs(t, err, sdk.TagUnavailable, "timeout")
	// Generous: the machine may be busy. Without the bound it is for ever.
	if took := time.Since(begin); took > 20*bound {
		t.Errorf("took %v with a bound of %v", took, bound)
	}
	if n := len(f.events()); n != 0 {
		t.Errorf("%d events", n)
	}
}

// B46: even a store that is deaf to its context keeps no caller longer.
func TestDeafStoreKeepsNoCaller(t *testing.T) {
	t.Parallel()
	f := open(t)
	release := make(chan struct{})
	e := over(t, &wrapped{Adapter: f.store, record: func(context.Context, storage.RecordRequest) (storage.RecordResult, error) {
		<-release
		return storage.RecordResult{}, errors.New("late")
	}}, func(c *engine.Config) { c.RecordTimeout = 50 * time.Millisecond })
	for range 3 {
		_, err := e.Record(context.Background(), plain("a", "1"))
		tagIs(t, err, sdk.TagUnavailable, "timeout")
	}
	close(release)
}

// A store that panics harms the calls of its batch only.
func TestPanicHarmsOnlyItsBatch(t *testing.T) {
	t.Parallel()
	f := open(t)
	e := over(t, &wrapped{Adapter: f.store, record: func(ctx context.Context, req storage.RecordRequest) (storage.RecordResult, error) {
		if req.Units[0].Entries[0].Event.EventID == "boom" {
			panic("a fault of the adapter")
		}
		return f.store.RecordEvents(ctx, req)
	}})
	_, err := e.Record(t.Context(), plain("boom", "1"))
	tagIs(t, err, sdk.TagUnavailable, "panic")
	if _, err := e.Record(t.Context(), plain("fine", "1")); err != nil {
		t.Error(err)
	}
}

// What one caller asks for and the store refuses is not held against those who
// were gathered with it.
func TestRefusalOfOneIsNotEverybodys(t *testing.T) {
	t.Parallel()
	f := open(t)
	g := gatherOver(t, f)
	refusing := over(t, &wrapped{Adapter: f.store, record: func(ctx context.Context, req storage.RecordRequest) (storage.RecordResult, error) {
		g.entered <- len(req.Units)
		<-g.release
		for _, u := range req.Units {
			if u.Entries[0].Event.EventID == "poison" {
				return storage.RecordResult{}, &sdk.Error{Tag: sdk.TagInvalid, Code: "constraint"}
			}
		}
		return f.store.RecordEvents(ctx, req)
	}})
	g.Engine = refusing
	first, poison, fine := g.waiting(t, plain("first", "1")), g.waiting(t, plain("poison", "1")), g.waiting(t, plain("fine", "1"))
	<-g.entered
	close(g.release)
	tagIs(t, (<-poison).err, sdk.TagInvalid, "constraint")
	for _, c := range []chan answered{first, fine} {
		if a := <-c; a.err != nil {
			t.Errorf("%s: %v", a.id, a.err)
		}
	}
}

// Every call on its own connection-less path gives the same answers.
func TestWithoutCoalescing(t *testing.T) {
	t.Parallel()
	f := open(t)
	e := over(t, f.store, func(c *engine.Config) { c.Coalesce = -1 })
	if _, err := e.Record(t.Context(), plain("a", "1")); err != nil {
		t.Fatal(err)
	}
	_, err := e.Record(t.Context(), plain("a", "2"))
	tagIs(t, err, sdk.TagConflict, "")
	var tagged *sdk.Error
	if errors.As(err, &tagged); tagged.Field != "events[0].id" {
		t.Errorf("field %q", tagged.Field)
	}
	e.Close()
	_, err = e.Record(t.Context(), engine.Event{ID: "b", Tenant: "acme", Feature: "tokens", Quantity: decimal.One})
	tagIs(t, err, sdk.TagUnavailable, "closed")
}
