package pgtest_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/internal/pgtest"
)

const patience = 30 * time.Second

// bed is a table, a connection past the proxy and the proxy.
type bed struct {
	t      *testing.T
	table  string
	direct *pgx.Conn
	proxy  *pgtest.Proxy
}

func newBed(t *testing.T) *bed {
	t.Helper()
	dsn, schema := pgtest.Schema(t)
	b := &bed{t: t, table: schema + ".probe", proxy: pgtest.NewProxy(t, pgtest.Plain(dsn))}
	b.direct = b.connect(pgtest.Plain(dsn))
	b.exec(b.direct, "CREATE TABLE "+b.table+" (n int PRIMARY KEY)")
	return b
}

func (b *bed) connect(dsn string) *pgx.Conn {
	b.t.Helper()
	c, err := pgx.Connect(b.t.Context(), dsn)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func (b *bed) exec(c *pgx.Conn, sql string, args ...any) {
	b.t.Helper()
	if _, err := c.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

func (b *bed) has(n int) bool {
	b.t.Helper()
	var found bool
	if err := b.direct.QueryRow(b.t.Context(), "SELECT EXISTS (SELECT FROM "+b.table+" WHERE n = $1)", n).Scan(&found); err != nil {
		b.t.Fatal(err)
	}
	return found
}

// commit inserts n in a transaction of its own, through the proxy.
func (b *bed) commit(ctx context.Context, n int) error {
	b.t.Helper()
	tx, err := b.connect(b.proxy.DSN()).Begin(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := tx.Exec(b.t.Context(), "INSERT INTO "+b.table+" VALUES ($1)", n); err != nil {
		b.t.Fatal(err)
	}
	return tx.Commit(ctx)
}

// insert does it in one statement, which is a transaction by itself.
func (b *bed) insert(ctx context.Context, n int) error {
	b.t.Helper()
	_, err := b.connect(b.proxy.DSN()).Exec(ctx, "INSERT INTO "+b.table+" VALUES ($1)", n)
	return err
}

// D8, F09, F10: a COMMIT that was carried out and whose answer was lost, and
// one that never arrived, look alike to the client. The driver must not say of
// either that it is safe to repeat (pgx 5.9.2 to 5.12.0 did).
func TestLostCommit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do     pgtest.Action
		stored bool
	}{
		"answer": {pgtest.DropAnswer, true}, "request": {pgtest.DropRequest, false},
		"answer hangs": {pgtest.HangAnswer, true}, "request hangs": {pgtest.HangRequest, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			for n, write := range []func(context.Context, int) error{b.commit, b.insert} {
				b.proxy.Set(pgtest.Rule{On: pgtest.Exchange.Commits, Do: c.do, Times: 1})
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				if c.do == pgtest.HangAnswer || c.do == pgtest.HangRequest {
					ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
				}
				err := write(ctx, n)
				cancel()
				var server *pgconn.PgError
				if err == nil || errors.As(err, &server) || pgconn.SafeToRetry(err) {
					t.Errorf("%v (safe to retry: %t)", err, pgconn.SafeToRetry(err))
				}
				if b.proxy.Fired() != 1 {
					t.Errorf("fired %d times", b.proxy.Fired())
				}
				if got := b.has(n); got != c.stored {
					t.Errorf("stored %t", got)
				}
				if err := write(t.Context(), 10+n); err != nil || !b.has(10+n) {
					t.Errorf("once only: %v", err)
				}
			}
		})
	}
}

func TestRoundTrips(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	c := b.connect(b.proxy.DSN())
	if n := b.proxy.RoundTrips(); n != 0 {
		t.Errorf("connecting is counted as %d", n)
	}
	count := func(want int, what string, do func()) {
		t.Helper()
		before := b.proxy.RoundTrips()
		do()
		if got := b.proxy.RoundTrips() - before; got != want {
			t.Errorf("%s: %d round trips, want %d", what, got, want)
		}
	}
	count(2, "prepare and run", func() { b.exec(c, "INSERT INTO "+b.table+" VALUES ($1)", 1) })
	count(1, "prepared", func() { b.exec(c, "INSERT INTO "+b.table+" VALUES ($1)", 2) })
	count(1, "simple", func() { b.exec(c, "SELECT 1; SELECT 2") })
	count(1, "batch", func() {
		batch := &pgx.Batch{}
		for n := range 20 {
			batch.Queue("INSERT INTO "+b.table+" VALUES ($1)", 100+n)
		}
		if err := c.SendBatch(t.Context(), batch).Close(); err != nil {
			t.Fatal(err)
		}
	})
	count(3, "transaction", func() {
		tx, err := c.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b.exec(c, "INSERT INTO "+b.table+" VALUES ($1)", 3)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// A black hole holds calls up until their own deadline, and what waits longer
// goes on when it ends.
func TestFreeze(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	c := b.connect(b.proxy.DSN())
	b.proxy.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := c.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ping: %v", err)
	}
	connecting, done := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer done()
	if _, err := pgx.Connect(connecting, b.proxy.DSN()); err == nil {
		t.Error("connected through a black hole")
	}
	waiting := make(chan error, 1)
	go func() {
		late, err := pgx.Connect(t.Context(), b.proxy.DSN())
		if err == nil {
			err = late.Close(t.Context())
		}
		waiting <- err
	}()
	b.proxy.Thaw()
	if err := <-waiting; err != nil {
		t.Errorf("after the thaw: %v", err)
	}
}

func TestCutAndRedirect(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	c := b.connect(b.proxy.DSN())
	if n := b.proxy.Cut(); n != 1 {
		t.Errorf("cut %d connections", n)
	}
	if err := c.Ping(t.Context()); err == nil {
		t.Error("a connection that was cut answers")
	}
	nobody, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = nobody.Close()
	server, err := url.Parse(b.direct.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	b.proxy.Redirect(nobody.Addr().String())
	if _, err := pgx.Connect(t.Context(), b.proxy.DSN()); err == nil {
		t.Error("connected to nobody")
	}
	b.proxy.Redirect(server.Host)
	b.exec(b.connect(b.proxy.DSN()), "SELECT 1")
}

func TestExchange(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		e    pgtest.Exchange
		want bool
	}{
		{pgtest.Exchange{SQL: []string{"commit"}, InTransaction: true}, true},
		{pgtest.Exchange{SQL: []string{"BEGIN; INSERT INTO a VALUES (1); COMMIT"}}, true},
		{pgtest.Exchange{SQL: []string{"begin", "insert into a values (1)"}}, false},
		{pgtest.Exchange{SQL: []string{"insert into a values (1)"}, InTransaction: true}, false},
		{pgtest.Exchange{SQL: []string{"SELECT pg_advisory_xact_lock_shared(1, 2)", "WITH i AS (INSERT INTO a VALUES (1) RETURNING b) SELECT b FROM i"}}, true},
		{pgtest.Exchange{SQL: []string{"SELECT endless FROM a"}}, false},
		{pgtest.Exchange{}, false},
	} {
		if got := c.e.Commits(); got != c.want {
			t.Errorf("%+v commits: %t", c.e, got)
		}
	}
}
