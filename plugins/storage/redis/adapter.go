// Package redis keeps buffered counters and their history in a Redis. It declares
// the capability counters and nothing else: there are no events in it, so what
// needs them is refused by whoever asks.
//
// One server, or one shard of a cluster: the names of all keys carry one hash
// tag. A failover to a replica loses what had not reached it, as Redis does not
// wait for replicas.
package redis

import (
	"context"
	_ "embed" // the script
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	name = "redis"
	// layout is the version of what the keys hold; move.lua knows it, too.
	layout = "1"
	// receiptFor is how long a batch that was applied is known: a host that
	// repeats it later would count it twice. A host repeats until it gets an
	// answer, and what it has not delivered dies with its process.
	receiptFor = 35 * 24 * time.Hour
	// part bounds what one command asks for.
	part = 1000
)

//go:embed move.lua
var moveText string

// Config says which Redis. DSN is required.
type Config struct {
	// DSN is redis://[user:password@]host:port[/db], or rediss:// for TLS,
	// with the parameters fencepost_prefix (of all keys, default "fencepost")
	// and fencepost_durability, as [Adapter] describes it.
	DSN string
	// Migrate marks a Redis that holds nothing yet as this package's.
	Migrate bool
}

// Adapter is the store. It is safe for concurrent use.
//
// A counter that was acknowledged has to be there after a crash, so Open wants a
// Redis that evicts nothing and writes its log before it answers (appendonly
// yes, appendfsync always). fencepost_durability=everysec accepts the loss of
// the last second; =unchecked asks nothing, for a server that does not answer
// CONFIG.
type Adapter struct {
	client *redis.Client
	move   *redis.Script
	keys   keys
	wants  string
	closed atomic.Bool
}

type keys struct{ layout, counterOrder, counters, historyOrder, history, receipt string }

var (
	_ storage.Adapter      = (*Adapter)(nil)
	_ storage.CounterStore = (*Adapter)(nil)
	_ storage.HistoryStore = (*Adapter)(nil)
)

// Open connects and checks that the Redis can keep counters. Errors: invalid for
// a DSN or a server with settings that lose counters, unavailable for one that
// does not answer.
func Open(ctx context.Context, cfg Config) (*Adapter, error) {
	d, err := parseDSN(cfg.DSN)
	if err != nil {
		return nil, err
	}
	tag := d.prefix + ":{counters}:"
	a := &Adapter{
		client: redis.NewClient(d.options), move: redis.NewScript(moveText), wants: d.durability,
		keys: keys{
			layout: tag + "layout", counterOrder: tag + "order", counters: tag + "values",
			historyOrder: tag + "history:order", history: tag + "history:values", receipt: tag + "batch:",
		},
	}
	if err := a.prepare(ctx, cfg.Migrate); err != nil {
		_ = a.client.Close()
		return nil, fmt.Errorf("open redis: %w", err)
	}
	return a, nil
}

func (a *Adapter) prepare(ctx context.Context, migrate bool) error {
	if err := a.durable(ctx); err != nil {
		return err
	}
	if !migrate {
		return nil
	}
	if err := a.client.SetNX(ctx, a.keys.layout, layout, 0).Err(); err != nil {
		return a.fault(ctx, err)
	}
	return a.Ping(ctx)
}

// durable refuses settings under which an acknowledged counter can be lost.
func (a *Adapter) durable(ctx context.Context) error {
	if a.wants == unchecked {
		return nil
	}
	want := map[string][]string{"maxmemory-policy": {"noeviction"}, "appendonly": {"yes"}, "appendfsync": {always}}
	if a.wants == everySecond {
		want["appendfsync"] = append(want["appendfsync"], everySecond)
	}
	for _, setting := range []string{"maxmemory-policy", "appendonly", "appendfsync"} {
		got, err := a.client.ConfigGet(ctx, setting).Result()
		if reply := redis.Error(nil); errors.As(err, &reply) && isRefused(reply) {
			return &sdk.Error{
				Tag: sdk.TagInvalid, Code: "durability_unknown", Field: dsnField,
				Rule: "a Redis that tells its settings (CONFIG GET)",
				Hint: "fencepost_durability=unchecked, if the service promises that it evicts nothing and keeps what it acknowledged",
			}
		}
		if err != nil {
			return a.fault(ctx, err)
		}
		if value := got[setting]; !contains(want[setting], value) {
			return &sdk.Error{
				Tag: sdk.TagInvalid, Code: "not_durable", Field: dsnField,
				Rule: fmt.Sprintf("a Redis with %s %s, it has %q", setting, want[setting][0], value),
				Hint: "change it in redis.conf, or accept the loss with fencepost_durability",
			}
		}
	}
	return nil
}

// Describe returns the manifest.
func (a *Adapter) Describe() storage.Manifest {
	return storage.Manifest{Name: name, Version: "1", Capabilities: []storage.Capability{storage.Counters}}
}

// Ping reports whether a write could work now: it writes.
func (a *Adapter) Ping(ctx context.Context) error {
	if _, err := a.run(ctx, change{mode: modeAdd}); err != nil {
		return fmt.Errorf("ping: %w", err)
	}
	return nil
}

// Close closes the connections. It may be called more than once.
func (a *Adapter) Close() error {
	if a.closed.Swap(true) {
		return nil
	}
	if err := a.client.Close(); err != nil {
		return fmt.Errorf("close redis: %w", err)
	}
	return nil
}
