package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// BoundStore is what can be done inside a transaction of the caller's. Every
// answer is conditional until that transaction commits. It is for one goroutine
// at a time, as the transaction is.
type BoundStore struct{ store }

var (
	_ storage.EventStore        = BoundStore{}
	_ storage.SubscriptionStore = BoundStore{}
	_ storage.RouteStore        = BoundStore{}
)

// WithTx binds the store to a transaction of the caller's on the same database,
// at read committed: what it reads includes what the transaction wrote, and
// what it writes commits or rolls back with it.
//
// Each call that writes runs inside a savepoint. A conflict in atomic mode, and
// any error, undoes that call only and leaves the transaction usable, as long
// as the connection is. From the first record on the transaction holds the
// shared side of the route lock until it ends: routes, projections, seals and
// retention wait for it, so it should be short, and have a deadline.
//
// The role of the transaction needs the privileges of the adapter's.
func (a *Adapter) WithTx(tx pgx.Tx) BoundStore {
	return BoundStore{store{run: boundTx{a: a, tx: tx}}}
}

// boundTx runs operations in a transaction of the caller's.
type boundTx struct {
	a  *Adapter
	tx pgx.Tx
}

// bounded gives a call without a deadline the one of the configuration. The
// caller's own settings of the session are left alone.
func (b boundTx) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, b.a.cfg.Timeout)
}

// read runs f inside a savepoint too: a statement that fails would abort the
// caller's transaction.
func (b boundTx) read(ctx context.Context, op string, f func(context.Context, *tx) error) error {
	return b.write(ctx, op, writing{}, f)
}

// snapshot is read: at read committed a transaction has no common snapshot.
func (b boundTx) snapshot(ctx context.Context, op string, f func(context.Context, *tx) error) error {
	return b.write(ctx, op, writing{}, f)
}

func (b boundTx) write(ctx context.Context, op string, w writing, f func(context.Context, *tx) error) error {
	if err := b.a.schemaProblem(); err != nil {
		return storeError(ctx, op, err)
	}
	caller := ctx
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	err := untilLocked(ctx, func(wait time.Duration) error { return b.savepoint(ctx, wait, w, f) })
	if errors.Is(err, errUndo) {
		return nil
	}
	return storeError(cmpContext(caller, ctx), op, err)
}

func (b boundTx) savepoint(ctx context.Context, wait time.Duration, w writing, f func(context.Context, *tx) error) (err error) {
	if err := point(ctx, w.faults.begin); err != nil {
		return err
	}
	sp, err := b.tx.Begin(ctx)
	if err != nil {
		return err
	}
	released := false
	defer func() { // after a panic too
		if released {
			return
		}
		if rbErr := sp.Rollback(context.WithoutCancel(ctx)); rbErr != nil {
			err = errors.Join(err, rbErr)
		}
	}()
	t := &tx{a: b.a, q: sp, bound: true, wait: wait}
	switch w.lock {
	case lockShared:
		err = t.lock(ctx)
	case lockExclusive:
		err = t.tryExclusive(ctx, lockClassRoutes)
	case lockNone:
	}
	if err == nil {
		err = point(ctx, w.faults.locked)
	}
	if err == nil {
		err = f(ctx, t)
	}
	if err != nil {
		return err
	}
	if err := sp.Commit(ctx); err != nil {
		return err
	}
	released = true
	return nil
}
