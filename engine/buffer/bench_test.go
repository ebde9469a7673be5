package buffer_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine/buffer"
	"github.com/fencepost/fencepost/engine/period"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// U3: Track against the look-up of a key in a sync.Map and one atomic addition,
// with eight goroutines: at most 4, aim for 2.
func BenchmarkTrack(b *testing.B) {
	type key struct{ tenant, feature string }
	for _, keys := range []int{1, 1000} {
		tenants := make([]string, keys)
		for i := range tenants {
			tenants[i] = "tenant-" + strconv.Itoa(i)
		}
		b.Run("limit/keys="+strconv.Itoa(keys), func(b *testing.B) {
			var m sync.Map
			for _, t := range tenants {
				m.Store(key{t, "tokens"}, new(atomic.Int64))
			}
			eight(b, func(i int) {
				v, _ := m.Load(key{tenants[i%keys], "tokens"})
				v.(*atomic.Int64).Add(1)
			})
		})
		b.Run("track/keys="+strconv.Itoa(keys), func(b *testing.B) {
			c := buffer.New(buffer.Config{
				Now: time.Now,
				Slot: func(_ context.Context, _, _ string, at time.Time) (buffer.Slot, error) {
					return buffer.Slot{Period: period.Calendar{}.At(at)}, nil
				},
			})
			ctx, q := b.Context(), decimal.MustParse("1.5")
			eight(b, func(i int) {
				if err := c.Track(ctx, tenants[i%keys], "tokens", q); err != nil {
					b.Error(err)
				}
			})
		})
	}
}

func eight(b *testing.B, f func(i int)) {
	b.Helper()
	b.ReportAllocs()
	b.SetParallelism(4) // of two processors
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			f(i)
		}
	})
}
