package outbox

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// outcomeGrid is the outcome table as the rulings ask for it, written by hand
// for an exporter that the host watches. A word says what happens, + that this
// attempt stays open, ! that the plugin broke its word.
//
//	accept  accepted
//	own     accepted if an attempt was open before, else uncertain (Q13)
//	retry   pending after backoff      wait  pending after the rate limit's delay
//	return  pending, attempt returned (Q12)
//	refuse  rejected or quarantined, uncertain if something is open (R1, Q10)
//	unsure  uncertain
const outcomeGrid = `
said              none      not_sent  success   duplicate_own  refused   throttled  indefinite
accepted          retry+!   return!   accept    own            unsure+!  wait!      retry+!
accepted_earlier  retry+!   return!   own+      own            unsure+!  wait!      retry+!
retry             retry     return    retry+    own            retry     wait       retry+
rate_limited      wait      return    wait+     own            wait      wait       wait+
rejected          unsure+!  return!   unsure+!  own            refuse    wait!      retry+
conflict          unsure+!  return!   unsure+   unsure         refuse    wait!      retry+
uncertain         retry+    return    unsure+   unsure         unsure+   wait       retry+
nothing           retry     return    retry+    own            retry     wait       retry+
twice             retry!    return!   unsure+!  unsure!        unsure+!  unsure+!   unsure+!
elsewhere         retry!    return!   unsure+!  unsure!        unsure+!  unsure+!   unsure+!
`

// gridCells yields every cell of the grid.
func gridCells(t *testing.T, do func(said Said, class exporter.HostClass, word string)) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(outcomeGrid), "\n")
	header := strings.Fields(lines[0])[1:]
	if len(header) != len(AllClasses()) || len(lines)-1 != len(AllSaid()) {
		t.Fatalf("grid is %d by %d", len(lines)-1, len(header))
	}
	for i, line := range lines[1:] {
		words := strings.Fields(line)
		if Said(words[0]) != AllSaid()[i] {
			t.Fatalf("row %d is %s", i, words[0])
		}
		for j, class := range AllClasses() {
			if name := string(class); name != header[j] && !(class == ClassNone && header[j] == "none") {
				t.Fatalf("column %d is %s", j, header[j])
			}
			do(Said(words[0]), class, words[j+1])
		}
	}
}

// expectation is what a word of the grid means for one item.
func expectation(word string, open, mendable, spent bool) (d Decision) {
	d.Lied = strings.HasSuffix(word, "!")
	word = strings.TrimSuffix(word, "!")
	d.MarkUnresolved = strings.HasSuffix(word, "+") && (word != "own+" || !open)
	switch word = strings.TrimSuffix(word, "+"); {
	case word == "accept", word == "own" && open:
		d.State, d.Trigger = storage.Accepted, TriggerAccepted
	case word == "return":
		d.State, d.Trigger, d.Wait, d.ReturnAttempt = storage.Pending, TriggerNotSent, WaitReturned, true
	case (word == "retry" || word == "wait") && !spent:
		d.State, d.Trigger, d.Wait = storage.Pending, TriggerRetry, WaitBackoff
		if word == "wait" {
			d.Wait = WaitRateLimit
		}
	case word == "refuse" && !open && mendable:
		d.State, d.Trigger, d.QuarantineReason = storage.Quarantined, TriggerProblem, "provider_refused"
	case word == "refuse" && !open:
		d.State, d.Trigger = storage.Rejected, TriggerRefused
	default: // unsure, spent, foreign, R1
		d.State, d.Trigger = storage.Uncertain, TriggerUnknown
	}
	return d
}

