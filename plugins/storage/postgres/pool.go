package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// poolOf names a pool. A purpose has connections that no other takes: a leaked
// transaction of one must not stop the leases, or the health, of the other.
type poolOf int

const (
	workPool     poolOf = iota // records and reads
	deliveryPool               // claims and transitions
	healthPool
	numPools
)

func (a *Adapter) openPool(p poolOf) (*pgxpool.Pool, error) {
	pc := a.target.pool.Copy()
	switch p {
	case workPool:
		if pc.MaxConns = int32(a.cfg.MaxConns); a.cfg.MaxConns > 10_000 {
			return nil, sdk.Invalid("max_conns", "at most 10000")
		}
	case deliveryPool:
		pc.MaxConns = int32(max(2, a.cfg.MaxConns/2))
	default:
		pc.MaxConns = 1
	}
	pc.MinConns = 0
	pc.AfterConnect = checkServer
	return pgxpool.NewWithConfig(context.Background(), pc)
}

// checkServer refuses a connection on which our promises would not hold.
func checkServer(ctx context.Context, c *pgx.Conn) error {
	const text = `SELECT current_setting('server_version_num')::int, current_setting('synchronous_commit'),
  current_setting('default_transaction_isolation'), current_setting('server_encoding')`
	var version int
	var sync, isolation, encoding string
	if err := c.QueryRow(ctx, text).Scan(&version, &sync, &isolation, &encoding); err != nil {
		return err
	}
	switch {
	case version < 150000:
		return unfit("server_version", "PostgreSQL 15 or newer", "upgrade the server")
	case sync == "off":
		return unfit("synchronous_commit", "a server that answers a commit when it is durable",
			"ALTER ROLE … SET synchronous_commit = on")
	case isolation != "read committed":
		return unfit("isolation", "a default_transaction_isolation of read committed",
			"ALTER ROLE … SET default_transaction_isolation = 'read committed'")
	case encoding != "UTF8":
		return unfit("encoding", "a database encoded in UTF8", "create the database with ENCODING 'UTF8'")
	}
	return nil
}

func unfit(code, rule, hint string) error { return misconfigured(code, rule, hint, nil) }

var errClosed error = sdk.Unavailable("closed", errors.New("the store is closed"))

func (a *Adapter) acquire(ctx context.Context, p poolOf) (*pgxpool.Conn, error) {
	if a.closed.Load() {
		return nil, errClosed
	}
	c, err := a.pools[p].Acquire(ctx)
	if err == nil {
		return c, nil
	}
	if a.closed.Load() {
		return nil, errClosed
	}
	if s := a.pools[p].Stat(); ctx.Err() != nil && s.AcquiredConns() == s.MaxConns() {
		e := sdk.Unavailable("pool_exhausted", err)
		e.Hint = "every connection is in use: look for a transaction that was left open"
		return nil, e
	}
	return nil, err
}

// discard closes a connection instead of giving it back: what state it is in is
// not known.
func discard(c *pgxpool.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.Conn().Close(ctx) // it is gone either way
	c.Release()
}

// deadline gives a call its own end, a little before the caller's, so that the
// answer is there in time even if the server says nothing more: what is left
// pays for the request to cancel and for closing the connection.
func (a *Adapter) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	left := a.cfg.Timeout
	if d, ok := ctx.Deadline(); ok {
		left = time.Until(d) //nolint:forbidigo // contexts end by this clock
		left -= min(left/5, 4*cancelGrace)
	}
	return context.WithTimeout(ctx, left)
}

// cancelGrace is how long a statement that was told to stop has to do so. The
// driver waits as long again before it lets go of the connection.
const cancelGrace = 100 * time.Millisecond

// statementTimeout is what the server is told: a little less than what is left,
// so that normally it answers first and the connection stays usable. That
// answer is a courtesy: the deadline on our side decides.
func statementTimeout(ctx context.Context) int64 {
	d, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return max(1, time.Until(d).Milliseconds()*9/10) //nolint:forbidigo // contexts end by this clock
}
