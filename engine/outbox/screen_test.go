package outbox

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// T6, A48: what stopped being sendable while it waited is quarantined without
// an attempt, or uncertain if an earlier attempt is open (D16).
func TestDeliverScreens(t *testing.T) {
	t.Parallel()
	for _, open := range []bool{false, true} {
		t.Run(fmt.Sprint("open ", open), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				id := b.store.add(sample("req_1", time.Now().Add(-34*24*time.Hour+time.Minute)))
				other := sample("req_2", time.Now())
				other.Mapping.Content = []byte(`{"event_name":7}`)
				broken := b.store.add(other)
				foreign := sample("req_3", time.Now())
				foreign.Identity.Mode = "live"
				live := b.store.add(foreign)
				if open {
					claimAndDie(t, b)
				}
				time.Sleep(121 * time.Second)
				s := &scripted{manifest: testManifest, answer: honest(b.provider)}
				d := b.deliverer(s)
				for range 3 {
					b.once(d)
				}
				if len(s.sent()) != 0 {
					t.Error("sent what may not be sent")
				}
				for id, reason := range map[int64]string{id: "timestamp_window", broken: "payload_invalid", live: "mode_mismatch"} {
					if open {
						if item := b.want(id, storage.Uncertain, reason); item.QuarantineReason != "" {
							t.Errorf("%+v", item)
						}
						continue
					}
					item := b.want(id, storage.Quarantined, reason)
					if item.QuarantineReason != reason || item.Attempts != 0 || !item.SettledAt.IsZero() {
						t.Errorf("%+v", item)
					}
				}
			})
		})
	}
}

// A-T16, O28.
func TestGauge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.store.add(sample("req_1", time.Now()))
		stats, err := Gauge(t.Context(), b.store, []string{"webhook"})
		if err != nil {
			t.Fatal(err)
		}
		if len(stats.Counts) != 14 || stats.Counts[0].Exporter != "double" || stats.Counts[0].Items != 1 ||
			stats.Counts[13] != (storage.ItemCount{Exporter: "webhook", State: storage.Quarantined}) {
			t.Errorf("%+v", stats.Counts)
		}
	})
}
