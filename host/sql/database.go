// Package sql is the sql capability: it holds the transactions in which a
// plugin's statements run, on one database that the operator named. With the
// storage adapters it is the only place that knows database drivers (Q28).
//
// A plugin may run any statement that the database lets its role run: give it a
// role and a schema of its own.
package sql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/wire/sqlv1"
)

// kind is a database product.
type kind string

const (
	kindMySQL    kind = "mysql"
	kindPostgres kind = "postgres"
	kindSQLite   kind = "sqlite"
)

// maxTransactions is how many transactions one call may have open.
const maxTransactions = 4

// Database runs the statements of one plugin. It is safe for concurrent use.
type Database struct {
	kind kind
	pool *sql.DB
}

// Open reads a data source name, "mysql://user:password@host/db",
// "postgres://…" or "sqlite:PATH", and opens a pool of at most conns
// connections. Nothing is connected yet. An error never holds the name.
func Open(dsn string, conns int) (*Database, error) {
	d := &Database{}
	var err error
	switch {
	case strings.HasPrefix(dsn, "mysql://"):
		d.kind = kindMySQL
		d.pool, err = openMySQL(dsn)
	case strings.HasPrefix(dsn, "postgres://"), strings.HasPrefix(dsn, "postgresql://"):
		d.kind = kindPostgres
		d.pool, err = openPostgres(dsn)
	case strings.HasPrefix(dsn, "sqlite:"):
		d.kind = kindSQLite
		d.pool, err = openSQLite(strings.TrimPrefix(dsn, "sqlite:"))
	default:
		err = sdk.Invalid("dsn", "mysql://…, postgres://… or sqlite:PATH")
	}
	if err != nil {
		return nil, err
	}
	d.pool.SetMaxOpenConns(conns)
	d.pool.SetMaxIdleConns(conns)
	d.pool.SetConnMaxIdleTime(5 * time.Minute)
	d.pool.SetConnMaxLifetime(time.Hour)
	return d, nil
}

// openMySQL turns the URL into the driver's settings. Times are UTC, a matched
// row that an update leaves as it was counts as affected, and neither local
// files nor several statements at once are possible.
func openMySQL(dsn string) (*sql.DB, error) {
	u, err := url.Parse(dsn)
	if err != nil || strings.Trim(u.Path, "/") == "" {
		return nil, sdk.Invalid("dsn", "mysql://user:password@host:port/database")
	}
	c := mysql.NewConfig()
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.Net, c.Addr, c.DBName = "tcp", u.Host, strings.Trim(u.Path, "/")
	if u.Port() == "" {
		c.Addr += ":3306"
	}
	for key, values := range u.Query() {
		switch value := values[0]; key {
		case "socket":
			c.Net, c.Addr = "unix", value
		case "tls":
			c.TLSConfig = value
		default:
			return nil, sdk.Invalid("dsn", "no parameters but socket and tls")
		}
	}
	c.ParseTime, c.Loc, c.ClientFoundRows = true, time.UTC, true
	c.Timeout = 10 * time.Second
	c.Logger = &mysql.NopLogger{}
	c.Params = map[string]string{"time_zone": "'+00:00'", "sql_mode": "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO'"}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, sdk.Invalid("dsn", "settings that the MySQL driver takes")
	}
	return sql.OpenDB(connector), nil
}

func openPostgres(dsn string) (*sql.DB, error) {
	c, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, sdk.Invalid("dsn", "a URL that PostgreSQL's clients read")
	}
	if c.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol {
		return nil, sdk.Invalid("dsn", "another default_query_exec_mode: the simple protocol runs several statements at once")
	}
	c.RuntimeParams["timezone"] = "UTC"
	// A row is refused by its length, before it is read.
	c.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		f := pgproto3.NewFrontend(r, w)
		f.SetMaxBodyLen(maxMessage)
		return f
	}
	return stdlib.OpenDB(*c), nil
}

