package host

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/engine/outbox/reconcile"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// O25: the last two days every hour, up to two lags before now; everything for
// which the provider takes usage once a day, without a gap between.
func TestComparisonsThatAreDue(t *testing.T) {
	t.Parallel()
	x := &exporterRuntime{manifest: exporter.Manifest{
		WindowPast: 34 * 24 * time.Hour, ReadBack: exporter.ReadBack{Sums: true, Lag: time.Hour, Granularity: time.Minute},
	}}
	day := func(n int) time.Time { return time.Date(2026, 11, n, 0, 0, 0, 0, time.UTC) }
	to := time.Date(2026, 11, 30, 14, 0, 0, 0, time.UTC)
	now := time.Date(2026, 11, 30, 18, 20, 31, 5, time.FixedZone("", 2*3600))
	if d := cmp.Diff([]reconcile.Request{{From: day(29), To: to, Unconfirmed: true}}, x.comparisons(now, false)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]reconcile.Request{
		{From: time.Date(2026, 10, 26, 0, 0, 0, 0, time.UTC), To: day(27), Unconfirmed: true}, {From: day(27), To: day(29)}, {From: day(29), To: to},
	}, x.comparisons(now, true)); d != "" {
		t.Error(d)
	}
	// What is due keeps the rules of a request, at any time of day.
	for hour := range 24 {
		for _, r := range x.comparisons(day(30).Add(time.Duration(hour)*time.Hour+time.Minute), true) {
			r.Step, r.Act.Actor, r.Act.Reason = reconcileStep, "test", "a test"
			if err := r.Check(x.manifest); err != nil {
				t.Errorf("hour %d: %v", hour, err)
			}
		}
	}
}
