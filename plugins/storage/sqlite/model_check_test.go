package sqlite

import (
	"fmt"
	"maps"
	"math"
	"math/big"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// totalsIn reads the totals of any generation.
func (s *modelRun) totalsIn(rt *rapid.T, generation int64) map[string]*modelTotal {
	all := map[string]*modelTotal{}
	err := s.a.read(s.t.Context(), "look", func(c *conn) error {
		rows, err := totalsOf(c, generation, math.MaxInt32)
		for _, r := range rows {
			key := r.key.feature + time.UnixMicro(r.key.start).UTC().Format(" 01")
			all[key] = &modelTotal{ratOf(r.quantity.String()), r.events, r.count}
		}
		return err
	})
	if err != nil {
		rt.Fatal(err)
	}
	return all
}

func (s *modelRun) checkTotals(rt *rapid.T) {
	sums, err := s.a.LoadTotals(s.t.Context(), storage.TotalsQuery{Tenant: "acme"})
	if err != nil {
		rt.Fatal(err)
	}
	got := map[string]*modelTotal{}
	for _, x := range sums {
		sumOf(got, x.Feature+x.PeriodStart.Format(" 01")).add(ratOf(x.Quantity.String()), x.Events, x.Count)
	}
	if want := s.m.sums(math.MaxInt64); fmt.Sprint(got) != fmt.Sprint(want) {
		rt.Fatalf("totals %v, want %v", got, want)
	}
}

// checkBuild: building = active + scanned − drained (B44).
func (s *modelRun) checkBuild(rt *rapid.T) {
	b := s.m.build
	if b == nil {
		return
	}
	want := s.m.sums(math.MaxInt64)
	for key, t := range s.m.sums(b.cursor) {
		want[key].add(t.quantity, t.events, t.count)
	}
	for key, t := range b.drained {
		want[key].add(new(big.Rat).Neg(t.quantity), -t.events, -t.count)
	}
	if got := s.totalsIn(rt, b.generation); fmt.Sprint(got) != fmt.Sprint(want) {
		rt.Fatalf("building %v, want %v", got, want)
	}
	if got := s.totalsIn(rt, -b.generation); fmt.Sprint(got) != fmt.Sprint(b.seed) {
		rt.Fatalf("seed %v, want %v", got, b.seed)
	}
}

func (s *modelRun) buckets(rt *rapid.T) (all []storage.Bucket) {
	for _, feature := range []string{"chars", "tokens"} {
		q := storage.BucketQuery{Tenant: "acme", Feature: feature, From: period.AddDate(-1, 0, 0), To: period.AddDate(1, 0, 0), Limit: 7}
		for {
			page, err := s.a.LoadBuckets(s.t.Context(), q)
			if err != nil {
				rt.Fatal(err)
			}
			all = append(all, page.Buckets...)
			if q.Position += len(page.Buckets); !page.More {
				break
			}
		}
	}
	return all
}

func bucketName(b *storage.Bucket) string {
	return fmt.Sprint(b.Feature, b.Start.Format(" 01 15:04 "), b.Dimensions, b.Generation)
}

func bucketText(b *storage.Bucket) string {
	text := func(d *decimal.Decimal) string {
		if d == nil {
			return "none"
		}
		return ratOf(d.String()).FloatString(12)
	}
	return fmt.Sprint(ratOf(b.Sum.String()).FloatString(12), b.Count, text(b.Min), text(b.Max), b.Reversed)
}

// checkBuckets: each generation of each bucket holds what was counted in it,
// and what was sealed is as it was.
func (s *modelRun) checkBuckets(rt *rapid.T) {
	type sums struct {
		modelTotal
		low, high *big.Rat
		reversed  bool
	}
	want := map[string]*sums{}
	for _, f := range s.m.events {
		ev := f.of()
		k := modelBucket(&ev)
		name := bucketName(&storage.Bucket{Feature: ev.Feature, Start: k.Start, Dimensions: k.Dimensions, Generation: f.generation})
		w := want[name]
		if w == nil {
			w = &sums{modelTotal: modelTotal{quantity: new(big.Rat)}}
			want[name] = w
		}
		w.add(f.effect, 1, f.count)
		if f.original != "" {
			w.reversed = true
			continue
		}
		if w.low == nil || f.quantity.Cmp(w.low) < 0 {
			w.low = f.quantity
		}
		if w.high == nil || f.quantity.Cmp(w.high) > 0 {
			w.high = f.quantity
		}
	}
	text := func(r *big.Rat) string {
		if r == nil {
			return "none"
		}
		return r.FloatString(12)
	}
	expected, got := map[string]string{}, map[string]string{}
	for name, w := range want {
		expected[name] = fmt.Sprint(w.quantity.FloatString(12), w.count, text(w.low), text(w.high), w.reversed)
	}
	for _, b := range s.buckets(rt) {
		got[bucketName(&b)] = bucketText(&b)
	}
	if !maps.Equal(got, expected) {
		rt.Fatalf("buckets %v, want %v", got, expected)
	}
	for _, seal := range s.m.seals {
		for name, row := range seal.rows {
			if got[name] != row {
				rt.Fatalf("sealed bucket %s is %s and was %s", name, got[name], row)
			}
		}
	}
}
