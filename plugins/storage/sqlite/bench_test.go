package sqlite

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// benchBatch is the batch of the HTTP API at its limit.
const benchBatch = 500

// benchUnits are events of 50 tenants, each with one item: about as many
// totals as a real batch touches.
func benchUnits(round int, route int64) []storage.Unit {
	units := make([]storage.Unit, benchBatch)
	for i := range units {
		e := event(fmt.Sprintf("tenant_%02d", i%50), fmt.Sprintf("%08x-%04d-4000-8000-req", round, i), "1234")
		units[i] = plain(e, item(e, route, "m1"))
	}
	return units
}

// rates runs the functions in turn, so that all of them see the same machine,
// and answers each one's median time.
func rates(b *testing.B, rounds int, fs ...func(round int)) []time.Duration {
	b.Helper()
	times := make([][]time.Duration, len(fs))
	for round := range rounds {
		for i, f := range fs {
			start := time.Now()
			f(round)
			times[i] = append(times[i], time.Since(start))
		}
	}
	medians := make([]time.Duration, len(fs))
	for i, t := range times {
		slices.Sort(t)
		medians[i] = t[len(t)/2]
	}
	return medians
}

// BenchmarkRecordRatios prints what a batch through RecordEvents costs beside
// the same statements driven by hand on a bare connection, and what a batch of
// nothing but duplicates costs beside a fresh one (P17).
func BenchmarkRecordRatios(b *testing.B) {
	c := newClock()
	a := open(b, c)
	route, rev := addRoute(b, a)
	hand := newByHand(b, filepath.Join(b.TempDir(), "hand.db"))
	fresh := func(round int) {
		record(b, a, storage.RecordRequest{Units: benchUnits(round, route), RoutesRevision: rev})
	}
	rounds := max(b.N, 40)
	b.ResetTimer()
	m := rates(b, rounds,
		fresh,
		func(round int) { hand.batch(b, benchUnits(round, 1)) },
		fresh, // the same again: duplicates
		func(round int) { benchUnits(round, route) },
	)
	build := m[3] // making the units is not what is measured
	record, byHand, dup := m[0]-build, m[1]-build, m[2]-build
	perSecond := func(d time.Duration) float64 { return benchBatch / d.Seconds() }
	b.ReportMetric(perSecond(record), "events/s")
	b.ReportMetric(byHand.Seconds()/record.Seconds(), "record/by-hand")
	b.ReportMetric(record.Seconds()/dup.Seconds(), "duplicates/fresh")
	b.Logf("batch %d: RecordEvents %.0f/s, by hand %.0f/s (ratio %.2f), duplicates %.0f/s (ratio %.2f)",
		benchBatch, perSecond(record), perSecond(byHand), byHand.Seconds()/record.Seconds(),
		perSecond(dup), record.Seconds()/dup.Seconds())
}
