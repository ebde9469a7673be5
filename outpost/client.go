package outpost

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost/fencepost/outpost/state"
	"github.com/fencepost/fencepost/plugins/sdk"
)

// Config is what a client is made of. Redis, Org and Server are required.
type Config struct {
	// Redis is the application's own; see [state.Dial]. It stays the caller's to
	// close, after the client.
	Redis redis.UniversalClient
	// Org keeps organisations apart that share a Redis; Namespace begins every
	// key, "outpost" when empty.
	Org       string
	Namespace string
	// Server is the engine: https://host. Token goes with every request; empty:
	// none.
	Server string
	Token  string
	// Source is that of events without one; "outpost" when empty.
	Source   string
	Delivery Delivery
	// SnapshotTimeout is how long the first read of a customer waits, 5 s.
	SnapshotTimeout time.Duration
	// Timeout bounds one request that delivers, 15 s.
	Timeout time.Duration
	// OnDropped is told of events that will not be delivered any more: certain
	// says that the engine refused them; otherwise the attempts are used up and
	// they may have been stored. It must not block. // C24, C-T9.
	OnDropped func(events []Event, certain bool)
	// Identities bounds the copies in memory, 100,000.
	Identities int
	// HTTP makes the requests; nil: a client of its own.
	HTTP   *http.Client
	Logger *slog.Logger
	Now    func() time.Time
	Rand   io.Reader

	link link // of tests
}

func (c Config) withDefaults() Config {
	fill(&c.Source, "outpost")
	fill(&c.SnapshotTimeout, 5*time.Second)
	fill(&c.Timeout, 15*time.Second)
	fill(&c.Identities, 100_000)
	if c.HTTP == nil {
		c.HTTP = &http.Client{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.OnDropped == nil {
		c.OnDropped = func([]Event, bool) {}
	}
	return c
}

// Errors that callers tell apart. All answer [errors.Is].
var (
	// ErrNotReady: the balance is not known here, or not for certain. It never
	// stands for zero.
	ErrNotReady = &sdk.Error{Tag: sdk.TagUnavailable, Code: "not_ready", Rule: "a customer whose snapshot has come"}
	// ErrNotLocal: the event will be delivered, and is not written to Redis, or
	// may not be: balances may not show it.
	ErrNotLocal = &sdk.Error{Tag: sdk.TagUnavailable, Code: "not_local", Rule: "a Redis that takes what is tracked"}
	// ErrUnknownMeter: no meter of the engine's configuration.
	ErrUnknownMeter = &sdk.Error{Tag: sdk.TagNotFound, Code: "meter", Field: "meter", Rule: "a meter of the engine's configuration"}
)

// Client tracks events and reads balances. It is safe for concurrent use.
type Client struct {
	cfg    Config
	store  *state.Store
	batch  *batcher
	link   link
	copies *copies
	// follower hears what the engine says unasked.
	follower *follower

	conf    atomic.Pointer[settings]
	arrived chan struct{} // closed with the first configuration
	once    sync.Once

	stop  context.CancelFunc // of the loops
	halt  context.CancelFunc // of what is being delivered
	loops sync.WaitGroup
}

// Open starts a client. It needs Redis, and not the engine: without that, what is
// tracked waits, and what was known is read.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if cfg.Redis == nil {
		return nil, sdk.Invalid("outpost.redis", "a client of a Redis")
	}
	store, err := state.New(cfg.Redis, state.Config{Namespace: cfg.Namespace, Org: cfg.Org, Rand: cfg.Rand})
	if err != nil {
		return nil, err
	}
	to, err := newHTTPTransport(cfg)
	if err != nil {
		return nil, err
	}
	if err := store.Check(ctx); err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, store: store, batch: newBatcher(cfg.Delivery, to), arrived: make(chan struct{})}
	c.copies = newCopies(store, cfg.Identities, cfg.Now)
	c.batch.before, c.batch.taken, c.batch.dropped = c.retrack, c.taken, c.dropped
	c.batch.left = func(list []queued) { c.cfg.OnDropped(tracked(list), false) }
	if c.link = cfg.link; c.link == nil {
		c.link = newSocket(cfg)
	}
	loops, stop := context.WithCancel(context.Background())
	c.follower = &follower{client: c, ctx: loops, places: make(chan struct{}, refreshers)}
	delivery, halt := context.WithCancel(context.Background())
	c.stop, c.halt = stop, halt
	if err := c.listen(ctx, loops); err != nil {
		stop()
		halt()
		return nil, err
	}
	c.loops.Go(func() { c.batch.run(delivery) })
	c.loops.Go(func() { c.copies.audit(loops) })
	c.loops.Go(func() {
		c.link.run(loops, c.follower)
		c.follower.running.Wait()
	})
	return c, nil
}

// Close delivers what was tracked, and returns when that is done or ctx has ended.
// What is left then is told to OnDropped and is not billed; it counts locally for
// an hour. // C-T30.
func (c *Client) Close(ctx context.Context) error {
	err := c.batch.close(ctx)
	c.halt()
	c.stop()
	c.loops.Wait()
	return err
}

// settings returns the configuration, waiting for the first one.
func (c *Client) settings(ctx context.Context) (*settings, error) {
	if s := c.conf.Load(); s != nil {
		return s, nil
	}
	timer := time.NewTimer(c.cfg.SnapshotTimeout)
	defer timer.Stop()
	select {
	case <-c.arrived:
		return c.conf.Load(), nil
	case <-timer.C:
		return nil, ErrNotReady
	case <-ctx.Done():
		return nil, errors.Join(ErrNotReady, ctx.Err())
	}
}
