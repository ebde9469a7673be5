//go:build faults && unix

package faults

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

const (
	// dataVar names the folder of the real data; without it, it is looked for
	// beside the repository.
	dataVar = "FENCEPOST_DATA"
	// soakVar makes the long tests run.
	soakVar = "FENCEPOST_SOAK"

	traceFile = "AzureLLMInferenceTrace_code.csv"
)

// trace is a file of one row for each request of an LLM service.
type trace struct {
	path  string
	rows  [][]string // without the header
	sums  map[string]string
	count int // events: two for each row
}

// realTrace is the production trace with the totals that its description
// states. The test is skipped without it.
func realTrace(t *testing.T) trace {
	t.Helper()
	dir := os.Getenv(dataVar)
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data")
	}
	path := filepath.Join(dir, traceFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		t.Skipf("no %s: name its folder in %s; the generated trace is tested all the same", path, dataVar)
	}
	return readTrace(t, path, map[string]string{"context_tokens": "18059974", "generated_tokens": "245896"})
}

// generatedTrace has the same form, times of one hour of 2023, and totals that
// are added up while it is written.
func generatedTrace(t *testing.T, rows int) trace {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	at := time.Date(2023, 11, 16, 18, 17, 3, 979_960_000, time.UTC)
	var b strings.Builder
	b.WriteString("TIMESTAMP,ContextTokens,GeneratedTokens\n")
	context, generated := 0, 0
	for range rows {
		c, g := 1+rng.IntN(7000), 1+rng.IntN(900)
		context, generated = context+c, generated+g
		fmt.Fprintf(&b, "%s,%d,%d\n", at.Format("2006-01-02 15:04:05.0000000"), c, g)
		at = at.Add(time.Duration(rng.IntN(1000)) * time.Millisecond)
	}
	path := filepath.Join(t.TempDir(), "trace.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return readTrace(t, path, map[string]string{"context_tokens": strconv.Itoa(context), "generated_tokens": strconv.Itoa(generated)})
}

func readTrace(t *testing.T, path string, sums map[string]string) trace {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return trace{path: path, rows: rows[1:], sums: sums, count: 2 * (len(rows) - 1)}
}

// sendingTrace notes what record is about to send.
func (r *rig) sendingTrace(tr trace) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, row := range tr.rows {
		for column, feature := range map[int]string{1: "context_tokens", 2: "generated_tokens"} {
			id := fmt.Sprintf("azure/%d/%s", i+1, feature)
			r.sent[eventKey{tenant, id}] = event{id: id, feature: feature, quantity: row[column]}
		}
	}
}

var shiftLine = regexp.MustCompile(`--shift-to (\S+)`)

// recordTrace records the trace with the command line, through the running
// server, and returns the counts and the shift that was printed.
func (r *rig) recordTrace(tr trace, shift string) (counts map[string]int, printed string, err error) {
	r.t.Helper()
	r.sendingTrace(tr)
	args := []string{
		"record", tr.path, "--server", r.server.base, "--json", "--format", "csv", "--tenant", tenant,
		"--id-from", "row", "--id-prefix", "azure", "--time-from", "TIMESTAMP",
		"--map", "context_tokens=ContextTokens,generated_tokens=GeneratedTokens",
	}
	if shift != "" {
		args = append(args, "--shift-to", shift)
	}
	stdout, stderr, err := r.run(args...)
	if m := shiftLine.FindStringSubmatch(stderr); m != nil {
		printed = m[1]
	}
	if err != nil {
		return nil, printed, fmt.Errorf("%w: %s", err, stderr)
	}
	var out struct{ Summary map[string]int }
	if err := json.Unmarshal([]byte(stdout), &out); err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	for k := range r.sent {
		r.acked[k] = true
	}
	r.mu.Unlock()
	return out.Summary, printed, nil
}

