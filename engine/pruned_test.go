package engine_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/period"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// onBoth runs a test on each store.
func onBoth(t *testing.T, run func(t *testing.T, f *fixture, st storage.Adapter)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		var ticks atomic.Int64 // what is older than nothing has to be older
		st, err := sqlite.Open(t.Context(), sqlite.Config{
			Path: filepath.Join(t.TempDir(), "fencepost.db"), Migrate: true, LockWait: -1,
			Now: func() time.Time { return noon.Add(time.Duration(ticks.Add(1)) * time.Millisecond) },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = st.Close() })
		run(t, &fixture{t: t, Engine: over(t, st), store: st}, st)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		f := openPostgres(t)
		run(t, f, f.postgres.(storage.Adapter)) //nolint:forcetypeassert // it is one
	})
}

// prune removes every event.
func prune(t *testing.T, st storage.Adapter) {
	t.Helper()
	res, err := st.(storage.RetentionStore).Prune(t.Context(), storage.PruneRequest{Kind: storage.PruneEvents, Limit: 100})
	if err != nil || res.Removed == 0 {
		t.Fatalf("prune: %+v, %v", res, err)
	}
}

// withBuckets is the feature tokens with buckets by these dimensions.
func withBuckets(dimensions ...string) func(*engine.Config) {
	return func(c *engine.Config) {
		c.Features = map[string]engine.Feature{"tokens": {Buckets: true, BucketDimensions: dimensions}}
	}
}

func byRegion(group ...string) engine.UsageQuery {
	return engine.UsageQuery{Tenant: "acme", Feature: "tokens", Window: period.Day, From: noon.AddDate(0, 0, -1), To: noon.Truncate(time.Hour).Add(time.Hour), GroupBy: group}
}

// What was removed while the feature had no buckets, or other ones, is in none of
// today's: neither zero nor a group without the dimension is answered for it,
// before and after a replay. Buckets that kept it do answer. // S15, B44, Q27.
func TestPrunedBeforeTheBuckets(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(*engine.Config){
		"without buckets": func(*engine.Config) {}, "other dimensions": withBuckets("model"), "the same": withBuckets("region"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, f *fixture, st storage.Adapter) {
				f.Engine = over(t, st, before)
				f.routes()
				f.replay(engine.ReplayOptions{})
				ev := plain("e1", "10")
				ev.Dimensions = map[string]string{"model": "m1", "region": "eu"}
				f.want(f.each(ev), "inserted")
				prune(t, st)
				f.Engine = over(t, st, withBuckets("region"))
				f.routes()
				for _, when := range []string{"before", "after"} {
					for _, q := range []engine.UsageQuery{byRegion(), byRegion("region")} {
						u, err := f.Usage(t.Context(), q)
						if name != "the same" {
							tagIs(t, err, sdk.TagUnsupported, "pruned")
						} else if err != nil || len(u.Rows) < 2 || u.Rows[0].Value.String()+u.Rows[1].Value.String() != "010" {
							t.Errorf("%s a replay: %s, %v", when, usageText(u, q.GroupBy...), err)
						}
					}
					f.replay(engine.ReplayOptions{})
				}
			})
		})
	}
}