// Q9, Q10, Q12, Q13, R1, O11, O17, F42: every cell, with and without something
// open, mendable and not, inside the budget and at its end.
func TestDecideCells(t *testing.T) {
	t.Parallel()
	both := []bool{false, true}
	gridCells(t, func(said Said, class exporter.HostClass, word string) {
		for _, unresolved := range both {
			for _, mendable := range both {
				for _, spent := range both {
					o := Observation{
						Said: said, Class: class, Grade: GradeHost, Called: true,
						Unresolved: unresolved, Mendable: mendable, Attempts: 3, Budget: 20,
					}
					if spent {
						o.Attempts = 20
					}
					want := expectation(word, unresolved, mendable, spent)
					want.Evidence = GradeHost
					got := Decide(o)
					want.Code = got.Code // texts have their own test
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("%+v is %q (-want +got):\n%s", o, word, diff)
					}
				}
			}
		}
	})
}

func TestDecideCodes(t *testing.T) {
	t.Parallel()
	base := Observation{Grade: GradeHost, Called: true, Attempts: 1, Budget: 20}
	tests := []struct {
		name string
		edit func(*Observation)
		want string
	}{
		{"accepted has none", func(o *Observation) { o.Said, o.Class = "accepted", exporter.ClassSuccess }, ""},
		{"Q13 duplicate of nobody's", func(o *Observation) { o.Said, o.Class = "accepted_earlier", exporter.ClassDuplicateOwn }, "foreign_duplicate"},
		{"O17 conflict", func(o *Observation) { o.Said, o.Class = "conflict", exporter.ClassRefused }, "conflict"},
		{"R1", func(o *Observation) { o.Said, o.Class, o.Unresolved = "rejected", exporter.ClassRefused, true }, "refused_while_unresolved"},
		{"R1 conflict", func(o *Observation) { o.Said, o.Class, o.Unresolved = "conflict", exporter.ClassRefused, true }, "refused_while_unresolved"},
		{"O11 spent", func(o *Observation) { o.Said, o.Class, o.Attempts = "retry", exporter.ClassIndefinite, 20 }, "attempts_exhausted"},
		{"F42 lie", func(o *Observation) { o.Said = "accepted" }, "plugin_lied"},
		{"F42 two answers", func(o *Observation) { o.Said, o.Class = SaidTwice, exporter.ClassSuccess }, "contradicted"},
	}
	for _, tt := range tests {
		o := base
		tt.edit(&o)
		if got := Decide(o).Code; got != tt.want {
			t.Errorf("%s: code %q, want %q", tt.name, got, tt.want)
		}
	}
}

// product calls do with every observation there is.
func product(do func(Observation)) {
	both := []bool{false, true}
	said := append(AllSaid(), "unheard of")
	classes := append(AllClasses(), "unheard of")
	for _, s := range said {
		for _, c := range classes {
			for _, g := range append(Grades[:], "") {
				for bits := range 1 << 6 {
					bit := func(i int) bool { return both[bits>>i&1] }
					for _, attempts := range []int{1, 19, 20, 21} {
						do(Observation{
							Said: s, Class: c, Grade: g, OpenBefore: bit(0), Trusted: bit(1), Called: bit(2),
							Unresolved: bit(3), Mendable: bit(4), DestinationDown: bit(5), Attempts: attempts, Budget: 20,
						})
					}
				}
			}
		}
	}
}

