package host_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// reloadAnswer is what the API says of a reload.
type reloadAnswer struct {
	Data []struct {
		Exporter, Plugin, Outcome, Version, SHA256 string

		Was   struct{ Version, SHA256 string }
		Error *struct{ Code, Field, Rule, Hint string }
	}
}

// reload asks for one and wants an outcome, or the code of an error.
func (r *running) reload(want string) reloadAnswer {
	r.Helper()
	var got reloadAnswer
	code := r.api("POST", "/v1/plugins/reload", `{"name":"evil"}`, &got)
	if len(got.Data) != 1 {
		r.Fatalf("%d: %+v", code, got)
	}
	d := got.Data[0]
	ok := d.Outcome == want && code == 200
	if d.Error != nil {
		ok = d.Outcome == "kept" && d.Error.Code == want && code == 207 && d.Version == d.Was.Version
	}
	if !ok {
		r.Fatalf("%d: %+v %+v, want %s", code, d, d.Error, want)
	}
	return got
}

func reloadConfig(t *testing.T, r *receiver, f folder, plugin string, key *atomic.Pointer[string]) host.Config {
	t.Helper()
	s := settings(newDouble(t))
	s.StateDir, s.Plugins = t.TempDir(), f.config()
	s.Plugins.Cache = filepath.Join(t.TempDir(), "cache")
	s.Exporters = []config.Exporter{r.exporter("evil", plugin)}
	cfg := hostConfig(newStore(t), s)
	cfg.Getenv = func(string) (string, bool) { return *key.Load(), true }
	return cfg
}

// modules are the places where a plugin is compiled first: with the race detector
// that takes minutes, so make plugins runs them without it.
var modules = []grant.Isolation{grant.InProcess, grant.Worker}

// Issue 5, point 4; F43, F45: a new version takes over while the host runs, a
// version that is not fit does not, whatever is wrong with it, and at no time
// is anything lost or sent twice.
func TestReload(t *testing.T) {
	t.Parallel()
	testReload(t, grant.Process)
}

func TestReloadModules(t *testing.T) {
	t.Parallel()
	for _, isolation := range modules {
		t.Run(string(isolation), func(t *testing.T) {
			t.Parallel()
			testReload(t, isolation)
		})
	}
}

func testReload(t *testing.T, isolation grant.Isolation) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds plugins")
	}
	native, scheme := isolation == grant.Process, map[bool]string{true: "exec:evil", false: "wasm:evil"}
	rec, f := newReceiver(t), newFolder(t)
	first := f.install(buildEvil(t, native, "1.0.0", ""), isolation, nil)
	var key atomic.Pointer[string]
	set := func(k string) { key.Store(&k) }
	set(apiKey)
	r := run(t, reloadConfig(t, rec, f, scheme[native], &key))
	step := func(change, want string, locked func(*grant.Locked)) {
		t.Helper()
		f.install(buildEvil(t, native, "1.0.9", change), isolation, func(l *grant.Locked) {
			l.Version = "1.0.9"
			if locked != nil {
				locked(l)
			}
		})
		got := r.reload(want)
		if e := got.Data[0].Error; e == nil || e.Rule == "" || got.Data[0].Version != "1.1.0" {
			t.Errorf("%s: %+v", want, got)
		}
		r.record()
		r.accepts("evil")
	}
	r.record()
	r.accepts("evil")

	second := f.install(buildEvil(t, native, "1.1.0", ""), isolation, func(l *grant.Locked) { l.Version = "1.1.0" })
	got := r.reload("reloaded").Data[0]
	if got.Version != "1.1.0" || got.SHA256 != second.SHA256 || got.Was.SHA256 != first.SHA256 || got.Was.Version != "1.0.0" {
		t.Errorf("%+v", got)
	}
	r.reload("unchanged")
	if info := r.page("fencepost_plugin_info"); len(info) != 1 || !strings.Contains(info[0], `version="1.1.0"`) || !strings.Contains(info[0], string(isolation)) {
		t.Errorf("%q", info)
	}
	r.record()
	r.accepts("evil")

	step("describe", "plugin_unfit", nil)
	step("panics", "plugin_unfit", nil)
	step("horizon", "restart_needed", nil)
	step("secret", "not_granted", nil)
	step("", "checksum_mismatch", func(l *grant.Locked) { l.SHA256 = first.SHA256 })
	if err := os.WriteFile(f.config().Lock, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.reload("plugin_lock")

	// A secret that was rolled is read again.
	f.install(buildEvil(t, native, "1.1.0", ""), isolation, func(l *grant.Locked) { l.Version = "1.1.0" })
	set("sk_test_rolledRolledRolled43")
	r.reload("reloaded")
	r.record()
	r.accepts("evil")
	if rec.lastKey() != "Bearer sk_test_rolledRolledRolled43" {
		t.Error("the old key is used")
	}

	// Disabled, nothing is called, and what waits goes on waiting.
	f.install(buildEvil(t, native, "1.1.0", ""), isolation, func(l *grant.Locked) { l.Version, l.Disabled = "1.1.0", true })
	r.reload("disabled")
	r.reload("unchanged")
	r.record()
	sent := rec.total()
	r.until("degraded", func() bool { return strings.Contains(strings.Join(r.Degraded(), " "), host.DegradedPluginUnloaded) })
	r.until("a pass", func() bool { return r.log.contains("disabled in plugins.lock") })
	if c := r.counts("evil"); c[storage.Accepted] != int64(r.n-1) || rec.total() != sent {
		t.Errorf("%v, %d requests", c, rec.total()-sent)
	}
	f.install(buildEvil(t, native, "1.1.0", ""), isolation, func(l *grant.Locked) { l.Version = "1.1.0" })
	r.reload("reloaded")
	r.accepts("evil")
	// The store has the acceptance before the host has noted it.
	r.until("no more degraded", func() bool { return len(r.Degraded()) == 0 })
	for id, n := range rec.took {
		if n != 1 {
			t.Errorf("%s was sent %d times", id, n)
		}
	}
	if len(rec.took) != r.n {
		t.Errorf("%d of %d were sent", len(rec.took), r.n)
	}
	if code := r.api("POST", "/v1/plugins/reload", `{"name":"nobody"}`, nil); code != 404 {
		t.Errorf("unknown name: %d", code)
	}
}

