package engine_test

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// A subscription that names no anchor has the months of its own calendar: local
// midnight to local midnight, not the midnight of UTC. The expected instants are
// the zones' offsets of that day, by hand: New York is at UTC-4 until 1 November
// 2026 02:00 and at UTC-5 after it, Tokyo always at UTC+9.
func TestDefaultAnchorIsLocal(t *testing.T) {
	t.Parallel()
	f := open(t)
	for _, tt := range []struct {
		zone     string
		from, to time.Time
	}{
		{"America/New_York", time.Date(2026, 11, 1, 4, 0, 0, 0, time.UTC), time.Date(2026, 12, 1, 5, 0, 0, 0, time.UTC)},
		{"Asia/Tokyo", time.Date(2026, 10, 31, 15, 0, 0, 0, time.UTC), time.Date(2026, 11, 30, 15, 0, 0, 0, time.UTC)},
		{"", time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)},
	} {
		tenant := "tenant " + tt.zone
		if _, err := f.PutSubscription(t.Context(), storage.Subscription{Tenant: tenant, Timezone: tt.zone}); err != nil {
			t.Fatal(err)
		}
		e := plain("e", "1")
		e.Tenant, e.Time = tenant, noon
		if _, err := f.Record(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		u, err := f.Usage(t.Context(), engine.UsageQuery{Tenant: tenant})
		if err != nil || len(u.Rows) != 1 {
			t.Fatalf("%+v, %v", u, err)
		}
		if got := u.Rows[0]; !got.From.Equal(tt.from) || !got.To.Equal(tt.to) {
			t.Errorf("%q: %s to %s, want %s to %s", tt.zone, got.From, got.To, tt.from, tt.to)
		}
	}
}
