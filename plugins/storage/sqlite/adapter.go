// Package sqlite is the storage adapter of a single host: one SQLite file, in
// WAL mode with full durability, one writer and a few readers.
//
// The adapter holds an advisory lock beside the file for as long as it is
// open, so no two processes ever write one store. That also makes recovery
// quick: whoever gets the lock knows that nobody else is alive.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Config says which file to open and how. Path is required; every other zero
// value has a default.
type Config struct {
	// Path of the database file. Its folder must exist. A path that does not
	// exist is created, together with "<path>.lock", "<path>-wal" and
	// "<path>-shm".
	Path string
	// Logger receives the few things that nobody is answered. Default: none.
	Logger *slog.Logger
	// Now is the store's clock: leases, backoffs and horizons are measured on
	// it, once per transaction. Default: time.Now.
	Now func() time.Time
	// BusyTimeout bounds the wait for a lock that a tool such as the sqlite3
	// shell holds on the file. Default: 5 s.
	BusyTimeout time.Duration
	// LockWait bounds the wait for another process that has the store open.
	// Default: 5 s; negative: do not wait.
	LockWait time.Duration
	// TxTimeout bounds a transaction of WithTx whose context has no deadline.
	// Default: 1 min.
	TxTimeout time.Duration
	// Readers is the number of connections for reading. Default: 4.
	Readers int
	// Migrate makes Open apply the migrations that are missing.
	Migrate bool
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.BusyTimeout <= 0 {
		c.BusyTimeout = 5 * time.Second
	}
	if c.LockWait == 0 {
		c.LockWait = 5 * time.Second
	}
	if c.TxTimeout <= 0 {
		c.TxTimeout = time.Minute
	}
	if c.Readers <= 0 {
		c.Readers = 4
	}
	return c
}

// Version of the adapter, as Describe answers it.
const Version = "1"

// Adapter is an open store. It is safe for concurrent use; writes take turns.
// The zero value is not usable: see [Open].
type Adapter struct {
	cfg  Config
	path string
	lock *fileLock
	held *heldFile

	// writer and readers hold the connections that nobody uses; a nil one is
	// opened by whoever takes it.
	writer  chan *conn
	readers chan *conn

	// schemaErr is why the schema cannot be used, nil when it can.
	schemaErr atomic.Pointer[schemaError]
	oldest    oldestPending

	closeOnce sync.Once
	closing   chan struct{}
	closeErr  error
}

var (
	_ storage.Adapter           = (*Adapter)(nil)
	_ storage.EventStore        = (*Adapter)(nil)
	_ storage.EventStreamer     = (*Adapter)(nil)
	_ storage.CorrectionStore   = (*Adapter)(nil)
	_ storage.Aggregator        = (*Adapter)(nil)
	_ storage.RetentionStore    = (*Adapter)(nil)
	_ storage.CounterStore      = (*Adapter)(nil)
	_ storage.HistoryStore      = (*Adapter)(nil)
	_ storage.BucketStore       = (*Adapter)(nil)
	_ storage.SnapshotStore     = (*Adapter)(nil)
	_ storage.ProjectionStore   = (*Adapter)(nil)
	_ storage.ProjectionKeeper  = (*Adapter)(nil)
	_ storage.SubscriptionStore = (*Adapter)(nil)
	_ storage.OutboxStore       = (*Adapter)(nil)
	_ storage.RouteStore        = (*Adapter)(nil)
	_ storage.SettlementStore   = (*Adapter)(nil)
	_ storage.HostStore         = (*Adapter)(nil)
	_ storage.ReportStore       = (*Adapter)(nil)
	_ storage.ReconcileStore    = (*Adapter)(nil)
	_ storage.Migrator          = (*Adapter)(nil)
)