// P4 and its parts, over the whole product.
func TestDecideProperties(t *testing.T) {
	t.Parallel()
	rules := map[string]func(Observation, Decision) bool{
		"leads along the table": func(_ Observation, d Decision) bool {
			return Allowed(storage.Leased, d.State, d.Trigger)
		},
		"R1: nothing open may be refused or quarantined": func(o Observation, d Decision) bool {
			final := d.State == storage.Rejected || d.State == storage.Quarantined
			return !final || (!o.Unresolved && !o.OpenBefore)
		},
		"O11: the cap never rejects": func(o Observation, d Decision) bool {
			return d.State != storage.Rejected || o.Class == exporter.ClassRefused || o.Trusted
		},
		"Q9: refused only on the host's evidence, or a trusted word": func(o Observation, d Decision) bool {
			if d.State != storage.Rejected && d.State != storage.Quarantined {
				return true
			}
			return (o.Grade == GradeHost && o.Class == exporter.ClassRefused) || (o.Grade == GradePlugin && o.Trusted)
		},
		"F42: accepted only on the host's evidence, where it watches": func(o Observation, d Decision) bool {
			taken := o.Class == exporter.ClassSuccess || o.Class == exporter.ClassDuplicateOwn
			return d.State != storage.Accepted || taken || (o.Grade == GradePlugin && o.Called)
		},
		"nobody vouches, nothing is final": func(o Observation, d Decision) bool {
			known := o.Grade == GradeHost || o.Grade == GradePlugin
			return known || d.State == storage.Pending || d.State == storage.Uncertain
		},
		"Q13: a duplicate of nobody's is not accepted": func(o Observation, d Decision) bool {
			return d.State != storage.Accepted || o.Class != exporter.ClassDuplicateOwn || o.Unresolved || o.OpenBefore
		},
		"indefinite stays open": func(o Observation, d Decision) bool {
			return o.Class != exporter.ClassIndefinite || (d.MarkUnresolved && d.State != storage.Rejected && d.State != storage.Accepted)
		},
		"throttled and not sent prove no effect, where the host watches": func(o Observation, d Decision) bool {
			definite := o.Class == exporter.ClassThrottled || o.Class == exporter.ClassNotSent
			garbled := o.Said == SaidTwice || o.Said == SaidElsewhere
			return o.Grade != GradeHost || !definite || garbled || !d.MarkUnresolved
		},
		"Q12: only what was not sent, or found the destination down, is free": func(o Observation, d Decision) bool {
			free := o.Class == exporter.ClassNotSent || (!o.Called && o.Class == ClassNone) || o.DestinationDown
			return !d.ReturnAttempt || free
		},
		"Q9: a plugin that nobody watches proves nothing by saying no": func(o Observation, d Decision) bool {
			denies := o.Class != exporter.ClassSuccess && o.Class != exporter.ClassDuplicateOwn && d.State != storage.Accepted
			foreign := d.Code == CodeForeignDuplicate || (o.Class == ClassNone && o.Said == Said(exporter.AcceptedEarlier))
			return o.Grade != GradePlugin || o.Trusted || !o.Called || !denies || foreign || d.MarkUnresolved
		},
		"no retry beyond the budget": func(o Observation, d Decision) bool {
			return d.State != storage.Pending || d.ReturnAttempt || o.Attempts < o.Budget
		},
		"pending and only pending waits": func(_ Observation, d Decision) bool {
			return (d.State == storage.Pending) == (d.Wait != WaitNone)
		},
	}
	failed := make(map[string]int)
	n := 0
	product(func(o Observation) {
		n++
		d := Decide(o)
		for name, holds := range rules {
			if !holds(o, d) {
				if failed[name]++; failed[name] == 1 {
					t.Errorf("%s: %+v led to %+v", name, o, d)
				}
			}
		}
	})
	if n < 80_000 {
		t.Errorf("only %d observations", n)
	}
}

// Q9: not_sent and refused hold for an unwatched plugin only if it was never
// called, unless the operator trusts it.
func TestDecideByWord(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name            string
		said            Said
		class           exporter.HostClass
		called, trusted bool
		want            storage.ItemState
		open            bool
	}{
		{"its acceptance is taken", "accepted", ClassNone, true, false, storage.Accepted, false},
		{"its duplicate of nobody's is not", "accepted_earlier", ClassNone, true, false, storage.Uncertain, false},
		{"its refusal is not", "rejected", ClassNone, true, false, storage.Pending, true},
		{"unless trusted", "rejected", ClassNone, true, true, storage.Rejected, false},
		{"conflict likewise", "conflict", ClassNone, true, true, storage.Rejected, false},
		{"its rate limit is no proof", "rate_limited", ClassNone, true, false, storage.Pending, true},
		{"unless trusted", "rate_limited", ClassNone, true, true, storage.Pending, false},
		{"a refusal that the host saw may not be all", "rejected", exporter.ClassRefused, true, false, storage.Pending, true},
		{"not sent here, perhaps sent elsewhere", "retry", exporter.ClassNotSent, true, false, storage.Pending, true},
		{"never called", "", ClassNone, false, false, storage.Pending, false},
		{"silence", SaidNothing, ClassNone, true, true, storage.Pending, true},
	}
	for _, tt := range tests {
		d := Decide(Observation{
			Said: tt.said, Class: tt.class, Grade: GradePlugin, Called: tt.called, Trusted: tt.trusted,
			Attempts: 1, Budget: 20,
		})
		if d.State != tt.want || d.MarkUnresolved != tt.open {
			t.Errorf("%s (%s): %s, open %v", tt.name, tt.said, d.State, d.MarkUnresolved)
		}
	}
}

