package egress

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// Q9, T6, I15: the secret reaches the provider and nobody else, though the
// provider repeats it everywhere it can.
func TestSecretIsInjectedAndNeverSeen(t *testing.T) {
	t.Parallel()
	var seen atomic.Value
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		auth := r.Header.Get("Authorization")
		seen.Store(auth)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Echo", auth)
		w.Header().Set("X-"+testKey, "1")
		w.Header().Set("Set-Cookie", "key="+testKey)
		w.Header().Set("Request-Id", "req_"+testKey)
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = fmt.Fprintf(w, `{"error":{"code":%q,"message":"Invalid API Key provided: %s"}}`, testKey, auth)
	})
	var logs bytes.Buffer
	client := newClient(t, s.host(), func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	got, ex := one(t, client, s.host())
	if seen.Load() != "Bearer "+testKey {
		t.Errorf("provider saw %v", seen.Load())
	}
	everything := fmt.Sprintf("%+v %s %+v %+v %#v", got, got.Body, ex, logs.String(), client.cfg.Secrets)
	if strings.Contains(strings.ToLower(everything), strings.ToLower(testKey)) {
		t.Errorf("the secret shows: %s", everything)
	}
	if !strings.Contains(string(got.Body), "Bearer ***") || header(got, "X-Echo") != "Bearer ***" || header(got, "Set-Cookie") != "" {
		t.Errorf("answer %s %v", got.Body, got.Headers)
	}
	if !strings.Contains(logs.String(), "class=indefinite") || strings.Contains(logs.String(), "meter_events") {
		t.Errorf("log: %s", logs.String())
	}
}