// Open opens or creates the store at cfg.Path and locks it for this process.
//
// Faults of the path are [sdk.Error] values with the field "storage.dsn": tag
// invalid for what a change of configuration mends, unavailable with code
// "store_locked" when another process holds the store for longer than
// LockWait. A store without a schema, or with one that this version does not
// know, opens, and every call answers why it cannot work; with cfg.Migrate
// the schema is brought up to date instead, or Open fails.
//
// Since the lock proves that no other process is alive, every lease that is
// still running is ended: what a killed process held is claimable at once. The
// fence, and the rule that such an item is unresolved, are not touched by that.
func Open(ctx context.Context, cfg Config) (*Adapter, error) {
	cfg = cfg.withDefaults()
	path, err := checkPath(cfg.Path)
	if err != nil {
		return nil, err
	}
	lock, err := acquireLock(ctx, path, cfg.LockWait)
	if err != nil {
		return nil, err
	}
	a := &Adapter{
		cfg: cfg, path: path, lock: lock,
		writer:  make(chan *conn, 1),
		readers: make(chan *conn, cfg.Readers),
		closing: make(chan struct{}),
	}
	for range cfg.Readers {
		a.readers <- nil
	}
	if err := a.start(ctx); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// start opens the writer, looks at the schema and ends old leases. Whatever it
// answers, the writer slot is filled afterwards. What it created and cannot use
// it removes.
func (a *Adapter) start(ctx context.Context) error {
	created := !exists(a.path)
	var w *conn
	var err error
	if a.held, err = holdFile(ctx, a.path, a.cfg.LockWait); err == nil {
		w, err = openWriter(a.path, a.cfg.BusyTimeout)
	}
	a.writer <- w
	if err == nil {
		err = a.prepare(ctx)
	}
	if err == nil {
		return nil
	}
	if created {
		err = errors.Join(err, closeConn(<-a.writer), a.held.release())
		a.writer <- nil
		removeDatabase(a.path)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("open %s: %w", a.path, contextError(ctx.Err()))
	}
	return openError(a.path, err)
}

func (a *Adapter) prepare(ctx context.Context) error {
	if a.cfg.Migrate {
		if _, err := a.Migrate(ctx); err != nil {
			return err
		}
	} else if err := a.checkSchema(ctx); err != nil {
		return err
	}
	if a.schemaProblem() != nil {
		return nil //nolint:nilerr // every call will answer it; Migrate can mend it
	}
	return a.expireLeases(ctx)
}

// expireLeases ends every running lease. Only the expiry moves.
func (a *Adapter) expireLeases(ctx context.Context) error {
	return a.write(ctx, "expire leases", func(ctx context.Context, c *conn) error {
		n, err := c.bind(qExpireLeases).time(a.now().Add(-time.Microsecond)).run()
		if n > 0 {
			a.cfg.Logger.InfoContext(ctx, "leases of an earlier process ended", "items", n)
		}
		return err
	})
}

// now is the store's clock, in the precision that is stored.
func (a *Adapter) now() time.Time { return a.cfg.Now().UTC().Truncate(time.Microsecond) }

// Describe returns the manifest.
func (a *Adapter) Describe() storage.Manifest {
	return storage.Manifest{
		Name:    "sqlite",
		Version: Version,
		Capabilities: []storage.Capability{
			storage.DurableEvents, storage.Subscriptions, storage.EventStreaming, storage.Outbox,
			storage.Corrections, storage.ProjectionGenerations, storage.Buckets, storage.Counters,
			storage.Retention,
		},
	}
}

// Ping reports whether RecordEvents could work now: the schema must be the one
// that this version knows, and it commits a write of a little more than what
// an event with an item takes, 12 pages, so that a disk without room for one
// shows. A file that was deleted or replaced is unavailable, code
// "store_replaced", as it is for every call that writes.
func (a *Adapter) Ping(ctx context.Context) error {
	return a.write(ctx, "ping", func(_ context.Context, c *conn) error { return c.run(qPing) })
}

// Close waits for calls in flight and releases the file and its lock. Later
// calls answer unavailable, code "closed". It may be called more than once.
func (a *Adapter) Close() error {
	a.closeOnce.Do(func() {
		close(a.closing)
		var errs []error
		for range cap(a.readers) {
			errs = append(errs, closeConn(<-a.readers))
		}
		errs = append(errs, closeConn(<-a.writer), a.held.release(), a.lock.release())
		a.closeErr = errors.Join(errs...)
	})
	return a.closeErr
}
