package period_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/engine/period"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func at(t testing.TB, text string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func calendar(t testing.TB, anchor string, interval storage.Interval, zone string) period.Calendar {
	t.Helper()
	c, err := period.New(at(t, anchor), interval, zone)
	if err != nil {
		t.Fatalf("New(%s, %s, %s): %v", anchor, interval, zone, err)
	}
	return c
}

// Reports 47, 49, 51 and 55: zones, month ends and changes of clocks. The
// expected instants come from Python's zoneinfo, scanning minute by minute for
// the first one whose wall clock has reached the boundary.
func TestAt(t *testing.T) {
	t.Parallel()
	const (
		day, week, month, year = storage.Day, storage.Week, storage.Month, storage.Year
	)
	for name, tc := range map[string]struct {
		anchor   string
		interval storage.Interval
		zone     string
		at       string
		start    string
		end      string
	}{
		"anchor 31 in January":            {"2026-01-31T00:00:00Z", month, "UTC", "2026-02-10T00:00:00Z", "2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z"},
		"anchor 31 returns to 31":         {"2026-01-31T00:00:00Z", month, "UTC", "2026-03-30T23:59:59Z", "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"},
		"anchor 31 in April":              {"2026-01-31T00:00:00Z", month, "UTC", "2026-04-30T00:00:00Z", "2026-04-30T00:00:00Z", "2026-05-31T00:00:00Z"},
		"anchor 31 in a leap year":        {"2023-12-31T00:00:00Z", month, "UTC", "2024-02-29T00:00:00Z", "2024-02-29T00:00:00Z", "2024-03-31T00:00:00Z"},
		"anchor 30 in February":           {"2026-01-30T00:00:00Z", month, "UTC", "2026-03-01T00:00:00Z", "2026-02-28T00:00:00Z", "2026-03-30T00:00:00Z"},
		"anchor 1 in December":            {"2026-01-01T00:00:00Z", month, "UTC", "2026-12-31T23:59:59Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		"anchor carries time of day":      {"2026-01-15T13:45:30.000001Z", month, "UTC", "2026-02-15T13:45:30Z", "2026-01-15T13:45:30.000001Z", "2026-02-15T13:45:30.000001Z"},
		"before the anchor":               {"2026-01-31T00:00:00Z", month, "UTC", "2025-02-28T00:00:00Z", "2025-02-28T00:00:00Z", "2025-03-31T00:00:00Z"},
		"just before the anchor":          {"2026-01-31T00:00:00Z", month, "UTC", "2026-01-30T23:59:59.999999Z", "2025-12-31T00:00:00Z", "2026-01-31T00:00:00Z"},
		"at the anchor":                   {"2026-01-31T00:00:00Z", month, "UTC", "2026-01-31T00:00:00Z", "2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z"},
		"year from a leap day":            {"2024-02-29T00:00:00Z", year, "UTC", "2025-03-01T00:00:00Z", "2025-02-28T00:00:00Z", "2026-02-28T00:00:00Z"},
		"year returns to a leap day":      {"2024-02-29T00:00:00Z", year, "UTC", "2028-02-28T12:00:00Z", "2027-02-28T00:00:00Z", "2028-02-29T00:00:00Z"},
		"year, 1900 had no leap day":      {"2024-02-29T00:00:00Z", year, "UTC", "1900-02-28T00:00:00Z", "1900-02-28T00:00:00Z", "1901-02-28T00:00:00Z"},
		"week":                            {"2026-01-05T00:00:00Z", week, "UTC", "2026-11-30T12:00:00Z", "2026-11-30T00:00:00Z", "2026-12-07T00:00:00Z"},
		"week before the anchor":          {"2026-01-05T00:00:00Z", week, "UTC", "2026-01-04T23:00:00Z", "2025-12-29T00:00:00Z", "2026-01-05T00:00:00Z"},
		"anchor is an instant":            {"2026-01-31T00:00:00Z", month, "America/New_York", "2026-02-10T00:00:00Z", "2026-01-31T00:00:00Z", "2026-03-01T00:00:00Z"},
		"New York, March":                 {"2026-01-01T05:00:00Z", month, "America/New_York", "2026-03-15T00:00:00Z", "2026-03-01T05:00:00Z", "2026-04-01T04:00:00Z"},
		"New York, November":              {"2026-01-01T05:00:00Z", month, "America/New_York", "2026-11-30T23:59:59Z", "2026-11-01T04:00:00Z", "2026-12-01T05:00:00Z"},
		"New York, gap":                   {"2026-03-01T07:30:00Z", day, "America/New_York", "2026-03-08T07:00:00Z", "2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"},
		"New York, before the gap":        {"2026-03-01T07:30:00Z", day, "America/New_York", "2026-03-08T06:59:59Z", "2026-03-07T07:30:00Z", "2026-03-08T07:00:00Z"},
		"New York, fold":                  {"2026-10-01T05:30:00Z", day, "America/New_York", "2026-11-01T06:29:00Z", "2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"},
		"Los Angeles, gap":                {"2026-03-01T10:30:00Z", day, "America/Los_Angeles", "2026-03-09T09:00:00Z", "2026-03-08T10:00:00Z", "2026-03-09T09:30:00Z"},
		"Los Angeles, 25 hours":           {"2026-10-01T07:00:00Z", day, "America/Los_Angeles", "2026-11-01T12:00:00Z", "2026-11-01T07:00:00Z", "2026-11-02T08:00:00Z"},
		"Paris, 23 hours":                 {"2026-01-01T23:00:00Z", day, "Europe/Paris", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		"Paris, 25 hours":                 {"2026-01-01T23:00:00Z", day, "Europe/Paris", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		"Paris, gap":                      {"2026-02-01T01:30:00Z", day, "Europe/Paris", "2026-03-29T01:00:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"},
		"Paris, fold":                     {"2026-02-01T01:30:00Z", day, "Europe/Paris", "2026-10-25T01:00:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		"Budapest, March":                 {"2025-12-31T23:00:00Z", month, "Europe/Budapest", "2026-03-31T21:59:59Z", "2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z"},
		"Budapest, October":               {"2025-12-31T23:00:00Z", month, "Europe/Budapest", "2026-10-31T22:59:59Z", "2026-09-30T22:00:00Z", "2026-10-31T23:00:00Z"},
		"Kolkata, anchor 31":              {"2026-01-30T18:30:00Z", month, "Asia/Kolkata", "2026-03-01T00:00:00Z", "2026-02-27T18:30:00Z", "2026-03-30T18:30:00Z"},
		"Lord Howe, half an hour on":      {"2026-09-30T15:45:00Z", day, "Australia/Lord_Howe", "2026-10-03T15:30:00Z", "2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"},
		"Lord Howe, 24.5 hours":           {"2026-01-31T13:00:00Z", day, "Australia/Lord_Howe", "2026-04-05T13:29:00Z", "2026-04-04T13:00:00Z", "2026-04-05T13:30:00Z"},
		"Lord Howe, fold":                 {"2026-01-31T14:45:00Z", day, "Australia/Lord_Howe", "2026-04-04T15:10:00Z", "2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"},
		"Apia, day before the skip":       {"2011-12-29T10:00:00Z", day, "Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		"Apia, day after the skip":        {"2011-12-29T10:00:00Z", day, "Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		"Apia, noon, cut by the skip":     {"2011-12-28T22:00:00Z", day, "Pacific/Apia", "2011-12-30T00:00:00Z", "2011-12-29T22:00:00Z", "2011-12-30T10:00:00Z"},
		"Apia, noon, after the skip":      {"2011-12-28T22:00:00Z", day, "Pacific/Apia", "2011-12-30T12:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z"},
		"Sao Paulo, no midnight":          {"2018-10-01T03:00:00Z", day, "America/Sao_Paulo", "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},
		"Sao Paulo, 25 hours":             {"2018-02-01T02:00:00Z", day, "America/Sao_Paulo", "2018-02-18T02:30:00Z", "2018-02-17T02:00:00Z", "2018-02-18T03:00:00Z"},
		"Sao Paulo, fold before midnight": {"2018-02-01T01:30:00Z", day, "America/Sao_Paulo", "2018-02-18T02:00:00Z", "2018-02-18T01:30:00Z", "2018-02-19T02:30:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := calendar(t, tc.anchor, tc.interval, tc.zone).At(at(t, tc.at))
			want := period.Period{Start: at(t, tc.start), End: at(t, tc.end)}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("At(%s) (-want +got):\n%s", tc.at, diff)
			}
			if !got.Contains(at(t, tc.at)) {
				t.Errorf("the period does not contain %s", tc.at)
			}
		})
	}
}

// A tenant without a subscription has calendar months in UTC.
func TestZeroCalendar(t *testing.T) {
	t.Parallel()
	var c period.Calendar
	budapest, err := time.LoadLocation("Europe/Budapest")
	if err != nil {
		t.Fatal(err)
	}
	got := c.At(at(t, "2024-02-29T23:59:59.999999Z").In(budapest))
	want := period.Period{Start: at(t, "2024-02-01T00:00:00Z"), End: at(t, "2024-03-01T00:00:00Z")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("At (-want +got):\n%s", diff)
	}
	if got.Start.Location() != time.UTC || got.End.Location() != time.UTC {
		t.Errorf("bounds are not in UTC: %v", got)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	good := at(t, "2026-01-31T00:00:00Z")
	for name, tc := range map[string]struct {
		anchor   time.Time
		interval storage.Interval
		zone     string
		field    string
	}{
		"no anchor":          {time.Time{}, storage.Month, "UTC", "anchor"},
		"anchor of old":      {at(t, "1899-12-31T23:59:59Z"), storage.Month, "UTC", "anchor"},
		"no interval":        {good, "", "UTC", "interval"},
		"unknown interval":   {good, "fortnight", "UTC", "interval"},
		"unknown zone":       {good, storage.Month, "Europe/Atlantis", "timezone"},
		"the host's zone":    {good, storage.Month, "Local", "timezone"},
		"leap seconds":       {good, storage.Month, "right/Europe/Paris", "timezone"},
		"path":               {good, storage.Month, "../../etc/passwd", "timezone"},
		"absolute path":      {good, storage.Month, "/etc/localtime", "timezone"},
		"second spelling":    {good, storage.Month, "Europe//Paris", "timezone"},
		"a zone with a NUL":  {good, storage.Month, "Europe/Paris\x00", "timezone"},
		"a directory":        {good, storage.Month, "Europe", "timezone"},
		"an offset, no zone": {good, storage.Month, "+02:00", "timezone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := period.New(tc.anchor, tc.interval, tc.zone)
			var e *sdk.Error
			if !errors.As(err, &e) || e.Tag != sdk.TagInvalid || e.Field != tc.field {
				t.Errorf("got %v, want invalid %s", err, tc.field)
			}
		})
	}
}

func BenchmarkAt(b *testing.B) {
	far := at(b, "2046-07-15T12:00:00Z")
	for _, zone := range []string{"UTC", "America/New_York", "Asia/Kolkata"} {
		for _, interval := range []storage.Interval{storage.Day, storage.Month} {
			b.Run(zone+"/"+string(interval), func(b *testing.B) {
				c := calendar(b, "2026-01-31T00:00:00Z", interval, zone)
				b.ReportAllocs()
				for b.Loop() {
					c.At(far)
				}
			})
		}
	}
}

func BenchmarkZonesNew(b *testing.B) {
	var z period.Zones
	anchor := at(b, "2026-01-31T00:00:00Z")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := z.New(anchor, storage.Month, "America/New_York"); err != nil {
			b.Fatal(err)
		}
	}
}
