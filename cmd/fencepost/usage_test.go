package main

import (
	"strings"
	"testing"

	"github.com/fencepost/fencepost/host/api"
)

// A value that retention has made unknown is not shown as no value.
func TestUsageShowsWhatIsRefused(t *testing.T) {
	t.Parallel()
	u := api.UsageAnswer{Data: []api.UsageRow{
		{Feature: "latency", From: "f", To: "t", Count: "1", Refused: "pruned"}, {Feature: "latency", From: "f", To: "t", Count: "0"},
	}}
	for output, want := range map[string]string{
		"csv": "FEATURE,FROM,TO,VALUE,COUNT\nlatency,f,t,pruned,1\nlatency,f,t,,0\n",
		"":    "FEATURE FROM TO VALUE COUNT\nlatency f t pruned 1\nlatency f t - 0\n",
	} {
		var b strings.Builder
		if err := (&app{streams: streams{out: &b}, output: output}).print(usageListing(u, nil)); err != nil {
			t.Fatal(err)
		}
		var lines []string
		for line := range strings.Lines(b.String()) {
			lines = append(lines, strings.Join(strings.Fields(line), " ")+"\n")
		}
		if got := strings.Join(lines, ""); got != want {
			t.Errorf("%q:\n%s\nwant\n%s", output, got, want)
		}
	}
}
