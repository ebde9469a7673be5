package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/engine/period"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// usageText is an answer as lines "from value/count group".
func usageText(u engine.UsageAnswer, groupBy ...string) string {
	var lines []string
	for _, r := range u.Rows {
		value, count := "null", "null"
		if r.Value != nil {
			value = r.Value.String()
		}
		if r.Count != nil {
			count = strconv.FormatInt(*r.Count, 10)
		}
		line := r.From.UTC().Format("01-02T15:04") + " " + value + "/" + count
		for _, name := range groupBy {
			v, ok := r.Group[name]
			switch {
			case !ok:
				line += " none"
			case v == nil:
				line += " null"
			default:
				line += " " + *v
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func (f *fixture) usage(q engine.UsageQuery) engine.UsageAnswer {
	f.t.Helper()
	u, err := f.Usage(f.t.Context(), q)
	if err != nil {
		f.t.Fatal(err)
	}
	return u
}

// at is an event of tenant acme and feature tokens at a time.
func eventAt(id, quantity, when string, dims ...string) engine.Event {
	t, err := time.Parse(time.RFC3339Nano, when)
	if err != nil {
		panic(err)
	}
	e := plain(id, quantity)
	e.Time = t
	for i := 0; i+1 < len(dims); i += 2 {
		if e.Dimensions == nil {
			e.Dimensions = map[string]string{}
		}
		e.Dimensions[dims[i]] = dims[i+1]
	}
	return e
}

// Days follow the customer's clocks: one of 25 hours, its last microsecond, the
// first of the next. Windows without usage are listed: zero, or no value.
func TestUsageByDay(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.want(f.each(
		eventAt("a", "1", "2026-11-01T03:59:59.999999Z"), // 31 October in New York
		eventAt("b", "2", "2026-11-01T04:00:00Z"),
		eventAt("c", "4.5", "2026-11-02T04:59:59.999999Z"), // the 25th hour of 1 November
		eventAt("d", "8", "2026-11-02T05:00:00Z"),
		eventAt("e", "16", "2026-11-04T05:00:00Z"),
	), "inserted inserted inserted inserted inserted")
	q := engine.UsageQuery{
		Tenant: "acme", Feature: "tokens", Window: period.Day, Timezone: "America/New_York",
		From: time.Date(2026, 11, 1, 4, 0, 0, 0, time.UTC), To: time.Date(2026, 11, 4, 5, 0, 0, 0, time.UTC),
	}
	for agg, want := range map[meter.Aggregation]string{
		"":           "11-01T04:00 6.5/2\n11-02T05:00 8/1\n11-03T05:00 0/0",
		meter.Sum:    "11-01T04:00 6.5/2\n11-02T05:00 8/1\n11-03T05:00 0/0",
		meter.Count:  "11-01T04:00 2/2\n11-02T05:00 1/1\n11-03T05:00 0/0",
		meter.Avg:    "11-01T04:00 3.25/2\n11-02T05:00 8/1\n11-03T05:00 null/0",
		meter.Min:    "11-01T04:00 2/2\n11-02T05:00 8/1\n11-03T05:00 null/0",
		meter.Max:    "11-01T04:00 4.5/2\n11-02T05:00 8/1\n11-03T05:00 null/0",
		meter.Latest: "11-01T04:00 4.5/2\n11-02T05:00 8/1\n11-03T05:00 null/0",
		meter.Unique: "11-01T04:00 0/2\n11-02T05:00 0/1\n11-03T05:00 0/0",
	} {
		q.Aggregation = agg
		if got := usageText(f.usage(q)); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", agg, got, want)
		}
	}
	// The same instants are other days elsewhere, and cut windows say so.
	q.Aggregation, q.Timezone = "", "UTC"
	if got, want := usageText(f.usage(q)), "11-01T04:00 2/1\n11-02T00:00 12.5/2\n11-03T00:00 0/0\n11-04T00:00 0/0"; got != want {
		t.Errorf("UTC:\n%s\nwant\n%s", got, want)
	}
}

// Groups and filters take names and values as values, whatever is in them. An
// event without the dimension is in the group null; a window without events has
// no group. // F60.
func TestUsageGroups(t *testing.T) {
	t.Parallel()
	f := open(t)
	hostile := []string{`'; DROP TABLE fencepost_events; --`, `"quoted"`, `$.x`, `a.b[0]`, `__proto__`, `ключ`, `%_\`, `m`}
	day := "2026-11-02T10:00:00Z"
	for i, name := range hostile {
		f.want(f.each(eventAt(fmt.Sprint("h", i), strconv.Itoa(i+1), day, name, "v'\"\\;--"+name)), "inserted")
	}
	f.want(f.each(eventAt("none", "100", day)), "inserted")
	base := engine.UsageQuery{
		Tenant: "acme", Feature: "tokens", Window: period.Day,
		From: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), To: time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC),
	}
	for i, name := range hostile {
		q := base
		q.GroupBy = []string{name}
		want := fmt.Sprintf("11-01T00:00 0/0 none\n11-02T00:00 %d/8 null\n11-02T00:00 %d/1 v'\"\\;--%s", 136-(i+1), i+1, name)
		if got := usageText(f.usage(q), name); got != want {
			t.Errorf("by %q:\n%s\nwant\n%s", name, got, want)
		}
		q.GroupBy, q.Filter = nil, map[string]string{name: "v'\"\\;--" + name}
		if got, want := usageText(f.usage(q)), fmt.Sprintf("11-01T00:00 0/0\n11-02T00:00 %d/1", i+1); got != want {
			t.Errorf("where %q:\n%s\nwant\n%s", name, got, want)
		}
		q.Filter[name] = "v"
		if got, want := usageText(f.usage(q)), "11-01T00:00 0/0\n11-02T00:00 0/0"; got != want {
			t.Errorf("where %q is another:\n%s\nwant\n%s", name, got, want)
		}
	}
	if got := f.total("tokens"); got != "136/9" {
		t.Errorf("total %s", got)
	}
}

// Billing periods: the totals, and where they cannot tell, the events. Periods
// that a changed subscription made overlap are refused then.
func TestUsagePeriods(t *testing.T) {
	t.Parallel()
	f := open(t, func(c *engine.Config) {
		c.Features = map[string]engine.Feature{"seats": {Aggregation: meter.Max}}
	})
	seats := func(id, q, when string) engine.Event {
		e := eventAt(id, q, when)
		e.Feature = "seats"
		return e
	}
	f.want(f.each(
		eventAt("a", "1", "2026-09-30T23:59:59.999999Z", "m", "x"), eventAt("b", "2", "2026-11-01T00:00:00Z", "m", "x"), eventAt("c", "4", "2026-11-20T00:00:00Z"),
		seats("s1", "7", "2026-11-03T00:00:00Z"), seats("s2", "5", "2026-11-04T00:00:00Z"),
	), "inserted inserted inserted inserted inserted")
	tokens := engine.UsageQuery{Tenant: "acme", Feature: "tokens"}
	for name, tc := range map[string]struct {
		change func(*engine.UsageQuery)
		want   string
	}{
		"totals":   {func(*engine.UsageQuery) {}, "09-01T00:00 1/1\n11-01T00:00 6/2"},
		"from":     {func(q *engine.UsageQuery) { q.From = time.Date(2026, 9, 1, 0, 0, 0, 1000, time.UTC) }, "11-01T00:00 6/2"},
		"to":       {func(q *engine.UsageQuery) { q.To = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC) }, "09-01T00:00 1/1"},
		"mean":     {func(q *engine.UsageQuery) { q.Aggregation = meter.Avg }, "09-01T00:00 1/1\n11-01T00:00 3/2"},
		"filtered": {func(q *engine.UsageQuery) { q.Filter = map[string]string{"m": "x"} }, "09-01T00:00 1/1\n11-01T00:00 2/1"},
		"none": {
			func(q *engine.UsageQuery) { q.Filter = map[string]string{"m": "y"}; q.Aggregation = meter.Max },
			"09-01T00:00 null/0\n11-01T00:00 null/0",
		},
		"all features": {func(q *engine.UsageQuery) { q.Feature = "" }, "11-01T00:00 7/2\n09-01T00:00 1/1\n11-01T00:00 6/2"},
		"another":      {func(q *engine.UsageQuery) { q.Feature = "x" }, ""},
	} {
		q := tokens
		tc.change(&q)
		if got := usageText(f.usage(q)); got != tc.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, tc.want)
		}
	}
	_, err := f.PutSubscription(t.Context(), storage.Subscription{Tenant: "acme", Anchor: time.Date(2026, 1, 15, 0, 0, 0, 0, time.UTC)})
	if err != nil {
		t.Fatal(err)
	}
	f.want(f.each(eventAt("d", "8", "2026-11-20T00:00:00Z")), "inserted")
	if got, want := usageText(f.usage(tokens)), "09-01T00:00 1/1\n11-01T00:00 6/2\n11-15T00:00 8/1"; got != want {
		t.Errorf("overlapping totals:\n%s\nwant\n%s", got, want)
	}
	q := tokens
	q.Aggregation = meter.Avg
	_, err = f.Usage(t.Context(), q)
	tagIs(t, err, sdk.TagUnsupported, "periods_overlap")
	// In an answer about all features, one that cannot be answered says so and
	// hides no other.
	f.want(f.each(seats("s3", "9", "2026-11-20T00:00:00Z")), "inserted")
	all := f.usage(engine.UsageQuery{Tenant: "acme"})
	if got, want := usageText(all), "11-01T00:00 null/2\n11-15T00:00 null/1\n09-01T00:00 1/1\n11-01T00:00 6/2\n11-15T00:00 8/1"; got != want {
		t.Errorf("all features:\n%s\nwant\n%s", got, want)
	}
	if all.Rows[0].Refused != "periods_overlap" || all.Rows[2].Refused != "" {
		t.Errorf("refused %q and %q", all.Rows[0].Refused, all.Rows[2].Refused)
	}
	q.To = time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	if got, want := usageText(f.usage(q)), "09-01T00:00 1/1"; got != want {
		t.Errorf("one that does not overlap:\n%s\nwant\n%s", got, want)
	}
}

// A period overlaps one that is not its neighbour: a year that months follow.
func TestUsagePeriodsInsideAYear(t *testing.T) {
	t.Parallel()
	f := open(t)
	put := func(i storage.Interval) {
		t.Helper()
		_, err := f.PutSubscription(t.Context(), storage.Subscription{Tenant: "acme", Interval: i})
		if err != nil {
			t.Fatal(err)
		}
	}
	put(storage.Year)
	f.want(f.each(eventAt("a", "1", "2026-02-01T00:00:00Z")), "inserted")
	put(storage.Month)
	f.want(f.each(eventAt("b", "2", "2026-03-02T00:00:00Z"), eventAt("c", "4", "2026-05-02T00:00:00Z")), "inserted inserted")
	f.want(f.each(eventAt("d", "8", "2025-12-02T00:00:00Z")), "inserted")
	q := engine.UsageQuery{Tenant: "acme", Feature: "tokens", Aggregation: meter.Max}
	for _, from := range []string{"2026-01-01T00:00:00Z", "2026-03-01T00:00:00Z", "2026-05-01T00:00:00Z"} {
		q.From = eventAt("", "0", from).Time
		q.To = q.From.Add(time.Second)
		_, err := f.Usage(t.Context(), q)
		tagIs(t, err, sdk.TagUnsupported, "periods_overlap")
	}
	q.From = time.Time{}
	q.To = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if got, want := usageText(f.usage(q)), "12-01T00:00 8/1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestUsageRefuses(t *testing.T) {
	t.Parallel()
	f := open(t)
	from, to := noon.Add(-time.Hour), noon
	for name, tc := range map[string]struct {
		q     engine.UsageQuery
		field string
	}{
		"no tenant":          {engine.UsageQuery{Feature: "f"}, "tenant"},
		"a control":          {engine.UsageQuery{Tenant: "a\x00"}, "tenant"},
		"no feature":         {engine.UsageQuery{Tenant: "a", Window: period.Day, From: from, To: to}, "feature"},
		"a feature to SQL":   {engine.UsageQuery{Tenant: "a", Feature: "f'"}, "feature"},
		"no from":            {engine.UsageQuery{Tenant: "a", Feature: "f", Window: period.Day, To: to}, "from"},
		"no to":              {engine.UsageQuery{Tenant: "a", Feature: "f", Window: period.Day, From: from}, "to"},
		"nothing between":    {engine.UsageQuery{Tenant: "a", Feature: "f", Window: period.Day, From: to, To: to}, "to"},
		"a window":           {engine.UsageQuery{Tenant: "a", Feature: "f", Window: "week", From: from, To: to}, "window"},
		"a zone":             {engine.UsageQuery{Tenant: "a", Feature: "f", Window: period.Day, Timezone: "Mars/X", From: from, To: to}, "timezone"},
		"an aggregation":     {engine.UsageQuery{Tenant: "a", Feature: "f", Aggregation: "median"}, "aggregation"},
		"nine groups":        {engine.UsageQuery{Tenant: "a", Feature: "f", GroupBy: strings.Split("abcdefghi", "")}, "group_by"},
		"a group twice":      {engine.UsageQuery{Tenant: "a", Feature: "f", GroupBy: []string{"m", "m"}}, "group_by"},
		"a long group":       {engine.UsageQuery{Tenant: "a", Feature: "f", GroupBy: []string{strings.Repeat("m", 65)}}, "group_by"},
		"a broken filter":    {engine.UsageQuery{Tenant: "a", Feature: "f", Filter: map[string]string{"\xff": "x"}}, "filter"},
		"a long value":       {engine.UsageQuery{Tenant: "a", Feature: "f", Filter: map[string]string{"m": strings.Repeat("x", 257)}}, "filter"},
		"too many windows":   {engine.UsageQuery{Tenant: "a", Feature: "f", Window: period.Minute, From: to.Add(-10_001 * time.Minute), To: to}, "window"},
		"groups of features": {engine.UsageQuery{Tenant: "a", GroupBy: []string{"m"}}, "feature"},
	} {
		_, err := f.Usage(t.Context(), tc.q)
		var e *sdk.Error
		if !errors.As(err, &e) || e.Tag != sdk.TagInvalid || e.Field != tc.field {
			t.Errorf("%s: %v, want invalid %s", name, err, tc.field)
		}
	}
	q := engine.UsageQuery{Tenant: "a", Feature: "f", Window: period.Minute, From: to.Add(-10_000 * time.Minute), To: to}
	if u := f.usage(q); len(u.Rows) != 10_000 {
		t.Errorf("%d windows", len(u.Rows))
	}
}

// What retention removed is not answered as if it had never been; totals keep
// it.
func TestUsageOfWhatWasPruned(t *testing.T) {
	t.Parallel()
	f := open(t)
	old := eventAt("old", "1", "2026-10-10T00:00:00Z")
	f.want(f.each(old), "inserted")
	f.want(f.each(eventAt("new", "2", "2026-11-20T00:00:00Z")), "inserted")
	f.sql("DROP TRIGGER fencepost_events_no_update")
	f.sql(fmt.Sprintf("UPDATE fencepost_events SET recorded_at = %d WHERE event_id = 'old'", noon.AddDate(0, 0, -50).UnixMicro()))
	dry, err := f.Prune(t.Context(), engine.PruneOptions{Kind: storage.PruneEvents, Age: 40 * 24 * time.Hour})
	if err != nil || dry.Removed != 1 || len(f.events()) != 2 {
		t.Fatalf("%+v, %v: %d events", dry, err, len(f.events()))
	}
	wet, err := f.Prune(t.Context(), engine.PruneOptions{Kind: storage.PruneEvents, Age: 40 * 24 * time.Hour, Remove: true})
	if err != nil || wet.Removed != 1 || len(f.events()) != 1 {
		t.Fatalf("%+v, %v: %d events", wet, err, len(f.events()))
	}
	q := engine.UsageQuery{Tenant: "acme", Feature: "tokens", Window: period.Day, From: noon.AddDate(0, -2, 0), To: noon}
	_, err = f.Usage(t.Context(), q)
	tagIs(t, err, sdk.TagUnsupported, "pruned")
	q.From = noon.AddDate(0, 0, -15)
	f.usage(q)
	if got, want := usageText(f.usage(engine.UsageQuery{Tenant: "acme", Feature: "tokens"})), "10-01T00:00 1/1\n11-01T00:00 2/1"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	f.want(f.each(old), "duplicate") // S15
	f.replay(engine.ReplayOptions{})
	if got, want := usageText(f.usage(engine.UsageQuery{Tenant: "acme", Feature: "tokens"})), "10-01T00:00 1/1\n11-01T00:00 2/1"; got != want {
		t.Errorf("after a replay:\n%s\nwant\n%s", got, want)
	}
	for _, o := range []engine.PruneOptions{
		{Kind: "everything", Age: 1000 * time.Hour}, {Kind: storage.PruneEvents, Age: time.Hour}, {Kind: storage.PruneReceipts, Age: 23 * time.Hour},
	} {
		_, err := f.Prune(t.Context(), o)
		tagIs(t, err, sdk.TagInvalid, "")
	}
}

// Whatever was recorded and corrected, and whatever is asked, the answer is what
// adding up by hand gives; from buckets too.
func TestUsageAgainstAModel(t *testing.T) {
	t.Parallel()
	f := open(t, func(c *engine.Config) {
		c.Features = map[string]engine.Feature{"tokens": {Buckets: true, BucketDimensions: []string{"m", "n"}, Signed: true}}
	})
	f.routes()
	f.replay(engine.ReplayOptions{})
	tenants := 0
	rapid.Check(t, func(t *rapid.T) {
		tenants++
		tenant := fmt.Sprint("t", tenants)
		type entry struct {
			at             time.Time
			m, n           *string
			q, left        decimal.Decimal
			seq, corrected int
		}
		var entries []entry
		label := func(name string) *string {
			return rapid.SampledFrom([]*string{nil, new("x"), new("y")}).Draw(t, name)
		}
		for i := range rapid.IntRange(0, 12).Draw(t, "events") {
			en := entry{
				at: noon.Add(-time.Duration(rapid.IntRange(0, 5*24*60).Draw(t, "ago")) * time.Minute), m: label("m"), n: label("n"),
				q: decimal.MustParse(rapid.SampledFrom([]string{"1", "2.5", "-3", "0.000000000001", "7"}).Draw(t, "q")), seq: i,
			}
			en.left = en.q
			ev := engine.Event{ID: strconv.Itoa(i), Tenant: tenant, Feature: "tokens", Quantity: en.q, Time: en.at, Dimensions: map[string]string{}}
			if en.m != nil {
				ev.Dimensions["m"] = *en.m
			}
			if en.n != nil {
				ev.Dimensions["n"] = *en.n
			}
			f.want(f.each(ev), "inserted")
			c := engine.Correction{ID: fmt.Sprint("c", i), Tenant: tenant, EventID: ev.ID}
			switch rapid.IntRange(0, 3).Draw(t, "correct") {
			case 0:
				c.Remaining, en.left, en.corrected = true, decimal.Decimal{}, 2
			case 1:
				part := decimal.MustParse("0.000000000001")
				c.Quantity, en.corrected = &part, 1
				if en.left = en.q.Sub(part); en.q.Sign() < 0 {
					en.left = en.q.Add(part)
				}
				if en.left.IsZero() {
					en.corrected = 2
				}
			}
			if en.corrected > 0 {
				if _, err := f.Correct(f.t.Context(), c); err != nil {
					t.Fatal(err)
				}
			}
			entries = append(entries, en)
		}
		q := engine.UsageQuery{
			Tenant: tenant, Feature: "tokens", Window: rapid.SampledFrom([]period.Unit{period.Hour, period.Day, period.Month}).Draw(t, "window"),
			Timezone: rapid.SampledFrom([]string{"UTC", "Asia/Kathmandu", "America/New_York"}).Draw(t, "zone"),
			From:     noon.AddDate(0, 0, -5), To: noon.Add(time.Minute * time.Duration(5*rapid.IntRange(-50, 1).Draw(t, "to"))),
			Aggregation: rapid.SampledFrom([]meter.Aggregation{meter.Sum, meter.Count, meter.Avg, meter.Min, meter.Max, meter.Latest}).Draw(t, "aggregation"),
		}
		if rapid.Bool().Draw(t, "grouped") {
			q.GroupBy = []string{"m"}
		}
		if rapid.Bool().Draw(t, "filtered") {
			q.Filter = map[string]string{"n": "x"}
		}
		var z period.Zones
		grid, err := z.Grid(q.Window, q.Timezone)
		if err != nil {
			t.Fatal(err)
		}
		edges, _ := grid.Edges(period.Period{Start: q.From, End: q.To}, 10_000)
		var want []string
		for w := range edges[1:] {
			groups := map[string][]entry{}
			for _, en := range entries {
				if en.at.Before(edges[w]) || !en.at.Before(edges[w+1]) || (q.Filter != nil && (en.n == nil || *en.n != "x")) {
					continue
				}
				key := ""
				if q.GroupBy != nil {
					if key = " null"; en.m != nil {
						key = " " + *en.m
					}
				}
				groups[key] = append(groups[key], en)
			}
			if len(groups) == 0 && q.GroupBy != nil {
				groups[" none"] = nil
			} else if len(groups) == 0 {
				groups[""] = nil
			}
			var keys []string
			for k := range groups {
				keys = append(keys, k)
			}
			slices.SortFunc(keys, func(a, b string) int { // null comes first
				return strings.Compare(strings.Replace(a, "null", "", 1), strings.Replace(b, "null", "", 1))
			})
			for _, k := range keys {
				var sum decimal.Decimal
				var count int64
				var kept []entry
				for _, en := range groups[k] {
					sum = sum.Add(en.left)
					if en.corrected < 2 {
						count++
						kept = append(kept, en)
					}
				}
				value := sum.String()
				switch {
				case q.Aggregation == meter.Sum:
				case q.Aggregation == meter.Count:
					value = strconv.FormatInt(count, 10)
				case count == 0:
					value = "null"
				case q.Aggregation == meter.Avg:
					value = sum.Mean(count).String()
				case q.Aggregation == meter.Min:
					value = slices.MinFunc(kept, func(a, b entry) int { return a.left.Cmp(b.left) }).left.String()
				case q.Aggregation == meter.Max:
					value = slices.MaxFunc(kept, func(a, b entry) int { return a.left.Cmp(b.left) }).left.String()
				default:
					value = slices.MaxFunc(kept, func(a, b entry) int {
						if c := a.at.Compare(b.at); c != 0 {
							return c
						}
						return a.seq - b.seq
					}).left.String()
				}
				want = append(want, fmt.Sprintf("%s %s/%d%s", edges[w].Format("01-02T15:04"), value, count, k))
			}
		}
		u, err := f.Usage(f.t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.Join(want, "\n"), usageText(u, q.GroupBy...)); diff != "" {
			t.Fatalf("%+v\n(-want +got)\n%s", q, diff)
		}
	})
}
