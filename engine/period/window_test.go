package period_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/engine/period"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// golden is testdata/edges.json, which edges.py computed with Python's zoneinfo.
type golden struct {
	Windows []struct {
		Zone, Unit string
		From, To   time.Time
		Edges      []time.Time
	}
	Periods []struct {
		Zone       string
		Anchor     time.Time
		Day        int
		Boundaries []time.Time
	}
}

func readGolden(t *testing.T) golden {
	t.Helper()
	b, err := os.ReadFile("testdata/edges.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(b, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Windows) < 40 || len(g.Periods) < 100 {
		t.Fatalf("%d windows and %d periods", len(g.Windows), len(g.Periods))
	}
	return g
}

func grid(t testing.TB, unit period.Unit, zone string) period.Grid {
	t.Helper()
	var z period.Zones
	g, err := z.Grid(unit, zone)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// Days of 23, 24.5 and 25 hours, the day that Apia left out, half-hour changes,
// zones off the hour, months of a leap year (reports 47, 49, 51, 55).
func TestEdgesAgreeWithZoneinfo(t *testing.T) {
	t.Parallel()
	for i, tc := range readGolden(t).Windows {
		t.Run(fmt.Sprint(i, tc.Zone, tc.Unit), func(t *testing.T) {
			t.Parallel()
			got, ok := grid(t, period.Unit(tc.Unit), tc.Zone).Edges(period.Period{Start: tc.From, End: tc.To}, 10_000)
			if diff := cmp.Diff(tc.Edges, got); diff != "" || !ok {
				t.Errorf("from %s, ok %t (-want +got):\n%s", tc.From, ok, diff)
			}
		})
	}
}

// A period contains its start and not its end, at every boundary of anchors on
// the 1st, 29th, 30th and 31st, at midnight and in the hour in which clocks
// change, through a leap year.
func TestPeriodsAgreeWithZoneinfo(t *testing.T) {
	t.Parallel()
	for _, tc := range readGolden(t).Periods {
		c, err := period.New(tc.Anchor, storage.Month, tc.Zone)
		if err != nil {
			t.Fatal(err)
		}
		for i := range tc.Boundaries[1:] {
			start, end := tc.Boundaries[i], tc.Boundaries[i+1]
			want := period.Period{Start: start, End: end}
			for _, instant := range []time.Time{start, start.Add(end.Sub(start) / 2).Truncate(time.Microsecond), end.Add(-time.Microsecond)} {
				if got := c.At(instant); got != want {
					t.Errorf("%s, anchor %s: At(%s) is %v, want %v", tc.Zone, tc.Anchor, instant, got, want)
				}
			}
			if got := c.At(start.Add(-time.Microsecond)); got.End != start {
				t.Errorf("%s, anchor %s: before %s ends %s", tc.Zone, tc.Anchor, start, got.End)
			}
		}
	}
}

// Edges tile: ascending, none twice, from one end of the period to the other;
// cutting a period anywhere changes nothing else; days are made of whole hours.
func TestEdgesTile(t *testing.T) {
	t.Parallel()
	var z period.Zones
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom(zones).Draw(t, "zone")
		unit := rapid.SampledFrom([]period.Unit{period.Minute, period.Hour, period.Day, period.Month}).Draw(t, "unit")
		g, err := z.Grid(unit, zone)
		if err != nil {
			t.Fatal(err)
		}
		start := drawTime(t, "start")
		p := period.Period{Start: start, End: start.Add(time.Duration(rapid.Int64Range(1, int64(4*24*time.Hour)).Draw(t, "length")))}
		edges, ok := g.Edges(p, 10_000)
		if !ok || len(edges) < 2 || !edges[0].Equal(p.Start) || !edges[len(edges)-1].Equal(p.End) {
			t.Fatalf("%v has edges %v, %t", p, edges, ok)
		}
		for i := range edges[1:] {
			if !edges[i].Before(edges[i+1]) {
				t.Fatalf("edges %v and %v", edges[i], edges[i+1])
			}
		}
		cut := rapid.IntRange(0, len(edges)-1).Draw(t, "cut")
		tail, _ := g.Edges(period.Period{Start: edges[cut], End: p.End}, 10_000)
		if cut < len(edges)-1 && cmp.Diff(edges[cut:], tail) != "" {
			t.Fatalf("from %v: %v, not %v", edges[cut], tail, edges[cut:])
		}
		if unit != period.Day || start.Year() < 1975 { // offsets had seconds until 1972
			return
		}
		hours, err := z.Grid(period.Hour, zone)
		if err != nil {
			t.Fatal(err)
		}
		have := map[time.Time]bool{}
		all, _ := hours.Edges(p, 10_000)
		for _, e := range all {
			have[e] = true
		}
		for _, e := range edges {
			if !have[e] {
				t.Fatalf("%s: the day that begins at %v begins in an hour", zone, e)
			}
		}
	})
}

func TestEdgesLimit(t *testing.T) {
	t.Parallel()
	g := grid(t, period.Minute, "Asia/Kolkata")
	from := at(t, "2026-01-01T00:00:00Z")
	for minutes, want := range map[int]bool{0: true, 1: true, 10_000: true, 10_001: false} {
		edges, ok := g.Edges(period.Period{Start: from, End: from.Add(time.Duration(minutes) * time.Minute)}, 10_000)
		if ok != want || (ok && minutes > 0 && len(edges) != minutes+1) || (minutes == 0 && edges != nil) {
			t.Errorf("%d minutes: %d edges, %t", minutes, len(edges), ok)
		}
	}
	// However long, it stops at the limit.
	if _, ok := g.Edges(period.Period{Start: from, End: at(t, "9999-01-01T00:00:00Z")}, 10_000); ok {
		t.Error("eight thousand years of minutes")
	}
}

func TestGridRefuses(t *testing.T) {
	t.Parallel()
	var z period.Zones
	for name, tc := range map[string]struct {
		unit        period.Unit
		zone, field string
	}{
		"no unit":       {"", "UTC", "window"},
		"unknown unit":  {"fortnight", "UTC", "window"},
		"a zone to SQL": {period.Day, "UTC'; DROP TABLE x; --", "timezone"},
		"a path":        {period.Day, "../../etc/passwd", "timezone"},
	} {
		_, err := z.Grid(tc.unit, tc.zone)
		if e, ok := err.(*sdk.Error); !ok || e.Tag != sdk.TagInvalid || e.Field != tc.field { //nolint:errorlint // as it is returned
			t.Errorf("%s: %v", name, err)
		}
	}
}
