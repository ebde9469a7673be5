package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"
)

// goal is one row of the list of ratios that a change must not make worse.
// Lower says that less is better.
type goal struct {
	ID    string  `json:"id"`
	What  string  `json:"what"`
	Floor float64 `json:"floor"`
	Goal  float64 `json:"goal"`
	Lower bool    `json:"lower,omitempty"`
}

// row is a goal and what was seen. Samples are the rounds it is the median of.
type row struct {
	goal
	Value   float64   `json:"value"`
	Samples []float64 `json:"samples"`
	Verdict string    `json:"verdict"`
	CPUs    int       `json:"cpus"`
	Go      string    `json:"go"`
	Note    string    `json:"note,omitempty"`
}

// print reports the median of the samples beside its limits. A floor that is
// missed is a warning and fails nothing: a busy machine is not a defect.
func (g goal) print(b *testing.B, note string, samples ...float64) {
	b.Helper()
	slices.Sort(samples)
	r := row{
		goal: g, Value: samples[len(samples)/2], Samples: samples, Verdict: "goal",
		CPUs: runtime.GOMAXPROCS(0), Go: runtime.Version(), Note: note,
	}
	misses := func(limit float64) bool { return (r.Value < limit) != g.Lower && r.Value != limit }
	switch {
	case misses(g.Floor):
		r.Verdict = "BELOW FLOOR"
	case misses(g.Goal):
		r.Verdict = "floor"
	}
	fmt.Printf("%-4s %-58s %8.2f  [%.2f..%.2f]  floor %g, goal %g  %s  %s\n",
		g.ID, g.What, r.Value, samples[0], samples[len(samples)-1], g.Floor, g.Goal, r.Verdict, note)
	b.ReportMetric(r.Value, g.ID)
	if path := os.Getenv("FENCEPOST_BENCH_JSON"); path != "" {
		appendJSON(b, path, r)
	}
}

func appendJSON(b *testing.B, path string, r row) {
	b.Helper()
	line, err := json.Marshal(r)
	if err != nil {
		b.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := f.Write(append(line, '\n')); err != nil {
		b.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
}

// rounds is how often each side of a ratio is measured, in turns.
const rounds = 3

// inTurns measures all functions in each round, so that they see the same
// machine, and returns their times by round.
func inTurns(n int, fs ...func(round int) time.Duration) [][]time.Duration {
	out := make([][]time.Duration, len(fs))
	for round := range n {
		for i, f := range fs {
			out[i] = append(out[i], f(round))
		}
	}
	return out
}

// over divides two series of times round by round, weighted by how much work
// each did: rates(a)/rates(b).
func over(a, b []time.Duration, workA, workB float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = (workA / a[i].Seconds()) / (workB / b[i].Seconds())
	}
	return out
}
