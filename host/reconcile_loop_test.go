package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/host/egress"
	"github.com/fencepost/fencepost/host/telemetry"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// books is a plugin whose provider counts what it is told here. Everything else
// is real: the loop, the roles, the engine, SQLite; the clock is the bubble's.
type books struct {
	mu     sync.Mutex
	sums   map[string]string // by customer, of all time
	silent bool              // nothing is answered before the caller gives up
	down   bool              // every answer is an error of the provider
	asked  int
}

func (b *books) Close(context.Context) error { return nil }

func (b *books) Call(ctx context.Context, method uint32, request []byte) ([]byte, error) {
	p, err := wirev1.DecodeProbe(request)
	if method != uint32(wirev1.MethodProbe) || err != nil {
		return nil, fmt.Errorf("method %d: %w", method, err)
	}
	b.mu.Lock()
	b.asked++
	silent := b.silent
	answers := make([]exporter.ProbeAnswer, len(p.Questions))
	for i, q := range p.Questions {
		answers[i] = exporter.ProbeAnswer{Meter: "mtr_1"}
		if sum, ok := b.sums[q.Customer]; ok && !b.down {
			answers[i].Sum = &sum
		} else {
			answers[i].Code = "provider_error"
		}
	}
	b.mu.Unlock()
	if silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return wirev1.EncodeProbeAnswers(answers), nil
}

func (b *books) set(change func(*books)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(b)
}

func (b *books) questions() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked
}

var lagging = exporter.Manifest{
	Name: "stripe", WindowPast: 34 * 24 * time.Hour, WindowFuture: 5 * time.Minute, MappingKeys: []string{"event_name"},
	Values:   exporter.ValueDomain{SignificantDigits: 15, MaxDecimals: 12, Negative: true},
	ReadBack: exporter.ReadBack{Sums: true, Lag: time.Hour, Granularity: time.Minute},
}

// reconciling is a store with what was reported, and hosts that compare it.
type reconciling struct {
	t     *testing.T
	store *sqlite.Adapter
	books *books
}

func newReconciling(t *testing.T) *reconciling {
	t.Helper()
	st, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "host.db"), Migrate: true, LockWait: -1, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	return &reconciling{t: t, store: st, books: &books{sums: map[string]string{}}}
}

// alone is a host of a store that knows no others.
func (r *reconciling) alone() *Host {
	h := r.host("a")
	h.presence = nil
	return h
}

// calling is the exporter with a plugin that may send.
func (x *exporterRuntime) calling(books carrier.Caller) *exporterRuntime {
	x.now = x.newLoaded(plugin{})
	x.now.caller, x.now.http = books, &egress.Client{}
	x.now.settle(nil)
	return x
}

