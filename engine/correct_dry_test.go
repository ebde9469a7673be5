package engine_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// D15: a dry run answers what the correction itself answers right after, in its
// outcome, its figures and its error, and writes nothing.
func TestCorrectDryRunSaysWhatHappens(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, st backend) {
		e := over(t, st, withMeters(t,
			meter.Meter{Feature: "tokens", EventType: "llm.completion", Aggregation: meter.Sum, Value: "$.in"},
			meter.Meter{Feature: "peak", EventType: "load", Aggregation: meter.Max, Value: "$.cpu"},
		))
		peak := plain("peak", "10")
		peak.Feature = "peak"
		record(t, e, plain("req_1", "10"), plain("req_2", "3"), plain("taken", "4"), peak)
		replacing := func(id, by string) engine.Correction {
			c := take(id, "")
			r := plain(by, "4")
			c.Remaining, c.EventID, c.Replace = false, "req_2", &r
			return c
		}
		of := func(event string, c engine.Correction) engine.Correction { c.EventID = event; return c }
		steps := []engine.Correction{
			take("c1", "2.5"), take("c1", "2.5"), take("c1", "3"), take("c2", "8"), of("nope", take("c3", "1")), of("c1", take("c3", "1")),
			of("peak", take("c3", "1")), of("peak", take("c3", "")), of("peak", take("c3", "")), replacing("c4", "taken"), replacing("c4", "req_2b"),
			replacing("c4", "req_2b"), replacing("c5", "req_2c"), take("c6", ""), take("c6", ""), take("c7", ""), take("c7", "1"), take("req_1b", "0"),
			take("req_2", "1"),
		}
		for i, c := range steps {
			before := contents(t, e)
			asked := c
			asked.DryRun = true
			would, dryErr := e.Correct(t.Context(), asked)
			if diff := cmp.Diff(before, contents(t, e)); diff != "" {
				t.Fatalf("step %d: a dry run wrote: %s", i, diff)
			}
			did, err := e.Correct(t.Context(), c)
			if fmt.Sprint(dryErr) != fmt.Sprint(err) {
				t.Errorf("step %d: the dry run said %v, then %v", i, dryErr, err)
			}
			if would.DryRun != (dryErr == nil) {
				t.Errorf("step %d: %+v", i, would)
			}
			would.DryRun = false
			if did.Outcome == engine.Inserted { // what is not there yet has none
				did.Seq = 0
				if did.Replacement != nil {
					did.Replacement.Seq = 0
				}
			}
			if diff := cmp.Diff(figures(did), figures(would)); diff != "" {
				t.Errorf("step %d: %s", i, diff)
			}
		}
	})
}

// contents are the events of a store and what is left of them.
func contents(t *testing.T, e *engine.Engine) string {
	t.Helper()
	page, err := e.Events(t.Context(), storage.StreamQuery{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(page.Events)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func figures(r engine.CorrectionResult) string {
	s := fmt.Sprint(r.Outcome, r.Seq, text(r.Quantity), text(r.Remaining))
	if r.Replacement != nil {
		s += fmt.Sprintf(" %+v", *r.Replacement)
	}
	return s
}

func text(d decimal.Decimal) string { return " " + d.String() + " " }
