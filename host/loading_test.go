package host_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/host/carrier/worker"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// slowWorkerArg makes this test's program a worker that takes as long to start
// as the test wants: until the file is there, or it fails if "broken" is.
const slowWorkerArg = "slow-plugin-worker"

func serveSlowly(dir string) {
	there := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return !errors.Is(err, fs.ErrNotExist)
	}
	for !there("go") {
		if there("broken") {
			os.Exit(1)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := worker.Serve(); err != nil {
		panic(err)
	}
}

// Issue 5, point 4: a host that has seen a plugin records while the plugin is
// being loaded, and while it cannot be. What waits is delivered afterwards.
func TestRecordsWhileAPluginLoads(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds a plugin")
	}
	rec, f, key := newReceiver(t), newFolder(t), apiKey
	f.install(buildEvil(t, false, "1.0.0", ""), grant.Worker, nil)
	var p atomic.Pointer[string]
	p.Store(&key)
	cfg := reloadConfig(t, rec, f, "wasm:evil", &p)
	h, err := host.Open(t.Context(), cfg) // has the description kept
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	kept, err := filepath.Glob(filepath.Join(cfg.Settings.Plugins.Cache, "descriptions", "*"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept %v %v", kept, err)
	}

	gate := t.TempDir()
	touch := func(name string) {
		if err := os.WriteFile(filepath.Join(gate, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var loaded atomic.Int32
	cfg.Worker, cfg.Loaded = []string{slowWorkerArg, gate}, func(string) { loaded.Add(1) }
	r := run(t, cfg) // returns although the plugin does not start
	state := func() string { return r.Plugins()[0].State }
	r.record()
	if c := r.counts("evil"); state() != "loading" || c[storage.Pending] != 1 || rec.total() != 0 {
		t.Errorf("%s %v", state(), c)
	}
	touch("broken")
	r.until("failed", func() bool { return state() == "failed" })
	if all := strings.Join(r.Degraded(), " "); !strings.Contains(all, host.DegradedPluginUnloaded) || !strings.Contains(all, "evil") {
		t.Error(all)
	}
	r.record()
	r.reload("plugin_unfit")
	if c := r.counts("evil"); c[storage.Pending] != 2 {
		t.Errorf("%v", c)
	}
	touch("go")
	r.accepts("evil")
	r.until("no more degraded", func() bool { return len(r.Degraded()) == 0 }) // noted after the store has the acceptance
	if state() != "ready" || loaded.Load() != 1 {
		t.Errorf("%s, told %d times", state(), loaded.Load())
	}

	// What is kept is no grant: it is checked as if the plugin said it now.
	f.install(buildEvil(t, false, "1.0.0", ""), grant.Worker, func(l *grant.Locked) { l.Capabilities = nil })
	if _, err := host.Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "not_granted") {
		t.Errorf("opened: %v", err)
	}
}

// A host that ends while a plugin is being loaded waits for nothing.
func TestCloseWhileAPluginLoads(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds a plugin")
	}
	rec, f, key := newReceiver(t), newFolder(t), apiKey
	f.install(buildEvil(t, false, "1.0.0", ""), grant.Worker, nil)
	var p atomic.Pointer[string]
	p.Store(&key)
	cfg := reloadConfig(t, rec, f, "wasm:evil", &p)
	for _, args := range [][]string{{workerArg}, {slowWorkerArg, t.TempDir()}} {
		cfg.Worker = args
		h, err := host.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}
