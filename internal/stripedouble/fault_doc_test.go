package stripedouble

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// D14: the page about the double knows every kind of fault and every trigger, and
// each rule that it shows is one.
func TestFaultsAreDocumented(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../docs/stripe-double.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	_, table, _ := strings.Cut(page, "| kind |")
	table, _, _ = strings.Cut(table, "\n\n")
	var shown []string
	for line := range strings.SplitSeq(table, "\n") {
		if name, ok := strings.CutPrefix(line, "| `"); ok {
			shown = append(shown, name[:strings.IndexByte(name, '`')])
		}
	}
	slices.Sort(shown)
	if want := slices.Sorted(slices.Values(kinds)); !slices.Equal(shown, want) {
		t.Errorf("kinds %v, want %v", shown, want)
	}
	for _, word := range []string{retryDate, retryPast, retryDay, retryGarbage, retryNegative, "`p0.1`", "`n7`", "`every13`", "`first3`", triggerID + "=", triggerCustomer + "=", triggerMeter + "="} {
		if !strings.Contains(page, word) {
			t.Errorf("%s is not there", word)
		}
	}
	rules := 0
	for block := range strings.SplitSeq(page, "```\n") {
		for line := range strings.SplitSeq(block, "\n") {
			if !strings.HasPrefix(line, "before:") && !strings.HasPrefix(line, "after:") && !strings.HasPrefix(line, "late:") {
				continue
			}
			f, err := ParseFaults(line)
			if err != nil {
				t.Errorf("%s: %v", line, err)
			}
			rules += f.Rules()
		}
	}
	if rules != 7 {
		t.Errorf("%d rules are shown, want 7", rules)
	}
	for _, kind := range kinds {
		phase := "before"
		if kind == kindReject || kind == kindOmit {
			phase = "late"
		}
		if _, err := ParseFaults(phase + ":" + kind); err != nil {
			if _, err = ParseFaults("after:" + kind); err != nil {
				t.Errorf("%s without parameters: %v", kind, err)
			}
		}
	}
}
