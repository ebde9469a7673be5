package sqlite

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// O25: whatever is asked for and however it is cut into pages, the sums are
// those of the items, each counted once.
func TestSumsByRanges(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	route, rev := addRoute(t, a)
	from, to := period.Add(24*time.Hour), period.Add(48*time.Hour)
	want := map[storage.SumKey]int64{}
	var units []storage.Unit
	for i := range 120 {
		e := event("acme", fmt.Sprint("e", i), "1")
		e.Feature = []string{"a", "b", "\U0010ffff"}[i%3]
		e.OccurredAt = []time.Time{from, to.Add(-time.Microsecond), to, from.Add(-time.Microsecond)}[i%4]
		it := item(e, route, []string{"m1", "m2"}[i%2])
		it.Customer = []string{"", "c", "c0", "d"}[i/3%4]
		units = append(units, plain(e, it))
		if i%4 < 2 {
			want[storage.SumKey{Customer: it.Customer, Feature: e.Feature, MappingVersion: it.Identity.MappingVersion}]++
		}
	}
	record(t, a, storage.RecordRequest{Units: units, RoutesRevision: rev})
	keys := make([]storage.SumKey, 0, len(want))
	for k := range want {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compareKeys)
	for _, customer := range []string{"", "b", "c", "d", "e"} {
		for _, feature := range []string{"", "a", "b", "z"} {
			for _, limit := range []int{1, 2, 5, 1000} {
				q := storage.SumQuery{
					Exporter: "stripe", Account: "acct_1", Mode: "test", From: from, To: to, Customer: customer, Feature: feature, Limit: limit,
				}
				var got []storage.ItemSum
				for more := true; more; {
					page, err := a.SumItems(t.Context(), q)
					if err != nil || len(page.Sums) > limit {
						t.Fatal(len(page.Sums), err)
					}
					got, q.After, more = append(got, page.Sums...), page.Next, page.More
				}
				left := slices.DeleteFunc(slices.Clone(keys), func(k storage.SumKey) bool {
					return customer != "" && k.Customer != customer || feature != "" && k.Feature != feature
				})
				same := slices.EqualFunc(got, left, func(s storage.ItemSum, k storage.SumKey) bool {
					return s.SumKey == k && s.Open == want[k] && s.Recorded.Equal(decimal.MustParse(strconv.FormatInt(want[k], 10)))
				})
				if !same {
					t.Errorf("customer %q, feature %q, pages of %d:\n got %v\nwant %v", customer, feature, limit, got, left)
				}
			}
		}
	}
	q := storage.SumQuery{Exporter: "other", Account: "acct_1", Mode: "test", From: from, To: to, Limit: 10}
	if page, err := a.SumItems(t.Context(), q); err != nil || len(page.Sums) != 0 {
		t.Errorf("another destination: %v, %v", page, err)
	}
}

// O25: a sum costs the items that it adds up, not those that the store has: 240
// items of one customer and hour, of 20,000 and of 200,000.
func BenchmarkSums(b *testing.B) {
	for _, n := range []int{20_000, 200_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			a := openAt(b, filepath.Join(b.TempDir(), "f.db"), newClock())
			route, rev := addRoute(b, a)
			for done := 0; done < n; done += 1000 {
				units := make([]storage.Unit, 1000)
				for i := range units {
					k := done + i
					e := event("acme", fmt.Sprint("e", k), "1")
					e.OccurredAt = period.Add(time.Duration(k) * 15 * time.Second / 50) // 240 an hour of each
					it := item(e, route, "m1")
					it.Customer = fmt.Sprint("c", k%50)
					units[i] = plain(e, it)
				}
				record(b, a, storage.RecordRequest{Units: units, RoutesRevision: rev})
			}
			q := storage.SumQuery{
				Exporter: "stripe", Account: "acct_1", Mode: "test", From: period, To: period.Add(time.Hour), Customer: "c7", Limit: 100,
			}
			for b.Loop() {
				page, err := a.SumItems(b.Context(), q)
				if err != nil || len(page.Sums) != 1 || page.Sums[0].Open != 240 {
					b.Fatal(page, err)
				}
			}
		})
	}
}
