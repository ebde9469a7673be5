package server

import (
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/outpost/protocol"
)

// G7: no part of what is of interest is left out when the loop comes late.
func TestPartsBetween(t *testing.T) {
	t.Parallel()
	all := make([]int, steps)
	for i := range all {
		all[i] = i
	}
	for _, c := range []struct {
		last, next int64
		want       []int
	}{
		{120, 120, nil},
		{120, 121, []int{1}},
		{118, 121, []int{59, 0, 1}},
		{119, 179, all},
		{59, 179, all}, // asleep for two buckets: each once
		{121, 100, nil},
	} {
		if got := partsBetween(c.last, c.next); !slices.Equal(got, c.want) {
			t.Errorf("%d to %d: %v", c.last, c.next, got)
		}
	}
}

// C-T29, G7: a client that does not read costs a bounded queue; hints of one
// identity become one, with the latest cause; then it is sent away.
func TestSlowClient(t *testing.T) {
	t.Parallel()
	c := newConnection(&Server{cfg: Config{}.withDefaults()}, nil)
	mine, other := protocol.Identity{Customer: "a", Reducer: "r"}, protocol.Identity{Customer: "b", Reducer: "r"}
	c.interested(protocol.Interest{Add: []protocol.Identity{mine}})
	for range 10_000 {
		c.hint(mine, protocol.CauseLate)
		c.hint(other, protocol.CauseLate) // nobody asked for it
	}
	c.hint(mine, protocol.CauseCredit)
	if got := c.due(); !slices.Equal(got, []protocol.Changed{{Identity: mine, Cause: protocol.CauseCredit}}) {
		t.Errorf("%v", got)
	}
	if got := c.due(); len(got) != 0 {
		t.Errorf("said twice: %v", got)
	}
	for part := range steps {
		c.hintPart(part, steps)
	}
	if got := c.due(); !slices.Equal(got, []protocol.Changed{{Identity: mine, Cause: protocol.CauseEdge}}) {
		t.Errorf("%v", got)
	}
	for range outgoing {
		c.refuse("1", protocol.Error{Code: protocol.CodeBadRequest})
	}
	if c.leaving != nil {
		t.Error("sent away with a queue that holds all")
	}
	c.refuse("1", protocol.Error{Code: protocol.CodeBadRequest})
	if c.leaving == nil || c.leaving.RetryAfterMS == 0 || len(c.frames) != outgoing {
		t.Errorf("%+v, %d frames", c.leaving, len(c.frames))
	}
}

// An interest that would need endless memory is not taken.
func TestInterestIsBounded(t *testing.T) {
	t.Parallel()
	c := newConnection(&Server{cfg: Config{}.withDefaults()}, nil)
	for n := range protocol.MaxIdentities + 10 {
		c.interested(protocol.Interest{Add: []protocol.Identity{{Customer: time.Unix(int64(n), 0).String(), Reducer: "r"}}})
	}
	if len(c.interest) != protocol.MaxIdentities {
		t.Error(len(c.interest))
	}
}
