package postgres

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/internal/pgtest"
	"github.com/fencepost/fencepost/plugins/sdk"
)

// D8, S10: a database that speaks the protocol, accepts the statements and does
// not do what claims and the route lock rest on is refused when it is opened. It
// stands behind a proxy that takes from each statement what that database would
// not do; with nothing taken the same way leads to an open store.
func TestProbeRefusesWhatDoesNotLock(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from, to string
		code     string // empty: it opens
	}{
		"as it is":                       {"FOR UPDATE SKIP LOCKED", "FOR UPDATE SKIP LOCKED", ""},
		"SKIP LOCKED locks nothing":      {"FOR UPDATE SKIP LOCKED", "", "skip_locked"},
		"exclusive locks exclude nobody": {"pg_advisory_xact_lock(", "pg_advisory_xact_lock_shared(", "advisory_locks"},
		"shared locks are not taken":     {"pg_advisory_xact_lock_shared(", "greatest(", "advisory_locks"},
		"a condition is not looked at":   {"WHERE key = 'probe' AND value = $1", "WHERE key = 'probe' AND value >= $1", "fence"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, _ := pgtest.Schema(t)
			a, err := Open(t.Context(), Config{DSN: dsn, Migrate: true, MaxConns: 4})
			must(t, err)
			must(t, a.Close())
			proxy := pgtest.NewProxy(t, dsn)
			var taken atomic.Int32
			proxy.Rewrite(func(sql string) string {
				if !strings.Contains(sql, c.from) {
					return sql
				}
				taken.Add(1)
				return strings.ReplaceAll(sql, c.from, c.to)
			})
			a, err = Open(t.Context(), Config{DSN: proxy.DSN(), MaxConns: 4})
			if err == nil {
				defer func() { must(t, a.Close()) }()
			}
			if taken.Load() == 0 {
				t.Fatal("no statement was changed")
			}
			if c.code == "" {
				must(t, err)
				return
			}
			if err == nil {
				t.Fatal("it was opened")
			}
			wantTag(t, err, sdk.TagUnsupported, c.code)
		})
	}
}
