package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"zombiezen.com/go/sqlite"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/fault"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// faults names the points before and after a COMMIT; empty: none.
type faults struct{ begin, commit, committed string }

var (
	recordFaults     = faults{begin: "r1", commit: "r7", committed: "r8"}
	transitionFaults = faults{commit: "d9", committed: "d10"}
)

func point(ctx context.Context, label string) error {
	if label == "" {
		return nil
	}
	return fault.Point(ctx, label)
}

// write runs f in a transaction of the writer.
func (a *Adapter) write(ctx context.Context, op string, f func(context.Context, *conn) error) error {
	return a.writeAt(ctx, op, faults{}, f)
}

// writeAt is write with fault points.
func (a *Adapter) writeAt(ctx context.Context, op string, at faults, f func(context.Context, *conn) error) error {
	if err := a.schemaProblem(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return a.transact(ctx, op, at, f)
}

// transact runs f between BEGIN IMMEDIATE and COMMIT. When it answers an
// error, the transaction was rolled back, or its fate is unknown and the error
// is tagged unavailable.
func (a *Adapter) transact(ctx context.Context, op string, at faults, f func(context.Context, *conn) error) (err error) {
	c, err := a.acquire(ctx, a.writer, openWriter)
	if err != nil {
		return storeError(ctx, op, err)
	}
	defer func() { a.release(a.writer, c) }() // rolls back what is open, after a panic too
	if err := point(ctx, at.begin); err != nil {
		return storeError(ctx, op, err)
	}
	if err := c.run(qBegin); err != nil {
		return storeError(ctx, op, err)
	}
	if err := f(ctx, c); err != nil {
		return storeError(ctx, op, err)
	}
	if err := point(ctx, at.commit); err != nil {
		return storeError(ctx, op, err)
	}
	if err := c.run(qCommit); err != nil {
		c.broken = sqlite.ErrCode(err) != sqlite.ResultInterrupt
		return commitError(ctx, op, err)
	}
	if err := point(ctx, at.committed); err != nil {
		return storeError(ctx, op, err)
	}
	return nil
}

// commitError is always unavailable: a COMMIT that failed may be found done
// when the file is opened again.
func commitError(ctx context.Context, op string, err error) error {
	e := classify(err)
	if ctxErr := ctx.Err(); ctxErr != nil {
		e = contextError(ctxErr)
	}
	e.Tag = sdk.TagUnavailable
	return fmt.Errorf("%s: commit: %w", op, e)
}

// BoundStore is what can be done inside a caller's transaction. Every answer
// is conditional until the transaction commits.
type BoundStore interface {
	storage.EventStore
	storage.CorrectionStore
	storage.SubscriptionStore
	storage.RouteStore
}

// errTxLost: the callback, or SQLite on a fault, ended the transaction.
var errTxLost error = sdk.Unavailable("transaction_ended", errors.New("the transaction ended before its commit"))

// Tx is a transaction of [Adapter.WithTx]. It belongs to the goroutine of the
// callback and ends with it.
type Tx struct {
	a *Adapter
	c *conn
	// ctx ends with the callback and carries its deadline.
	ctx  context.Context
	done bool
}

// Conn is the adapter's writing connection, inside BEGIN IMMEDIATE, for the
// caller's own tables in the same file. The caller must not end the
// transaction, change pragmas, or keep the connection.
func (t *Tx) Conn() *sqlite.Conn { return t.c.Conn }

// Store is the store bound to this transaction: what it reads includes what
// the transaction wrote, and what it writes is rolled back with it. A conflict
// in atomic mode undoes that call only.
func (t *Tx) Store() BoundStore { return boundStore{t} }

// WithTx runs f in one transaction with whatever f records through tx, and
// commits when f returns nil. An error or a panic of f rolls everything back;
// the error is returned as it is, wrapped. Only one transaction runs at a
// time: f must be short, and must not call the adapter itself, which would
// wait for f to end. The context's deadline, or Config.TxTimeout without one,
// bounds the whole; past it the answer is unavailable, code "timeout".
func (a *Adapter) WithTx(ctx context.Context, f func(tx *Tx) error) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.cfg.TxTimeout)
		defer cancel()
	}
	var own error // what f answered: the caller's business, not to be tagged
	err := a.writeAt(ctx, "transaction", recordFaults, func(ctx context.Context, c *conn) error {
		tx := &Tx{a: a, c: c, ctx: ctx}
		defer func() { tx.done = true }()
		if own = f(tx); own != nil {
			return own
		}
		if c.AutocommitEnabled() {
			return errTxLost
		}
		return nil
	})
	if own != nil && ctx.Err() == nil {
		return fmt.Errorf("transaction: %w", own)
	}
	return err
}

// savepoint runs f so that its writes are undone, and nothing else, when it
// answers an error.
func (c *conn) savepoint(f func() error) error {
	if err := c.run(qSavepoint); err != nil {
		return err
	}
	err := f()
	if c.AutocommitEnabled() { // SQLite rolled everything back by itself
		return cmp.Or(err, errTxLost)
	}
	if err != nil {
		if rbErr := c.run(qSavepointRollback); rbErr != nil {
			return errors.Join(rbErr, err)
		}
	}
	if relErr := c.run(qSavepointRelease); relErr != nil {
		return errors.Join(relErr, err)
	}
	return err
}
