//go:build linux

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
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/host/plugins"
	"github.com/fencepost/fencepost/host/remote"
	"github.com/fencepost/fencepost/host/sql"
	"github.com/fencepost/fencepost/internal/mysqltest"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/wire/sqlv1"
)

// sqlDatabase is host/sql as an embedder hands it to the host.
type sqlDatabase struct{ *sql.Database }

func (d sqlDatabase) Begin(ctx context.Context) (context.Context, func()) {
	ctx, session := d.Database.Begin(ctx)
	return ctx, session.End
}

func openDatabase(dsn string, conns int) (host.Database, error) {
	db, err := sql.Open(dsn, conns)
	if err != nil {
		return nil, err
	}
	return sqlDatabase{db}, nil
}

// buildMySQL builds the adapter's main, once for all tests.
func buildMySQL(program bool) ([]byte, error) {
	if program {
		return mysqlProgram()
	}
	return mysqlModule()
}

var (
	mysqlProgram = sync.OnceValues(func() ([]byte, error) { return goBuild(mysqlMain, nil) })
	mysqlModule  = sync.OnceValues(func() ([]byte, error) {
		return goBuild(mysqlMain, []string{"GOOS=wasip1", "GOARCH=wasm"}, "-buildmode=c-shared")
	})
)

const mysqlMain = "../plugins/storage/mysql/plugin"

func goBuild(pkg string, env []string, flags ...string) ([]byte, error) {
	file, err := os.CreateTemp(stateDir, "mysql-*")
	if err != nil {
		return nil, err
	}
	args := append(append([]string{"build"}, flags...), "-o", file.Name(), pkg)
	cmd := exec.Command("go", args...)
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS="), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	return os.ReadFile(file.Name())
}

// installMySQL installs the adapter over sql as a module or as a program.
func installMySQL(t *testing.T, locked grant.Locked) config.Plugins {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "mysql")
	content, err := buildMySQL(locked.Isolation == grant.Process)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile("../plugins/storage/mysql/plugin/manifest.json")
	if err != nil {
		t.Fatal(err)
	}
	if locked.Isolation != grant.Process {
		var m grant.Manifest
		if err := json.Unmarshal(manifest, &m); err != nil {
			t.Fatal(err)
		}
		if content, err = grant.EmbedManifest(content, m); err != nil {
			t.Fatal(err)
		}
	}
	sum := sha256.Sum256(content)
	locked.Name, locked.Version, locked.Kind, locked.File = "mysql", "1", grant.KindStorage, filepath.Base(path)
	locked.SHA256 = hex.EncodeToString(sum[:])
	lock := grant.Lock{Plugins: []grant.Locked{locked}}
	err = errors.Join(os.WriteFile(path, content, 0o700), os.WriteFile(path+grant.ManifestSuffix, manifest, 0o600), lock.Save(filepath.Join(dir, "plugins.lock")))
	if err != nil {
		t.Fatal(err)
	}
	return config.Plugins{Dir: dir, Lock: filepath.Join(dir, "plugins.lock"), Cache: filepath.Join(t.TempDir(), "cache")}
}

