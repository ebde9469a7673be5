//go:build faults && linux

package faults

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/pgtest"
)

// hasty answers a record within three seconds, and slack is what a busy machine
// may add to that.
func hasty() settings {
	s := defaults()
	s.record = "3s"
	return s
}

const slack = 12 * time.Second

// records picks the exchange that makes recorded events durable: the program as
// it is released has one for the whole record.
func records(e pgtest.Exchange) bool {
	return e.Commits() && slices.ContainsFunc(e.SQL, insertsEvents.MatchString)
}

var insertsEvents = regexp.MustCompile(`(?i)insert into \S*fencepost_events\b`)

// F09, F10, D8, I1, I17: the answer to the commit of a record is lost, or the
// commit itself, by a cut and by silence. The client hears unavailable in each
// case, nothing else and in bounded time, and finds out by the same call again.
func TestLostCommitOfARecord(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do     pgtest.Action
		stored bool
	}{
		"F09 answer": {pgtest.DropAnswer, true}, "F10 request": {pgtest.DropRequest, false},
		"F11 answer hangs": {pgtest.HangAnswer, true}, "F11 request hangs": {pgtest.HangRequest, false},
	} {
		t.Run(subtest(name), func(t *testing.T) {
			t.Parallel()
			b := newProxied(t, hasty())
			b.subscribe()
			b.start("")
			b.record(events("first", 10))
			calls := [][]event{completions("both", 5), events("many", 20), events("one", 1)}
			if c.do == pgtest.HangAnswer || c.do == pgtest.HangRequest {
				calls = calls[:1] // each takes as long as the server waits
			}
			for n, batch := range calls {
				b.proxy.Set(pgtest.Rule{On: records, Do: c.do, Times: 1})
				began := time.Now()
				answer, err := b.post(batch)
				if err == nil {
					t.Fatalf("call %d was answered: %v", n, answer.Summary)
				}
				if !strings.Contains(err.Error(), "status 503") || !strings.Contains(err.Error(), "unavailable") {
					t.Errorf("call %d: %v, want unavailable", n, err)
				}
				if took := time.Since(began); took > 3*time.Second+slack {
					t.Errorf("call %d took %v", n, took)
				}
				if b.proxy.Fired() != 1 {
					t.Fatalf("the fault fired %d times", b.proxy.Fired())
				}
				b.proxy.Set()
				parts := 0
				for _, e := range batch {
					parts += len(e.parts())
				}
				stored := b.read()
				for _, e := range batch {
					for k := range e.parts() {
						if _, ok := stored.byKey[k]; ok != c.stored {
							t.Errorf("call %d: event %v stored %t", n, k, ok)
						}
					}
				}
				inserted := b.record(batch)
				if c.stored && inserted != 0 || !c.stored && inserted != len(batch) {
					t.Errorf("call %d again inserted %d of %d, stored before: %t", n, inserted, len(batch), c.stored)
				}
			}
			b.drain()
			b.audit().accepted(b.rig)
		})
	}
}

// F09 on the other side: outcomes of deliveries and claims whose commits are
// lost, again and again. Nothing is charged twice, and all of it settles.
func TestLostCommitsOfDelivery(t *testing.T) {
	t.Parallel()
	for _, do := range []pgtest.Action{pgtest.DropAnswer, pgtest.DropRequest} {
		t.Run(fmt.Sprint(do), func(t *testing.T) {
			t.Parallel()
			s := shortLease()
			s.page = 10
			b := newProxied(t, s)
			b.subscribe()
			b.start("")
			n := 0
			b.proxy.Set(pgtest.Rule{Do: do, On: func(e pgtest.Exchange) bool {
				if !e.Commits() || !(e.InTransaction || e.Contains("fencepost_outbox_state")) {
					return false
				}
				n++
				return n%5 == 0 && n < 60
			}})
			all := events("e", 60)
			for i := 0; i < len(all); i += 6 {
				eventually(t, "the call is answered", func() bool {
					_, err := b.post(all[i : i+6])
					return err == nil
				})
			}
			eventually(t, "faults have fired", func() bool { return b.proxy.Fired() > 3 })
			b.drain()
			t.Logf("%d commits lost", b.proxy.Fired())
			b.proxy.Set() // the audit asks whether the server is ready, which is a commit too
			if got := b.audit().accepted(b.rig); got != len(all) {
				t.Errorf("%d items", got)
			}
		})
	}
}

// F20: a black hole. Calls end by their own deadline, the health check says
// unready by its own, the process lives, and when the network is back nothing
// acknowledged is lost and no restart is needed.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	b := newProxied(t, hasty())
	b.subscribe()
	b.start("")
	b.record(events("before", 20))
	b.proxy.Freeze()
	var wg sync.WaitGroup
	calls := make([][]event, 4)
	for c := range calls {
		calls[c] = events(fmt.Sprint("during", c), 5)
		wg.Go(func() {
			began := time.Now()
			_, err := b.post(calls[c])
			if err == nil || time.Since(began) > 3*time.Second+slack {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		})
	}
	eventually(t, "readiness turns red", func() bool { return b.status("/readyz") == http.StatusServiceUnavailable })
	if code := b.status("/livez"); code != http.StatusOK {
		t.Errorf("live answers %d", code)
	}
	wg.Wait()
	b.proxy.Thaw()
	b.recovers(calls...)
}

// recovers waits for readiness, repeats the calls that were made during a
// fault, and settles the books.
func (b *bed) recovers(calls ...[]event) {
	b.t.Helper()
	eventually(b.t, "readiness turns green", func() bool { return b.status("/readyz") == http.StatusOK })
	for _, call := range calls {
		b.record(call)
	}
	b.record(events("after", 5))
	b.drain()
	b.audit().accepted(b.rig)
}

// status is the status of a page; 0 if there is no answer in ten seconds.
func (r *rig) status(path string) int {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.server.base+path, http.NoBody)
	if err != nil {
		return 0
	}
	res, err := client.Do(req)
	if err != nil {
		return 0
	}
	_ = res.Body.Close()
	return res.StatusCode
}
