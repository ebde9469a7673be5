//go:build linux

package remote_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/host/carrier/process"
	"github.com/fencepost/fencepost/host/remote"
	"github.com/fencepost/fencepost/internal/pgtest"
	"github.com/fencepost/fencepost/internal/redistest"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/storagetest"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// build makes the image of a plugin's main.
func build(t testing.TB, pkg string) *process.Image {
	t.Helper()
	file := filepath.Join(t.TempDir(), "plugin")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", file, "github.com/fencepost/fencepost/"+pkg)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	image, err := process.NewImage(filepath.Base(pkg), content)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = image.Close() })
	return image
}

// spawn opens a store behind a process of its own.
func spawn(t testing.TB, image *process.Image, dsn string, grace time.Duration) (*remote.Adapter, *process.Shared) {
	t.Helper()
	p, err := process.OpenShared(process.Config{
		Name: "store", Image: image, Sandbox: process.Sandbox{Network: true, Files: true},
		Limits: process.Limits{MaxRequest: wirev1.MaxMessage, MaxOutput: wirev1.MaxMessage},
	}, grace)
	if err != nil {
		t.Fatal(err)
	}
	a, err := remote.Open(t.Context(), remote.Config{Caller: p, Plugin: "store", Opening: storage.Opening{DSN: dsn, Migrate: true}})
	if err != nil {
		t.Fatal(err)
	}
	return a, p
}

// The native adapters as processes of their own keep the contract, unchanged:
// what is linked in and what is not differ by a line of main (Q28, S16).
func TestSubprocessConformance(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		image := build(t, "plugins/storage/sqlite/plugin")
		storagetest.Run(t, func(t *testing.T) storage.Adapter {
			t.Helper()
			a, _ := spawn(t, image, filepath.Join(t.TempDir(), "usage.db"), 0)
			return a
		}, storagetest.Effort(0, 15))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		image := build(t, "plugins/storage/postgres/plugin")
		storagetest.Run(t, func(t *testing.T) storage.Adapter {
			t.Helper()
			dsn, _ := pgtest.Schema(t)
			a, _ := spawn(t, image, dsn, 0)
			t.Cleanup(func() { _ = a.Close() }) // before the schema is dropped
			return a
		}, storagetest.Effort(0, 15))
	})
}

// The adapter that declares counters only passes what it declares, and what is
// not declared is refused by a line that names it (S16, B7).
func TestSubprocessDeclaresCountersOnly(t *testing.T) {
	t.Parallel()
	image, server := build(t, "plugins/storage/redis/plugin"), redistest.Start(t, redistest.Durable()...)
	stores := 0
	storagetest.Run(t, func(t *testing.T) storage.Adapter {
		t.Helper()
		stores++
		a, _ := spawn(t, image, server.URL()+"?fencepost_prefix=s"+strconv.Itoa(stores), 0)
		return a
	}, storagetest.Effort(0, 15))
	a, _ := spawn(t, image, server.URL(), 0)
	defer func() { _ = a.Close() }()
	_, err := engine.New(engine.Config{Store: a})
	if !errors.Is(err, sdk.ErrUnsupported) || !strings.Contains(err.Error(), "the storage adapter redis does not declare this capability, durable_events") {
		t.Errorf("an engine on counters only: %v", err)
	}
	if _, has := storage.As[storage.EventStore](storage.Adapter(a)); has {
		t.Error("an undeclared capability is there all the same")
	}
}

// program is a plugin's main as a process without a network.
func program(t testing.TB, pkg string) carryMySQL {
	t.Helper()
	image := build(t, pkg)
	return func(t testing.TB, host carrier.Host, _ []carrier.SetupCall) carrier.Caller {
		t.Helper()
		p, err := process.OpenShared(process.Config{
			Name: "mysql", Image: image, Granted: granted, Host: host,
			Limits: process.Limits{MaxRequest: wirev1.MaxMessage, MaxOutput: wirev1.MaxMessage},
		}, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
}

// The same source as a process: without a network, it asks the host for its
// database (Q28).
func TestSQLConformanceProcess(t *testing.T) {
	t.Parallel()
	conformsMySQL(t, program(t, "plugins/storage/mysql/plugin"), storagetest.Effort(0, 5))
}

// A killed process is started again and its store opened again by the call that
// needs it; what was acknowledged is there (F38, F12).
func TestSubprocessKilled(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "usage.db")
	a, p := spawn(t, build(t, "plugins/storage/sqlite/plugin"), file, 0)
	defer func() { _ = a.Close() }()
	sub := storage.Subscription{Tenant: "t", Plan: "p", Interval: storage.Month, Timezone: "UTC", Anchor: noon}
	if _, err := a.PutSubscription(t.Context(), sub); err != nil {
		t.Fatal(err)
	}
	if n := killHolder(t, file); n != 1 {
		t.Fatalf("%d processes killed", n)
	}
	// The one call that finds the process gone may be told so, with nothing done.
	got, err := a.Subscriptions(t.Context(), []string{"t"})
	if errors.Is(err, sdk.ErrUnavailable) {
		got, err = a.Subscriptions(t.Context(), []string{"t"})
	}
	if err != nil || len(got) != 1 || got[0].Plan != "p" {
		t.Errorf("%v: %+v", err, got)
	}
	if s := p.Stats(); s.Started != 2 {
		t.Errorf("%d processes started", s.Started)
	}
}

// A caller that goes away costs nobody the process, and calls run side by side.
func TestSubprocessOutlivesItsCallers(t *testing.T) {
	t.Parallel()
	a, p := spawn(t, build(t, "plugins/storage/sqlite/plugin"), filepath.Join(t.TempDir(), "usage.db"), 0)
	defer func() { _ = a.Close() }()
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if _, err := a.Routes(ctx); err != nil && !errors.Is(err, sdk.ErrUnavailable) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := a.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if s := p.Stats(); s.Started != 1 {
		t.Errorf("%d processes started", s.Started)
	}
}