// host is one host as far as its reconciler goes.
func (r *reconciling) host(owner string) *Host {
	r.t.Helper()
	log := slog.New(slog.DiscardHandler)
	h := &Host{store: r.store, owner: owner, cfg: Config{Now: time.Now, Logger: log}}
	var err error
	if h.metrics, err = telemetry.New(); err != nil {
		r.t.Fatal(err)
	}
	h.engine, err = engine.New(engine.Config{
		Store: r.store, Now: time.Now, Features: map[string]engine.Feature{"tokens": {}}, Buffer: engine.Buffer{FlushEvery: -1},
		Manifests: map[string]exporter.Manifest{"stripe": lagging},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(h.engine.Close)
	x := h.newExporter(config.Exporter{Name: "stripe", Account: "acct_1", Mode: "test"}, "")
	x.manifest = lagging
	h.exporters = []*exporterRuntime{x.calling(r.books)}
	began := time.Now()
	h.presence = &presence{
		store: r.store, items: r.store, owner: owner, boot: "boot-" + owner, clock: func() time.Duration { return time.Since(began) + time.Hour },
		flushed: func() time.Time { return time.Time{} }, known: newIncarnations("", log), log: log,
	}
	return h
}

// runs lets a host compare as it does until the returned function is called,
// which waits for that.
func (r *reconciling) runs(h *Host) (stop func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.single(ctx, roleReconciler, h.reconcile)
	}()
	return func() { cancel(); <-done }
}

// accepted records usage of a customer that the provider took.
func (r *reconciling) accepted(h *Host, customer, quantity string) {
	r.t.Helper()
	ctx := r.t.Context()
	if _, err := h.engine.ApplyRoutes(ctx, []engine.RoutePlan{{
		Exporter: "stripe", Provider: "stripe", Account: "acct_1", Mode: "test", Features: map[string]map[string]string{"tokens": {"event_name": "tokens"}},
	}}); err != nil {
		r.t.Fatal(err)
	}
	if _, err := h.engine.PutSubscription(ctx, storage.Subscription{Tenant: customer, Customers: map[string]string{"stripe": customer}}); err != nil {
		r.t.Fatal(err)
	}
	if _, err := h.engine.Record(ctx, engine.Event{ID: customer + time.Now().String(), Tenant: customer, Feature: "tokens", Quantity: decimal.MustParse(quantity)}); err != nil {
		r.t.Fatal(err)
	}
	page, err := r.store.ListItems(ctx, storage.ItemQuery{State: storage.Pending, Limit: 10})
	if err != nil || len(page.Items) != 1 {
		r.t.Fatalf("%d items, %v", len(page.Items), err)
	}
	if _, err := r.store.Transition(ctx, []storage.Transition{{
		ItemID: page.Items[0].ItemID, Expect: storage.Expect{State: storage.Pending},
		Set: storage.Change{State: storage.Accepted, AcceptedNow: true, Settled: new(true)},
	}}); err != nil {
		r.t.Fatal(err)
	}
}

// log are all comparisons so far, the first one first.
func (r *reconciling) log() []storage.Reconciliation {
	r.t.Helper()
	all, err := r.store.Reconciliations(r.t.Context(), storage.ReconciliationQuery{Exporter: "stripe", Limit: 1000})
	if err != nil {
		r.t.Fatal(err)
	}
	slices.SortStableFunc(all, func(a, b storage.Reconciliation) int {
		if c := a.StartedAt.Compare(b.StartedAt); c != 0 {
			return c
		}
		return a.From.Compare(b.From)
	})
	return all
}

func (r *reconciling) state(n int) storage.ItemState {
	r.t.Helper()
	page, err := r.store.ListItems(r.t.Context(), storage.ItemQuery{Limit: 100})
	if err != nil || len(page.Items) <= n {
		r.t.Fatal(page, err)
	}
	return page.Items[n].State
}

// gauge is a line of the metrics page.
func gauge(h *Host, name string) string {
	w := httptest.NewRecorder()
	h.metrics.Handler().ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, name+"{") {
			return line[strings.LastIndex(strings.TrimSpace(line), " ")+1 : len(strings.TrimSpace(line))]
		}
	}
	return ""
}

// bubble runs a test of the loop on virtual time.
func bubble(t *testing.T, test func(r *reconciling)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newReconciling(t)
		test(r)
		if err := r.store.Close(); err != nil {
			t.Error(err)
		}
	})
}

// O25: a minute after the start everything is compared, then the last two days
// every hour, and everything again a day later.
func TestReconcilerKeepsItsHours(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *reconciling) {
		began := time.Now()
		stop := r.runs(r.alone())
		time.Sleep(25*time.Hour + 30*time.Minute)
		stop()
		want := []time.Duration{}
		for hour := range 26 {
			at := reconcileFirst + time.Duration(hour)*reconcileEvery
			want = append(want, at)
			if hour == 0 || hour == 24 {
				want = append(want, at, at)
			}
		}
		var got []time.Duration
		for _, run := range r.log() {
			got = append(got, run.StartedAt.Sub(began))
		}
		if !slices.Equal(got, want) {
			r.t.Errorf("compared at %v, want %v", got, want)
		}
	})
}

// O25: of two hosts one compares. When it leaves the other one takes the role
// within seconds and begins with everything; when both are gone nobody does.
func TestOneHostReconciles(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *reconciling) {
		stopA := r.runs(r.host("a"))
		time.Sleep(time.Second) // so that this one has the role
		stopB := r.runs(r.host("b"))
		count := func(when string, want int) {
			r.t.Helper()
			if n := len(r.log()); n != want {
				r.t.Errorf("%s: %d comparisons, want %d", when, n, want)
			}
		}
		time.Sleep(2*time.Hour + 30*time.Minute)
		count("two hosts", 5)
		stopA()
		time.Sleep(reconcileFirst - time.Second)
		count("right after one has left", 5)
		time.Sleep(roleEvery + 2*time.Second)
		count("after the other one began", 8)
		stopB()
		time.Sleep(3 * time.Hour)
		count("nobody", 8)
	})
}

