// Package postgres is the storage adapter for production: any number of hosts
// share one PostgreSQL, 15 or newer.
//
// Recording is one statement in one round trip, behind the shared side of an
// advisory lock; what changes where usage goes takes the exclusive side. Rows
// are never locked across a round trip of a host.
package postgres

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Version of the adapter, as Describe answers it.
const Version = "1"

// Adapter is an open store. It is safe for concurrent use. The zero value is
// not usable: see [Open].
type Adapter struct {
	store

	cfg    Config
	target target
	texts  statements

	// Pools by purpose: see [poolOf].
	pools [numPools]*pgxpool.Pool

	// schemaErr is why the schema cannot be used, nil when it can.
	schemaErr atomic.Pointer[schemaError]
	settled   horizon
	// reruns counts transactions that the server undid for the sake of others
	// and that were run again.
	reruns atomic.Int64

	// recordTexts are record statements by their [recordParts].
	recordTexts sync.Map

	// hints and mappings are for claims: see claim.go.
	hints    hints
	mappings sync.Map

	closeOnce sync.Once
	closed    atomic.Bool
}

// store holds the operations that work in a transaction of the adapter's own
// and in one of the caller's alike.
type store struct {
	// run runs each operation.
	run runner
	// own is set when there is no transaction of the caller's.
	own *Adapter
}

var (
	_ storage.Adapter           = (*Adapter)(nil)
	_ storage.EventStore        = (*Adapter)(nil)
	_ storage.EventStreamer     = (*Adapter)(nil)
	_ storage.SubscriptionStore = (*Adapter)(nil)
	_ storage.RouteStore        = (*Adapter)(nil)
	_ storage.Migrator          = (*Adapter)(nil)
)

// Open connects to the database that cfg.DSN names.
//
// Faults of the DSN are [sdk.Error] values with the field "storage.dsn": tag
// invalid for what a change of configuration mends, unavailable when the server
// cannot be reached. A database without our schema, or with one that this
// version does not know, opens, and every call answers why it cannot work; with
// cfg.Migrate the schema is brought up to date instead, or Open fails.
//
// Open refuses a server that does not keep what the adapter builds on: one that
// acknowledges commits before they are durable, that does not skip locked rows,
// or whose locks do not exclude.
func Open(ctx context.Context, cfg Config) (*Adapter, error) {
	cfg = cfg.withDefaults()
	t, err := parseDSN(cfg)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	texts, err := loadStatements(t.schema)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	a := &Adapter{cfg: cfg, target: t, texts: texts}
	a.store = store{run: ownTx{a}, own: a}
	if err := a.start(ctx); err != nil {
		_ = a.Close() // always nil
		return nil, openError(err)
	}
	return a, nil
}

func (a *Adapter) start(ctx context.Context) error {
	ctx, cancel := a.deadline(ctx)
	defer cancel()
	for p := range numPools {
		pool, err := a.openPool(p)
		if err != nil {
			return err
		}
		a.pools[p] = pool
	}
	if a.cfg.Migrate {
		if _, err := a.Migrate(ctx); err != nil {
			return err
		}
	} else if err := a.checkSchema(ctx); err != nil {
		return err
	}
	if a.schemaProblem() != nil {
		return nil // every call will answer it; Migrate can mend it
	}
	return a.probe(ctx)
}

// Describe returns the manifest.
func (a *Adapter) Describe() storage.Manifest {
	return storage.Manifest{
		Name:    "postgres",
		Version: Version,
		Capabilities: []storage.Capability{
			storage.DurableEvents, storage.Subscriptions, storage.EventStreaming,
			storage.Counters, storage.ProjectionGenerations, storage.Buckets, storage.Outbox, storage.Corrections, storage.Retention,
		},
	}
}

// Ping reports whether RecordEvents could work now: a server that takes writes
// answers, and the schema is the one that this version knows. It has a
// connection of its own, so that a pool that is all in use does not look like a
// database that is down.
func (a *Adapter) Ping(ctx context.Context) error {
	const op = "ping"
	if err := a.checkSchema(ctx); err != nil {
		return err
	}
	return a.run.write(ctx, op, writing{pool: healthPool}, func(ctx context.Context, t *tx) error {
		// A statement that a standby and a read-only server refuse.
		_, err := t.exec(ctx, qPing)
		return err
	})
}

// Close waits for calls in flight and closes every connection. Later calls
// answer unavailable, code "closed". It may be called more than once.
func (a *Adapter) Close() error {
	a.closed.Store(true)
	a.closeOnce.Do(func() {
		for _, p := range a.pools {
			if p != nil {
				p.Close()
			}
		}
	})
	return nil
}
