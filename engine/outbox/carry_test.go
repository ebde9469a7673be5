package outbox

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// What is told and what is carried, worked out by hand.
func TestCarry(t *testing.T) {
	t.Parallel()
	whole := exporter.ValueDomain{SignificantDigits: 9}
	for name, tt := range map[string]struct {
		values   exporter.ValueDomain
		from, to string
		over     bool
		want     string
	}{
		"all":                {whole, "10", "13", false, "13"},
		"a part stays":       {whole, "10", "13.999999999999", false, "13"},
		"less than one":      {whole, "10", "10.999", false, "10"},
		"of a part":          {whole, "10.5", "12.2", false, "11.5"},
		"too much":           {whole, "1", "1000000001", false, "1000000000"},
		"as much as it can":  {whole, "0", "999999999", false, "999999999"},
		"fell":               {whole, "10", "4", false, "10"},
		"fell for good":      {whole, "10", "4", true, "4"},
		"part for good":      {whole, "10", "10.5", true, "10"},
		"down, told":         {exporter.ValueDomain{Negative: true}, "10", "7.5", false, "8"},
		"two decimals":       {exporter.ValueDomain{MaxDecimals: 2}, "0", "1.239", false, "1.23"},
		"all decimals":       {exporter.ValueDomain{MaxDecimals: -1, SignificantDigits: 3}, "0", "1.23456", false, "1.23456"},
		"two decimals, down": {exporter.ValueDomain{MaxDecimals: 2, Negative: true}, "0", "-1.239", false, "-1.23"},
	} {
		if got := Carry(tt.values, decimal.MustParse(tt.from), decimal.MustParse(tt.to), tt.over); !got.Equal(decimal.MustParse(tt.want)) {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// A provider that knows a value by its hour is told no single event.
func TestNoEventsWhereThereAreSpans(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	m := exporter.Manifest{Every: time.Hour, Values: exporter.ValueDomain{MaxDecimals: -1, Zero: true}}
	item := exporter.Item{Kind: string(storage.SubjectEvent), Customer: "c", Identifier: "i", Value: "1", Timestamp: now}
	if got := Check(m, Destination{}, item, now); got != ReasonValueDomain {
		t.Errorf("an event: %q", got)
	}
	item.Kind = string(storage.SubjectWindow)
	if got := Check(m, Destination{}, item, now); got != ReasonNone {
		t.Errorf("a window: %q", got)
	}
}
