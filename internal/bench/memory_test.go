package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/internal/pgtest"
	"github.com/fencepost/fencepost/internal/stripedouble"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/postgres"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// BenchmarkBacklogMemory is M1: the most memory that a server ever held while it
// delivered a long backlog (BACKLOG, a million) through the Stripe module, from
// SQLite or, with BACKLOG_STORE=postgres, from PostgreSQL. BACKLOG_TIME bounds how
// long it is watched; what was delivered by then is printed beside it.
func BenchmarkBacklogMemory(b *testing.B) {
	n := backlogSize(b)
	limit := 30 * time.Minute
	if text := os.Getenv("BACKLOG_TIME"); text != "" {
		var err error
		if limit, err = time.ParseDuration(text); err != nil {
			b.Fatal(err)
		}
	}
	ctx, dir := b.Context(), b.TempDir()
	double, err := stripedouble.New(stripedouble.Config{Dir: filepath.Join(dir, "stripe")})
	if err != nil {
		b.Fatal(err)
	}
	if err := double.Start(ctx); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = double.Close() })
	for b.Loop() {
		at := openBacklog(b, dir)
		recordBacklog(b, at.adapter, double, n)
		// The first start compiles the module, which takes more memory than all
		// that follows: what is measured is a start from the compile cache.
		first := serveBacklog(b, dir, at, double)
		for double.Ledger().Events == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		cold := resident(b, first.Pid, "VmHWM")
		_ = first.Kill()
		_, _ = first.Wait()
		pid := serveBacklog(b, dir, at, double).Pid
		watchBacklog(b, pid, double, n, limit)
		ledger := double.Ledger()
		goal{ID: "M1", What: fmt.Sprintf("peak MB of serve, backlog of %d on %s", n, at.plugin), Floor: 200, Goal: 180, Lower: true}.
			print(b, fmt.Sprintf("%d delivered, %d charges; %.0f MB at the end; %.0f when it compiles",
				ledger.Events, ledger.Charges, resident(b, pid, "VmRSS"), cold), resident(b, pid, "VmHWM"))
	}
}

// watchBacklog returns when everything is delivered or the limit is over, and
// says each minute how far it is.
func watchBacklog(b *testing.B, pid int, double *stripedouble.Server, n int, limit time.Duration) {
	b.Helper()
	began, said := time.Now(), time.Now()
	for double.Ledger().Events < n && time.Since(began) < limit {
		if time.Since(said) > time.Minute {
			said = time.Now()
			fmt.Fprintf(os.Stderr, "%5.0f s: %7d delivered, %.0f MB, peak %.0f MB\n",
				time.Since(began).Seconds(), double.Ledger().Events, resident(b, pid, "VmRSS"), resident(b, pid, "VmHWM"))
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// backlogStore is a store that is filled here and then served by the binary.
type backlogStore struct {
	plugin, dsn string
	adapter     storage.Adapter
}

func openBacklog(b *testing.B, dir string) backlogStore {
	b.Helper()
	var at backlogStore
	var err error
	switch name := os.Getenv("BACKLOG_STORE"); name {
	case "postgres":
		at.plugin = "builtin:postgres"
		at.dsn, _ = pgtest.Schema(b)
		at.adapter, err = postgres.Open(b.Context(), postgres.Config{DSN: at.dsn, Migrate: true})
	case "", "sqlite":
		at.plugin, at.dsn = "builtin:sqlite", filepath.Join(dir, "backlog.db")
		at.adapter, err = sqlite.Open(b.Context(), sqlite.Config{Path: at.dsn, Migrate: true})
	default:
		b.Fatalf("BACKLOG_STORE is sqlite or postgres, not %q", name)
	}
	if err != nil {
		b.Fatal(err)
	}
	return at
}

// recordBacklog fills the store with what is still to be delivered and closes it.
func recordBacklog(b *testing.B, store storage.Adapter, double *stripedouble.Server, n int) {
	b.Helper()
	defer func() { _ = store.Close() }()
	h := open(b, store, double, true)
	for i := range customers {
		_, err := h.Engine().PutSubscription(b.Context(), storage.Subscription{
			Tenant: tenant(i), Anchor: time.Unix(0, 0), Customers: map[string]string{"stripe": fmt.Sprintf("cus_%d", i)},
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	for done := 0; done < n; done += 500 {
		events := make([]engine.Event, min(500, n-done))
		for i := range events {
			k := done + i
			events[i] = engine.Event{ID: fmt.Sprintf("b-%d", k), Tenant: tenant(k), Feature: "tokens", Quantity: decimal.One, Time: time.Now()}
		}
		if _, err := h.Engine().Record(b.Context(), events...); err != nil {
			b.Fatal(err)
		}
	}
	if err := h.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// serveBacklog starts the real binary on that store, BACKLOG_BINARY if that is set.
func serveBacklog(b *testing.B, dir string, at backlogStore, double *stripedouble.Server) *os.Process {
	b.Helper()
	bin := os.Getenv("BACKLOG_BINARY")
	if bin == "" {
		bin = filepath.Join(dir, "fencepost")
		if out, err := exec.CommandContext(b.Context(), "go", "build", "-o", bin, "../../cmd/fencepost").CombinedOutput(); err != nil {
			b.Fatalf("build: %v\n%s", err, out)
		}
	}
	config := fmt.Sprintf(`storage: {plugin: %q, dsn: %q}
state_dir: %q
plugins: {cache: %q}
outbox: {tick: 10ms, page: 200}
exporters:
  - name: stripe
    plugin: builtin:stripe
    account: acct_1
    mode: test
    secrets: {api_key: env:STRIPE_API_KEY}
    base_url: %q
    ca_file: %q
    allow_private: [127.0.0.0/8]
    rate: 1000000
    concurrency: 16
    mapping: {version: 1, features: {tokens: {event_name: tokens}}}
`, at.plugin, at.dsn, filepath.Join(dir, "state"), filepath.Join(dir, "cache"), double.URL(), double.CAFile())
	file := filepath.Join(dir, "fencepost.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(b.Context(), bin, "serve", "--config", file, "--listen", "127.0.0.1:0", "--log-level", "warn")
	cmd.Env = append(os.Environ(), "STRIPE_API_KEY=sk_test_benchmark_key")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process
}

// resident is a line of a process's status, in MB.
func resident(b *testing.B, pid int, name string) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			if err != nil {
				b.Fatal(err)
			}
			return kb / 1000
		}
	}
	b.Fatalf("no %s", name)
	return 0
}
