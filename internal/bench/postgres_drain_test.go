package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/internal/pgtest"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// backlogSize is how many items the long backlog has: BACKLOG, or a million.
func backlogSize(b *testing.B) int {
	b.Helper()
	text := os.Getenv("BACKLOG")
	if text == "" {
		return 1_000_000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1000 {
		b.Fatal("BACKLOG is not a number of items, from 1000")
	}
	return n
}

// fill records n events, each with an item.
func (s *shop) fill(b *testing.B, n int) time.Duration {
	b.Helper()
	var took time.Duration
	for done := 0; done < n; done += 20_000 { // what is made beforehand has to fit
		took += pair(s.batches(min(20_000, n-done)/1000, 1000, false), func(u []storage.Unit) { record(b, s.store, s.rev, u) })
	}
	return took
}

// deliver claims and settles n items with four workers, and returns how long it
// took to reach each tenth of them.
func (s *shop) deliver(b *testing.B, n int) []time.Duration {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	var settled atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for i := range 4 {
		wg.Go(func() { s.drain(ctx, b, "w"+strconv.Itoa(i), &settled) })
	}
	var tenths []time.Duration
	for len(tenths) < 10 && !b.Failed() {
		if settled.Load() >= int64(n/10*(len(tenths)+1)) {
			tenths = append(tenths, time.Since(start))
			continue
		}
		time.Sleep(time.Millisecond)
	}
	stop()
	wg.Wait()
	if len(tenths) < 10 {
		b.FailNow()
	}
	return tenths
}

// river is a program with River in it, on a schema of its own.
type river struct {
	in  io.Writer
	out *bufio.Scanner
}

func newRiver(b *testing.B) *river {
	b.Helper()
	_, schema := pgtest.Schema(b)
	bin := filepath.Join(b.TempDir(), "riverbench")
	build := exec.CommandContext(b.Context(), "go", "build", "-o", bin, ".")
	build.Dir = filepath.Join("..", "..", "tools", "riverbench")
	build.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("build: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(b.Context(), bin, "-dsn", pgtest.Plain(os.Getenv(pgtest.Env)), "-schema", schema)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	return &river{in: in, out: bufio.NewScanner(out)}
}

// order has something done, and returns how long it took.
func (r *river) order(b *testing.B, what string) time.Duration {
	b.Helper()
	if _, err := fmt.Fprintln(r.in, what); err != nil {
		b.Fatal(err)
	}
	if !r.out.Scan() {
		b.Fatalf("%s: the program ended", what)
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(r.out.Text()), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return time.Duration(ns)
}

// BenchmarkPostgresRiver is P9 and P10: claims of 500 and fenced completions by
// four workers, beside River with 2000 workers on the same server, and beside
// recording.
func BenchmarkPostgresRiver(b *testing.B) {
	const jobs, items = 30_000, 60_000
	s, r := newShop(b), newRiver(b)
	for b.Loop() {
		var recorded []time.Duration
		t := inTurns(rounds,
			func(int) time.Duration {
				recorded = append(recorded, s.fill(b, items))
				return s.deliver(b, items)[9]
			},
			func(int) time.Duration {
				r.order(b, "fill "+strconv.Itoa(jobs))
				return r.order(b, "drain")
			},
		)
		rates := func(n float64, t []time.Duration) string { return fmt.Sprintf("%.0f/s", n/t[rounds/2].Seconds()) }
		goal{ID: "P9", What: "deliveries, claims of 500, 4 workers / River jobs", Floor: 2.8, Goal: 3.5}.
			print(b, rates(items, t[0])+" and "+rates(jobs, t[1]), over(t[0], t[1], items, jobs)...)
		goal{ID: "P10", What: "deliveries / recorded events", Floor: 1.2, Goal: 1.5}.
			print(b, rates(items, recorded)+" recorded", over(t[0], recorded, items, items)...)
	}
}

// BenchmarkPostgresBacklog is P11 and P12: the end of a long backlog beside its
// beginning, and the same while somebody holds an old snapshot.
func BenchmarkPostgresBacklog(b *testing.B) {
	n := backlogSize(b)
	s := newShop(b)
	for b.Loop() {
		filled := s.fill(b, n)
		t := s.deliver(b, n)
		goal{ID: "P11", What: fmt.Sprintf("last fifth / first fifth of a backlog of %d", n), Floor: 0.5, Goal: 0.85}.
			print(b, fmt.Sprintf("%.0f deliveries/s in all, %.0f recorded/s", float64(n)/t[9].Seconds(), float64(n)/filled.Seconds()), t[1].Seconds()/(t[9]-t[7]).Seconds())

		// The snapshot is older than all that becomes garbage meanwhile. What is
		// compared is the last fifth of each.
		m := max(n/4, 1000)
		s.fill(b, m)
		without := s.deliver(b, m)
		s.fill(b, m)
		end := s.snapshot(b)
		with := s.deliver(b, m)
		end()
		goal{ID: "P12", What: fmt.Sprintf("after %d deliveries: with an old snapshot / without", m*4/5), Floor: 0.7, Goal: 0.95}.
			print(b, "", (without[9]-without[7]).Seconds()/(with[9]-with[7]).Seconds())
	}
}

// snapshot opens one that sees the store as it is now, until end is called.
func (s *shop) snapshot(b *testing.B) (end func()) {
	b.Helper()
	c := s.connect(b)
	tx, err := c.BeginTx(b.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		b.Fatal(err)
	}
	var events int64
	if err := tx.QueryRow(b.Context(), `SELECT count(*) FROM `+s.schema+`.fencepost_outbox_state`).Scan(&events); err != nil {
		b.Fatal(err)
	}
	return func() { _ = tx.Rollback(context.Background()) }
}
