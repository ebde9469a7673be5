package bench

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/period"
)

// usageEvents is how many events of one tenant U2 reads. U2_EVENTS sets another
// number; the goal is stated for ten million.
func usageEvents(b *testing.B) int {
	b.Helper()
	n := 1_000_000
	if text := os.Getenv("U2_EVENTS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	return n
}

// BenchmarkUsage is U1 and U2 on PostgreSQL: the same events of one tenant,
// over thirty days, read by day and model from buckets and from events; and
// replayed beside a bare scan of them.
func BenchmarkUsage(b *testing.B) {
	n := usageEvents(b)
	s := newShop(b)
	s.fillUsage(b, n)
	plain, e := s.replayed(b, nil), (*engine.Engine)(nil)
	c := s.connect(b)
	for b.Loop() {
		t := inTurns(1,
			func(int) time.Duration { return s.scan(b, c) },
			func(int) time.Duration { return replay(b, plain) },
		)
		goal{ID: "U1", What: "replay / a bare scan of the same events", Floor: 0.3, Goal: 0.5}.
			print(b, fmt.Sprintf("%d events, %.0f/s", n, float64(n)/t[1][0].Seconds()), over(t[1], t[0], 1, 1)...)
		if e == nil {
			e = s.replayed(b, map[string]engine.Feature{"tokens": {Buckets: true, BucketDimensions: []string{"model"}}})
			b.Logf("replay with buckets: %.0f events/s", float64(n)/replay(b, e).Seconds())
		}

		from := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
		q := engine.UsageQuery{Tenant: "big", Feature: "tokens", From: from, To: from.AddDate(0, 0, 30), Window: period.Day, GroupBy: []string{"model"}}
		t = inTurns(rounds,
			func(int) time.Duration { return s.usage(b, e, q) },
			func(int) time.Duration {
				other := q
				other.GroupBy = []string{"model", "region"} // no bucket keeps the region
				return s.usage(b, e, other)
			},
		)
		ratios := make([]float64, rounds)
		for i := range ratios {
			ratios[i] = t[0][i].Seconds() / t[1][i].Seconds()
		}
		goal{ID: "U2", What: "usage by day and dimension: buckets / events, time", Floor: 0.05, Goal: 0.01, Lower: true}.
			print(b, fmt.Sprintf("%d events, %v / %v", n, t[0][0].Round(time.Millisecond), t[1][0].Round(time.Millisecond)), ratios...)
	}
}

// replayed is an engine on the store with its features known there.
func (s *shop) replayed(b *testing.B, features map[string]engine.Feature) *engine.Engine {
	b.Helper()
	e, err := engine.New(engine.Config{Store: s.store, Features: features})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(e.Close)
	if _, err := e.ApplyRoutes(b.Context(), nil); err != nil {
		b.Fatal(err)
	}
	return e
}

// replay rebuilds what the events add up to. Its first run in a store finds no
// totals to agree with: the events were not recorded.
func replay(b *testing.B, e *engine.Engine) time.Duration {
	b.Helper()
	began := time.Now()
	if _, err := e.Replay(b.Context(), engine.ReplayOptions{Compare: engine.Report}); err != nil {
		b.Fatal(err)
	}
	return time.Since(began)
}

func (s *shop) usage(b *testing.B, e *engine.Engine, q engine.UsageQuery) time.Duration {
	b.Helper()
	began := time.Now()
	got, err := e.Usage(b.Context(), q)
	if err != nil {
		b.Fatal(err)
	}
	if len(got.Rows) < 30 {
		b.Fatalf("%d rows", len(got.Rows))
	}
	return time.Since(began)
}

// fillUsage writes n events of one tenant with SQL: through the adapter ten
// million of them would take longer than what is measured.
func (s *shop) fillUsage(b *testing.B, n int) {
	b.Helper()
	c := s.connect(b)
	_, err := c.Exec(b.Context(), `INSERT INTO `+s.schema+`.fencepost_events
		(tenant_key, event_id, feature, quantity, effect, kind, occurred_at, period_start, period_end, period_source, dimensions, payload_hash, dedupe_hash, recorded_at)
		SELECT 'big', 'e' || i, 'tokens', 1.25, 1.25, 'usage', '2026-11-01Z'::timestamptz + i * interval '30 days' / $1::bigint, '2026-11-01Z', '2026-12-01Z', 'calendar',
		jsonb_build_object('model', 'm' || i % 5, 'region', 'r' || i % 3), sha256(i::text::bytea), sha256(i::text::bytea), clock_timestamp()
		FROM generate_series(0::bigint, $1::bigint - 1) AS i`, int64(n))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := c.Exec(b.Context(), "VACUUM ANALYZE "+s.schema+".fencepost_events"); err != nil {
		b.Fatal(err)
	}
}

// scan reads every event over one connection and drops it: the least that a
// replay can do.
func (s *shop) scan(b *testing.B, c *pgx.Conn) time.Duration {
	b.Helper()
	began := time.Now()
	rows, err := c.Query(b.Context(), `SELECT seq, tenant_key, event_id, feature, quantity::text, effect::text, kind, reverses, occurred_at, period_start, period_end, dimensions::text
		FROM `+s.schema+`.fencepost_events ORDER BY seq`)
	if err != nil {
		b.Fatal(err)
	}
	for rows.Next() {
		_ = rows.RawValues()
	}
	if err := rows.Err(); err != nil {
		b.Fatal(err)
	}
	return time.Since(began)
}
