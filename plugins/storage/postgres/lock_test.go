package postgres

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Q26: transactions that overlap without a gap do not keep whoever wants the
// exclusive lock from getting it: each wait is longer than the one before it,
// and whoever wants to record never queues for more than two seconds, nor for
// more than two thirds of the time.
func TestExclusiveLockOutwaitsOverlaps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var waits []time.Duration
		var queued time.Duration
		start := time.Now()
		err := untilLocked(t.Context(), func(wait time.Duration) error {
			waits = append(waits, wait)
			if len(waits) == 6 {
				return nil
			}
			queued += wait
			time.Sleep(wait) // of the bubble
			return &pgconn.PgError{Code: stateLockTimeout}
		})
		must(t, err)
		want := []time.Duration{lockWait, 2 * lockWait, 4 * lockWait, maxLockWait, maxLockWait, maxLockWait}
		if !slices.Equal(waits, want) {
			t.Errorf("waits %v, want %v", waits, want)
		}
		if all := time.Since(start); queued > all*2/3 {
			t.Errorf("others queued for %v of %v", queued, all)
		}
	})
}

// The wait of an attempt is the one that the server is told.
func TestExclusiveLockWait(t *testing.T) {
	t.Parallel()
	a := open(t)
	holder := openTx(t, a)
	must(t, (&tx{a: a, q: holder, bound: true}).lock(t.Context()))
	start := time.Now()
	err := ownTx{a}.use(t.Context(), deliveryPool, func(c *pgxpool.Conn) error {
		w := &tx{a: a, q: c, wait: 2 * lockWait}
		return w.rollback(w.begin(t.Context(), qBegin, writing{lock: lockExclusive}))
	})
	if sqlState(err) != stateLockTimeout || time.Since(start) < 2*lockWait {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
}
