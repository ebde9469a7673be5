package sqlite

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func counter(tenant, feature, value string) storage.Counter {
	return storage.Counter{
		CounterKey: storage.CounterKey{Tenant: tenant, Feature: feature, PeriodStart: period},
		PeriodEnd:  period.AddDate(0, 1, 0), Value: decimal.MustParse(value),
	}
}

// B2-B4: sums are exact beyond a float, a batch counts once, and its repeat
// answers what is there now.
func TestFlushBatch(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	b := storage.FlushBatch{
		ID: "b1", Owner: "host", Counters: []storage.Counter{counter("z", "f", "0.000000000001"), counter("a", "f", "99999999999999999999999999")},
		History: []storage.HistoryPoint{{HistoryKey: storage.HistoryKey{Tenant: "z", Feature: "f", Start: period}, Value: decimal.One}},
	}
	flush := func(want string) {
		t.Helper()
		res, err := a.FlushBatch(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		var parts []string
		for _, c := range res.Counters {
			parts = append(parts, c.Tenant+"="+c.Value.String())
		}
		if got := fmt.Sprint(res.Applied, parts); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	flush("true [z=0.000000000001 a=99999999999999999999999999]")
	if err := a.AddCounters(t.Context(), []storage.Counter{counter("z", "f", "1"), counter("z", "f", "2")}); err != nil {
		t.Fatal(err)
	}
	flush("false [z=3.000000000001 a=99999999999999999999999999]")
	b.ID = "b2"
	flush("true [z=3.000000000002 a=199999999999999999999999998]")
	points, err := a.LoadHistoryRange(t.Context(), storage.HistoryQuery{Tenant: "z", Feature: "f", From: period, To: period.Add(1), Limit: 1})
	if err != nil || len(points) != 0 { // [from, to) of less than a microsecond is empty
		t.Errorf("%+v, %v", points, err)
	}
	p, err := a.LoadHistory(t.Context(), b.History[0].HistoryKey)
	if err != nil || p.Value.String() != "2" {
		t.Errorf("%+v, %v", p, err)
	}
	b.ID = ""
	_, err = a.FlushBatch(t.Context(), b)
	wantError(t, err, sdk.TagInvalid, "")
}

// Pages of all counters and of one tenant's, whose names surround it.
func TestStreamCounters(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	var all []storage.Counter
	for _, tenant := range []string{"a", "b", "c"} {
		for _, feature := range []string{"f", "g"} {
			all = append(all, counter(tenant, feature, "1"))
		}
	}
	if err := a.UpsertCounters(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	for want, q := range map[string]storage.CounterQuery{
		"af ag|bf bg|cf cg|": {},
		"bf bg|":             {Tenant: "b"},
		"af bf|cf|":          {Feature: "f"},
		"bg|":                {Tenant: "b", After: all[2].CounterKey},
		"|":                  {Tenant: "b", After: all[4].CounterKey},
	} {
		var got strings.Builder
		for q.Limit = 2; ; {
			page, err := a.StreamCounters(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			for i, c := range page.Counters {
				if i > 0 {
					got.WriteByte(' ')
				}
				got.WriteString(c.Tenant + c.Feature)
			}
			got.WriteByte('|')
			if q.After = page.Next; !page.More {
				break
			}
		}
		if got.String() != want {
			t.Errorf("%+v: %s, want %s", q, got.String(), want)
		}
	}
}
