// Package mysql is the storage adapter for MariaDB and MySQL. It knows no
// driver: its statements go through the sql capability, so it runs linked in,
// as a process and as a WebAssembly module from this one source, and the host
// holds the connection, the credentials and the transaction.
//
// Everybody who writes locks the one row of fencepost_state first, under READ
// COMMITTED, and holds it until the commit. What a transaction reads after that
// is what all earlier ones left, and the order of the locks is the order of the
// commits: sums under a lock, the fence of a lease and the order of the stream
// follow from it, and two writers cannot wait for each other in a circle. The
// price is that writers take turns; give RecordEvents many events at once. Under
// REPEATABLE READ the first read would fix what a transaction sees before it had
// the lock. Those who only read take no lock and see one snapshot.
package mysql

import (
	"context"
	"errors"
	"sync"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Version of the adapter, as Describe answers it.
const Version = "1"

// Adapter is a store on the database that the host opened. It has no state but
// whether it is closed. It is safe for concurrent use as far as the capability
// is. The zero value is not usable: see [Open].
type Adapter struct {
	sql capability.SQL

	// using is held for reading by calls, for writing by Close.
	using  sync.RWMutex
	closed bool
}

var (
	_ storage.Adapter           = (*Adapter)(nil)
	_ storage.EventStore        = (*Adapter)(nil)
	_ storage.EventStreamer     = (*Adapter)(nil)
	_ storage.Aggregator        = (*Adapter)(nil)
	_ storage.CorrectionStore   = (*Adapter)(nil)
	_ storage.CorrectionLister  = (*Adapter)(nil)
	_ storage.SubscriptionStore = (*Adapter)(nil)
	_ storage.OutboxStore       = (*Adapter)(nil)
	_ storage.RouteStore        = (*Adapter)(nil)
	_ storage.SettlementStore   = (*Adapter)(nil)
	_ storage.HostStore         = (*Adapter)(nil)
	_ storage.ReconcileStore    = (*Adapter)(nil)
	_ storage.CounterStore      = (*Adapter)(nil)
	_ storage.HistoryStore      = (*Adapter)(nil)
	_ storage.ReportStore       = (*Adapter)(nil)
	_ storage.Migrator          = (*Adapter)(nil)
)

// Open checks the schema, or brings it up to date. Without migrate a store whose
// schema is missing or another one opens, and Ping and every call say so.
func Open(ctx context.Context, db capability.SQL, migrate bool) (*Adapter, error) {
	if db == nil {
		return nil, &sdk.Error{Tag: sdk.TagInvalid, Code: "no_sql", Field: "storage.plugin", Rule: "a plugin that is granted the capability sql"}
	}
	a := &Adapter{sql: db}
	if !migrate {
		return a, nil
	}
	if _, err := a.Migrate(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

// OpenPlugin is Open for a plugin, wherever it runs: the database is the one
// that the host opened, and its name is not heard of.
func OpenPlugin(ctx context.Context, host capability.Host, o storage.Opening) (storage.Adapter, error) {
	a, err := Open(ctx, host.SQL, o.Migrate)
	if err != nil {
		return nil, err // not a nil adapter in an interface
	}
	return a, nil
}

// Describe implements [storage.Adapter].
func (a *Adapter) Describe() storage.Manifest {
	return storage.Manifest{
		Name: "mysql", Version: Version,
		Capabilities: []storage.Capability{
			storage.DurableEvents, storage.Subscriptions, storage.EventStreaming, storage.Corrections, storage.Outbox, storage.Counters,
		},
	}
}

// Ping implements [storage.Adapter]: it takes the lock that RecordEvents takes,
// and writes the row that it writes.
func (a *Adapter) Ping(ctx context.Context) error {
	err := a.checkSchema(ctx)
	if err == nil {
		err = a.write(ctx, "ping", func(t *tx) error {
			t.moved = true
			return nil
		})
	}
	if err != nil && !errors.Is(err, sdk.ErrUnavailable) {
		e := sdk.Unavailable("schema", err)
		return e
	}
	return err
}

// Close implements [storage.Adapter]. The database is the host's to close.
func (a *Adapter) Close() error {
	a.using.Lock()
	defer a.using.Unlock()
	a.closed = true
	return nil
}

// use is the start of a call; done has to be called if there is no error.
func (a *Adapter) use(ctx context.Context) (done func(), err error) {
	a.using.RLock()
	switch {
	case a.closed:
		err = sdk.Unavailable("closed", errors.New("the store is closed"))
	case ctx.Err() != nil:
		err = contextError(ctx.Err())
	}
	if err != nil {
		a.using.RUnlock()
		return nil, err
	}
	return a.using.RUnlock, nil
}
