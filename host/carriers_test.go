package host_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/internal/stripedouble"
	"github.com/fencepost/fencepost/plugins/exporters/stripe"
	"github.com/fencepost/fencepost/plugins/exporters/stripe/module"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// nativeStripe is the Stripe exporter's main, built as a program.
var nativeStripe = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "fencepost-native-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := filepath.Join(dir, "stripe")
	cmd := exec.Command("go", "build", "-o", out, "../plugins/exporters/stripe/plugin")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if b, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the native exporter: %w: %s", err, b)
	}
	return os.ReadFile(out)
})

// install puts a plugin into a folder of its own with the grants of Stripe, and
// returns where the configuration finds it.
func install(t *testing.T, file string, content []byte, change func(*grant.Locked)) config.Plugins {
	t.Helper()
	dir := t.TempDir()
	m := grant.Manifest{
		Name: "stripe", Version: stripe.Version, Kind: grant.KindExporter, Capabilities: []capability.Name{capability.HTTPName},
		Hosts: []string{"api.stripe.com"}, Secrets: []string{stripe.SecretAPIKey, stripe.SecretWebhook},
	}
	sidecar, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if grant.IsModule(content) {
		if content, err = grant.EmbedManifest(content, m); err != nil {
			t.Fatal(err)
		}
	}
	sum := sha256.Sum256(content)
	locked := grant.Locked{
		Name: m.Name, Version: m.Version, Kind: m.Kind, File: file, SHA256: hex.EncodeToString(sum[:]), Isolation: grant.Worker,
		Capabilities: m.Capabilities, Hosts: m.Hosts, Secrets: m.Secrets,
	}
	if !grant.IsModule(content) {
		locked.Isolation = grant.Process
	}
	if change != nil {
		change(&locked)
	}
	path := filepath.Join(dir, file)
	lock := grant.Lock{Plugins: []grant.Locked{locked}}
	err = errors.Join(os.WriteFile(path, content, 0o700), os.WriteFile(path+grant.ManifestSuffix, sidecar, 0o600), lock.Save(filepath.Join(dir, "plugins.lock")))
	if err != nil {
		t.Fatal(err)
	}
	return config.Plugins{Dir: dir, Lock: filepath.Join(dir, "plugins.lock"), Memory: 1 << 50}
}

func stripeModule(t testing.TB) []byte {
	t.Helper()
	b, err := module.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// carriers are the ways in which the one Stripe exporter runs. Memory is not
// limited where the worker is this program: the race detector takes terabytes.
var carriers = map[string]func(t *testing.T, c *host.Config){
	"inproc": func(*testing.T, *host.Config) {},
	"linked": func(_ *testing.T, c *host.Config) {
		c.Builtins.Linked = map[string]exporter.New{"stripe": stripe.New}
	},
	"worker": func(_ *testing.T, c *host.Config) {
		c.Settings.Exporters[0].Isolation, c.Settings.Plugins.Memory = "worker", 1<<50
	},
	"installed module": func(t *testing.T, c *host.Config) {
		c.Settings.Plugins = install(t, "stripe.wasm", stripeModule(t), nil)
		c.Settings.Exporters[0].Plugin = "wasm:" + filepath.Join(c.Settings.Plugins.Dir, "stripe.wasm")
	},
	"process": func(t *testing.T, c *host.Config) {
		native, err := nativeStripe()
		if err != nil {
			t.Fatal(err)
		}
		c.Settings.Plugins = install(t, "stripe", native, nil)
		c.Settings.Exporters[0].Plugin = "exec:stripe"
	},
}

// Issue 5, point 1: one source, every carrier, the same test: usage, a
// cancellation and a negative event are charged exactly, read back, compared
// and confirmed; a late refusal comes in by webhook.
func TestCarriersDeliver(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds a program")
	}
	for name, change := range carriers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := agingSQLite(t)
			double, err := stripedouble.New(stripedouble.Config{Dir: filepath.Join(t.TempDir(), "stripe"), Samples: 1})
			if err != nil {
				t.Fatal(err)
			}
			if err := double.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = double.Close() })
			s := settings(double)
			s.StateDir = t.TempDir()
			s.Exporters[0].Secrets["webhook_secret"] = "env:HOOK"
			cfg := hostConfig(a.store, s)
			change(t, &cfg)
			h := openHookedHost(t, cfg, double)
			h.agrees(a)
			h.differs(a)
		})
	}
}

