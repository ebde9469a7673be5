package state

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// Limits of what one state holds.
const (
	// PendingCap is how many events may be pending by id; what comes beyond is
	// spilled into an aggregate per bucket.
	PendingCap = 10_000
	// BucketCap is how many hot buckets, and how many spilled ones, there may
	// be; the oldest two are merged beyond it.
	BucketCap = 288
	// SpillCap is how many events one spilled bucket may hold.
	SpillCap = 1_000_000
	// MaxIDs is how many ids one call may name.
	MaxIDs = 1000
	// MaxReducers is how many reducers one call may name.
	MaxReducers = 64
	// PendingLife is how long an event counts that nobody has delivered.
	PendingLife = time.Hour
	// QuestionLife is how long an answer to a question is taken.
	QuestionLife = 30 * time.Second
	// StateLife is how long a state lives that nobody touches.
	StateLife = 24 * time.Hour
)

// Config says where in a Redis the state is. Org is required.
type Config struct {
	// Namespace begins every key; "outpost" when empty.
	Namespace string
	// Org keeps two organisations apart that share a Redis.
	Org string
	// Rand makes epochs and tips; crypto/rand when nil.
	Rand io.Reader
	// Clock is for tests alone. When nil, Redis's own clock decides, as it must
	// where several instances share a state.
	Clock func() time.Time
}

// Store reads and writes the state. It is safe for concurrent use, keeps nothing
// in memory and starts nothing.
type Store struct {
	client  redis.UniversalClient
	keys    keys
	rand    io.Reader
	clock   func() time.Time
	scripts scripts
	caps    [3]int
}

// New makes a store over a client, which stays the caller's to close. A client
// that repeats a command whose answer was lost is refused: make it with
// MaxRetries -1 and maintenance notifications off, or let [Dial] make it.
func New(client redis.UniversalClient, cfg Config) (*Store, error) {
	if err := checkClient(client); err != nil {
		return nil, err
	}
	k, err := newKeys(cfg.Namespace, cfg.Org)
	if err != nil {
		return nil, err
	}
	s := &Store{
		client: client, keys: k, rand: cfg.Rand, clock: cfg.Clock,
		scripts: embedded(), caps: [3]int{PendingCap, BucketCap, SpillCap},
	}
	if s.rand == nil {
		s.rand = rand.Reader
	}
	return s, nil
}

// checkClient refuses what would repeat a write that may have happened.
func checkClient(client redis.UniversalClient) error {
	const field = "outpost.redis"
	var retries int
	mode := maintnotifications.ModeAuto // what a client does that was not told
	var notifications *maintnotifications.Config
	switch c := client.(type) {
	case *redis.Client:
		retries, notifications = c.Options().MaxRetries, c.Options().MaintNotificationsConfig
	case *redis.ClusterClient:
		// The client of a cluster turns 0 into -1 for its nodes.
		retries, notifications = max(c.Options().MaxRetries, 0), c.Options().MaintNotificationsConfig
	default:
		return sdk.Invalid(field, "a client of one server or of a cluster")
	}
	if notifications != nil {
		mode = notifications.Mode
	}
	if retries != 0 {
		return sdk.Invalid(field, "a client with MaxRetries -1, which repeats nothing")
	}
	if mode != maintnotifications.ModeDisabled {
		return sdk.Invalid(field, "a client without maintenance notifications")
	}
	return nil
}

