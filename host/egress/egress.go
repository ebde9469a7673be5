// Package egress is the http capability: it sends what a plugin asks for, and
// nothing that the operator did not grant. It adds the secrets, which the plugin
// never sees, keeps rate and order, refuses addresses that are not public, and
// records what it saw of every exchange. That record, not the plugin's word,
// decides what became of an item.
//
// A request is written to the wire once or not at all. Nothing in here sends
// again: trying again is the outbox's decision.
package egress

import (
	"context"
	"crypto/x509"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// Defaults of [Config], and limits that are not configurable.
const (
	DefaultConcurrency      = 16
	DefaultMaxBatch         = 500
	DefaultMaxRequestBytes  = 64 << 10
	DefaultMaxResponseBytes = 1 << 20
	DefaultRequestTimeout   = 30 * time.Second

	urlBytesMax            = 8 << 10
	headersMax             = 64
	headerBytesMax         = 16 << 10
	responseHeaderBytesMax = 64 << 10
	secretBytesMin         = 8 // a shorter value cannot be masked in an answer
	dialTimeout            = 10 * time.Second
	// A connection that its server is about to close may take a request with it,
	// and that item is then indefinite. Common servers wait 5 s and more.
	idleTimeout = 4 * time.Second
	// What one Send hands to a plugin, over all its answers.
	batchAnswerBytesMax = 8 << 20
)

// Config says what one plugin may do at one destination. Nothing in it may be
// changed after New.
type Config struct {
	// Plugin is the exporter's name, for logs.
	Plugin string
	// Hosts are the only ones called: "api.stripe.com", "host:port". The
	// port is 443 if absent; the scheme is always https. An IP address must
	// also lie in AllowPrivate.
	Hosts []string
	// AllowPrivate are address ranges that may be dialled though not public.
	AllowPrivate []netip.Prefix
	// RootCAs verify servers; nil: the system's. See [LoadCAFile].
	RootCAs *x509.CertPool
	// Secrets by the name that requests use. At least 8 bytes each.
	Secrets map[string]InjectedSecret
	// Answers are the manifest's patterns, in order. See [Client.Send].
	Answers []exporter.AnswerPattern
	// Records are the manifest's; nil: the provider has identifiers.
	Records *exporter.Records

	// Rate is requests per second; zero: unlimited.
	Rate int
	// Concurrency is requests in flight; zero: 16.
	Concurrency int
	// MaxBatch is requests in one Send; zero: 500.
	MaxBatch int
	// MaxRequestBytes and MaxResponseBytes bound one body; zero: 64 KiB and
	// 1 MiB.
	MaxRequestBytes  int
	MaxResponseBytes int
	// RequestTimeout bounds one exchange from connecting to the last byte of
	// the answer; zero: 30 s.
	RequestTimeout time.Duration

	// Logger gets one debug line per request; nil: none.
	Logger *slog.Logger
	// Now stamps the records; nil: time.Now. Deadlines are contexts', on the
	// system's clock.
	Now func() time.Time
	// Elapsed is a clock that also runs while the machine is suspended, from
	// any fixed instant; nil: CLOCK_BOOTTIME where there is one (O14).
	Elapsed func() time.Duration
	// Left returns how much time is left for sending in a context, and false
	// if it bounds nothing. It is asked before each request: at zero no further
	// one begins, while those on the wire go on. nil: the deadline alone counts.
	Left func(context.Context) (time.Duration, bool)
	// Resolver looks host names up; nil: the system's.
	Resolver *net.Resolver
	// Observe is told the class of every request, once; nil: nobody. It is
	// called from several goroutines.
	Observe func(exporter.HostClass)
	// Follows is the client whose place this one takes while that one ends what
	// it has begun: the two share the rate and the order of keys, and requests
	// in flight if their number is the same. nil: none.
	Follows *Client
}

// InjectedSecret is added to a request as "Header: Prefix Value", or signs it as
// its scheme says.
type InjectedSecret struct {
	Scheme exporter.SecretScheme
	Header string
	Prefix string
	Value  grant.Secret
}

// Stats counts what a client did since New.
type Stats struct {
	// Requests by class. Sums to the requests handed to Send, but for those
	// of a batch that was refused whole.
	Requests map[exporter.HostClass]uint64
	// Refused of these broke a rule, of the grant or of HTTP.
	Refused uint64
	// Connections opened.
	Connections uint64
	// ResendsBlocked counts requests that the HTTP library would have sent
	// again had it been let.
	ResendsBlocked uint64
}

// Client sends the requests of one plugin to one destination. It is safe for
// concurrent use. Its zero value is not useful: see [New].
type Client struct {
	cfg       Config
	hosts     map[string]struct{}
	owned     map[string]struct{} // header names that carry a secret
	signers   map[string]signer   // by the secret's name
	masks     []maskedForm
	transport *http.Transport
	bucket    *rate.Limiter
	slots     chan struct{}
	keys      *keyQueues
	counts    counters

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	mu     sync.Mutex // guards closed against active.Add
	closed bool
	active sync.WaitGroup
}

var _ capability.HTTP = (*Client)(nil)

// New returns a client. It opens nothing yet. It fails with tag invalid, naming
// the field, if the configuration is unusable: no or malformed hosts, a secret
// that is absent or too short to be masked, a pattern that could not be safe.
func New(cfg Config) (*Client, error) {
	c := &Client{cfg: withDefaults(cfg)}
	var err error
	if c.hosts, err = parseHosts(cfg.Hosts); err != nil {
		return nil, err
	}
	if err := checkRecords(cfg.Records); err != nil {
		return nil, err
	}
	if err := checkPatterns(cfg.Answers, cfg.Records); err != nil {
		return nil, err
	}
	if err := c.prepareSecrets(); err != nil {
		return nil, err
	}
	for i, n := range []int{cfg.Rate, cfg.Concurrency, cfg.MaxBatch, cfg.MaxRequestBytes, cfg.MaxResponseBytes} {
		if n < 0 {
			return nil, sdk.Invalid([]string{"rate", "concurrency", "max_batch", "max_request_bytes", "max_response_bytes"}[i], "not negative")
		}
	}
	// A tenth of a second's worth at once: a whole second's would let twice
	// the rate through in the first second.
	limit, burst := rate.Inf, 1
	if cfg.Rate > 0 {
		limit, burst = rate.Limit(cfg.Rate), max(1, cfg.Rate/10)
	}
	c.bucket, c.keys = rate.NewLimiter(limit, burst), &keyQueues{}
	c.slots = make(chan struct{}, c.cfg.Concurrency)
	c.follow(cfg.Follows, limit, burst)
	c.cfg.Follows = nil // or every client of before would be kept
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.transport = c.newTransport()
	return c, nil
}

// follow takes from another client what limits the destination and not the
// client.
func (c *Client) follow(other *Client, limit rate.Limit, burst int) {
	if other == nil {
		return
	}
	c.keys, c.bucket = other.keys, other.bucket
	c.bucket.SetLimit(limit)
	c.bucket.SetBurst(burst)
	if cap(other.slots) == cap(c.slots) {
		c.slots = other.slots
	}
}

func withDefaults(cfg Config) Config {
	if cfg.Concurrency == 0 {
		cfg.Concurrency = DefaultConcurrency
	}
	if cfg.MaxBatch == 0 {
		cfg.MaxBatch = DefaultMaxBatch
	}
	if cfg.MaxRequestBytes == 0 {
		cfg.MaxRequestBytes = DefaultMaxRequestBytes
	}
	if cfg.MaxResponseBytes == 0 {
		cfg.MaxResponseBytes = DefaultMaxResponseBytes
	}
	if cfg.RequestTimeout == 0 {
		cfg.RequestTimeout = DefaultRequestTimeout
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Elapsed == nil {
		cfg.Elapsed = Elapsed
	}
	if cfg.Left == nil {
		cfg.Left = func(context.Context) (time.Duration, bool) { return 0, false }
	}
	if cfg.Observe == nil {
		cfg.Observe = func(exporter.HostClass) {}
	}
	return cfg
}

// Close refuses further requests, cancels those in flight (their items become
// indefinite) and returns when all have ended and their connections are closed.
// It may be called more than once. Drain first: a call that has returned is not
// disturbed.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.active.Wait()
	c.transport.CloseIdleConnections()
	return nil
}

// enter registers work that Close waits for. It reports false once closed.
func (c *Client) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.active.Add(1)
	return true
}

// Stats returns a copy of the counters.
func (c *Client) Stats() Stats { return c.counts.snapshot() }

type counters struct {
	mu    sync.Mutex
	stats Stats
}

func (n *counters) add(f func(*Stats)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stats.Requests == nil {
		n.stats.Requests = make(map[exporter.HostClass]uint64)
	}
	f(&n.stats)
}

func (n *counters) snapshot() (s Stats) {
	n.add(func(have *Stats) {
		s = *have
		s.Requests = make(map[exporter.HostClass]uint64, len(have.Requests))
		maps.Copy(s.Requests, have.Requests)
	})
	return s
}

// invalidAt names one element of a list in the configuration.
func invalidAt(list string, i int, rule string) *sdk.Error {
	return sdk.Invalid(list+"["+strconv.Itoa(i)+"]", rule)
}