// F43: what plugins.lock does not vouch for does not run.
func TestInstalledPluginIsChecked(t *testing.T) {
	t.Parallel()
	wasm := stripeModule(t)
	for name, tt := range map[string]struct {
		change func(*grant.Locked)
		after  func(dir string) error
		want   string
	}{
		"digest":        {after: func(dir string) error { return os.WriteFile(filepath.Join(dir, "stripe.wasm"), wasm, 0o600) }, want: "checksum_mismatch"},
		"disabled":      {change: func(l *grant.Locked) { l.Disabled = true }, want: "plugin_disabled"},
		"capability":    {change: func(l *grant.Locked) { l.Capabilities = nil }, want: "not_granted"},
		"host":          {change: func(l *grant.Locked) { l.Hosts = nil }, want: "not_granted"},
		"secret":        {change: func(l *grant.Locked) { l.Secrets = nil }, want: "not_granted"},
		"storage":       {change: func(l *grant.Locked) { l.Kind = grant.KindStorage }, want: "stripe"},
		"writable lock": {after: func(dir string) error { return os.Chmod(filepath.Join(dir, "plugins.lock"), 0o666) }, want: "plugins.lock"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := hostConfig(newStore(t), settings(newDouble(t)))
			c.Settings.Plugins = install(t, "stripe.wasm", wasm, tt.change)
			c.Settings.Exporters[0].Plugin = "wasm:stripe"
			if tt.after != nil {
				if err := tt.after(c.Settings.Plugins.Dir); err != nil {
					t.Fatal(err)
				}
			}
			h, err := host.Open(t.Context(), c)
			if err == nil {
				_ = h.Close(context.Background())
				t.Fatal("opened")
			}
			if !errors.Is(err, sdk.ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}

// bad is an exporter that panics when it delivers.
type bad struct {
	exporter.Exporter
	delivers func()
}

func (b bad) Deliver(ctx context.Context, d exporter.Delivery) ([]exporter.ItemOutcome, error) {
	b.delivers()
	return b.Exporter.Deliver(ctx, d)
}

// F38, F46, I16: a plugin that breaks off is parked. What waits for it stays
// durable and uncharged, recording does not notice, and people are told. That it
// comes back is tested with the clock of carrier.Supervised.
func TestParkedPluginKeepsItsQueue(t *testing.T) {
	t.Parallel()
	double, store := newDouble(t), newStore(t)
	var mu sync.Mutex
	calls, broken := 0, true
	s := settings(double)
	s.StateDir = t.TempDir()
	s.Outbox.Attempts = 1000
	cfg := hostConfig(store, s)
	cfg.Builtins.Linked = map[string]exporter.New{"stripe": func(h capability.Host) exporter.Exporter {
		return bad{stripe.New(h), func() {
			mu.Lock()
			defer mu.Unlock()
			if calls++; broken {
				panic("a bug of the plugin")
			}
		}}
	}}
	h := open(t, cfg)
	if _, err := h.Engine().PutSubscription(t.Context(), storage.Subscription{
		Tenant: "acme", Anchor: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Customers: map[string]string{"stripe": "cus_1"},
	}); err != nil {
		t.Fatal(err)
	}
	record := func(id string) {
		if _, err := h.Engine().Record(t.Context(), engine.Event{ID: id, Tenant: "acme", Feature: "tokens", Quantity: decimal.One}); err != nil {
			t.Fatal(err)
		}
	}
	record("1")
	deadline := time.After(time.Minute)
	for parked := false; !parked; {
		for _, d := range h.Degradations() {
			parked = parked || d.Code == host.DegradedPluginParked
		}
		select {
		case <-deadline:
			t.Fatal("never parked")
		case <-time.After(5 * time.Millisecond):
		}
	}
	mu.Lock()
	before := calls
	broken = false
	mu.Unlock()
	record("2") // recorded while its exporter is parked
	if before < 5 || before > 10 {
		t.Errorf("called %d times before it was parked", before)
	}
	st, err := store.OutboxStats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var waiting int64
	for _, c := range st.Counts {
		if c.State == storage.Pending || c.State == storage.Leased || c.State == storage.Uncertain {
			waiting += c.Items
		}
	}
	if waiting != 2 || double.Ledger().Charges != 0 {
		t.Errorf("waiting %d, %+v, charges %d", waiting, st.Counts, double.Ledger().Charges)
	}
}