// O25, Q24, O28: what the provider shows is confirmed without anybody asking, once
// its lag has passed; a sum that differs is in the gauge from then on, stays there
// while the days that it is in are looked at daily, and goes when it agrees.
func TestReconcilerConfirmsAndCounts(t *testing.T) {
	t.Parallel()
	const differing, unconfirmed = "fencepost_reconcile_difference", "fencepost_outbox_unconfirmed"
	bubble(t, func(r *reconciling) {
		h := r.alone()
		time.Sleep(12 * time.Hour)
		r.accepted(h, "cus_1", "5")
		r.accepted(h, "cus_2", "7")
		r.books.set(func(b *books) { b.sums = map[string]string{"cus_1": "5", "cus_2": "6"} })
		stop := r.runs(h)
		time.Sleep(reconcileFirst + time.Second)
		if n := r.books.questions(); n != 0 || r.state(0) != storage.Accepted {
			r.t.Errorf("asked %d times about what lies within two lags, %s", n, r.state(0))
		}
		time.Sleep(3 * time.Hour)
		if r.state(0) != storage.Confirmed || r.state(1) != storage.Accepted {
			r.t.Errorf("%s and %s after the lag", r.state(0), r.state(1))
		}
		if d, u := gauge(h, differing), gauge(h, unconfirmed); d != "1" || u != "0" {
			r.t.Errorf("%s differ, %s unconfirmed", d, u)
		}
		time.Sleep(48 * time.Hour)
		if d, u := gauge(h, differing), gauge(h, unconfirmed); d != "1" || u != "1" {
			r.t.Errorf("two days later %s differ, %s unconfirmed", d, u)
		}
		r.books.set(func(b *books) { b.sums["cus_2"] = "7" })
		time.Sleep(25 * time.Hour)
		if d, u := gauge(h, differing), gauge(h, unconfirmed); d != "0" || u != "0" || r.state(1) != storage.Confirmed {
			r.t.Errorf("in the end %s differ, %s unconfirmed, %s", d, u, r.state(1))
		}
		stop()
	})
}

// O25: a provider that is down costs one comparison, which says so, and nothing
// is confirmed; the next one goes on.
func TestReconcilerOutlivesItsProvider(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *reconciling) {
		h := r.alone()
		time.Sleep(12 * time.Hour)
		r.accepted(h, "cus_1", "5")
		r.books.set(func(b *books) { b.down = true })
		stop := r.runs(h)
		time.Sleep(4 * time.Hour)
		all := r.log()
		if last := all[len(all)-1]; last.FinishedAt.IsZero() || !strings.Contains(last.Error, "provider_error") || last.Confirmed != 0 || r.state(0) != storage.Accepted {
			r.t.Errorf("%+v, %s", last, r.state(0))
		}
		r.books.set(func(b *books) { b.down, b.sums = false, map[string]string{"cus_1": "5"} })
		time.Sleep(reconcileEvery)
		if r.state(0) != storage.Confirmed {
			r.t.Errorf("%s when it was back", r.state(0))
		}
		stop()
	})
}

// O25: a host that is told to stop ends in the middle of a question. What it had
// begun is stored as broken off, no gauge moves, and the role is free.
func TestReconcilerStopsInTheMiddle(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *reconciling) {
		a, b := r.host("a"), r.host("b")
		time.Sleep(12 * time.Hour)
		r.accepted(a, "cus_1", "5")
		time.Sleep(3 * time.Hour)
		r.books.set(func(b *books) { b.silent = true })
		stop := r.runs(a)
		time.Sleep(reconcileFirst + time.Second)
		if n := r.books.questions(); n != 1 {
			r.t.Errorf("asked %d times", n)
		}
		told := time.Now()
		stop()
		if took := time.Since(told); took != 0 {
			r.t.Errorf("stopped after %s", took)
		}
		all := r.log()
		if last := all[len(all)-1]; last.FinishedAt.IsZero() || last.Error == "" || last.Confirmed != 0 {
			r.t.Errorf("%+v", last)
		}
		if d := gauge(a, "fencepost_reconcile_difference"); d != "" {
			r.t.Errorf("%s differ", d)
		}
		held, err := r.store.Hold(r.t.Context(), roleReconciler, "b", time.Minute)
		if err != nil || !held.Held {
			r.t.Errorf("the role: %+v, %v", held, err)
		}
		r.books.set(func(b *books) { b.silent, b.sums = false, map[string]string{"cus_1": "5"} })
		stop = r.runs(b)
		time.Sleep(reconcileFirst + time.Second)
		if r.state(0) != storage.Confirmed {
			r.t.Errorf("%s by the next host", r.state(0))
		}
		stop()
	})
}

// O25: a provider that cannot be asked, or not from this host, is left alone.
func TestReconcilerAsksOnlyWhoAnswers(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *reconciling) {
		h := r.alone()
		h.exporters[0].now.http = nil
		h.exporters = append(h.exporters, h.newExporter(config.Exporter{Name: "other"}, "").calling(r.books))
		stop := r.runs(h)
		time.Sleep(25 * time.Hour)
		stop()
		if n := len(r.log()); n != 0 || r.books.questions() != 0 {
			r.t.Errorf("%d comparisons", n)
		}
		if _, err := h.exporters[0].Probe(r.t.Context(), exporter.Probe{}); err == nil || errors.Is(err, context.Canceled) {
			r.t.Errorf("probe: %v", err)
		}
	})
}