func openSQLite(path string) (*sql.DB, error) {
	if path == "" || strings.ContainsAny(path, "?#") {
		return nil, sdk.Invalid("dsn", "sqlite: and the path of a file without ? and #")
	}
	pool, err := sql.Open("sqlite", path+"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=foreign_keys(on)&_pragma=trusted_schema(off)")
	if err != nil {
		return nil, sdk.Invalid("dsn", "a path that SQLite opens")
	}
	return pool, nil
}

const (
	// maxMessage is the longest message that PostgreSQL may send: bytes are
	// written as two digits each.
	maxMessage = 2*maxBytes + 1<<16
	// limitLength is SQLITE_LIMIT_LENGTH: how long a value or a row may be.
	limitLength = 0
	// limitAttached is SQLITE_LIMIT_ATTACHED: how many further files a statement
	// may open.
	limitAttached = 7
)

// Ping reports whether the database answers.
func (d *Database) Ping(ctx context.Context) error {
	if err := d.pool.PingContext(ctx); err != nil {
		return d.classify(err)
	}
	return nil
}

// Close closes the pool.
func (d *Database) Close() error { return d.pool.Close() }

// Session is what one call of the plugin has open. See [Database.Begin].
type Session struct {
	d *Database
	// over ends with the call, whichever carrier its statements come from.
	over   context.Context //nolint:containedctx // it is the call that this stands for
	cancel context.CancelFunc
	mu     sync.Mutex
	// open by number; ended once no more may begin.
	open  map[int64]*transaction
	last  int64
	ended bool
}

// transaction is one on a connection of its own. It is either in the session's
// list or in the hands of one piece of work.
type transaction struct {
	kind kind
	conn *sql.Conn
	tx   *sql.Tx
}

type sessionKey struct{ d *Database }

// Begin returns a context for one call of the plugin. End has to be called when
// the call is over, however it ended.
func (d *Database) Begin(ctx context.Context) (context.Context, *Session) {
	ctx, cancel := context.WithCancel(ctx)
	s := &Session{d: d, over: ctx, cancel: cancel, open: map[int64]*transaction{}}
	return context.WithValue(ctx, sessionKey{d}, s), s
}

// End rolls back what the call left open, breaks off what still runs, and lets
// nothing more begin.
func (s *Session) End() {
	defer s.cancel()
	s.mu.Lock()
	s.ended = true
	open := s.open
	s.open = nil
	s.mu.Unlock()
	for _, t := range open {
		t.close(t.tx.Rollback())
	}
}

// reset undoes what functions in a SELECT leave in PostgreSQL's session. DISCARD
// ALL would also drop the statements that pgx has prepared.
const reset = "RESET SESSION AUTHORIZATION; RESET ALL; CLOSE ALL; UNLISTEN *; SELECT pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES"

// resetWithin is how long a connection may take to become clean.
const resetWithin = 5 * time.Second

// clean makes the session what it was when it began.
func (t *transaction) clean() error {
	if t.kind != kindPostgres {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), resetWithin) // the call may be over
	defer cancel()
	_, err := t.conn.ExecContext(ctx, reset)
	return err
}

