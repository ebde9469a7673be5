package engine_test

import (
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// U1: a bare scan of all events over a replay of them, on SQLite: at least 0.3,
// aim for 0.5.
func BenchmarkReplay(b *testing.B) {
	const events = 50_000
	st, err := sqlite.Open(b.Context(), sqlite.Config{Path: filepath.Join(b.TempDir(), "fencepost.db"), Migrate: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = st.Close() })
	e, err := engine.New(engine.Config{Store: st, Now: atNoon})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(e.Close)
	for at := 0; at < events; at += 500 {
		batch := make([]engine.Event, 500)
		for i := range batch {
			n := at + i
			batch[i] = engine.Event{
				ID: strconv.Itoa(n), Tenant: "t" + strconv.Itoa(n%100), Feature: "f" + strconv.Itoa(n%7), Quantity: decimal.FromScaled(int64(n), 3),
				Time: noon.Add(-time.Duration(n%2000) * time.Hour), Dimensions: map[string]string{"model": "m" + strconv.Itoa(n%5)},
			}
		}
		if _, err := e.Record(b.Context(), batch...); err != nil {
			b.Fatal(err)
		}
	}
	var scan, replay time.Duration
	for b.Loop() {
		start := time.Now()
		seen := 0
		for page := (storage.EventPage{More: true}); page.More; seen += len(page.Events) {
			if page, err = st.StreamEvents(b.Context(), storage.StreamQuery{After: page.Next, Limit: 1000}); err != nil {
				b.Fatal(err)
			}
		}
		scan += time.Since(start)
		start = time.Now()
		if p, err := e.Replay(b.Context(), engine.ReplayOptions{}); err != nil || seen != events || p.Scanned != events {
			b.Fatalf("%d, %+v, %v", seen, p, err)
		}
		replay += time.Since(start)
	}
	b.ReportMetric(scan.Seconds()/replay.Seconds(), "scan/replay")
	b.ReportMetric(float64(events*b.N)/replay.Seconds(), "events/s")
}
