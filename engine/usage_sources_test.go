package engine_test

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/engine/period"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// A change of a feature's source hides no usage: windows have the sum of what was
// recorded and what was tracked, and what only one of them can tell is refused. // Q27.
func TestWindowsOfBothSources(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, events *fixture, st storage.Adapter) {
		f := &fixture{t: t, Engine: over(t, st, func(c *engine.Config) {
			c.Features = map[string]engine.Feature{"tokens": {Buffered: true}}
		})}
		day := func(agg meter.Aggregation, group ...string) engine.UsageQuery {
			q := byRegion(group...)
			q.Aggregation = agg
			return q
		}
		refused := func(f *fixture, q engine.UsageQuery) {
			t.Helper()
			_, err := f.Usage(t.Context(), q)
			tagIs(t, err, sdk.TagUnsupported, "buffered")
		}
		same := func(what, got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
		events.want(events.each(plain("e1", "10")), "inserted")
		same("events", usageText(events.usage(day(""))), "11-29T12:00 0/0\n11-30T00:00 10/1")
		same("buffered now", usageText(f.usage(day(""))), "11-29T12:00 0/null\n11-30T00:00 10/null")
		track(t, f.Engine, "acme", "tokens", "3")
		if err := f.FlushTracked(t.Context()); err != nil {
			t.Fatal(err)
		}
		same("both", usageText(f.usage(day(""))), "11-29T12:00 0/null\n11-30T00:00 13/null")
		same("events again", usageText(events.usage(day(""))), "11-29T12:00 0/0\n11-30T00:00 13/null")
		same("the greatest event", usageText(events.usage(day(meter.Max))), "11-29T12:00 null/0\n11-30T00:00 10/1")
		filtered := day("")
		filtered.Filter = map[string]string{"model": "m1"}
		for _, q := range []engine.UsageQuery{day("", "model"), filtered, {Tenant: "acme", Feature: "tokens", GroupBy: []string{"model"}}} {
			refused(events, q)
		}
		minutes := day("")
		minutes.Window, minutes.From, minutes.To = period.Minute, noon, noon.Add(2*time.Minute)
		_, err := events.Usage(t.Context(), minutes)
		tagIs(t, err, sdk.TagInvalid, "buffered")
		before := day("", "model")
		before.To = noon
		same("before any was tracked", usageText(events.usage(before), "model"), "11-29T12:00 0/0 none\n11-30T00:00 10/1 null")
	})
}