// close gives the connection back clean, or throws it away.
func (t *transaction) close(err error) {
	if err == nil || errors.Is(err, sql.ErrTxDone) {
		err = t.clean()
	}
	if err != nil {
		_ = t.conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	_ = t.conn.Close()
}

// Do performs an encoded Work for the call whose context this is. It is the
// handler of the capability: an error means that nothing was done.
func (d *Database) Do(ctx context.Context, work []byte) ([]byte, error) {
	s, ok := ctx.Value(sessionKey{d}).(*Session)
	if !ok {
		return nil, errors.New("no call of the plugin is running")
	}
	w, err := sqlv1.DecodeWork(work)
	if err != nil {
		return nil, err
	}
	// A carrier whose plugin may outlive its caller has a context of its own.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(s.over, stop)()
	done, err := s.do(ctx, w)
	answer, encodeErr := sqlv1.EncodeDone(done, err)
	if encodeErr == nil && len(answer) > sqlv1.MaxAnswer {
		answer, encodeErr = sqlv1.EncodeDone(capability.Done{}, tooLarge()) // the rows were bounded one by one
	}
	return answer, encodeErr
}

func (s *Session) do(ctx context.Context, w capability.Work) (done capability.Done, err error) {
	if err := check(s.d.kind, w); err != nil {
		s.abandon(w.Transaction)
		return done, err
	}
	id, t, err := s.take(ctx, w)
	if err != nil {
		return done, err
	}
	done.Results, err = s.d.run(ctx, t.tx, w.Statements)
	switch {
	case err != nil:
		t.close(t.tx.Rollback())
		return capability.Done{}, err
	case w.End == capability.Commit:
		err := t.tx.Commit()
		t.close(nil)
		if err != nil {
			return capability.Done{}, s.d.commitError(err)
		}
		return done, nil
	case w.End == capability.Rollback:
		t.close(t.tx.Rollback())
		return done, nil
	}
	if !s.keep(id, t) {
		t.close(t.tx.Rollback())
		return capability.Done{}, &sdk.Error{Tag: sdk.TagUnavailable, Code: "timeout", Field: "transaction", Rule: "ends within the call that began it"}
	}
	done.Transaction = id
	return done, nil
}

// abandon ends a transaction whose work was refused: after any error it is over.
func (s *Session) abandon(id int64) {
	s.mu.Lock()
	t := s.open[id]
	delete(s.open, id)
	s.mu.Unlock()
	if t != nil {
		t.close(t.tx.Rollback())
	}
}

// take returns the transaction of the work and takes it off the list: who does
// not put it back has ended it.
func (s *Session) take(ctx context.Context, w capability.Work) (int64, *transaction, error) {
	s.mu.Lock()
	if id := w.Transaction; id != 0 {
		t := s.open[id]
		delete(s.open, id)
		s.mu.Unlock()
		if t == nil {
			return 0, nil, sdk.Invalid("transaction", "one that this call has open and that no other work is using")
		}
		return id, t, nil
	}
	switch {
	case s.ended:
		s.mu.Unlock()
		return 0, nil, sdk.Invalid("transaction", "begins while the call runs")
	case len(s.open) >= maxTransactions:
		s.mu.Unlock()
		return 0, nil, sdk.Invalid("transaction", fmt.Sprintf("at most %d open in one call", maxTransactions))
	}
	s.last++
	id := s.last
	s.mu.Unlock()
	t, err := s.begin(ctx, w)
	if err != nil {
		return 0, nil, err
	}
	return id, t, nil
}

// keep puts an open transaction back; false if the call has ended meanwhile.
func (s *Session) keep(id int64, t *transaction) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.open[id] = t
	return true
}

// begin waits for a connection; the transaction lives as long as the call.
func (s *Session) begin(ctx context.Context, w capability.Work) (*transaction, error) {
	d := s.d
	conn, err := d.pool.Conn(ctx)
	if err != nil {
		return nil, d.classify(err)
	}
	opts := &sql.TxOptions{ReadOnly: w.ReadOnly}
	if d.kind != kindSQLite { // which has one isolation, the strictest
		opts.Isolation = map[capability.Isolation]sql.IsolationLevel{
			capability.ReadCommitted: sql.LevelReadCommitted, capability.RepeatableRead: sql.LevelRepeatableRead,
			capability.Serializable: sql.LevelSerializable,
		}[w.Isolation]
	} else if err := limitSQLite(conn); err != nil {
		_ = conn.Close()
		return nil, d.classify(err)
	}
	tx, err := conn.BeginTx(s.over, opts)
	if err != nil {
		_ = conn.Close()
		return nil, d.classify(err)
	}
	return &transaction{kind: d.kind, conn: conn, tx: tx}, nil
}

func limitSQLite(conn *sql.Conn) error {
	_, err := sqlite.Limit(conn, limitAttached, 0)
	if err == nil {
		_, err = sqlite.Limit(conn, limitLength, maxBytes)
	}
	return err
}
