package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Status is what became of a case.
type Status string

// What can become of a case.
const (
	Passed  Status = "passed"
	Failed  Status = "failed"
	Skipped Status = "skipped"
)

// Result is what became of a case, and what it saw if it did not pass.
type Result struct {
	Name         string        `json:"name"`
	Requirements []string      `json:"requirements"`
	Status       Status        `json:"status"`
	Messages     []string      `json:"messages,omitempty"`
	Duration     time.Duration `json:"duration_ns"`
}

// Report is what a run found.
type Report struct {
	Adapter storage.Manifest `json:"adapter"`
	Seed    uint64           `json:"seed"`
	Steps   int              `json:"steps"`
	Rounds  int              `json:"rounds"`
	Passed  int              `json:"passed"`
	Failed  int              `json:"failed"`
	Skipped int              `json:"skipped"`
	Results []Result         `json:"results"`
	Note    string           `json:"note"`
}

// Note ends every report.
const Note = "Passing is necessary, not sufficient: kills, lost answers, partitions, clock steps and disk faults " +
	"need independent connections and a fault harness."

func (r *Report) add(res Result) {
	r.Results = append(r.Results, res)
	r.Note = Note
	switch res.Status {
	case Passed:
		r.Passed++
	case Failed:
		r.Failed++
	case Skipped:
		r.Skipped++
	}
}

// OK reports whether nothing failed and something passed.
func (r *Report) OK() bool { return r.Failed == 0 && r.Passed > 0 }

// Proven returns the requirements of the cases that passed, each once, in the
// order of the cases.
func (r *Report) Proven() []string {
	var all []string
	seen := map[string]bool{}
	for _, res := range r.Results {
		if res.Status != Passed {
			continue
		}
		for _, q := range res.Requirements {
			if !seen[q] {
				seen[q] = true
				all = append(all, q)
			}
		}
	}
	return all
}

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// Line renders one result for people: a line, and its messages below it.
func (res *Result) Line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-8s%s (%s)", res.Status, res.Name, strings.Join(res.Requirements, ", "))
	for _, m := range res.Messages {
		b.WriteString("\n        " + strings.ReplaceAll(m, "\n", "\n        "))
	}
	return b.String()
}

// Summary renders the end of a report for people.
func (r *Report) Summary() string {
	return fmt.Sprintf("%s: %d passed, %d failed, %d skipped (seed %d, %d steps, %d rounds)\n%s",
		r.Adapter.Name, r.Passed, r.Failed, r.Skipped, r.Seed, r.Steps, r.Rounds, Note)
}
