package sqlite

import (
	"fmt"
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
