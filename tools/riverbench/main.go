// Command riverbench drains jobs with River, for the ratios of internal/bench.
// It reads orders from its input, one a line, "fill N" and "drain", and answers
// each with how many nanoseconds it took. A module of its own: River must not
// reach the module graph of people who use Fencepost.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// job carries about as much as an item of the outbox.
type job struct {
	Customer   string `json:"customer"`
	Identifier string `json:"identifier"`
	Value      string `json:"value"`
	Meter      string `json:"meter"`
}

func (job) Kind() string { return "deliver" }

// worker does nothing: what is measured is the queue.
type worker struct {
	river.WorkerDefaults[job]
	left *atomic.Int64
	done chan struct{}
}

func (w *worker) Work(context.Context, *river.Job[job]) error {
	if w.left.Add(-1) == 0 {
		w.done <- struct{}{}
	}
	return nil
}

type bench struct {
	pool    *pgxpool.Pool
	schema  string
	workers int
	left    atomic.Int64
}

func (b *bench) client(w *river.Workers, queues map[string]river.QueueConfig) (*river.Client[pgx.Tx], error) {
	return river.NewClient(riverpgxv5.New(b.pool), &river.Config{
		Schema: b.schema, Workers: w, Queues: queues, FetchCooldown: river.FetchCooldownMin,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
}

func (b *bench) fill(ctx context.Context, n int) error {
	c, err := b.client(nil, nil)
	if err != nil {
		return err
	}
	for done := 0; done < n; {
		batch := make([]river.InsertManyParams, min(5000, n-done))
		for i := range batch {
			batch[i].Args = job{
				Customer: "cus_1", Identifier: fmt.Sprintf("fencepost_%064d", done+i), Value: "1", Meter: "tokens",
			}
		}
		if _, err := c.InsertManyFast(ctx, batch); err != nil {
			return err
		}
		done += len(batch)
	}
	b.left.Add(int64(n))
	return nil
}

// drain works all jobs. It ends when the last completion is written.
func (b *bench) drain(ctx context.Context) error {
	w := &worker{left: &b.left, done: make(chan struct{}, 1)}
	workers := river.NewWorkers()
	river.AddWorker(workers, w)
	c, err := b.client(workers, map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: b.workers}})
	if err != nil {
		return err
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	<-w.done
	return c.Stop(ctx)
}

func main() {
	dsn, schema := flag.String("dsn", "", "database"), flag.String("schema", "", "schema of its tables")
	workers := flag.Int("workers", 2000, "workers")
	flag.Parse()
	if err := run(context.Background(), *dsn, &bench{schema: *schema, workers: *workers}); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, dsn string, b *bench) error {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return err
	}
	cfg.MaxConns = 16
	if b.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return err
	}
	defer b.pool.Close()
	m, err := rivermigrate.New(riverpgxv5.New(b.pool), &rivermigrate.Config{Schema: b.schema})
	if err != nil {
		return err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		began := time.Now()
		if order := in.Text(); strings.HasPrefix(order, "fill ") {
			var n int
			if _, err := fmt.Sscanf(order, "fill %d", &n); err != nil {
				return err
			}
			err = b.fill(ctx, n)
		} else {
			err = b.drain(ctx)
		}
		if err != nil {
			return err
		}
		fmt.Println(time.Since(began).Nanoseconds())
	}
	return nil
}
