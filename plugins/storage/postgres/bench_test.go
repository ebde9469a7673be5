package postgres

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// BenchmarkRecord is one batch of new events, each with an item, in 10 features
// of 1000 tenants: nearly every event has a total of its own.
func BenchmarkRecord(b *testing.B) {
	for _, size := range []int{1, 100, 1000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			a := open(b)
			route, rev := routed(b, a)
			n := 0
			for b.Loop() {
				b.StopTimer()
				units := make([]storage.Unit, size)
				for i := range units {
					e := tokens(fmt.Sprint("t", n%1000), fmt.Sprint("e", n), "1.5")
					e.Feature = fmt.Sprint("f", n/1000%10)
					units[i] = plain(e, itemFor(e, route, "m1"))
					n++
				}
				b.StartTimer()
				record(b, a, storage.RecordRequest{RoutesRevision: rev, Units: units})
			}
			b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
