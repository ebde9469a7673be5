package engine_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/meter"
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

// Where the greatest of a pruned period is not known any more, the other periods
// are still answered when all features are asked for.
func TestPrunedPeriodsHideNoOther(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, f *fixture, st storage.Adapter) {
		for _, agg := range []meter.Aggregation{meter.Max, meter.Latest, meter.Unique, meter.Avg} {
			m := inMeter
			m.Feature, m.Aggregation = "tokens", agg
			f.Engine = over(t, st, withMeters(t, m))
			if agg == meter.Max {
				f.want(f.each(eventAt("old", "5", "2026-10-10T00:00:00Z")), "inserted")
				prune(t, st)
				f.want(f.each(eventAt("new", "7", "2026-11-20T00:00:00Z")), "inserted")
			}
			want := map[meter.Aggregation]string{meter.Unique: "0"}[agg]
			if want == "" {
				want = "7"
			}
			u := f.usage(engine.UsageQuery{Tenant: "acme"})
			if got, want := usageText(u), "10-01T00:00 null/1\n11-01T00:00 "+want+"/1"; got != want {
				t.Errorf("%s: %s\nwant\n%s", agg, got, want)
			}
			if len(u.Rows) != 2 || u.Rows[0].Refused != "pruned" || u.Rows[1].Refused != "" {
				t.Errorf("%s: refused %+v", agg, u.Rows)
			}
			_, err := f.Usage(t.Context(), engine.UsageQuery{Tenant: "acme", Feature: "tokens"})
			tagIs(t, err, sdk.TagUnsupported, "pruned")
		}
	})
}

// A CloudEvent whose events retention removed is a duplicate by its receipt, also
// where today's meters cannot measure it; its neighbours are recorded. // S15, Q1.
func TestRedeliveredAfterPruning(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, f *fixture, st storage.Adapter) {
		f.Engine = over(t, st, withMeters(t, inMeter))
		ce := completion(t, "1", 30, 4)
		f.want(f.each(ce), "inserted")
		prune(t, st)
		changed := inMeter
		changed.Value = "$.data.nowhere"
		f.Engine = over(t, st, withMeters(t, changed))
		res := f.each(ce, plain("neighbour", "1"))
		f.want(res, "duplicate inserted")
		if e := res[0].Entries; len(e) != 1 || e[0].Feature != inMeter.Feature || e[0].EventID == "" {
			t.Errorf("entries %+v", e)
		}
	})
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
