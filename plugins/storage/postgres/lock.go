package postgres

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// Classes of our advisory locks; the second half of each key is the schema.
// All are transaction locks: they end with the transaction, whatever happens to
// the session, and a pooler may stand in between.
const (
	lockClassRoutes  int32 = 0x46505201 // the route lock
	lockClassMigrate int32 = 0x46505202
	lockClassProbe   int32 = 0x46505203
)

// lockMode says which side of the route lock a transaction takes, before
// anything else.
type lockMode int

const (
	lockNone      lockMode = iota
	lockShared             // records and corrections
	lockExclusive          // what decides where usage goes, or removes it
)

// An exclusive lock is waited for lockWait in a row at first. Whoever wants the
// shared side meanwhile queues behind the wait; after it they pass. Each wait
// is twice as long as the one before it, up to maxLockWait: transactions that
// follow one another without a gap are outwaited as soon as the wait is longer
// than the longest of them.
const (
	lockWait    = 250 * time.Millisecond
	maxLockWait = 2 * time.Second
)

// checkIsolation refuses a transaction of the caller's in which a statement
// would not see what was committed before the lock was granted.
func checkIsolation(isolation string) error {
	if isolation != "read committed" {
		return &sdk.Error{
			Tag: sdk.TagInvalid, Code: "isolation", Field: "transaction",
			Rule: "a transaction at read committed",
		}
	}
	return nil
}

// lock takes the shared side.
func (t *tx) lock(ctx context.Context) error {
	var isolation string
	if err := t.row(ctx, qLockShared, []any{&isolation, nil}, lockClassRoutes, t.a.target.scope()); err != nil {
		return err
	}
	return checkIsolation(isolation)
}

// tryExclusive waits for the exclusive side, but not for longer than t.wait:
// then it fails with lock_not_available, and the transaction, or the savepoint
// around the call, must be rolled back.
func (t *tx) tryExclusive(ctx context.Context, class int32) error {
	return t.tryExclusiveFor(ctx, class, max(t.wait, lockWait))
}

func (t *tx) tryExclusiveFor(ctx context.Context, class int32, wait time.Duration) error {
	// What waits for row locks after this is bounded by the deadline alone, or
	// by what the caller set for its transaction.
	after := "0"
	if t.bound {
		if err := t.row(ctx, qLockTimeoutNow, []any{&after}); err != nil {
			return err
		}
	}
	var isolation string
	b := &pgx.Batch{}
	if err := t.queue(b, qLockTimeout, strconv.FormatInt(wait.Milliseconds(), 10)); err != nil {
		return err
	}
	if err := t.queue(b, qLockExclusive, class, t.a.target.scope()); err != nil {
		return err
	}
	if err := t.queue(b, qLockTimeout, after); err != nil {
		return err
	}
	b.QueuedQueries[1].QueryRow(func(row pgx.Row) error { return row.Scan(&isolation, nil) })
	if err := t.q.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	return checkIsolation(isolation)
}

// untilLocked runs attempt until it gets the exclusive lock. It tells it how
// long to wait, and lets others pass for about as long between two attempts.
func untilLocked(ctx context.Context, attempt func(wait time.Duration) error) error {
	for wait := lockWait; ; wait = min(2*wait, maxLockWait) {
		err := attempt(wait)
		if sqlState(err) != stateLockTimeout {
			return err
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// pause waits for between a half and the whole of d.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d/2 + rand.N(d/2+1)) //nolint:gosec // spreads load, decides nothing
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
