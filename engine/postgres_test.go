package engine_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/engine/period"
	"github.com/fencepost/fencepost/internal/pgtest"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/postgres"
)

// openPostgres returns an engine on a schema of its own.
func openPostgres(t *testing.T, change ...func(*engine.Config)) *fixture {
	t.Helper()
	dsn, _ := pgtest.Schema(t)
	st, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn, Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return &fixture{t: t, Engine: over(t, st, change...), postgres: st}
}

// B37-B45 on PostgreSQL: a build that is interrupted again and again while
// usage is recorded and corrected ends with totals that are the sum of events.
func TestReplayOnPostgres(t *testing.T) {
	t.Parallel()
	f := openPostgres(t)
	f.fill("a", 50)
	f.exact("before")
	one := decimal.One
	for i := range 50 {
		p := f.replay(engine.ReplayOptions{BatchSize: 9, MaxBatches: 1, Resume: true})
		if p.Activated {
			break
		}
		f.fill(fmt.Sprint("b", i, "."), 6)
		if _, err := f.Correct(t.Context(), engine.Correction{ID: fmt.Sprint("late", i), Tenant: "globex", EventID: "a47", Quantity: &one}); err != nil {
			t.Fatal(err)
		}
		f.exact(fmt.Sprint("round ", i))
	}
	f.exact("resumed")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			_, err := f.Replay(t.Context(), engine.ReplayOptions{BatchSize: 3, Resume: true})
			if err != nil && !errors.Is(err, sdk.ErrConflict) {
				t.Error(err)
			}
		})
	}
	wg.Go(func() { f.fill("c", 30) })
	wg.Wait()
	if p := f.replay(engine.ReplayOptions{Resume: true}); !p.Activated || p.Diff.Total != 0 {
		t.Errorf("%+v", p)
	}
	f.exact("after many at once")
	st, err := f.ReplayState(t.Context())
	if err != nil || st.Building != 0 || st.Seed != 0 {
		t.Errorf("%+v, %v", st, err)
	}
}

// B2-B4 on PostgreSQL, from two hosts.
func TestTrackOnPostgres(t *testing.T) {
	t.Parallel()
	f := openPostgres(t, buffered)
	store, ok := f.postgres.(storage.Adapter)
	if !ok {
		t.Fatal("no adapter")
	}
	other := over(t, store, buffered)
	for range 100 {
		track(t, f.Engine, "acme", "calls", "0.000000000001")
		track(t, other, "acme", "calls", "99999999999999999999999999")
	}
	for range 3 {
		if err := errors.Join(f.FlushTracked(t.Context()), other.FlushTracked(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	u := f.usage(engine.UsageQuery{Tenant: "acme"})
	if len(u.Rows) != 1 || u.Rows[0].Value.String() != "9999999999999999999999999900.0000000001" {
		t.Errorf("%s", usageText(u))
	}
	q := engine.UsageQuery{Tenant: "acme", Feature: "calls", Window: period.Hour, From: noon.Add(-time.Hour), To: noon.Add(time.Hour)}
	if got, want := usageText(f.usage(q)), "11-30T11:00 0/null\n11-30T12:00 9999999999999999999999999900.0000000001/null"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// SQLite and PostgreSQL answer the same questions about the same usage in the
// same words: from events and from buckets, hostile names included.
func TestUsageIsTheSameOnBothStores(t *testing.T) {
	t.Parallel()
	settings := func(c *engine.Config) {
		c.Features = map[string]engine.Feature{"tokens": {Buckets: true, BucketDimensions: []string{"m", "it's"}, Signed: true}}
	}
	pg, lite := openPostgres(t, settings), open(t, settings)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	var inputs []any
	var corrections []engine.Correction
	for i := range 400 {
		e := eventAt(strconv.Itoa(i), pick("1", "2.5", "-3", "0.000000000001", "99999999999999999999999999", "0"), "2026-11-30T12:00:00Z")
		e.Time = noon.Add(-time.Duration(random.IntN(6*24*60)) * time.Minute)
		e.Dimensions = map[string]string{}
		for _, name := range []string{"m", "it's", `"$.x`} {
			if v := pick("", "a", "b", `'"\`); v != "" {
				e.Dimensions[name] = v
			}
		}
		inputs = append(inputs, e)
		if random.IntN(4) == 0 && !e.Quantity.IsZero() {
			c := engine.Correction{ID: "c" + strconv.Itoa(i), Tenant: "acme", EventID: e.ID, Remaining: random.IntN(2) == 0}
			if !c.Remaining {
				part := decimal.MustParse("0.000000000001")
				c.Quantity = &part
			}
			corrections = append(corrections, c)
		}
	}
	for _, f := range []*fixture{pg, lite} {
		f.routes()
		f.replay(engine.ReplayOptions{})
		for i, in := range inputs { // one by one: the order of equal times is that of recording
			if res := f.each(in); res[0].Outcome != engine.Inserted {
				t.Fatalf("event %d: %v", i, res[0])
			}
		}
		for _, c := range corrections {
			if _, err := f.Correct(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 300 {
		q := engine.UsageQuery{
			Tenant: "acme", Feature: "tokens", Window: period.Unit(pick("minute", "hour", "day", "month")), Timezone: pick("UTC", "Asia/Kathmandu", "Australia/Lord_Howe"),
			To: noon, Aggregation: meter.Aggregation(pick("sum", "count", "avg", "min", "max", "latest", "unique")),
		}
		q.From = q.To.Add(-time.Duration(1+random.IntN(6*24)) * time.Hour)
		for _, name := range []string{"m", "it's", `"$.x`} {
			switch random.IntN(5) {
			case 0:
				q.GroupBy = append(q.GroupBy, name)
			case 1:
				q.Filter = map[string]string{name: pick("a", "b", `'"\`)}
			}
		}
		if random.IntN(4) == 0 {
			q.Window, q.Timezone, q.From, q.To = "", "", time.Time{}, time.Time{}
		}
		if diff := cmp.Diff(usageText(lite.usage(q), q.GroupBy...), usageText(pg.usage(q), q.GroupBy...)); diff != "" {
			t.Fatalf("query %d, %+v (-sqlite +postgres)\n%s", i, q, diff)
		}
	}
}
