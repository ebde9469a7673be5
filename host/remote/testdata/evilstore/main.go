// Command evilstore is a storage adapter that breaks off in the middle of a
// transaction: a counter's feature says how.
package main

import (
	"context"
	"os"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/guest"
	"github.com/fencepost/fencepost/plugins/sdk/guest/storageplugin"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

var plugin = storageplugin.Serve(open, guest.WithSQL())

func main() { plugin.Main() }

func open(_ context.Context, host capability.Host, _ storage.Opening) (storage.Adapter, error) {
	return &adapter{sql: host.SQL}, nil
}

type adapter struct{ sql capability.SQL }

func (*adapter) Describe() storage.Manifest {
	return storage.Manifest{Name: "evil", Capabilities: []storage.Capability{storage.Counters}}
}

func (*adapter) Ping(context.Context) error { return nil }
func (*adapter) Close() error               { return nil }

// UpsertCounters writes a row, and commits it only if it was not told to end
// otherwise.
func (a *adapter) UpsertCounters(ctx context.Context, list []storage.Counter) error {
	done, err := a.sql.Do(ctx, capability.Work{Statements: []capability.Statement{
		{SQL: "INSERT INTO evil (k) VALUES (?)", Args: []any{list[0].Tenant}},
	}})
	if err != nil {
		return err
	}
	switch list[0].Feature {
	case "trap":
		panic("a trap in the middle of a transaction")
	case "loop":
		for spin := 0; ; spin++ {
			sink = spin
		}
	case "exit":
		os.Exit(3)
	case "forget":
		return nil
	}
	_, err = a.sql.Do(ctx, capability.Work{Transaction: done.Transaction, End: capability.Commit})
	return err
}

var sink int

func (*adapter) AddCounters(context.Context, []storage.Counter) error { return nil }

func (*adapter) LoadCounter(_ context.Context, key storage.CounterKey) (storage.Counter, error) {
	return storage.Counter{CounterKey: key}, nil
}

func (*adapter) StreamCounters(context.Context, storage.CounterQuery) (storage.CounterPage, error) {
	return storage.CounterPage{}, sdk.Invalid("counters", "none")
}

func (*adapter) FlushBatch(context.Context, storage.FlushBatch) (storage.FlushResult, error) {
	return storage.FlushResult{}, sdk.Invalid("counters", "none")
}
