//go:build linux

package remote_test

import (
	"testing"

	"github.com/fencepost/fencepost/internal/mysqltest"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// BenchmarkSQLRecord records in MariaDB through the sql capability: one event
// with an item in a call, and a thousand of them (W2).
func BenchmarkSQLRecord(b *testing.B) {
	const pkg = "plugins/storage/mysql/plugin"
	for _, way := range []struct {
		name  string
		carry carryMySQL
	}{{"linked", mysqlLinked}, {"process", program(b, pkg)}, {"module", module(b, pkg)}} {
		for _, size := range []int{1, 1000} {
			b.Run(way.name+map[int]string{1: "/1", 1000: "/1000"}[size], func(b *testing.B) {
				a := openMySQL(b, mysqltest.Database(b), way.carry)
				// The first call compiles, and opens connections.
				if _, err := a.RecordEvents(b.Context(), storage.RecordRequest{Mode: storage.Each}); err != nil {
					b.Fatal(err)
				}
				n := 0
				for b.Loop() {
					req := batch(n / 1000)
					if size == 1 {
						req.Units = req.Units[n%1000 : n%1000+1]
					}
					n += size
					if _, err := a.RecordEvents(b.Context(), req); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}
