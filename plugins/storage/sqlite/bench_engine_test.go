package sqlite

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// BenchmarkEngineRecord prints what a batch of 500 through the whole engine
// costs (validation, hashes, periods, items and the store) beside the store's
// statements driven by hand with everything already computed. The goal of the
// first issue is 0.7.
func BenchmarkEngineRecord(b *testing.B) {
	a, err := Open(b.Context(), Config{Path: filepath.Join(b.TempDir(), "engine.db"), Migrate: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = a.Close() })
	e, err := engine.New(engine.Config{Store: a})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(e.Close)
	plan := engine.RoutePlan{
		Exporter: "stripe", Provider: "stripe", Account: "acct_1", Mode: "test",
		Features: map[string]map[string]string{"tokens": {"event_name": "tokens"}},
	}
	if _, err := e.ApplyRoutes(b.Context(), []engine.RoutePlan{plan}); err != nil {
		b.Fatal(err)
	}
	for i := range 50 {
		_, err := e.PutSubscription(b.Context(), storage.Subscription{
			Tenant: fmt.Sprintf("tenant_%02d", i), Anchor: time.Unix(0, 0), Customers: map[string]string{"stripe": "cus_1"},
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	hand := newByHand(b, filepath.Join(b.TempDir(), "hand.db"))
	rounds := max(b.N, 40)
	computed := makeUnits(rounds, 1)
	events := make([][]engine.Event, rounds)
	for r := range events {
		for i := range benchBatch {
			events[r] = append(events[r], engine.Event{
				ID: fmt.Sprintf("%08x-%04d-4000-8000-req", r, i), Tenant: fmt.Sprintf("tenant_%02d", i%50),
				Feature: "tokens", Quantity: decimal.MustParse("1234"), Time: time.Now(), Dimensions: map[string]string{"model": "m1"},
			})
		}
	}
	b.ResetTimer()
	m := rates(b, rounds,
		func(r int) {
			if _, err := e.Record(b.Context(), events[r]...); err != nil {
				b.Fatal(err)
			}
		},
		func(r int) { hand.batch(b, computed[r]) },
	)
	report(b, "engine", m[0])
	report(b, "by-hand", m[1])
	b.ReportMetric(float64(m[1].wall)/float64(m[0].wall), "engine/by-hand")
	b.ReportMetric(float64(m[1].cpu)/float64(m[0].cpu), "engine/by-hand(cpu)")
}
