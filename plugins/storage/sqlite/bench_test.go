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

// sample is what a batch cost: by the clock, and in processor time, which says
// more on a machine that others use too.
type sample struct{ wall, cpu time.Duration }

// rates runs the functions in turn, so that all of them see the same machine,
// and answers each one's median.
func rates(b *testing.B, rounds int, fs ...func(round int)) []sample {
	b.Helper()
	wall, cpu := make([][]time.Duration, len(fs)), make([][]time.Duration, len(fs))
	for round := range rounds {
		for i, f := range fs {
			start, used := time.Now(), cpuTime(b)
			f(round)
			wall[i], cpu[i] = append(wall[i], time.Since(start)), append(cpu[i], cpuTime(b)-used)
		}
	}
	medians := make([]sample, len(fs))
	for i := range fs {
		slices.Sort(wall[i])
		slices.Sort(cpu[i])
		medians[i] = sample{wall[i][rounds/2], cpu[i][rounds/2]}
	}
	return medians
}

// units is a batch that was made before the clock started.
type units [][]storage.Unit

func makeUnits(rounds int, route int64) units {
	all := make(units, rounds)
	for i := range all {
		all[i] = benchUnits(i, route)
	}
	return all
}

// BenchmarkRecordRatios prints what a batch through RecordEvents costs beside
// the same statements driven by hand on a bare connection, and what a batch of
// nothing but duplicates costs beside a fresh one (P17).
func BenchmarkRecordRatios(b *testing.B) {
	c := newClock()
	a := open(b, c)
	route, rev := addRoute(b, a)
	hand := newByHand(b, filepath.Join(b.TempDir(), "hand.db"))
	rounds := max(b.N, 40)
	all := makeUnits(rounds, route)
	fresh := func(round int) {
		record(b, a, storage.RecordRequest{Units: all[round], RoutesRevision: rev})
	}
	b.ResetTimer()
	m := rates(b, rounds,
		fresh,
		func(round int) { hand.batch(b, all[round]) },
		fresh, // the same again: duplicates
	)
	report(b, "record", m[0])
	report(b, "by-hand", m[1])
	report(b, "duplicates", m[2])
	ratio := func(name string, x, y sample) {
		b.ReportMetric(float64(x.wall)/float64(y.wall), name)
		b.ReportMetric(float64(x.cpu)/float64(y.cpu), name+"(cpu)")
	}
	ratio("record/by-hand", m[1], m[0])
	ratio("duplicates/fresh", m[0], m[2])
}

func report(b *testing.B, name string, s sample) {
	b.Logf("%-10s batch %d: %6.0f events/s, %5.1f µs of processor an event",
		name, benchBatch, benchBatch/s.wall.Seconds(), s.cpu.Seconds()*1e6/benchBatch)
}

// BenchmarkOutbox prints what the two turns of a delivery cost: a claim of a
// page, and the fenced outcomes of that page with their attempts.
func BenchmarkOutbox(b *testing.B) {
	const page = 100
	c := newClock()
	a := open(b, c)
	route, rev := addRoute(b, a)
	rounds := max(b.N, 40)
	for _, batch := range makeUnits(rounds*page/benchBatch+1, route) {
		record(b, a, storage.RecordRequest{Units: batch, RoutesRevision: rev})
	}
	var cl storage.Claim
	b.ResetTimer()
	m := rates(b, rounds,
		func(int) { cl = claimWith(b, a, storage.ClaimRequest{Routes: []int64{route}, Limit: page}) },
		func(int) {
			moves := make([]storage.Transition, len(cl.Items))
			for i, it := range cl.Items {
				moves[i] = storage.Transition{
					ItemID: it.ItemID, Expect: fenced(it.LeaseToken), Attempt: &storage.Attempt{LeaseToken: 1},
					Set: storage.Change{State: storage.Accepted, AcceptedNow: true, Settled: new(true)},
				}
			}
			move(b, a, moves...)
		},
	)
	for i, name := range []string{"claim", "transition"} {
		b.Logf("%-10s page %d: %6.0f items/s, %5.1f µs of processor an item",
			name, page, page/m[i].wall.Seconds(), m[i].cpu.Seconds()*1e6/page)
		b.ReportMetric(m[i].cpu.Seconds()*1e6/page, name+"-cpu-µs/item")
	}
}