// Q28, issue 5 point 2: storage on a database without an adapter of ours, by two
// lines of the configuration, in this process, in a worker and in a process of
// its own. What one wrote another one knows.
func TestStorageOverSQL(t *testing.T) {
	t.Parallel()
	dsn := mysqltest.Database(t)
	outcome := engine.Inserted
	for _, c := range []struct {
		plugin    string
		isolation grant.Isolation
	}{{"wasm:mysql", grant.InProcess}, {"wasm:mysql", grant.Worker}, {"exec:mysql", grant.Process}} {
		cfg := hostConfig(nil, settings(newDouble(t)))
		cfg.Builtins.SQL = openDatabase
		cfg.Settings.Plugins = installMySQL(t, grant.Locked{Isolation: c.isolation, Capabilities: []capability.Name{capability.SQLName}})
		cfg.Settings.Storage = config.Storage{Plugin: c.plugin, DSN: "env:DATABASE"}
		getenv := cfg.Getenv
		cfg.Getenv = func(name string) (string, bool) {
			if name == "DATABASE" {
				return dsn, true
			}
			return getenv(name)
		}
		// Whoever installs it looks at it first, without a database.
		looked, err := plugins.Folder{Dir: cfg.Settings.Plugins.Dir, Cache: cfg.Settings.Plugins.Cache}.Examine(t.Context(), filepath.Join(cfg.Settings.Plugins.Dir, "mysql"))
		if err != nil || !slices.Equal(looked.Manifest.Capabilities, []capability.Name{capability.SQLName}) {
			t.Fatalf("%s %s: %v", c.plugin, c.isolation, err)
		}
		h := open(t, cfg)
		for range 2 {
			results, err := h.Engine().Record(t.Context(), engine.Event{Tenant: "t", ID: "e1", Feature: "tokens", Quantity: decimal.One})
			if err != nil || len(results) != 1 || results[0].Outcome != outcome {
				t.Fatalf("%s %s: %v: %+v, want %s", c.plugin, c.isolation, err, results, outcome)
			}
			outcome = engine.Duplicate
		}
		if err := h.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// What was not granted is refused before anything runs, and so is what this
// program cannot do; no error holds the password.
func TestStorageOverSQLRefused(t *testing.T) {
	t.Parallel()
	sqlOnly := []capability.Name{capability.SQLName}
	for name, c := range map[string]struct {
		plugin string
		lock   grant.Locked
		open   host.OpenDatabase
		dsn    string
		code   string
		says   string
	}{
		"not granted":       {"wasm:mysql", grant.Locked{Isolation: grant.InProcess}, openDatabase, "mysql://u:hunter2@h/d", "not_granted", "capability sql"},
		"no databases":      {"wasm:mysql", grant.Locked{Isolation: grant.InProcess, Capabilities: sqlOnly}, nil, "mysql://u:hunter2@h/d", "no_sql", "sql"},
		"another dsn":       {"wasm:mysql", grant.Locked{Isolation: grant.InProcess, Capabilities: sqlOnly}, openDatabase, "oracle://u:hunter2@h/d", "", "storage.dsn"},
		"not a program":     {"exec:mysql", grant.Locked{Isolation: grant.InProcess, Capabilities: sqlOnly}, openDatabase, "mysql://u:hunter2@h/d", "", "wasm: for a module"},
		"nobody answers":    {"wasm:mysql", grant.Locked{Isolation: grant.InProcess, Capabilities: sqlOnly}, openDatabase, "mysql://u:hunter2@127.0.0.1:1/d", "connection", ""},
		"program as module": {"wasm:mysql", grant.Locked{Isolation: grant.Process, Capabilities: sqlOnly}, openDatabase, "mysql://u:hunter2@h/d", "", "exec: for a program"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := hostConfig(nil, settings(newDouble(t)))
			cfg.Builtins.SQL = c.open
			cfg.Settings.Plugins = installMySQL(t, c.lock)
			cfg.Settings.Storage = config.Storage{Plugin: c.plugin, DSN: c.dsn}
			_, err := host.Open(t.Context(), cfg)
			e, ok := errors.AsType[*sdk.Error](err)
			if !ok || c.code != "" && e.Code != c.code || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%v, want %s", err, c.code)
			}
		})
	}
}

// Issue 5: a store whose process ends again and again is started later and later,
// then not at all for a while; every call is unavailable, and says whether it may
// have happened (F38).
func TestStorageThatDies(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "evil.db")
	db, err := openDatabase("sqlite:"+file, 1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := db.Begin(t.Context())
	table, err := sqlv1.EncodeWork(capability.Work{Statements: []capability.Statement{{SQL: "CREATE TABLE evil (k BLOB PRIMARY KEY)"}}, End: capability.Commit})
	if err == nil {
		_, err = db.Do(ctx, table)
	}
	end()
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	program, err := goBuild("./remote/testdata/evilstore", []string{"CGO_ENABLED=0"})
	if err != nil {
		t.Fatal(err)
	}
	started := 0 // one call at a time
	a, err := host.StoragePlugin{
		Name: "evil", Bytes: program, Isolation: grant.Process, Capabilities: []capability.Name{capability.SQLName}, Database: openDatabase,
		Started: func() { started++ },
	}.Open(t.Context(), "sqlite:"+file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	counters, ok := storage.As[storage.CounterStore](a)
	if !ok {
		t.Fatal("it has no counters")
	}
	call := func(how string) error {
		return counters.UpsertCounters(t.Context(), []storage.Counter{{CounterKey: storage.CounterKey{Tenant: how, Feature: how}}})
	}
	if err := call("commit"); err != nil || started != 1 {
		t.Fatalf("%v, %d started", err, started)
	}
	for i := range 5 {
		err := call("exit")
		if e, ok := errors.AsType[*sdk.Error](err); !ok || e.Tag != sdk.TagUnavailable || e.Code != remote.CodeUnknownOutcome {
			t.Errorf("death %d: %v", i, err)
		}
	}
	before := started
	for range 3 {
		err := call("commit")
		if e, ok := errors.AsType[*sdk.Error](err); !ok || e.Tag != sdk.TagUnavailable || e.Code != remote.CodeUnreached || !errors.Is(err, carrier.ErrParked) {
			t.Errorf("while it is parked: %v", err)
		}
	}
	if err := a.Ping(t.Context()); !errors.Is(err, sdk.ErrUnavailable) || started != before || started != 5 {
		t.Errorf("%v, %d and %d started", err, before, started)
	}
}
