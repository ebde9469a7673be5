//go:build unix

package state

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/redistest"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// bare does the writes of track and nothing else.
const bare = `
redis.call('HSET',KEYS[1],'p:'..ARGV[2],ARGV[3],'np',ARGV[4],'rv',ARGV[4],'tp',ARGV[5],'n:'..ARGV[6],ARGV[4],'s:'..ARGV[6],ARGV[4],'l:'..ARGV[6],'1','h:'..ARGV[6],'1')
redis.call('PEXPIRE',KEYS[1],86400000)
redis.call('PUBLISH',ARGV[1],ARGV[3])
return {'ok'}`

// emptied makes room, so that an event never meets the cap.
func emptied(b *testing.B, s *Store, i int) {
	b.Helper()
	if i%5000 != 0 {
		return
	}
	b.StopTimer()
	if err := s.client.FlushAll(b.Context()).Err(); err != nil {
		b.Fatal(err)
	}
	b.StartTimer()
}

// X2: track beside a bare EVALSHA that does the same writes.
func BenchmarkTrack(b *testing.B) {
	s := newStore(b, redistest.Start(b, quick()...).URL())
	quantity := decimal.MustParse("1.25")
	b.Run("bare", func(b *testing.B) {
		sc := newScript(bare)
		bucket := strconv.FormatInt(bucketNumber(0), 10)
		for i := range b.N {
			emptied(b, s, i)
			mark, _ := s.mark()
			if _, err := s.run(b.Context(), sc, []string{s.Key(who)}, "ch", "e:evt_0123456789_"+strconv.Itoa(i), bucket+"|1250000000000|1760000000000|p", i, mark, bucket); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, n := range []int{1, 3} {
		b.Run(fmt.Sprintf("reducers=%d", n), func(b *testing.B) {
			e := Event{Customer: who.Customer, Bucket: bucketNumber(0)}
			for r := range n {
				e.Values = append(e.Values, Value{reducerID(r), "d1", quantity})
			}
			for i := range b.N {
				emptied(b, s, i)
				e.ID = EventID(Plain, "evt_0123456789_"+strconv.Itoa(i))
				if _, err := s.Track(b.Context(), e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A snapshot with a thousand confirmed ids: at most 10 ms.
func BenchmarkApply(b *testing.B) {
	s := newStore(b, redistest.Start(b, quick()...).URL())
	ctx := context.Background()
	for i := range b.N {
		b.StopTimer()
		var ids []string
		for e := range MaxIDs {
			id := strconv.Itoa(i) + "_" + strconv.Itoa(e)
			trackOne(b, s, who, id, 0, "1")
			ids = append(ids, EventID(Plain, id))
		}
		q, err := s.Ask(ctx, who, "d1")
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		r, err := s.Apply(ctx, who, Answer{Token: q.Token, Version: int64(i + 1), ColdUntil: bucketNumber(1), Confirmed: ids, Totals: Aggregate{Count: int64(i), Sum: decimal.One}})
		if err != nil || r.Settled != MaxIDs {
			b.Fatal(r, err)
		}
	}
}

// What a copy costs: loading 1,000 and 10,000 pending events, and following one
// message. Bytes of Redis per pending event are printed beside it.
func BenchmarkLoad(b *testing.B) {
	for _, n := range []int{0, 1000, PendingCap} {
		b.Run(fmt.Sprintf("pending=%d", n), func(b *testing.B) {
			s := newStore(b, redistest.Start(b, quick()...).URL())
			trackOne(b, s, who, "first", 0, "1")
			empty := s.client.MemoryUsage(b.Context(), s.Key(who), 0).Val()
			for e := range n {
				trackOne(b, s, who, "evt_0123456789_"+strconv.Itoa(e), 0, "1")
			}
			full := s.client.MemoryUsage(b.Context(), s.Key(who), 0).Val()
			for b.Loop() {
				if st := load(b, s, who); st.PendingCount() < n {
					b.Fatal(st.PendingCount())
				}
			}
			if n > 0 {
				b.ReportMetric(float64(full-empty)/float64(n), "B/event")
			}
		})
	}
}

func BenchmarkAggregate(b *testing.B) {
	s := newStore(b, redistest.Start(b, quick()...).URL())
	for e := range 1000 {
		trackOne(b, s, who, strconv.Itoa(e), int64(e%14), "1.5")
	}
	st := load(b, s, who)
	now := time.Now()
	for b.Loop() {
		if a, _ := st.Aggregate(now); a.Count != 1000 {
			b.Fatal(a.Count)
		}
	}
}
