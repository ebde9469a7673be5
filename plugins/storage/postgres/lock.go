package postgres

import (
	"context"
	"math/rand/v2"
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

// lockWait is how long an exclusive lock is waited for in a row. Whoever wants
// the shared side meanwhile queues behind the wait; after it they pass.
const lockWait = 250 * time.Millisecond

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

// tryExclusive waits for the exclusive side, but not for longer than lockWait:
// then it fails with lock_not_available, and the transaction, or the savepoint
// around the call, must be rolled back.
func (t *tx) tryExclusive(ctx context.Context, class int32) error {
	return t.tryExclusiveFor(ctx, class, lockWait)
}

func (t *tx) tryExclusiveFor(ctx context.Context, class int32, wait time.Duration) error {
	var isolation string
	b := &pgx.Batch{}
	if err := t.queue(b, qLockTimeout, wait.Milliseconds()); err != nil {
		return err
	}
	if err := t.queue(b, qLockExclusive, class, t.a.target.scope()); err != nil {
		return err
	}
	// What waits for row locks after this is bounded by the deadline alone.
	if err := t.queue(b, qLockTimeout, int64(0)); err != nil {
		return err
	}
	b.QueuedQueries[1].QueryRow(func(row pgx.Row) error { return row.Scan(&isolation, nil) })
	if err := t.q.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	return checkIsolation(isolation)
}

// untilLocked runs attempt until it gets the exclusive lock, and lets others
// pass between two attempts.
func untilLocked(ctx context.Context, attempt func() error) error {
	for n := 1; ; n++ {
		err := attempt()
		if sqlState(err) != stateLockTimeout {
			return err
		}
		if err := pause(ctx, time.Duration(min(n, 8))*25*time.Millisecond); err != nil {
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
