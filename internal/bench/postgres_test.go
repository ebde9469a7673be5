package bench

import (
	"context"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/internal/pgtest"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/postgres"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// recorder is the part of a store that these benchmarks drive.
type recorder interface {
	storage.EventStore
	storage.RouteStore
}

// shop is a store on PostgreSQL, a bare connection for references beside it,
// and a route, so that each event leads to an item.
type shop struct {
	dsn, schema string
	store       *postgres.Adapter
	route, rev  int64
	next        atomic.Int64
}

func newShop(b *testing.B) *shop {
	b.Helper()
	s := &shop{}
	s.dsn, s.schema = pgtest.Schema(b)
	store, err := postgres.Open(b.Context(), postgres.Config{DSN: s.dsn, Migrate: true, MaxConns: 16})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	s.store = store
	s.route, s.rev = addRoute(b, store)
	return s
}

func addRoute(b *testing.B, store recorder) (route, revision int64) {
	b.Helper()
	set, err := store.Routes(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	set, err = store.ChangeRoutes(b.Context(), storage.RouteChange{
		Revision: set.Revision,
		Mappings: []storage.Mapping{{Version: "m1", Label: "1", Content: []byte(`{"event_name":"tokens"}`)}},
		Add: []storage.Route{{
			Exporter: "stripe", Account: "acct_1", Mode: "test", Feature: storage.AnyFeature,
			Disposition: storage.RouteExport, MappingVersion: "m1",
		}},
	})
	if err != nil {
		b.Fatal(err)
	}
	return set.Routes[0].ID, set.Revision
}

// units are n fresh events of 1000 tenants, or of one where hot is set, each
// with an item.
func units(from, n int, route int64, hot bool) []storage.Unit {
	at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	out := make([]storage.Unit, n)
	for i := range out {
		k := from + i
		who := fmt.Sprintf("tenant-%03d", k%1000)
		if hot {
			who = "tenant-hot"
		}
		id := fmt.Sprintf("%08x-0000-4000-8000-%012x", k*2654435761%(1<<32), k)
		hash := storage.Hash(sha256.Sum256([]byte(id)))
		ev := storage.Event{
			Tenant: who, EventID: id, Feature: fmt.Sprintf("feature-%d", k%10), Quantity: decimal.One, Kind: storage.Usage,
			OccurredAt: at.Add(time.Duration(k) * time.Millisecond), PeriodStart: at, PeriodEnd: at.AddDate(0, 1, 0),
			PeriodSource: storage.FromCalendar, Dimensions: map[string]string{"model": "m1", "region": "eu-west-1", "tier": "pro"},
			PayloadHash: hash, DedupeHash: hash,
		}
		out[i] = storage.Unit{Entries: []storage.Entry{{Event: ev, Items: []storage.NewItem{{
			Identity: storage.Identity{
				Tenant: who, SubjectKind: storage.SubjectEvent, SubjectRef: id, Exporter: "stripe",
				Account: "acct_1", Mode: "test", MappingVersion: "m1",
			},
			Digest: hash, SubjectKey: hash, RouteID: route, Customer: "cus_1", AttemptBudget: 20,
		}}}}}
	}
	return out
}

// batches makes batches beforehand, so that only the store is measured.
func (s *shop) batches(n, size int, hot bool) [][]storage.Unit {
	out := make([][]storage.Unit, n)
	for i := range out {
		out[i] = units(int(s.next.Add(int64(size)))-size, size, s.route, hot)
	}
	return out
}

func record(b *testing.B, store recorder, revision int64, batch []storage.Unit) {
	b.Helper()
	res, err := store.RecordEvents(b.Context(), storage.RecordRequest{Units: batch, Mode: storage.Atomic, RoutesRevision: revision})
	if err != nil {
		b.Error(err)
		return
	}
	if res.Stale != nil || len(res.Units) != len(batch) {
		b.Errorf("recorded %d of %d, stale %v", len(res.Units), len(batch), res.Stale)
	}
}

// pair runs f over batches from two goroutines, as the references do.
func pair(batches [][]storage.Unit, f func(batch []storage.Unit)) time.Duration {
	var wg sync.WaitGroup
	var next atomic.Int64
	start := time.Now()
	for range 2 {
		wg.Go(func() {
			for {
				k := int(next.Add(1)) - 1
				if k >= len(batches) {
					return
				}
				f(batches[k])
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}

// bare is a table like that of events, with its two indexes and nothing else:
// what a store that only kept events would write.
func (s *shop) bare(b *testing.B) {
	b.Helper()
	s.exec(b, `CREATE TABLE `+s.schema+`.bare (
		tenant_key text COLLATE "C" NOT NULL, event_id text COLLATE "C" NOT NULL, feature text COLLATE "C" NOT NULL, quantity numeric(38,12) NOT NULL,
		occurred_at timestamptz NOT NULL, period_start timestamptz NOT NULL, recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
		dimensions jsonb, payload_hash bytea NOT NULL, seq bigint GENERATED ALWAYS AS IDENTITY, PRIMARY KEY (tenant_key, event_id), UNIQUE (seq))`)
}

func (s *shop) exec(b *testing.B, sql string) {
	b.Helper()
	c := s.connect(b)
	if _, err := c.Exec(b.Context(), sql); err != nil {
		b.Fatal(err)
	}
}

// connect opens a connection for references. It is closed with the benchmark.
func (s *shop) connect(b *testing.B) *pgx.Conn {
	b.Helper()
	cfg, err := pgx.ParseConfig(s.dsn)
	if err != nil {
		b.Fatal(err)
	}
	delete(cfg.RuntimeParams, "fencepost_schema")
	c, err := pgx.ConnectConfig(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

var bareColumns = []string{"tenant_key", "event_id", "feature", "quantity", "occurred_at", "period_start", "dimensions", "payload_hash"}

func bareRow(u *storage.Unit) []any {
	ev := &u.Entries[0].Event
	return []any{ev.Tenant, ev.EventID, ev.Feature, ev.Quantity.String(), ev.OccurredAt, ev.PeriodStart, ev.Dimensions, ev.PayloadHash[:]}
}

// copyInto writes the events of a batch by COPY: the fastest way in.
func (s *shop) copyInto(b *testing.B, c *pgx.Conn, batch []storage.Unit) {
	b.Helper()
	rows := make([][]any, len(batch))
	for i := range batch {
		rows[i] = bareRow(&batch[i])
	}
	_, err := c.CopyFrom(b.Context(), pgx.Identifier{s.schema, "bare"}, bareColumns, pgx.CopyFromRows(rows))
	if err != nil {
		b.Error(err)
	}
}

// insertInto writes the events of a batch by one INSERT from arrays.
func (s *shop) insertInto(b *testing.B, c *pgx.Conn, batch []storage.Unit) {
	b.Helper()
	n := len(batch)
	tenants, ids, features, quantities := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	at, periods, dims, hashes := make([]time.Time, n), make([]time.Time, n), make([]map[string]string, n), make([][]byte, n)
	for i := range batch {
		ev := &batch[i].Entries[0].Event
		tenants[i], ids[i], features[i], quantities[i] = ev.Tenant, ev.EventID, ev.Feature, ev.Quantity.String()
		at[i], periods[i], dims[i], hashes[i] = ev.OccurredAt, ev.PeriodStart, ev.Dimensions, ev.PayloadHash[:]
	}
	_, err := c.Exec(b.Context(), `INSERT INTO `+s.schema+`.bare (tenant_key, event_id, feature, quantity, occurred_at, period_start, dimensions, payload_hash)
		SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::numeric[], $5::timestamptz[], $6::timestamptz[], $7::jsonb[], $8::bytea[])
		ORDER BY 1, 2 ON CONFLICT DO NOTHING`, tenants, ids, features, quantities, at, periods, dims, hashes)
	if err != nil {
		b.Error(err)
	}
}

// BenchmarkPostgresBatch is P1 to P3, P17 and P18: batches of 1000 and of 5000
// from two callers, beside COPY and INSERT of the bare events, beside repeats of
// themselves, and beside the embedded store.
func BenchmarkPostgresBatch(b *testing.B) {
	const size, perRound = 1000, 20
	s := newShop(b)
	s.bare(b)
	embedded, embeddedRev := newEmbedded(b)
	conns := make(chan *pgx.Conn, 2)
	for range 2 {
		conns <- s.connect(b)
	}
	borrow := func(f func(*pgx.Conn, []storage.Unit)) func([]storage.Unit) {
		return func(batch []storage.Unit) {
			c := <-conns
			f(c, batch)
			conns <- c
		}
	}
	for b.Loop() {
		var fresh [][]storage.Unit
		t := inTurns(rounds,
			func(int) time.Duration {
				fresh = s.batches(perRound, size, false)
				return pair(fresh, func(u []storage.Unit) { record(b, s.store, s.rev, u) })
			},
			func(int) time.Duration {
				return pair(s.batches(perRound, size, false), borrow(func(c *pgx.Conn, u []storage.Unit) { s.copyInto(b, c, u) }))
			},
			func(int) time.Duration {
				return pair(s.batches(perRound, size, false), borrow(func(c *pgx.Conn, u []storage.Unit) { s.insertInto(b, c, u) }))
			},
			func(int) time.Duration {
				return pair(fresh, func(u []storage.Unit) { record(b, s.store, s.rev, u) })
			},
			func(int) time.Duration {
				return pair(s.batches(perRound, size, false), func(u []storage.Unit) { record(b, embedded, embeddedRev, u) })
			},
			func(int) time.Duration {
				return pair(s.batches(perRound/5, 5*size, false), func(u []storage.Unit) { record(b, s.store, s.rev, u) })
			},
			func(int) time.Duration {
				return pair(s.batches(perRound/5, 5*size, false), borrow(func(c *pgx.Conn, u []storage.Unit) { s.copyInto(b, c, u) }))
			},
		)
		const work = size * perRound
		note := fmt.Sprintf("%.0f events/s", work/t[0][rounds/2].Seconds())
		goal{ID: "P1", What: "record, batch 1000 / COPY of the events", Floor: 0.40, Goal: 0.50}.print(b, note, over(t[0], t[1], work, work)...)
		goal{ID: "P2", What: "record, batch 5000 / COPY (there is no path for imports)", Floor: 0.50, Goal: 0.65}.print(b, "", over(t[5], t[6], work, work)...)
		goal{ID: "P3", What: "record, batch 1000 / INSERT of the events", Floor: 0.55, Goal: 0.70}.print(b, "", over(t[0], t[2], work, work)...)
		goal{ID: "P17", What: "PostgreSQL: duplicates / fresh, batch 1000", Floor: 1.5, Goal: 2.5}.print(b, "", over(t[3], t[0], work, work)...)
		goal{ID: "P18", What: "SQLite record, batch 1000 / PostgreSQL record", Floor: 0.8, Goal: 1.1}.print(b, "", over(t[4], t[0], work, work)...)
	}
}

func newEmbedded(b *testing.B) (*sqlite.Adapter, int64) {
	b.Helper()
	store, err := sqlite.Open(b.Context(), sqlite.Config{Path: filepath.Join(b.TempDir(), "p18.db"), Migrate: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	_, rev := addRoute(b, store)
	return store, rev
}

// BenchmarkPostgresWrites is P14, P15 and P16: what one record costs the
// server beside time.
func BenchmarkPostgresWrites(b *testing.B) {
	const size, n = 1000, 10
	s := newShop(b)
	s.bare(b)
	proxy := pgtest.NewProxy(b, s.dsn)
	tapped, err := postgres.Open(b.Context(), postgres.Config{DSN: proxy.Through(s.dsn)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = tapped.Close() })
	c := s.connect(b)
	for b.Loop() {
		record(b, tapped, s.rev, s.batches(1, size, false)[0]) // prepares
		before := proxy.RoundTrips()
		for _, batch := range s.batches(n, size, false) {
			record(b, tapped, s.rev, batch)
		}
		goal{ID: "P15", What: "round trips of one record batch", Floor: 1, Goal: 1, Lower: true}.
			print(b, "counted on the wire", float64(proxy.RoundTrips()-before)/n)

		multi := s.number(b, c, `SELECT next_multixact_id::text::bigint FROM pg_control_checkpoint()`)
		start := s.number(b, c, `SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn`)
		for _, batch := range s.batches(n, size, false) {
			record(b, s.store, s.rev, batch)
		}
		middle := s.number(b, c, `SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn`)
		for _, batch := range s.batches(n, size, false) {
			s.copyInto(b, c, batch)
		}
		end := s.number(b, c, `SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn`)
		goal{ID: "P16", What: "WAL bytes of a recorded event / of the event alone", Floor: 2.3, Goal: 1.8, Lower: true}.
			print(b, fmt.Sprintf("%d and %d bytes", (middle-start)/(n*size), (end-middle)/(n*size)), float64(middle-start)/float64(end-middle))

		for _, batch := range s.batches(1000, 1, false) {
			record(b, s.store, s.rev, batch)
		}
		if _, err := c.Exec(b.Context(), "CHECKPOINT"); err != nil {
			b.Fatal(err)
		}
		goal{ID: "P14", What: "multixact ids of 1000 records", Lower: true}.
			print(b, "", float64(s.number(b, c, `SELECT next_multixact_id::text::bigint FROM pg_control_checkpoint()`)-multi))
	}
}

func (s *shop) number(b *testing.B, c *pgx.Conn, sql string) int64 {
	b.Helper()
	var n int64
	if err := c.QueryRow(b.Context(), sql).Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}
