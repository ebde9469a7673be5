package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/plugins/sdk/fault"
)

// runner runs an operation where its statements belong.
type runner interface {
	// read runs f, whose statements need not see one snapshot.
	read(ctx context.Context, op string, f func(context.Context, *tx) error) error
	// snapshot runs f, whose statements all see one snapshot.
	snapshot(ctx context.Context, op string, f func(context.Context, *tx) error) error
	// write runs f in a transaction that commits when f answers nil. f may run
	// more than once: it must set all that it answers each time. With
	// [errUndo] the transaction is rolled back and write answers nil: what f
	// set stands.
	write(ctx context.Context, op string, w writing, f func(context.Context, *tx) error) error
}

// writing says how to run a transaction.
type writing struct {
	pool   poolOf
	lock   lockMode
	faults faults
	// settings is a statement that sets what holds for the transaction;
	// empty: none. Not for what may run in a transaction of the caller's.
	settings query
}

// faults names the points around a transaction; empty: none.
type faults struct{ begin, locked, commit, committed string }

func point(ctx context.Context, label string) error {
	if label == "" {
		return nil
	}
	return fault.Point(ctx, label)
}

// errUndo rolls back while the result stands.
var errUndo = errors.New("undo")

// querier is a connection, or a transaction of the caller's.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// tx is where statements run. One goroutine at a time.
type tx struct {
	a *Adapter
	q querier
	// bound is set inside a transaction of the caller's.
	bound bool
	// wait is how long this attempt waits for an exclusive lock.
	wait time.Duration
	// ending is sent with COMMIT.
	ending *pgx.Batch
}

// exec runs a statement and answers how many rows it changed.
func (t *tx) exec(ctx context.Context, q query, args ...any) (int64, error) {
	text, err := t.a.texts.text(q)
	if err != nil {
		return 0, err
	}
	tag, err := t.q.Exec(ctx, text, args...)
	return tag.RowsAffected(), err
}

// row runs a statement and reads its first row into dest. Without a row the
// answer is [pgx.ErrNoRows].
func (t *tx) row(ctx context.Context, q query, dest []any, args ...any) error {
	found := false
	err := t.each(ctx, q, func(rows pgx.Rows) error {
		if found {
			return nil
		}
		found = true
		return rows.Scan(dest...)
	}, args...)
	if err == nil && !found {
		err = pgx.ErrNoRows
	}
	return err
}

