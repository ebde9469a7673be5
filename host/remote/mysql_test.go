package remote_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/host/carrier/linked"
	"github.com/fencepost/fencepost/host/carrier/wasm"
	"github.com/fencepost/fencepost/host/remote"
	"github.com/fencepost/fencepost/host/sql"
	"github.com/fencepost/fencepost/internal/mysqltest"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/guest/storageplugin"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/storagetest"
	"github.com/fencepost/fencepost/plugins/sdk/wire/storagev1"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
	"github.com/fencepost/fencepost/plugins/storage/mysql"
)

// carry puts the adapter on a carrier.
type carryMySQL func(t testing.TB, host carrier.Host, setup []carrier.SetupCall) carrier.Caller

var granted = []capability.Name{capability.SQLName}

// openMySQL opens the adapter on a database that the host holds.
func openMySQL(t testing.TB, dsn string, carry carryMySQL) *remote.Adapter {
	t.Helper()
	db, err := sql.Open(dsn, 8)
	if err != nil {
		t.Fatal(err)
	}
	opening := storage.Opening{Migrate: true}
	request, err := storagev1.EncodeOpening(&opening)
	if err != nil {
		t.Fatal(err)
	}
	setup := []carrier.SetupCall{{Method: uint32(storagev1.MethodOpen), Request: request}}
	a, err := remote.Open(t.Context(), remote.Config{
		Caller: carry(t, carrier.Host{SQLDo: db.Do}, setup), Plugin: "mysql", Opening: opening,
		Begin: func(ctx context.Context) (context.Context, func()) {
			ctx, session := db.Begin(ctx)
			return ctx, session.End
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = a.Close() // before the database is dropped
		_ = db.Close()
	})
	return a
}

func mysqlLinked(t testing.TB, host carrier.Host, setup []carrier.SetupCall) carrier.Caller {
	t.Helper()
	c, err := linked.Open(linked.Config{
		Name: "mysql", Granted: granted, Host: host, Setup: setup, MaxInstances: 8,
		New: func(h capability.Host) linked.Callee {
			return storageplugin.NewDispatcher(mysql.OpenPlugin, h)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// module builds a module once and compiles it once for each test.
func module(t testing.TB, pkg string) carryMySQL {
	t.Helper()
	file := filepath.Join(t.TempDir(), "plugin.wasm")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-o", file, "github.com/fencepost/fencepost/"+pkg)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	module, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	return func(t testing.TB, host carrier.Host, setup []carrier.SetupCall) carrier.Caller {
		t.Helper()
		m, err := wasm.Open(t.Context(), wasm.Config{
			Name: "mysql", Module: module, Declared: granted, Granted: granted, Host: host, Setup: setup, InertFiles: true, CacheDir: cache,
			Limits: wasm.Limits{MaxRequest: wirev1.MaxMessage, MaxOutput: wirev1.MaxMessage, MaxInstances: 4, MemoryPages: 2048},
		})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
}

// A dialect that nobody here wrote an adapter for, without its driver, keeps the
// contract: linked in and as a module from one source (Q28). // S16
func TestSQLConformance(t *testing.T) {
	t.Parallel()
	t.Run("linked", func(t *testing.T) {
		t.Parallel()
		conformsMySQL(t, mysqlLinked, storagetest.Effort(0, 10))
	})
	t.Run("module", func(t *testing.T) {
		t.Parallel()
		conformsMySQL(t, module(t, "plugins/storage/mysql/plugin"), storagetest.Effort(100, 3))
	})
}

func conformsMySQL(t *testing.T, carry carryMySQL, options ...storagetest.Option) {
	t.Helper()
	storagetest.Run(t, func(t *testing.T) storage.Adapter {
		t.Helper()
		return openMySQL(t, mysqltest.Database(t), carry)
	}, options...)
}
