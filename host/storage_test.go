//go:build linux

package host_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// installStore installs the SQLite adapter's main as a program.
func installStore(t *testing.T, change func(*grant.Locked)) config.Plugins {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "fencepost-sqlite")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, "../plugins/storage/sqlite/plugin")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile("../plugins/storage/sqlite/plugin/manifest.json")
	if err != nil {
		t.Fatal(err)
	}
	var m grant.Manifest
	if err := json.Unmarshal(manifest, &m); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(program)
	locked := grant.Locked{
		Name: m.Name, Version: m.Version, Kind: m.Kind, File: filepath.Base(path), SHA256: hex.EncodeToString(sum[:]), Isolation: grant.Process,
	}
	if change != nil {
		change(&locked)
	}
	if m.Kind = locked.Kind; m.Kind != grant.KindStorage {
		if manifest, err = json.Marshal(m); err != nil {
			t.Fatal(err)
		}
	}
	lock := grant.Lock{Plugins: []grant.Locked{locked}}
	err = errors.Join(os.Chmod(path, 0o700), os.WriteFile(path+grant.ManifestSuffix, manifest, 0o600), lock.Save(filepath.Join(dir, "plugins.lock")))
	if err != nil {
		t.Fatal(err)
	}
	return config.Plugins{Dir: dir, Lock: filepath.Join(dir, "plugins.lock")}
}

// Issue 5, point 2: storage swaps by one line of the configuration. The store
// that a process wrote is the one that the linked adapter reads.
func TestStorageAsAProcess(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "usage.db")
	cfg := hostConfig(nil, settings(newDouble(t)))
	cfg.Settings.Plugins = installStore(t, nil)
	cfg.Settings.Storage = config.Storage{Plugin: "exec:sqlite", DSN: "env:USAGE_FILE"}
	getenv := cfg.Getenv
	cfg.Getenv = func(name string) (string, bool) {
		if name == "USAGE_FILE" {
			return file, true
		}
		return getenv(name)
	}
	h := open(t, cfg)
	event := engine.Event{Tenant: "t", ID: "e1", Feature: "tokens", Quantity: decimal.One}
	for _, want := range []engine.Outcome{engine.Inserted, engine.Duplicate} {
		results, err := h.Engine().Record(t.Context(), event)
		if err != nil || len(results) != 1 || results[0].Outcome != want {
			t.Fatalf("%v: %+v, want %s", err, results, want)
		}
	}
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := openSQLite(t, file)
	got, err := again.LoadEvent(t.Context(), storage.EventKey{Tenant: "t", EventID: "e1"})
	if err != nil || !got.Quantity.Equal(decimal.One) {
		t.Errorf("%v: %+v", err, got)
	}
}

// A relative name leads a program to the file that it leads the linked adapter
// to, not to one in the root of the file system.
func TestStorageAsAProcessOfARelativeName(t *testing.T) {
	p := installStore(t, nil)
	t.Chdir(t.TempDir())
	cfg := hostConfig(nil, settings(newDouble(t)))
	cfg.Settings.Plugins = p
	name := "fencepost-relative-" + filepath.Base(filepath.Dir(p.Dir)) + ".db"
	t.Cleanup(func() { _ = os.Remove("/" + name) })
	cfg.Settings.Storage = config.Storage{Plugin: "exec:sqlite", DSN: "./" + name}
	h := open(t, cfg)
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(name); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat("/" + name); err == nil {
		t.Error("the root of the file system has it")
	}
}

// F45: a store is not swapped beneath what runs on it, and the refusal says so
// instead of denying that there is such a plugin. The store goes on.
func TestStoragePluginIsNotReloaded(t *testing.T) {
	t.Parallel()
	cfg := hostConfig(nil, settings(newDouble(t)))
	cfg.Settings.Plugins = installStore(t, nil)
	cfg.Settings.Storage = config.Storage{Plugin: "exec:sqlite", DSN: filepath.Join(t.TempDir(), "usage.db")}
	h := open(t, cfg)
	list, err := h.Reload(t.Context(), "sqlite")
	e, ok := errors.AsType[*sdk.Error](err)
	if !ok || e.Tag != sdk.TagUnsupported || e.Code != "restart_needed" || list != nil {
		t.Errorf("%+v, %v: want unsupported, restart_needed", list, err)
	}
	if _, err := h.Engine().Record(t.Context(), engine.Event{Tenant: "t", ID: "e1", Feature: "tokens", Quantity: decimal.One}); err != nil {
		t.Error(err)
	}
}

// What is not installed, or is something else, is refused by name.
func TestStoragePluginRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plugin string
		change func(*grant.Locked)
		code   string
	}{
		"not installed": {plugin: "exec:another", code: "plugin_not_installed"},
		"an exporter":   {plugin: "exec:sqlite", change: func(l *grant.Locked) { l.Kind = grant.KindExporter }},
		"other bytes":   {plugin: "exec:sqlite", change: func(l *grant.Locked) { l.SHA256 = hex.EncodeToString(make([]byte, 32)) }, code: "checksum_mismatch"},
		"no scheme":     {plugin: "sqlite", code: "unknown_plugin"},
		"no name":       {plugin: "exec:", code: "unknown_plugin"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := hostConfig(nil, settings(newDouble(t)))
			cfg.Settings.Plugins = installStore(t, c.change)
			cfg.Settings.Storage = config.Storage{Plugin: c.plugin, DSN: filepath.Join(t.TempDir(), "usage.db")}
			_, err := host.Open(t.Context(), cfg)
			e, ok := errors.AsType[*sdk.Error](err)
			if !ok || (c.code != "" && e.Code != c.code) {
				t.Errorf("%v, want %s", err, c.code)
			}
			if _, err := os.Stat(cfg.Settings.Storage.DSN); !errors.Is(err, os.ErrNotExist) {
				t.Error("a store was made")
			}
		})
	}
}

func openSQLite(t *testing.T, file string) *sqlite.Adapter {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: file})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}
