//go:build unix

package state

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/redistest"
)

// I7, C-T13: a copy that loses 20 or 35 % of the messages, over flushes, is what
// Redis holds whenever its epoch and tip are Redis's. One that goes by the
// revision alone is not, which is why the chain of tips exists.
func TestCopies(t *testing.T) {
	t.Parallel()
	s := newStore(t, redistest.Start(t, quick()...).URL())
	wrong := 0
	for run := range 20 {
		loss := []float64{0.2, 0.35}[run%2]
		rng := rand.New(rand.NewPCG(uint64(run), 7))
		good, byRevision := &State{}, &State{}
		var pending []string
		for step := range 150 {
			messages := mutate(t, s, rng, step, &pending)
			if rng.Float64() < loss {
				continue
			}
			for _, m := range messages {
				if good.Apply(m) == Reload {
					good = load(t, s, who)
				}
				if byRevision.Epoch == "" || m.Revision != byRevision.Revision+1 || m.reloadsItsState {
					byRevision = load(t, s, who)
				} else if byRevision.follow(m) == Applied {
					byRevision.Epoch = m.Epoch
				}
			}
			want := load(t, s, who)
			if good.Epoch == want.Epoch && good.Tip == want.Tip && good.digest() != want.digest() {
				t.Fatalf("run %d step %d: the copy is\n%s\nand Redis has\n%s", run, step, good.digest(), want.digest())
			}
			if byRevision.Tip == want.Tip && byRevision.digest() != want.digest() {
				wrong++
			}
		}
	}
	if wrong == 0 {
		t.Error("revisions alone did as well: this shows nothing")
	}
	t.Logf("by revision alone the copy was another %d times", wrong)
}

// mutate changes the state somehow and returns what was published.
func mutate(t *testing.T, s *Store, rng *rand.Rand, step int, pending *[]string) []Message {
	t.Helper()
	done := Delivered{Customer: who.Customer, Reducers: []string{who.Reducer}}
	if len(*pending) > 0 {
		i := rng.IntN(len(*pending))
		done.IDs = []string{(*pending)[i]}
		done.Buckets = []int64{bucketNumber(int64(rng.IntN(4)))}
	}
	var messages []Message
	var err error
	switch n := rng.IntN(20); {
	case n == 0:
		if err = s.client.FlushAll(t.Context()).Err(); err == nil {
			*pending = nil
		}
	case n < 5 && len(done.IDs) > 0:
		messages, err = s.Acknowledge(t.Context(), done)
		*pending = slices.DeleteFunc(*pending, func(id string) bool { return id == done.IDs[0] })
	case n < 7 && len(done.IDs) > 0:
		messages, err = s.Confirm(t.Context(), done)
		*pending = slices.DeleteFunc(*pending, func(id string) bool { return id == done.IDs[0] })
	default:
		e := oneEvent(who, strconv.Itoa(step), int64(rng.IntN(4)), strconv.Itoa(1+rng.IntN(9)))
		var changes []Change
		if changes, err = s.Track(t.Context(), e); err == nil {
			messages = append(messages, changes[0].Message)
			*pending = append(*pending, e.ID)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return messages
}

// What is no message of this layout is refused and never panics; a kind that is
// not known makes a copy load.
func TestParseMessages(t *testing.T) {
	t.Parallel()
	record := func(fields ...string) string {
		var out strings.Builder
		for _, f := range fields {
			fmt.Fprintf(&out, "%d:%s", len(f), f)
		}
		return out.String()
	}
	for _, payload := range []string{
		"", "x", "5:abc", "-1:", "01:a", "1:", record("T"), record(record("T", "k", "1|e|p|t")), record(record("S", "k", "1|e|p")),
		record(record("S", "k", "x|e|p|t")), record(record("A", "k", "1|e|p|t")), record(record("C", "k", "1|e|p|t", "9:")),
	} {
		if m, err := ParseMessages(payload); err == nil {
			t.Errorf("%q is %v", payload, m)
		}
	}
	messages, err := ParseMessages(record(record("Z", "k", "2|e|p|t", "and more")))
	if err != nil || len(messages) != 1 {
		t.Fatal(messages, err)
	}
	st := &State{Epoch: "e", Tip: "p", Revision: 1}
	if st.Apply(messages[0]) != Reload || st.Tip != "p" {
		t.Error("a message of a later release was applied")
	}
	for _, fields := range [][]string{
		{"T", "k", "2|e|p|t", "i", "b|1|1|p||||", ""},
		{"T", "k", "2|e|p|t", "i", "300000000|x|1|p||||", ""},
		{"T", "k", "2|e|p|t", "i", "300000000|1|1|p|1|x||", ""},
		{"T", "k", "2|e|p|t", "i", "300000000|1|1|o||||", "1|2"},
		{"A", "k", "2|e|p|t", "1:h"},
	} {
		messages, err := ParseMessages(record(record(fields...)))
		if err != nil {
			t.Fatal(err)
		}
		if st.Apply(messages[0]) != Reload || st.Tip != "p" || st.PendingCount() != 0 {
			t.Errorf("%q was applied", fields)
		}
	}
}

// FuzzParseMessages: whatever arrives on a channel, no panic.
func FuzzParseMessages(f *testing.F) {
	f.Add("15:1:S1:k7:1|e|p|t")
	f.Add("53:1:T1:k7:2|e|p|t1:i25:300000000|1|1|p|1|1|1|1|0:")
	f.Fuzz(func(t *testing.T, payload string) {
		messages, err := ParseMessages(payload)
		if err != nil {
			return
		}
		for _, m := range messages {
			st, err := decode(time.Time{}, []string{"ep", m.Epoch, "tp", m.Previous, "rv", "1"})
			if err == nil && m.Epoch != "" {
				st.Apply(m)
			}
		}
	})
}
