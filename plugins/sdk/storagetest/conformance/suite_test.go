package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// over runs the suite, or the cases that match, over an adapter.
func over(t *testing.T, open func() storage.Adapter, match func(Case) bool) Report {
	t.Helper()
	report, err := Run(t.Context(), Options{
		Open:  func(context.Context) (storage.Adapter, error) { return open(), nil },
		Fresh: true, Seed: 1, Steps: 300, Rounds: 8,
	}, match, nil)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func logFailures(t *testing.T, report Report) {
	t.Helper()
	for i := range report.Results {
		if r := &report.Results[i]; r.Status == Failed {
			t.Error(r.Line())
		}
	}
}

// S16, B49: the reference, which is the contract written down, passes every
// case; no case is skipped.
func TestReferencePasses(t *testing.T) {
	t.Parallel()
	report := over(t, func() storage.Adapter { return NewReference(nil) }, nil)
	logFailures(t, report)
	if report.Skipped != 0 || report.Passed != len(Cases()) {
		t.Errorf("%d passed, %d skipped of %d", report.Passed, report.Skipped, len(Cases()))
	}
}

// One store for all cases is as good.
func TestReferencePassesAsOneStore(t *testing.T) {
	t.Parallel()
	ref := NewReference(nil)
	report, err := Run(t.Context(), Options{
		Open:  func(context.Context) (storage.Adapter, error) { return ref, nil },
		Fresh: true, OneStore: true, Steps: 200, Rounds: 3,
	}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	logFailures(t, report)
	if report.Skipped != 0 {
		t.Errorf("%d skipped", report.Skipped)
	}
}

// declares is an adapter that has every method and declares some of it.
type declares struct {
	*Reference
	only []storage.Capability
}

func (d declares) Describe() storage.Manifest {
	return storage.Manifest{Name: "partial", Capabilities: d.only}
}

// mute has no methods beside those of every adapter.
type mute struct {
	ref  *Reference
	only []storage.Capability
}

func (m mute) Describe() storage.Manifest {
	return storage.Manifest{Name: "mute", Capabilities: m.only}
}
func (m mute) Ping(ctx context.Context) error { return m.ref.Ping(ctx) }
func (m mute) Close() error                   { return m.ref.Close() }

// S16, B8, B9: an adapter that declares nothing is asserted to refuse cleanly,
// and everything else is skipped.
func TestAdapterThatDeclaresNothing(t *testing.T) {
	t.Parallel()
	for _, open := range []func() storage.Adapter{
		func() storage.Adapter { return declares{NewReference(nil), nil} },
		func() storage.Adapter { return mute{NewReference(nil), nil} },
	} {
		report := over(t, open, nil)
		logFailures(t, report)
		ran := 0
		for _, res := range report.Results {
			if res.Status == Passed {
				ran++
			} else if len(res.Messages) != 1 || !strings.Contains(res.Messages[0], "not declared") {
				t.Errorf("%s: skipped because of %q", res.Name, res.Messages)
			}
		}
		if !report.OK() || ran < 7 {
			t.Errorf("%d cases ran", ran)
		}
	}
}

// B49: every subset of capabilities that makes sense passes, with the cases of
// the rest skipped.
func TestPartialAdapters(t *testing.T) {
	t.Parallel()
	for _, only := range [][]storage.Capability{
		{storage.DurableEvents},
		{storage.Counters},
		{storage.Subscriptions},
		{storage.DurableEvents, storage.Subscriptions, storage.EventStreaming, storage.Outbox},
		{storage.DurableEvents, storage.Corrections},
		{storage.DurableEvents, storage.Buckets},
		{storage.DurableEvents, storage.EventStreaming, storage.ProjectionGenerations},
		{storage.DurableEvents, storage.Retention},
	} {
		report := over(t, func() storage.Adapter { return declares{NewReference(nil), only} }, nil)
		logFailures(t, report)
		for _, res := range report.Results {
			i := slices.IndexFunc(Cases(), func(c Case) bool { return c.Name == res.Name })
			has := !slices.ContainsFunc(Cases()[i].Needs, func(c storage.Capability) bool { return !slices.Contains(only, c) })
			if (res.Status == Skipped) == has {
				t.Errorf("%v: %s is %s", only, res.Name, res.Status)
			}
		}
	}
}

// What is declared and not there fails by name, and so does a word that is no
// capability; nothing panics.
func TestDeclaredAndNotThere(t *testing.T) {
	t.Parallel()
	report := over(t, func() storage.Adapter { return mute{NewReference(nil), Vocabulary()} }, nil)
	if failed(report, "manifest/declared-is-implemented") == "" {
		t.Error("passed with nothing implemented")
	}
	report = over(t, func() storage.Adapter { return declares{NewReference(nil), []storage.Capability{"telepathy"}} }, nil)
	if failed(report, "manifest/vocabulary") == "" {
		t.Error("an unknown capability passed")
	}
}

// failed returns the messages of a case, empty if it did not fail.
func failed(report Report, name string) string {
	for _, res := range report.Results {
		if res.Name == name && res.Status == Failed {
			return strings.Join(res.Messages, "\n")
		}
	}
	return ""
}

// Names are stable, told once, and every case says what it proves.
func TestCasesAreNamed(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range Cases() {
		group, rest, ok := strings.Cut(c.Name, "/")
		if !ok || group == "" || rest == "" || strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz-") != "" || seen[c.Name] {
			t.Errorf("name %q", c.Name)
		}
		seen[c.Name] = true
		if len(c.Requirements) == 0 {
			t.Errorf("%s proves nothing", c.Name)
		}
		for _, need := range c.Needs {
			if !slices.Contains(Vocabulary(), need) {
				t.Errorf("%s needs %q", c.Name, need)
			}
		}
	}
}

// A shared store is not touched beyond the tenants of the run.
func TestSharedStore(t *testing.T) {
	t.Parallel()
	report, err := Run(t.Context(), Options{
		Open: func(context.Context) (storage.Adapter, error) { return NewReference(nil), nil }, Steps: 50, Rounds: 2,
	}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	logFailures(t, report)
	for i, res := range report.Results {
		if Cases()[i].Fresh != (res.Status == Skipped) {
			t.Errorf("%s: %s", res.Name, res.Status)
		}
	}
}

// B50: the report says everything to programs and to people, and what passing
// does not prove.
func TestReport(t *testing.T) {
	t.Parallel()
	ref := NewReference(nil)
	ref.flaws = flawConflictIsDuplicate
	report := over(t, func() storage.Adapter { return ref }, func(c Case) bool { return strings.HasPrefix(c.Name, "record/") })
	var b bytes.Buffer
	if err := report.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if back.OK() || back.Failed == 0 || back.Seed != 1 || back.Note == "" || len(back.Results) != len(report.Results) {
		t.Errorf("as JSON: %s", b.String())
	}
	if s := report.Summary(); !strings.Contains(s, "failed") || !strings.Contains(s, "necessary, not sufficient") {
		t.Error(s)
	}
	if proven := report.Proven(); slices.Contains(proven, "B17") || !slices.Contains(proven, "S1") {
		t.Errorf("proven %v", proven)
	}
}

// A panic of the adapter is a failure of its case, not the end of the run.
func TestPanicIsAFailure(t *testing.T) {
	t.Parallel()
	report := over(t, func() storage.Adapter { return panics{NewReference(nil)} },
		func(c Case) bool { return strings.HasPrefix(c.Name, "totals/") || c.Name == "record/inserted" })
	if failed(report, "totals/empty") == "" || report.Passed+report.Failed < 5 {
		t.Errorf("%d passed, %d failed", report.Passed, report.Failed)
	}
}

type panics struct{ *Reference }

func (panics) LoadTotals(context.Context, storage.TotalsQuery) ([]storage.Total, error) {
	panic("no such table")
}

// One call of Prune removes no more than its limit of 10,000. What the cases
// before left behind, or whoever filled the store, may be more than that.
func TestRetentionOverALargeStore(t *testing.T) {
	t.Parallel()
	ref := NewReference(nil)
	all := make([]storage.Unit, 10_050)
	for i := range all {
		all[i] = units(usage("filler-"+decimalInt(i), "1", "1"))[0]
	}
	if _, err := ref.RecordEvents(t.Context(), storage.RecordRequest{Mode: storage.Atomic, Units: all}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"retention/dry-run-tells-and-keeps", "retention/limit"} {
		report, err := Run(t.Context(), Options{
			Open:  func(context.Context) (storage.Adapter, error) { return keptOpen{ref}, nil },
			Fresh: true, OneStore: true,
		}, func(c Case) bool { return c.Name == name }, nil)
		if err != nil {
			t.Fatal(err)
		}
		logFailures(t, report)
	}
}

// keptOpen is one store for several runs.
type keptOpen struct{ *Reference }

func (keptOpen) Close() error { return nil }