// F34: the probe of a destination that is still down costs no attempt, even
// the last one; it stays open, because a proxy may have answered.
func TestDecideDestinationDown(t *testing.T) {
	t.Parallel()
	d := Decide(Observation{
		Said: "retry", Class: exporter.ClassIndefinite, Grade: GradeHost, Called: true,
		DestinationDown: true, Attempts: 20, Budget: 20,
	})
	if d.State != storage.Pending || !d.ReturnAttempt || !d.MarkUnresolved {
		t.Errorf("probe: %+v", d)
	}
}

func TestLook(t *testing.T) {
	t.Parallel()
	x := func(classes ...exporter.HostClass) (out []exporter.Exchange) {
		for _, c := range classes {
			out = append(out, exporter.Exchange{Class: c})
		}
		return out
	}
	const (
		unsent, taken, dup       = exporter.ClassNotSent, exporter.ClassSuccess, exporter.ClassDuplicateOwn
		refused, limited, opened = exporter.ClassRefused, exporter.ClassThrottled, exporter.ClassIndefinite
	)
	tests := []struct {
		in   []exporter.Exchange
		want exporter.HostClass
		open bool
	}{
		{nil, ClassNone, false},
		{x(unsent), unsent, false},
		{x(unsent, taken), taken, false},
		{x(refused, unsent), refused, false},
		{x(opened, dup), dup, true},
		{x(opened, taken), taken, true},
		{x(opened, refused), opened, true},
		{x(taken, limited), opened, true},
		// A duplicate of somebody else's stays one, whatever is sent after it.
		{x(dup, dup), dup, false},
		{x(dup, refused), dup, false},
		{x(opened, dup, refused), dup, true},
		{x(refused, dup), dup, false},
		{x(dup, taken), taken, false},
		{x(limited, taken), taken, false},
		{x(dup, opened), dup, false},
		{x("unheard of"), opened, false},
	}
	for _, tt := range tests {
		got := Look(tt.in)
		if got.Class != tt.want || got.OpenBefore != tt.open {
			t.Errorf("%v: %s, open before %v; want %s, %v", tt.in, got.Class, got.OpenBefore, tt.want, tt.open)
		}
	}
}

// F42: only ids of the batch count.
func TestAnswers(t *testing.T) {
	t.Parallel()
	ids := []string{"1", "2", "3", "4"}
	got, foreign := Answers(ids, []exporter.ItemOutcome{
		{ItemID: "1", Kind: exporter.Accepted, ProviderRef: "ref"},
		{ItemID: "2", Kind: exporter.Accepted},
		{ItemID: "2", Kind: exporter.Accepted},
		{ItemID: "3", Kind: "paid in full"},
	})
	want := map[string]Answer{
		"1": {Said: "accepted", ProviderRef: "ref"}, "2": {Said: SaidTwice},
		"3": {Said: SaidNothing}, "4": {Said: SaidNothing},
	}
	if diff := cmp.Diff(want, got); diff != "" || foreign != 0 {
		t.Errorf("foreign %d (-want +got):\n%s", foreign, diff)
	}
	got, foreign = Answers(ids[:2], []exporter.ItemOutcome{{ItemID: "1", Kind: exporter.Retry}, {ItemID: "9", Kind: exporter.Accepted}})
	if foreign != 1 || got["2"].Said != SaidElsewhere || got["1"].Said != Said(exporter.Retry) {
		t.Errorf("foreign %d: %+v", foreign, got)
	}
}
