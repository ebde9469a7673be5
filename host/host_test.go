package host_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/host/carrier/worker"
	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/internal/stripedouble"
	"github.com/fencepost/fencepost/plugins/exporters/stripe/module"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == workerArg {
		if err := worker.Serve(); err != nil {
			panic(err)
		}
		return
	}
	if len(os.Args) > 2 && os.Args[1] == slowWorkerArg {
		serveSlowly(os.Args[2])
		return
	}
	if err := os.Setenv("FENCEPOST_TEST_CANARY", envCanary); err != nil { // plugins must not see it
		panic(err)
	}
	dir, err := os.MkdirTemp("", "fencepost-host-")
	if err != nil {
		panic(err)
	}
	stateDir = dir
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// stateDir is where hosts remember their stores: a file for each.
var stateDir string

// workerArg makes this test's program a worker of plugins.
const workerArg = "plugin-worker"

// envCanary is in this program's environment.
const envCanary = "canaryOfTheEnvironment"

// apiKey is a canary: it must be seen nowhere but in the Authorization header.
const apiKey = "sk_test_canaryCanaryCanary42"

func newDouble(t *testing.T) *stripedouble.Server {
	t.Helper()
	d, err := stripedouble.New(stripedouble.Config{Dir: filepath.Join(t.TempDir(), "stripe")})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func newStore(t *testing.T) *sqlite.Adapter {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "host.db"), Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// settings deliver the feature tokens to the double, quickly.
func settings(d *stripedouble.Server) config.Config {
	return config.Config{
		Exporters: []config.Exporter{{
			Name: "stripe", Plugin: "builtin:stripe", Account: "acct_1", Mode: "test",
			Secrets: map[string]string{"api_key": "env:STRIPE_API_KEY"}, BaseURL: d.URL(), CAFile: d.CAFile(),
			AllowPrivate: []string{"127.0.0.0/8"}, Rate: 1000,
			Mapping: config.Mapping{
				Features: map[string]map[string]string{"tokens": {"event_name": "llm_tokens"}}, Ignore: []string{"internal"},
			},
		}},
		Outbox: config.Outbox{
			Tick: config.Duration(20 * time.Millisecond), Base: config.Duration(50 * time.Millisecond), Cap: config.Duration(time.Second),
		},
	}
}

func hostConfig(store storage.Adapter, s config.Config) host.Config {
	if s.StateDir == "" {
		s.StateDir = stateDir
	}
	return host.Config{
		Settings: s, Store: store,
		Builtins: host.Builtins{
			Storage:   map[string]host.OpenStorage{},
			Exporters: map[string]func() ([]byte, error){"stripe": module.Bytes},
		},
		Worker: []string{workerArg},
		Getenv: func(name string) (string, bool) { return apiKey, name == "STRIPE_API_KEY" },
	}
}

func open(t *testing.T, c host.Config) *host.Host {
	t.Helper()
	h, err := host.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return h
}

// wait polls until the outbox has nothing to send.
func wait(t *testing.T, store storage.OutboxStore) map[storage.ItemState]int64 {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		st, err := store.OutboxStats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		counts := map[storage.ItemState]int64{}
		for _, c := range st.Counts {
			counts[c.State] += c.Items
		}
		if counts[storage.Pending]+counts[storage.Leased] == 0 {
			return counts
		}
		select {
		case <-deadline:
			t.Fatalf("delivery did not end: %v", counts)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// The path of one event, with nothing stubbed: recorded, claimed, through the
// Wasm exporter and the egress to an HTTPS server, accepted, charged once. What
// has no customer, no mapping or a number Stripe cannot express waits with its
// reason; what is ignored is nowhere. The key is in no log.
func TestRecordedUsageIsChargedOnce(t *testing.T) {
	t.Parallel()
	double, store := newDouble(t), newStore(t)
	cfg := hostConfig(store, settings(double))
	var log syncBuffer
	cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	h := open(t, cfg)
	e := h.Engine()
	if _, err := e.PutSubscription(t.Context(), storage.Subscription{
		Tenant: "acme", Anchor: time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC), Customers: map[string]string{"stripe": "cus_1"},
	}); err != nil {
		t.Fatal(err)
	}
	for _, ev := range []engine.Event{
		{ID: "1", Tenant: "acme", Feature: "tokens", Quantity: decimal.MustParse("12.5")},
		{ID: "2", Tenant: "acme", Feature: "tokens", Quantity: decimal.MustParse("0.000000000001")},
		{ID: "3", Tenant: "acme", Feature: "tokens", Quantity: decimal.MustParse("1234567890.1234567")},
		{ID: "4", Tenant: "acme", Feature: "seats", Quantity: decimal.One},
		{ID: "5", Tenant: "acme", Feature: "internal", Quantity: decimal.One},
		{ID: "6", Tenant: "nobody", Feature: "tokens", Quantity: decimal.One},
		{ID: "1", Tenant: "acme", Feature: "tokens", Quantity: decimal.MustParse("12.50")},
	} {
		if _, err := e.Record(t.Context(), ev); err != nil {
			t.Fatalf("record %s: %v", ev.ID, err)
		}
	}
	counts := wait(t, store)
	if counts[storage.Accepted] != 2 || counts[storage.Quarantined] != 3 {
		t.Errorf("states %v", counts)
	}
	page, err := store.ListItems(t.Context(), storage.ItemQuery{State: storage.Quarantined, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]string{}
	for _, it := range page.Items {
		reasons[it.Identity.SubjectRef] = it.QuarantineReason
	}
	if reasons["3"] != "value_domain" || reasons["4"] != "feature_unmapped" || reasons["6"] != "no_customer" {
		t.Errorf("reasons %v", reasons)
	}
	ledger := double.Ledger()
	if ledger.ChargesTotal["llm_tokens"] != "12.500000000001" || ledger.Charges != 2 || ledger.DoubleCharges != 0 {
		t.Errorf("ledger %+v", ledger)
	}
	if log.contains(apiKey) {
		t.Error("the API key is in the log") // I15
	}
	metrics := httptest.NewRecorder()
	h.Handler().ServeHTTP(metrics, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	for _, want := range []string{`fencepost_record_events_total{outcome="duplicate"} 1`, `fencepost_plugin_calls_total{outcome="ok",plugin="stripe"}`} {
		if !strings.Contains(metrics.Body.String(), want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	if strings.Contains(metrics.Body.String(), "acme") || strings.Contains(metrics.Body.String(), apiKey) {
		t.Error("a tenant or the key is in the metrics")
	}
}

// Each refusal names the setting and says what would do, and never the secret.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	double := newDouble(t)
	garbage := filepath.Join(t.TempDir(), "garbage.pem")
	if err := os.WriteFile(garbage, []byte("not a certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change func(*host.Config)
		tag    error
		want   string
	}{
		"unknown exporter": {func(c *host.Config) { c.Settings.Exporters[0].Plugin = "builtin:strip" }, sdk.ErrUnsupported, "builtin:stripe"},
		"not installed":    {func(c *host.Config) { c.Settings.Exporters[0].Plugin = "wasm:./x.wasm" }, sdk.ErrInvalid, "fencepost plugin install"},
		"unknown scheme":   {func(c *host.Config) { c.Settings.Exporters[0].Plugin = "http:x" }, sdk.ErrUnsupported, "exporters[0].plugin"},
		"isolation":        {func(c *host.Config) { c.Settings.Exporters[0].Isolation = "process" }, sdk.ErrInvalid, "inproc or worker for a module"},
		"no worker": {func(c *host.Config) {
			c.Settings.Exporters[0].Isolation, c.Worker = "worker", nil
		}, sdk.ErrUnsupported, "host.Config.Worker"},
		"unknown storage": {func(c *host.Config) {
			c.Store = nil
			c.Settings.Storage.Plugin = "builtin:oracle"
		}, sdk.ErrUnsupported, "storage.plugin"},
		"secret missing":  {func(c *host.Config) { c.Settings.Exporters[0].Secrets = nil }, sdk.ErrInvalid, "api_key"},
		"variable unset":  {func(c *host.Config) { c.Settings.Exporters[0].Secrets["api_key"] = "env:NOPE" }, sdk.ErrInvalid, "NOPE"},
		"plain http":      {func(c *host.Config) { c.Settings.Exporters[0].BaseURL = "http://127.0.0.1:1" }, sdk.ErrInvalid, "base_url"},
		"no certificate":  {func(c *host.Config) { c.Settings.Exporters[0].CAFile = garbage }, sdk.ErrInvalid, "ca_file"},
		"missing ca file": {func(c *host.Config) { c.Settings.Exporters[0].CAFile = garbage + ".none" }, sdk.ErrInvalid, "ca_file"},
		"mapping misspelt": {func(c *host.Config) {
			c.Settings.Exporters[0].Mapping.Features = map[string]map[string]string{"tokens": {"eventname": "llm_tokens"}}
		}, sdk.ErrInvalid, "event_name"},
		"literal secret": {func(c *host.Config) { c.Settings.Exporters[0].Secrets["api_key"] = apiKey }, sdk.ErrInvalid, "env:NAME"},
		"same destination twice": {func(c *host.Config) {
			twin := c.Settings.Exporters[0]
			twin.Name = "stripe-2"
			c.Settings.Exporters = append(c.Settings.Exporters, twin)
		}, sdk.ErrConflict, "stripe-2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := hostConfig(newStore(t), settings(double))
			tt.change(&c)
			h, err := host.Open(t.Context(), c)
			if err == nil {
				_ = h.Close(context.Background())
				t.Fatal("opened")
			}
			if !errors.Is(err, tt.tag) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v: want %v naming %s", err, tt.tag, tt.want)
			}
			if strings.Contains(err.Error(), apiKey) {
				t.Error("the error holds the secret")
			}
		})
	}
}

// An exporter that moves to another account gets what is recorded from then on;
// what was made before keeps its destination and waits, shown as degraded when
// nobody serves it.
func TestMovedAndUnservedExporters(t *testing.T) {
	t.Parallel()
	double, store := newDouble(t), newStore(t)
	cfg := hostConfig(store, settings(double))
	cfg.WithoutDelivery = true
	record := func(h *host.Host, id string) {
		t.Helper()
		if _, err := h.Engine().Record(t.Context(), engine.Event{ID: id, Tenant: "acme", Feature: "tokens", Quantity: decimal.One}); err != nil {
			t.Fatal(err)
		}
	}
	first := open(t, cfg)
	if _, err := first.Engine().PutSubscription(t.Context(), storage.Subscription{Tenant: "acme", Customers: map[string]string{"stripe": "cus_1"}}); err != nil {
		t.Fatal(err)
	}
	record(first, "before")
	moved := hostConfig(store, settings(double))
	moved.WithoutDelivery = true
	moved.Settings.Exporters[0].Account = "acct_2"
	second := open(t, moved)
	record(second, "after")
	record(first, "stale memory") // the first host has not heard of the move
	page, err := store.ListItems(t.Context(), storage.ItemQuery{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	accounts := map[string]string{}
	for _, it := range page.Items {
		accounts[it.Identity.SubjectRef] += it.Identity.Account
	}
	if accounts["before"] != "acct_1" || accounts["after"] != "acct_2" || accounts["stale memory"] != "acct_2" {
		t.Errorf("accounts %v", accounts)
	}
	// What waits for acct_1 is delivered by nobody, and said so.
	serving := hostConfig(store, moved.Settings)
	if got := open(t, serving).Degraded(); len(got) != 1 || !strings.Contains(got[0], "acct_1") {
		t.Errorf("degraded %v", got)
	}
	third := hostConfig(store, config.Config{})
	if got := open(t, third).Degraded(); !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "has routes") }) {
		t.Errorf("degraded %v", got)
	}
}

// Recording needs no secret: nothing is sent.
func TestRecordingNeedsNoSecret(t *testing.T) {
	t.Parallel()
	cfg := hostConfig(newStore(t), settings(newDouble(t)))
	cfg.WithoutDelivery, cfg.Getenv = true, nil
	if _, err := open(t, cfg).Engine().Record(t.Context(), engine.Event{ID: "1", Tenant: "acme", Feature: "tokens", Quantity: decimal.One}); err != nil {
		t.Error(err)
	}
}

// Readiness stays, with the reason, while the provider cannot be reached (Q17a).
func TestUnreachableProviderIsDegraded(t *testing.T) {
	t.Parallel()
	double, store := newDouble(t), newStore(t)
	h := open(t, hostConfig(store, settings(double)))
	if err := double.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Engine().PutSubscription(t.Context(), storage.Subscription{Tenant: "acme", Customers: map[string]string{"stripe": "cus_1"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Engine().Record(t.Context(), engine.Event{ID: "1", Tenant: "acme", Feature: "tokens", Quantity: decimal.One}); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(30 * time.Second)
	for len(h.Degraded()) == 0 {
		select {
		case <-deadline:
			t.Fatal("never degraded")
		case <-time.After(10 * time.Millisecond):
		}
	}
	w := httptest.NewRecorder()
	h.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"degraded"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestCloseIsTotal(t *testing.T) {
	t.Parallel()
	h := open(t, hostConfig(newStore(t), settings(newDouble(t))))
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(t.Context()); err != nil {
		t.Errorf("second close: %v", err)
	}
	_, err := h.Engine().Record(t.Context(), engine.Event{ID: "1", Tenant: "acme", Feature: "tokens", Quantity: decimal.One})
	if !errors.Is(err, sdk.ErrUnavailable) {
		t.Errorf("record after close: %v", err)
	}
}

// syncBuffer is a log that several goroutines write.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) contains(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.b.String(), text)
}
