package outbox

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

var update = flag.Bool("update", false, "rewrite the tables in docs/outbox-transitions.md")

const documentPath = "../../docs/outbox-transitions.md"

// O8, Q9: the documented tables are the ones in the code.
func TestDocument(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(documentPath)
	if err != nil {
		t.Fatal(err)
	}
	want := string(raw)
	for name, table := range map[string]string{
		"transitions": ruleTable(Table()), "marks": ruleTable(Marks()), "outcomes": outcomeTables(), "reasons": reasonTable(),
	} {
		begin, end := "<!-- table "+name+" -->\n", "<!-- end "+name+" -->"
		before, rest, ok := strings.Cut(want, begin)
		_, after, closed := strings.Cut(rest, end)
		if !ok || !closed {
			t.Fatalf("no place for table %s", name)
		}
		want = before + begin + table + end + after
	}
	if *update {
		if err := os.WriteFile(documentPath, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(raw) {
		t.Error("docs/outbox-transitions.md differs from the code; run go test ./engine/outbox -run TestDocument -update")
	}
}

func ruleTable(rules []Rule) string {
	var b strings.Builder
	b.WriteString("| rule | from | to | trigger | holds only if | otherwise |\n|---|---|---|---|---|---|\n")
	for _, r := range rules {
		from := string(r.From)
		if r.From == NoState {
			from = "–"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | `%s` | %s | %s |\n", r.Name, from, r.To, r.Trigger, r.Predicate, r.Stale)
	}
	return b.String()
}

// words are what actions are called in the document.
var words = map[action]string{
	actAccept: "accepted", actAcceptOwn: "own", actAcceptOwnOpen: "own, open", actRetry: "retry", actRetryOpen: "retry, open",
	actWait: "wait", actWaitOpen: "wait, open", actReturn: "return", actRefuse: "refuse",
	actUncertain: "uncertain", actUncertainOpen: "uncertain, open",
}

func outcomeTables() string {
	var b strings.Builder
	b.WriteString("| plugin says ↓ host saw → |")
	for _, c := range AllClasses() {
		fmt.Fprintf(&b, " %s |", className(c))
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(AllClasses())) + "\n")
	notes := slices.Sorted(maps.Keys(Reasons()))
	for _, s := range AllSaid() {
		fmt.Fprintf(&b, "| %s |", s)
		for _, c := range AllClasses() {
			cell := outcomeTable(s, c)
			mark := ""
			if cell.lied {
				mark = " ⚑"
			}
			fmt.Fprintf(&b, " %s%s <sup>%d</sup> |", words[cell.act], mark, slices.Index(notes, cell.why)+1)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func className(c exporter.HostClass) string {
	if c == ClassNone {
		return "no request"
	}
	return string(c)
}

func reasonTable() string {
	var b strings.Builder
	for i, key := range slices.Sorted(maps.Keys(Reasons())) {
		fmt.Fprintf(&b, "%d. %s\n", i+1, Reasons()[key])
	}
	return b.String()
}

// Every cell gives a reason that is written down, and every reason is used.
func TestReasons(t *testing.T) {
	t.Parallel()
	used := make(map[string]bool)
	for _, s := range AllSaid() {
		for _, c := range AllClasses() {
			why := outcomeTable(s, c).why
			if Reasons()[why] == "" {
				t.Errorf("%s by %s gives no reason", s, c)
			}
			used[why] = true
		}
	}
	if len(used) != len(Reasons()) {
		t.Errorf("%d reasons, %d used", len(Reasons()), len(used))
	}
}

// O3, O8, A26: exactly the transitions of the requirements, by hand, and one more:
// what a restore took from quarantine goes back there (Q17; RATIONALE.md).
func TestAllowed(t *testing.T) {
	t.Parallel()
	const (
		p, l, a = storage.Pending, storage.Leased, storage.Accepted
		c, u    = storage.Confirmed, storage.Uncertain
		r, q    = storage.Rejected, storage.Quarantined
	)
	type move struct {
		from, to storage.ItemState
		trigger  Trigger
	}
	want := map[move]bool{
		{"", p, "enqueue"}: true, {"", q, "enqueue_ineligible"}: true,
		{p, l, "claim"}: true, {l, l, "claim"}: true,
		{l, a, "accepted"}: true, {l, p, "retry"}: true, {l, p, "not_sent"}: true,
		{l, u, "unknown"}: true, {l, u, "claim_exhausted"}: true, {p, u, "claim_exhausted"}: true,
		{l, r, "refused"}: true, {l, q, "problem"}: true, {a, c, "confirm"}: true,
		{u, a, "recover"}: true, {u, p, "recover"}: true, {u, r, "recover"}: true, {u, q, "recover"}: true,
		{q, p, "requeue"}: true,
	}
	triggers := []Trigger{
		TriggerEnqueue, TriggerIneligible, TriggerClaim, TriggerExhausted, TriggerAccepted, TriggerRetry, TriggerNotSent,
		TriggerUnknown, TriggerRefused, TriggerProblem, TriggerConfirm, TriggerRecover, TriggerRequeue,
	}
	n := 0
	for _, from := range append([]storage.ItemState{""}, storage.ItemStates[:]...) {
		for _, to := range append([]storage.ItemState{""}, storage.ItemStates[:]...) {
			for _, trigger := range triggers {
				got := Allowed(from, to, trigger)
				if got != want[move{from, to, trigger}] {
					t.Errorf("%q to %q by %s: %v", from, to, trigger, got)
				}
				if got {
					n++
				}
			}
		}
	}
	if n != len(want) || n != len(Table()) {
		t.Errorf("%d transitions, want %d, table has %d", n, len(want), len(Table()))
	}
}