// mustRecordTrace is recordTrace that fails the test, and checks one count.
func (r *rig) mustRecordTrace(tr trace, shift, outcome string) (printed string) {
	r.t.Helper()
	counts, printed, err := r.recordTrace(tr, shift)
	if err != nil {
		r.t.Fatal(err)
	}
	if counts[outcome] != tr.count {
		r.t.Errorf("record: %v, want %d %s", counts, tr.count, outcome)
	}
	return printed
}

// checkTotals compares the stated sums with what "usage" prints and, if all of
// it was sent, with what the provider charged.
func (r *rig) checkTotals(tr trace, charged bool) {
	r.t.Helper()
	stdout, stderr, err := r.run("usage", "--tenant", tenant, "--json", "--server", r.server.base)
	if err != nil {
		r.t.Fatalf("usage: %v: %s", err, stderr)
	}
	var usage api.UsageAnswer
	if err := json.Unmarshal([]byte(stdout), &usage); err != nil {
		r.t.Fatal(err)
	}
	got := map[string]decimal.Decimal{}
	for _, row := range usage.Data {
		got[row.Feature] = got[row.Feature].Add(decimal.MustParse(string(row.Value)))
	}
	l := r.double.Ledger()
	for feature, want := range tr.sums {
		if got[feature].String() != want {
			r.t.Errorf("usage of %s is %s, want %s", feature, got[feature], want)
		}
		sum := l.ChargesTotal["llm_"+feature]
		if charged && sum != want {
			r.t.Errorf("the provider charged %s of %s, want %s", sum, feature, want)
		}
		if !charged && sum != "" {
			r.t.Errorf("the provider charged %s of %s, want none", sum, feature)
		}
		r.t.Logf("%s: recorded %s, charged %q", feature, got[feature], sum)
	}
	if charged && (l.Charges != tr.count || l.DoubleCharges != 0) {
		r.t.Errorf("%d charges of %d events, %d double", l.Charges, tr.count, l.DoubleCharges)
	}
}

// The three runs over real input: delivered, repeated, and too old to deliver.
func TestTrace(t *testing.T) {
	t.Parallel()
	t.Run("generated", func(t *testing.T) {
		t.Parallel()
		traceRuns(t, generatedTrace(t, 400))
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		traceRuns(t, realTrace(t))
	})
}

func traceSettings() settings {
	s := defaults()
	s.page, s.rate, s.concurrency, s.attempts = 200, 10_000, 16, 200
	return s
}

func traceRuns(t *testing.T, tr trace) {
	t.Helper()
	r := newRig(t, traceSettings())
	r.subscribe()
	r.start("")
	began := time.Now()
	shift := r.mustRecordTrace(tr, "now", "inserted")
	recorded := time.Now()
	r.drain()
	t.Logf("%d events: recorded in %v, delivered in %v", tr.count, recorded.Sub(began).Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	r.checkTotals(tr, true)
	before := r.double.Ledger().Requests

	if again := r.mustRecordTrace(tr, shift, "duplicate"); again != shift {
		t.Errorf("the shift %s was printed as %s", shift, again)
	}
	r.drain()
	r.checkTotals(tr, true)
	if n := r.double.Ledger().Requests; n != before {
		t.Errorf("the repetition sent %d requests", n-before)
	}
	if n := r.audit().accepted(r); n != tr.count {
		t.Errorf("%d items, want %d", n, tr.count)
	}

	old := newRig(t, traceSettings())
	old.subscribe()
	old.start("")
	old.mustRecordTrace(tr, "", "inserted")
	old.drain()
	old.checkTotals(tr, false)
	b := old.audit()
	if n := b.states()["quarantined"]; n != tr.count || len(b.items) != tr.count {
		t.Errorf("states %v, want %d quarantined", b.states(), tr.count)
	}
	for _, it := range b.items {
		if it.quarantine != "timestamp_window" || it.attempts != 0 {
			t.Errorf("item %d is held back for %q after %d attempts", it.id, it.quarantine, it.attempts)
		}
	}
	if n := old.double.Ledger().Requests; n != 0 {
		t.Errorf("%d requests", n)
	}
}
