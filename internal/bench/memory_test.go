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
	"github.com/fencepost/fencepost/internal/stripedouble"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// BenchmarkBacklogMemory is M1: the most memory that a server ever held while it
// delivered a long backlog (BACKLOG, a million) from SQLite through the Stripe
// module. BACKLOG_TIME bounds how long it is watched; what was delivered by then
// is printed beside it.
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
		recordBacklog(b, filepath.Join(dir, "backlog.db"), double, n)
		// The first start compiles the module, which takes more memory than all
		// that follows: what is measured is a start from the compile cache.
		first := serveBacklog(b, dir, double)
		for double.Ledger().Events == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		cold := resident(b, first.Pid, "VmHWM")
		_ = first.Kill()
		_, _ = first.Wait()
		pid := serveBacklog(b, dir, double).Pid
		for began := time.Now(); double.Ledger().Events < n && time.Since(began) < limit; {
			time.Sleep(100 * time.Millisecond)
		}
		done := double.Ledger().Events
		goal{ID: "M1", What: fmt.Sprintf("peak MB of serve, backlog of %d", n), Floor: 200, Goal: 180, Lower: true}.
			print(b, fmt.Sprintf("%d delivered; %.0f MB at the end; %.0f when it compiles", done, resident(b, pid, "VmRSS"), cold), resident(b, pid, "VmHWM"))
	}
}

// recordBacklog writes the store with everything still to be delivered.
func recordBacklog(b *testing.B, path string, double *stripedouble.Server, n int) {
	b.Helper()
	store, err := sqlite.Open(b.Context(), sqlite.Config{Path: path, Migrate: true})
	if err != nil {
		b.Fatal(err)
	}
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

// serveBacklog starts the real binary on that store.
func serveBacklog(b *testing.B, dir string, double *stripedouble.Server) *os.Process {
	b.Helper()
	bin := filepath.Join(dir, "fencepost")
	if out, err := exec.CommandContext(b.Context(), "go", "build", "-o", bin, "../../cmd/fencepost").CombinedOutput(); err != nil {
		b.Fatalf("build: %v\n%s", err, out)
	}
	config := fmt.Sprintf(`storage: {plugin: "builtin:sqlite", dsn: %q}
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
`, filepath.Join(dir, "backlog.db"), filepath.Join(dir, "state"), filepath.Join(dir, "cache"), double.URL(), double.CAFile())
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