// each runs a statement and calls f for every row.
func (t *tx) each(ctx context.Context, q query, f func(pgx.Rows) error, args ...any) error {
	text, err := t.a.texts.text(q)
	if err != nil {
		return err
	}
	rows, err := t.q.Query(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// queue adds a statement to a batch.
func (t *tx) queue(b *pgx.Batch, q query, args ...any) error {
	text, err := t.a.texts.text(q)
	if err == nil {
		b.Queue(text, args...)
	}
	return err
}

// last has a statement run right before COMMIT and in one round trip with it:
// for what locks a row that everybody needs. dest receives its first row.
func (t *tx) last(q query, dest []any, args ...any) error {
	if t.ending == nil {
		t.ending = &pgx.Batch{}
	}
	if err := t.queue(t.ending, q, args...); err != nil {
		return err
	}
	t.ending.QueuedQueries[t.ending.Len()-1].QueryRow(func(row pgx.Row) error { return row.Scan(dest...) })
	return nil
}

// ownTx runs operations in transactions of the adapter's own.
type ownTx struct{ a *Adapter }

// attempts bounds how often a transaction is run that left nothing.
const attempts = 4

// again runs f until it passes, or fails in a way that a repetition does not
// mend or must not follow.
func (o ownTx) again(ctx context.Context, p poolOf, f func() error) error {
	for n := 1; ; n++ {
		err := f()
		if err == nil || n == attempts || !repeatable(err) {
			return err
		}
		switch sqlState(err) {
		case stateDeadlock, stateSerialization:
			o.a.reruns.Add(1)
		case stateReadOnly:
			// The server behind the address is no primary any more: what else
			// is connected to it is of no use either.
			o.a.pools[p].Reset()
		}
		if pauseErr := pause(ctx, time.Duration(n*n)*5*time.Millisecond); pauseErr != nil {
			return err
		}
	}
}

// use runs f on a connection.
func (o ownTx) use(ctx context.Context, p poolOf, f func(*pgxpool.Conn) error) error {
	c, err := o.a.acquire(ctx, p)
	if err != nil {
		return err
	}
	healthy := false
	defer func() { // after a panic too
		if healthy {
			c.Release()
		} else {
			discard(c)
		}
	}()
	err = f(c)
	// A connection in a transaction is closed by the pool, with the
	// transaction on the server's side.
	healthy = sqlState(err) != stateReadOnly
	return err
}

func (o ownTx) read(ctx context.Context, op string, f func(context.Context, *tx) error) error {
	if err := o.a.schemaProblem(); err != nil {
		return storeError(ctx, op, err)
	}
	return o.reading(ctx, op, reading{}, f)
}

func (o ownTx) snapshot(ctx context.Context, op string, f func(context.Context, *tx) error) error {
	if err := o.a.schemaProblem(); err != nil {
		return storeError(ctx, op, err)
	}
	return o.reading(ctx, op, reading{begin: qBeginSnapshot}, f)
}

// reading says how to run what does not write. begin is empty for statements
// that need no common snapshot.
type reading struct {
	pool  poolOf
	begin query
}

func (o ownTx) reading(ctx context.Context, op string, r reading, f func(context.Context, *tx) error) error {
	caller := ctx
	ctx, cancel := o.a.deadline(ctx)
	defer cancel()
	err := o.again(ctx, r.pool, func() error {
		return o.use(ctx, r.pool, func(c *pgxpool.Conn) error {
			if r.begin == "" {
				return f(ctx, &tx{a: o.a, q: timed{c, o.a.texts[qStatementTimeout]}})
			}
			t := &tx{a: o.a, q: c}
			if err := t.begin(ctx, r.begin, writing{}); err != nil {
				return err
			}
			return t.rollback(f(ctx, t)) // nothing to commit
		})
	})
	return storeError(cmpContext(caller, ctx), op, err)
}

// cmpContext answers the context whose end explains a failure.
func cmpContext(caller, own context.Context) context.Context {
	if caller.Err() != nil {
		return caller
	}
	return own
}

// write runs f between BEGIN and COMMIT. When it answers an error, the
// transaction was rolled back, or its fate is unknown and the error is tagged
// unavailable.
func (o ownTx) write(ctx context.Context, op string, w writing, f func(context.Context, *tx) error) error {
	if err := o.a.schemaProblem(); err != nil {
		return storeError(ctx, op, err)
	}
	return o.transact(ctx, op, w, f)
}

func (o ownTx) transact(ctx context.Context, op string, w writing, f func(context.Context, *tx) error) error {
	caller := ctx
	ctx, cancel := o.a.deadline(ctx)
	defer cancel()
	committing := false
	err := o.again(ctx, w.pool, func() error {
		return untilLocked(ctx, func(wait time.Duration) error {
			return o.use(ctx, w.pool, func(c *pgxpool.Conn) error {
				t := &tx{a: o.a, q: c, wait: wait}
				err := t.inside(ctx, w, f)
				if err != nil {
					return t.rollback(err)
				}
				committing = true
				err = t.commit(ctx)
				if err != nil {
					_ = c.Conn().Close(context.WithoutCancel(ctx)) // its state is unknown
					return unknown{err}
				}
				return nil
			})
		})
	})
	ctx = cmpContext(caller, ctx)
	switch {
	case err == nil:
		return storeError(ctx, op, point(ctx, w.faults.committed))
	case errors.Is(err, errUndo):
		return nil
	case committing:
		return commitError(ctx, op, err)
	}
	return storeError(ctx, op, err)
}

// unknown is a failed COMMIT: nothing may take it for a transaction that left
// nothing.
type unknown struct{ err error }

func (u unknown) Error() string { return u.err.Error() }
func (u unknown) Unwrap() error { return u.err }

// inside begins, takes the lock and runs f.
func (t *tx) inside(ctx context.Context, w writing, f func(context.Context, *tx) error) error {
	if err := point(ctx, w.faults.begin); err != nil {
		return err
	}
	if err := t.begin(ctx, qBegin, w); err != nil {
		return err
	}
	if err := point(ctx, w.faults.locked); err != nil {
		return err
	}
	if err := f(ctx, t); err != nil {
		return err
	}
	return point(ctx, w.faults.commit)
}

// begin opens a transaction, with the server's part of the deadline and the
// lock, in one round trip.
func (t *tx) begin(ctx context.Context, begin query, w writing) error {
	b := &pgx.Batch{}
	if err := t.queue(b, begin); err != nil {
		return err
	}
	if err := t.queue(b, qStatementTimeout, statementTimeout(ctx)); err != nil {
		return err
	}
	if w.settings != "" {
		if err := t.queue(b, w.settings); err != nil {
			return err
		}
	}
	if w.lock == lockShared {
		if err := t.queue(b, qLockShared, lockClassRoutes, t.a.target.scope()); err != nil {
			return err
		}
	}
	if err := t.q.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	if w.lock == lockExclusive {
		return t.tryExclusive(ctx, lockClassRoutes)
	}
	return nil
}

var errNotCommitted = errors.New("the server rolled the transaction back at COMMIT")

func (t *tx) commit(ctx context.Context) error {
	text, err := t.a.texts.text(qCommit)
	if err != nil {
		return err
	}
	if t.ending == nil {
		t.ending = &pgx.Batch{}
	}
	t.ending.Queue(text).Exec(func(tag pgconn.CommandTag) error {
		if tag.String() != "COMMIT" {
			return errNotCommitted
		}
		return nil
	})
	return t.q.SendBatch(ctx, t.ending).Close()
}

// rollback ends the transaction and passes cause on. What fails here needs no
// answer: the pool closes a connection that is still in a transaction.
func (t *tx) rollback(cause error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = t.exec(ctx, qRollback)
	return cause
}