// The evidence of one exchange.
func TestExchangeRecord(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 123456789, time.FixedZone("", 3600))
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "identity" || r.Host != r.Context().Value(http.LocalAddrContextKey).(fmt.Stringer).String() {
			t.Errorf("headers %v host %s", r.Header, r.Host)
		}
		w.Header().Set("Request-Id", "req_123")
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"object":"billing.meter_event"}`)
	})
	var observed []exporter.HostClass
	client := newClient(t, s.host(), func(c *Config) {
		c.Now = fixed(now)
		c.Observe = func(k exporter.HostClass) { observed = append(observed, k) }
	})
	got, ex := one(t, client, s.host())
	at := time.Date(2026, 11, 30, 11, 0, 0, 123456000, time.UTC)
	want := exporter.Exchange{Class: exporter.ClassSuccess, Status: 200, RequestID: "req_123", StartedAt: at, FinishedAt: at}
	if d := cmp.Diff(want, ex); d != "" {
		t.Error(d)
	}
	if got.Failure != "" || got.Reason != "" || string(got.Body) != `{"object":"billing.meter_event"}` {
		t.Errorf("response %+v", got)
	}
	if s.count() != 1 || !strings.Contains(s.requests[0], "identifier="+testIdent) {
		t.Errorf("requests %q", s.requests)
	}
	if d := cmp.Diff([]exporter.HostClass{exporter.ClassSuccess}, observed); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(Stats{Requests: map[exporter.HostClass]uint64{exporter.ClassSuccess: 1}, Connections: 1}, client.Stats()); d != "" {
		t.Error(d)
	}
}

func batchOf(host string, n int) ([]CallItem, []capability.Request) {
	items, requests := make([]CallItem, n), make([]capability.Request, n)
	for i := range n {
		id, identifier := fmt.Sprintf("i%d", i), fmt.Sprintf("fencepost_%03d", i)
		items[i] = CallItem{ID: id, Identifier: identifier}
		requests[i] = meterEvent(host, id, identifier)
	}
	return items, requests
}

// O16: requests of one serial key are never together, keep their order, and
// hold up nobody else; over calls of the client too.
func TestSerialKeys(t *testing.T) {
	t.Parallel()
	var (
		mu       sync.Mutex
		inFlight = map[string]int{}
		order    = map[string][]string{}
		together int
	)
	bothKeys := make(chan struct{})
	var open sync.Once
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("X-Key")
		mu.Lock()
		inFlight[key]++
		if inFlight[key] > 1 {
			t.Errorf("two requests of %s at once", key)
		}
		together = max(together, len(inFlight))
		order[key] = append(order[key], r.Header.Get("X-N"))
		if len(inFlight) == 2 {
			open.Do(func() { close(bothKeys) })
		}
		mu.Unlock()
		// The first of each key waits until the other key is here as well.
		select {
		case <-bothKeys:
		case <-r.Context().Done():
		}
		mu.Lock()
		if inFlight[key]--; inFlight[key] == 0 {
			delete(inFlight, key)
		}
		mu.Unlock()
	})
	client := newClient(t, s.host(), func(c *Config) { c.Concurrency = 4 })
	items, requests := batchOf(s.host(), 12)
	for i := range items {
		items[i].SerialKey = []string{"a", "b"}[i%2]
		requests[i].Headers = append(requests[i].Headers,
			capability.Header{Name: "X-Key", Value: items[i].SerialKey}, capability.Header{Name: "X-N", Value: fmt.Sprintf("%02d", i)})
	}
	var wg sync.WaitGroup
	for _, part := range [][2]int{{0, 6}, {6, 12}} {
		wg.Go(func() {
			ctx, call := client.Begin(t.Context(), items[part[0]:part[1]])
			if _, err := client.Send(ctx, requests[part[0]:part[1]]); err != nil {
				t.Error(err)
			}
			for id, list := range call.Exchanges() {
				if list[0].Class != exporter.ClassSuccess {
					t.Errorf("%s: %+v", id, list)
				}
			}
		})
	}
	wg.Wait()
	for key, got := range order {
		// Each call's own requests are in order, whichever call came first.
		for _, half := range [][]string{pick(got, "00", "06"), pick(got, "06", "12")} {
			if len(half) != 3 || half[0] > half[1] || half[1] > half[2] {
				t.Errorf("key %s: %v", key, got)
			}
		}
	}
	if together != 2 {
		t.Errorf("%d keys together, want 2", together)
	}
}

func pick(list []string, from, to string) (out []string) {
	for _, s := range list {
		if s >= from && s < to {
			out = append(out, s)
		}
	}
	return out
}

// F28: never more than Concurrency at once, and that many do get there.
func TestConcurrencyIsBounded(t *testing.T) {
	t.Parallel()
	var now, most atomic.Int64
	full := make(chan struct{})
	var once sync.Once
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for {
			m := most.Load()
			if n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		if n == 3 {
			once.Do(func() { close(full) })
		}
		select {
		case <-full:
		case <-r.Context().Done():
		}
	})
	client := newClient(t, s.host(), func(c *Config) { c.Concurrency = 3 })
	items, requests := batchOf(s.host(), 20)
	ctx, call := client.Begin(t.Context(), items)
	if _, err := client.Send(ctx, requests); err != nil {
		t.Fatal(err)
	}
	if most.Load() != 3 || len(call.Exchanges()) != 20 {
		t.Errorf("most %d, exchanges %d", most.Load(), len(call.Exchanges()))
	}
}

// O15a, F34: what comes after a 429, or after a refusal that concerns the
// destination, is not sent.
func TestBatchStops(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		status int
		want   exporter.Exchange
		rest   exporter.Exchange
	}{
		"429": {
			429,
			exporter.Exchange{Class: exporter.ClassThrottled, Status: 429, Code: "throttled", RetryAfter: 7 * time.Second},
			exporter.Exchange{Class: exporter.ClassNotSent, Code: "throttled", RetryAfter: 7 * time.Second},
		},
		"401": {
			401,
			exporter.Exchange{Class: exporter.ClassIndefinite, Status: 401, Code: "status_401", Breaker: true},
			exporter.Exchange{Class: exporter.ClassNotSent, Code: "breaker_open"},
		},
		"403": {
			403,
			exporter.Exchange{Class: exporter.ClassIndefinite, Status: 403, Code: "status_403", Breaker: true},
			exporter.Exchange{Class: exporter.ClassNotSent, Code: "breaker_open"},
		},
		"404": {
			404,
			exporter.Exchange{Class: exporter.ClassIndefinite, Status: 404, Code: "status_404", Breaker: true},
			exporter.Exchange{Class: exporter.ClassNotSent, Code: "breaker_open"},
		},
	}
	ignore := cmpopts.IgnoreFields(exporter.Exchange{}, "StartedAt", "FinishedAt", "Message")
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(tt.status)
			})
			client := newClient(t, s.host(), func(c *Config) { c.Concurrency = 1 })
			items, requests := batchOf(s.host(), 5)
			for i := range items {
				items[i].SerialKey = "same" // so that the first is the first
			}
			ctx, call := client.Begin(t.Context(), items)
			got, err := client.Send(ctx, requests)
			if err != nil {
				t.Fatal(err)
			}
			if s.count() != 1 {
				t.Errorf("%d requests arrived, want 1", s.count())
			}
			for i, it := range items {
				want := tt.rest
				if i == 0 {
					want = tt.want
				} else if got[i].Failure != capability.FailureNotSent || got[i].Reason != want.Code {
					t.Errorf("response %d: %+v", i, got[i])
				}
				if d := cmp.Diff([]exporter.Exchange{want}, call.Exchanges()[it.ID], ignore); d != "" {
					t.Errorf("%s: %s", it.ID, d)
				}
			}
			// The next batch starts afresh.
			if _, ex := one(t, client, s.host()); ex.Status != tt.status {
				t.Errorf("next batch: %+v", ex)
			}
		})
	}
}

// Q12: the bucket lets Rate through; what it could only let through after the
// deadline is not sent, at once.
func TestRateAndDeadline(t *testing.T) {
	t.Parallel()
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	client := newClient(t, s.host(), func(c *Config) { c.Rate = 1 })
	items, requests := batchOf(s.host(), 5)
	ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
	defer cancel()
	ctx, call := client.Begin(ctx, items)
	if _, err := client.Send(ctx, requests); err != nil {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Error("waited for the deadline instead of seeing that it is too near")
	}
	classes := map[exporter.HostClass]int{}
	for _, list := range call.Exchanges() {
		classes[list[0].Class]++
		if list[0].Class == exporter.ClassNotSent && list[0].Code != reasonDeadline {
			t.Errorf("%+v", list[0])
		}
	}
	if d := cmp.Diff(map[exporter.HostClass]int{exporter.ClassSuccess: 1, exporter.ClassNotSent: 4}, classes); d != "" {
		t.Error(d)
	}
}

// O14: a worker that slept through its lease, on a clock that the context does
// not see, sends nothing.
func TestUsedUpLeaseIsNotSent(t *testing.T) {
	t.Parallel()
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	var elapsed atomic.Int64
	client := newClient(t, s.host(), func(c *Config) {
		c.Elapsed = func() time.Duration { return time.Duration(elapsed.Load()) }
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ctx, call := client.Begin(ctx, []CallItem{{ID: "i1", Identifier: testIdent}})
	elapsed.Store(int64(2 * time.Minute)) // suspended here
	got, ex := sendOne(ctx, t, client, call, meterEvent(s.host(), "i1", testIdent))
	if ex.Class != exporter.ClassNotSent || ex.Code != reasonDeadline || got.Failure != capability.FailureNotSent || s.count() != 0 {
		t.Errorf("exchange %+v, %d requests", ex, s.count())
	}
}

// A context that has ended sends nothing.
func TestEndedContextIsNotSent(t *testing.T) {
	t.Parallel()
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	client := newClient(t, s.host(), nil)
	expired, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	canceled, cancel2 := context.WithCancel(t.Context())
	cancel2()
	for want, ctx := range map[string]context.Context{reasonDeadline: expired, reasonCanceled: canceled} {
		ctx, call := client.Begin(ctx, []CallItem{{ID: "i1", Identifier: testIdent}})
		if _, ex := sendOne(ctx, t, client, call, meterEvent(s.host(), "i1", testIdent)); ex.Class != exporter.ClassNotSent || ex.Code != want {
			t.Errorf("%+v, want %s", ex, want)
		}
	}
	if s.count() != 0 {
		t.Errorf("%d requests arrived", s.count())
	}
}

// Q9: what is still on the wire when the host stops looking is not "not sent",
// and what has not started never will.
func TestEndedCall(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}, 2), make(chan struct{})
	s := serve(t, func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	})
	client := newClient(t, s.host(), nil)
	items, requests := batchOf(s.host(), 2)
	items[0].SerialKey, items[1].SerialKey = "same", "same"
	ctx, call := client.Begin(t.Context(), items)
	done := make(chan []capability.Response)
	go func() {
		got, _ := client.Send(ctx, requests)
		done <- got
	}()
	<-arrived
	got := call.Exchanges()
	if len(got) != 1 || len(got["i0"]) != 1 || got["i0"][0].Class != exporter.ClassIndefinite || got["i0"][0].Code != reasonInFlight {
		t.Errorf("while in flight: %+v", got)
	}
	close(release)
	if responses := <-done; responses[1].Reason != reasonCallEnded || s.count() != 1 {
		t.Errorf("second response %+v, %d requests", responses[1], s.count())
	}
	if got := call.Exchanges()["i0"]; len(got) != 1 || got[0].Class != exporter.ClassSuccess {
		t.Errorf("afterwards: %+v", got)
	}
}

// Close cancels what is in flight, waits for it, and refuses the rest.
func TestClose(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	})
	client := newClient(t, s.host(), nil)
	ctx, call := client.Begin(t.Context(), []CallItem{{ID: "i1", Identifier: testIdent}})
	done := make(chan capability.Response)
	go func() {
		got, _ := client.Send(ctx, []capability.Request{meterEvent(s.host(), "i1", testIdent)})
		done <- got[0]
	}()
	<-arrived
	closed := make(chan struct{})
	go func() { _ = client.Close(); close(closed) }()
	if got := <-done; got.Failure != capability.FailureUnknown {
		t.Errorf("%+v", got)
	}
	<-closed
	if ex := call.Exchanges()["i1"][0]; ex.Class != exporter.ClassIndefinite {
		t.Errorf("%+v", ex)
	}
	_ = client.Close()
	if _, ex := one(t, client, s.host()); ex.Class != exporter.ClassNotSent || ex.Code != reasonShutdown {
		t.Errorf("after close: %+v", ex)
	}
}

// F44: a plugin in a loop is stopped, and a batch that is too long is refused
// whole.
func TestFlood(t *testing.T) {
	t.Parallel()
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	client := newClient(t, s.host(), func(c *Config) { c.MaxBatch = 100 })
	ctx, call := client.Begin(t.Context(), []CallItem{{ID: "i1", Identifier: testIdent}})
	reads := make([]capability.Request, 101)
	for i := range reads {
		reads[i] = capability.Request{Method: "GET", URL: "https://" + s.host() + "/"}
	}
	if got, err := client.Send(ctx, reads); err == nil || got != nil || s.count() != 0 {
		t.Errorf("long batch: %d responses, %v, %d requests", len(got), err, s.count())
	}
	for range 2 {
		if _, err := client.Send(ctx, reads[:100]); err != nil {
			t.Fatal(err)
		}
	}
	if s.count() != 68 { // 4 for the one item and 64
		t.Errorf("%d requests arrived, want 68", s.count())
	}
	if got := client.Stats(); got.Refused != 132 {
		t.Errorf("%+v", got)
	}
	_ = call
}

// Requests of one item go in order, though it has no serial key, and all are in
// the record.
func TestRequestsOfOneItem(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var arrived []string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if arrived = append(arrived, r.Header.Get("X-N")); len(arrived) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	client := newClient(t, s.host(), nil)
	ctx, call := client.Begin(t.Context(), []CallItem{{ID: "i1", Identifier: testIdent}})
	requests := make([]capability.Request, 30)
	var want []string
	for i := range requests {
		n := fmt.Sprintf("%02d", i)
		want = append(want, n)
		requests[i] = meterEvent(s.host(), "i1", testIdent)
		requests[i].Headers = append(requests[i].Headers, capability.Header{Name: "X-N", Value: n})
	}
	if _, err := client.Send(ctx, requests); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, arrived); d != "" {
		t.Error(d)
	}
	got := call.Exchanges()["i1"]
	if len(got) != 30 || got[0].Class != exporter.ClassIndefinite || got[1].Class != exporter.ClassSuccess {
		t.Errorf("%+v", got)
	}
}