// Dial makes a client for redis:// or rediss:// addresses; several, separated by
// commas, are nodes of a cluster. The caller closes it. Errors never repeat the
// address: there may be a password in it.
func Dial(addresses string) (redis.UniversalClient, error) {
	quiet := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	first, more, cluster := strings.Cut(addresses, ",")
	one, err := redis.ParseURL(first)
	if err != nil {
		return nil, sdk.Invalid("outpost.redis", "redis://[user:password@]host:port[/db], or rediss://")
	}
	if !cluster {
		one.MaxRetries, one.ContextTimeoutEnabled, one.MaintNotificationsConfig = -1, true, quiet
		return redis.NewClient(one), nil
	}
	nodes := []string{one.Addr}
	for address := range strings.SplitSeq(more, ",") {
		o, err := redis.ParseURL(address)
		if err != nil {
			return nil, sdk.Invalid("outpost.redis", "redis://[user:password@]host:port[/db] for each node")
		}
		nodes = append(nodes, o.Addr)
	}
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: nodes, Username: one.Username, Password: one.Password, TLSConfig: one.TLSConfig,
		MaxRetries: -1, ContextTimeoutEnabled: true, MaintNotificationsConfig: quiet,
	}), nil
}

// Check refuses a Redis that loses what it holds when memory is short, and one
// that takes no writes. It is what readiness asks.
func (s *Store) Check(ctx context.Context) error {
	settings, err := s.client.ConfigGet(ctx, "maxmemory-policy").Result()
	if reply := redis.Error(nil); errors.As(err, &reply) && strings.HasPrefix(reply.Error(), "ERR unknown command") {
		return &sdk.Error{Tag: sdk.TagUnsupported, Code: "config_hidden", Rule: "a Redis that answers CONFIG GET maxmemory-policy"}
	}
	if err != nil {
		return fault(ctx, err)
	}
	if policy := settings["maxmemory-policy"]; policy != "noeviction" {
		return &sdk.Error{
			Tag: sdk.TagInvalid, Code: "evicting", Field: "outpost.redis", Rule: "a Redis whose maxmemory-policy is noeviction",
			Hint: "CONFIG SET maxmemory-policy noeviction",
		}
	}
	return nil
}

// once is a command that the client may not repeat, whatever became of it. The
// client of a cluster would otherwise, after a lost answer.
type once struct{ *redis.Cmd }

// NoRetry tells the client.
func (once) NoRetry() bool { return true }

// run runs a script once. Only NOSCRIPT, after which nothing has happened, leads
// to a second command, which brings the text along.
func (s *Store) run(ctx context.Context, sc script, names []string, args ...any) ([]any, error) {
	line := make([]any, 3, 3+len(names)+len(args))
	line[0], line[1], line[2] = "evalsha", sc.sha, len(names)
	for _, name := range names {
		line = append(line, name)
	}
	line = append(line, args...)
	cmd := redis.NewCmd(ctx, line...)
	err := s.client.Process(ctx, once{cmd})
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		line[0], line[1] = "eval", sc.text
		cmd = redis.NewCmd(ctx, line...)
		err = s.client.Process(ctx, once{cmd})
	}
	if err != nil {
		return nil, fault(ctx, err)
	}
	reply, err := cmd.Slice()
	if err != nil || len(reply) == 0 {
		return nil, errAnswer
	}
	return reply, nil
}

// write runs a script that answers a flat list and begins with its outcome.
func (s *Store) write(ctx context.Context, sc script, names []string, args ...any) ([]string, error) {
	reply, err := s.run(ctx, sc, names, args...)
	if err != nil {
		return nil, err
	}
	out := texts(reply)
	if out == nil {
		return nil, errAnswer
	}
	if out[0] != "ok" && out[0] != "noop" {
		return nil, refusal(out)
	}
	return out, nil
}

// now is what a script takes for the time: nothing, so that it asks Redis.
func (s *Store) now() string {
	if s.clock == nil {
		return ""
	}
	return strconv.FormatInt(s.clock().UnixMilli(), 10)
}

// mark is a fresh name: of an epoch, a tip or a question.
func (s *Store) mark() (string, error) {
	var b [12]byte
	if _, err := io.ReadFull(s.rand, b[:]); err != nil {
		return "", sdk.Unavailable("random", err)
	}
	return base64.RawURLEncoding.EncodeToString(b[:]), nil
}
