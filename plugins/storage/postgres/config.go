package postgres

import (
	"hash/fnv"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// dsnField is the configuration key that names the database.
const dsnField = "storage.dsn"

// Config says which database to open and how. DSN is required; every other
// zero value has a default.
type Config struct {
	// DSN is a PostgreSQL URL or a key=value string, with two parameters of
	// ours: fencepost_schema names the schema of the tables (default
	// "fencepost"), and pgbouncer=true says that a pooler in transaction mode
	// stands before the server.
	DSN string
	// Logger receives the few things that nobody is answered. Default: none.
	Logger *slog.Logger
	// Timeout bounds a call whose context has no deadline. Default: 30 s.
	Timeout time.Duration
	// MaxConns is the size of the pool that records and reads. Default: 8.
	// Delivery has a pool of its own of half that size, and the health check
	// one connection, so that neither waits for the other.
	MaxConns int
	// Migrate makes Open apply the migrations that are missing.
	Migrate bool
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Timeout <= 0 {
		c.Timeout = 30 * time.Second
	}
	if c.MaxConns <= 0 {
		c.MaxConns = 8
	}
	return c
}

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// parameterName is a name that can be told.
var parameterName = regexp.MustCompile(`^(?i)fencepost[a-z_]{0,20}$`)

// target is a DSN, read.
type target struct {
	pool   *pgxpool.Config
	schema string
}

// parseDSN reads a DSN. Its errors never carry any of it: it holds a password.
func parseDSN(cfg Config) (target, error) {
	if cfg.DSN == "" {
		return target{}, sdk.Invalid(dsnField, "required")
	}
	pc, err := pgxpool.ParseConfig(cfg.DSN)
	if err != nil {
		return target{}, sdk.Invalid(dsnField, "a PostgreSQL URL, or key=value pairs") // the cause repeats the DSN
	}
	t := target{pool: pc, schema: "fencepost"}
	cc := pc.ConnConfig
	if s, ok := cc.RuntimeParams["fencepost_schema"]; ok {
		delete(cc.RuntimeParams, "fencepost_schema")
		t.schema = s
	}
	if !schemaName.MatchString(t.schema) {
		return target{}, sdk.Invalid(dsnField, "a fencepost_schema of lower-case letters, digits and _, at most 63")
	}
	pooler := false
	if s, ok := cc.RuntimeParams["pgbouncer"]; ok {
		delete(cc.RuntimeParams, "pgbouncer")
		if pooler, err = strconv.ParseBool(s); err != nil {
			return target{}, sdk.Invalid(dsnField, "pgbouncer=true or pgbouncer=false")
		}
	}
	if pooler {
		// Named statements belong to a server connection, and the pooler
		// hands out another for each transaction.
		cc.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	for name := range cc.RuntimeParams {
		// The server would take a name with a dot for a setting of somebody's.
		if strings.HasPrefix(strings.ToLower(name), "fencepost") {
			return target{}, unknownParameter(name)
		}
	}
	if cc.RuntimeParams["application_name"] == "" {
		cc.RuntimeParams["application_name"] = "fencepost"
	}
	cc.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	cc.BuildContextWatcherHandler = watcher(pooler)
	if cc.ConnectTimeout == 0 {
		cc.ConnectTimeout = 5 * time.Second
	}
	pc.PingTimeout = time.Second
	return t, nil
}

// unknownParameter names a parameter that is meant for us: no other name is
// told, it may be the rest of a password that was not quoted.
func unknownParameter(name string) error {
	rule := "no parameters of ours but fencepost_schema and pgbouncer"
	if parameterName.MatchString(name) {
		rule += ", not " + name
	}
	return &sdk.Error{Tag: sdk.TagInvalid, Code: "unknown_parameter", Field: dsnField, Rule: rule}
}

// watcher answers what ends a statement whose context ends. A pooler is not
// asked to cancel: PgBouncer 1.18 stops altogether, for everybody, when the
// client of such a request leaves early. The server's own timeout, which comes
// first, does the same there.
func watcher(pooler bool) func(*pgconn.PgConn) ctxwatch.Handler {
	if pooler {
		return func(c *pgconn.PgConn) ctxwatch.Handler {
			return &pgconn.DeadlineContextWatcherHandler{Conn: c.Conn(), DeadlineDelay: cancelGrace}
		}
	}
	return func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: cancelGrace}
	}
}

// scope is the second half of the keys of our advisory locks: stores in one
// database do not wait for each other, unless two names have one hash.
func (t target) scope() int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(t.schema)) // never fails
	return int32(h.Sum32())
}