// F45: what a version has begun it ends, while the next one takes what comes.
func TestReloadDuringACall(t *testing.T) {
	t.Parallel()
	testReloadDuringACall(t, grant.Process)
}

func TestReloadModulesDuringACall(t *testing.T) {
	t.Parallel()
	for _, isolation := range modules {
		t.Run(string(isolation), func(t *testing.T) {
			t.Parallel()
			testReloadDuringACall(t, isolation)
		})
	}
}

func testReloadDuringACall(t *testing.T, isolation grant.Isolation) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds plugins")
	}
	native, scheme := isolation == grant.Process, map[bool]string{true: "exec:evil", false: "wasm:evil"}
	rec, f := newReceiver(t), newFolder(t)
	f.install(buildEvil(t, native, "1.0.0", ""), isolation, nil)
	key := apiKey
	var p atomic.Pointer[string]
	p.Store(&key)
	r := run(t, reloadConfig(t, rec, f, scheme[native], &p))
	let := make(chan struct{})
	release := sync.OnceFunc(func() { close(let) })
	t.Cleanup(release) // a receiver that still holds a request does not end
	rec.mu.Lock()
	rec.hold = let
	rec.mu.Unlock()
	r.record()
	<-rec.held // a call is in the middle of its request
	f.install(buildEvil(t, native, "1.1.0", ""), isolation, func(l *grant.Locked) { l.Version = "1.1.0" })
	r.reload("reloaded")
	// The version before has its call still, so another reload waits for
	// it, no longer than its caller does.
	f.install(buildEvil(t, native, "1.0.0", ""), isolation, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	list, err := r.Reload(ctx, "evil")
	if err != nil || len(list) != 1 || list[0].Err == nil || !strings.Contains(list[0].Err.Error(), "reloading") {
		t.Errorf("%+v %v", list, err)
	}
	rec.mu.Lock()
	rec.hold = nil
	rec.mu.Unlock()
	release()
	r.accepts("evil")
	r.record()
	r.accepts("evil")
	for id, n := range rec.took {
		if n != 1 {
			t.Errorf("%s was sent %d times", id, n)
		}
	}
	if plugins := r.Plugins(); len(plugins) != 1 || plugins[0].Version != "1.1.0" || plugins[0].State != "ready" {
		t.Errorf("%+v", plugins)
	}
}
