package host_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// ask makes one request of a host's API and returns the status and the answer.
func ask(t *testing.T, h *host.Host, method, path, body string) (int, api.ReplayStatus) {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	h.Handler().ServeHTTP(w, r)
	var st api.ReplayStatus
	if err := json.Unmarshal(w.Body.Bytes(), &st); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return w.Code, st
}

// ended waits until the host's replay is not running.
func ended(t *testing.T, h *host.Host) api.ReplayStatus {
	t.Helper()
	return until(t, h, func(st api.ReplayStatus) bool { return st.Run != nil && st.Run.State != "running" })
}

// until waits for a state of the host's replays.
func until(t *testing.T, h *host.Host, is func(api.ReplayStatus) bool) api.ReplayStatus {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		_, st := ask(t, h, http.MethodGet, "/v1/replays", "")
		if is(st) {
			return st
		}
		if time.Now().After(deadline) {
			t.Fatalf("the replay does not get there: %+v %+v", st, st.Run)
		}
	}
}

func record(t *testing.T, h *host.Host, n int) {
	t.Helper()
	for i := range n {
		_, err := h.Engine().Record(t.Context(), engine.Event{ID: strconv.Itoa(i), Tenant: "acme", Feature: "tokens", Quantity: decimal.One})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// holding is a store whose builds wait for a test before each step.
type holding struct {
	*sqlite.Adapter
	step chan struct{}
}

func (s *holding) WriteProjection(ctx context.Context, b storage.ProjectionBatch) error {
	select {
	case <-s.step:
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // as a driver would
	}
	return s.Adapter.WriteProjection(ctx, b)
}

// A replay runs in the background, one at a time; Close interrupts it, and
// another host goes on with it.
func TestReplaysInTheBackground(t *testing.T) {
	t.Parallel()
	store := &holding{Adapter: newStore(t), step: make(chan struct{})}
	h, err := host.Open(t.Context(), hostConfig(store, config.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	record(t, h, 5)
	status, st := ask(t, h, http.MethodPost, "/v1/replays", `{"batch_size":2}`)
	if status != http.StatusAccepted || st.Run == nil || st.Run.State != "running" {
		t.Fatalf("%d %+v", status, st)
	}
	if status, _ = ask(t, h, http.MethodPost, "/v1/replays", ""); status != http.StatusConflict {
		t.Errorf("a second replay: %d", status)
	}
	store.step <- struct{}{}
	until(t, h, func(st api.ReplayStatus) bool { return st.Run != nil && st.Run.Scanned == "2" })
	if err := h.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(context.Background()); err != nil {
		t.Fatal(err)
	}

	close(store.step)
	h = open(t, hostConfig(store, config.Config{}))
	if _, st = ask(t, h, http.MethodGet, "/v1/replays", ""); st.Building != "2" || st.Cursor != "2" || st.Watermark != "5" || st.Run != nil {
		t.Errorf("after the restart: %+v", st)
	}
	for path, want := range map[string]int{
		"/v1/replays": http.StatusConflict, "/v1/replays/activate": http.StatusConflict, "/v1/replays?x=1": http.StatusBadRequest,
	} {
		if status, _ = ask(t, h, http.MethodPost, path, ""); status != want {
			t.Errorf("POST %s: %d, want %d", path, status, want)
		}
	}
	for _, body := range []string{`{"batch_size":0.5}`, `{"batchsize":1}`, `[]`, `{"timeout":"soon"}`, `{"compare":"x"}`, `{"max_batches":-1}`, `{`} {
		if status, _ = ask(t, h, http.MethodPost, "/v1/replays", body); status != http.StatusBadRequest {
			t.Errorf("%s: %d", body, status)
		}
	}
	if status, _ = ask(t, h, http.MethodPost, "/v1/replays/resume", ""); status != http.StatusAccepted {
		t.Errorf("resume: %d", status)
	}
	if st = ended(t, h); st.Active != "2" || st.Building != "" || st.Run.State != "done" || !st.Run.Resumed || st.Run.Scanned != "3" {
		t.Errorf("%+v %+v", st, st.Run)
	}
}

// A replay that was paused has not failed: it is paused, by a state of its own
// and without an error, until it is resumed (B40).
func TestPausedReplay(t *testing.T) {
	t.Parallel()
	store := &holding{Adapter: newStore(t), step: make(chan struct{})}
	h := open(t, hostConfig(store, config.Config{}))
	record(t, h, 5)
	if status, _ := ask(t, h, http.MethodPost, "/v1/replays", `{"batch_size":2}`); status != http.StatusAccepted {
		t.Fatalf("start: %d", status)
	}
	store.step <- struct{}{} // a build exists
	status, st := ask(t, h, http.MethodPost, "/v1/replays/pause", "")
	close(store.step)
	if status != http.StatusOK || !st.Paused {
		t.Errorf("pause: %d %+v", status, st)
	}
	if st = ended(t, h); !st.Paused || st.Run.State != "paused" || st.Run.Error != nil {
		t.Errorf("paused: %+v %+v", st, st.Run)
	}
	if status, _ = ask(t, h, http.MethodPost, "/v1/replays/resume", ""); status != http.StatusAccepted {
		t.Errorf("resume: %d", status)
	}
	if st = ended(t, h); st.Paused || st.Active != "2" || st.Run.State != "done" {
		t.Errorf("resumed: %+v %+v", st, st.Run)
	}
}

// Numbers that are given are judged; only absent ones have defaults.
func TestReplayOptionsThatAreGiven(t *testing.T) {
	t.Parallel()
	h := open(t, hostConfig(newStore(t), config.Config{}))
	for _, body := range []string{`{"batch_size":0}`, `{"batch_size":5001}`, `{"batch_size":-1}`, `{"timeout":"0s"}`} {
		if status, _ := ask(t, h, http.MethodPost, "/v1/replays", body); status != http.StatusBadRequest {
			t.Errorf("%s: %d", body, status)
		}
	}
	if status, _ := ask(t, h, http.MethodPost, "/v1/replays", `{}`); status != http.StatusAccepted {
		t.Errorf("defaults: %d", status)
	}
	ended(t, h)
}

// Buckets that were switched on are rebuilt when a host starts that delivers.
// Q27.
func TestBucketsAreRebuiltAtStart(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	h := open(t, hostConfig(store, config.Config{}))
	record(t, h, 5)
	s := config.Config{Features: map[string]config.Feature{"tokens": {Buckets: true}}}
	h = open(t, hostConfig(store, s))
	if st := ended(t, h); st.Active != "2" || st.Run.State != "done" || st.Run.Scanned != "5" || len(st.StaleBuckets) != 0 {
		t.Errorf("%+v %+v", st, st.Run)
	}
	h = open(t, hostConfig(store, s))
	if _, st := ask(t, h, http.MethodGet, "/v1/replays", ""); st.Run != nil || st.Active != "2" {
		t.Errorf("again without need: %+v %+v", st, st.Run)
	}
}

// Nothing that was tracked is lost by a shutdown, and what cannot be written is
// an error of Close.
func TestCloseWritesWhatWasTracked(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	s := config.Config{
		Features: map[string]config.Feature{"calls": {Source: "buffered"}}, Counters: config.Counters{Flush: config.Duration(time.Hour)},
	}
	h, err := host.Open(t.Context(), hostConfig(store, s))
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if err := h.Engine().Track(t.Context(), "acme", "calls", decimal.One); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	page, err := store.StreamCounters(t.Context(), storage.CounterQuery{Limit: 10})
	if err != nil || len(page.Counters) == 0 || page.Counters[0].Value.String() != "1000" {
		t.Errorf("%+v, %v", page, err)
	}

	h, err = host.Open(t.Context(), hostConfig(store, s))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Engine().Track(t.Context(), "acme", "calls", decimal.One); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Close(ctx); err == nil {
		t.Error("nothing was written, and Close says nothing")
	}
}
