//go:build unix

package state

import (
	"errors"
	"net"
	"testing"

	"github.com/fencepost/fencepost/internal/redistest"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// F8, F49, C-T13: a failover that loses the last writes leaves the epoch and lets
// the revisions go on from a lower one. Copies notice by the tip, and a question
// that the lost part had opened is not answered; what was tracked in it is counted
// again when the application repeats it.
func TestFailoverLosesWrites(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t, append(quick(), "--repl-diskless-sync-delay", "0")...)
	host, port, _ := net.SplitHostPort(primary.Addr())
	replica := redistest.Start(t, append(quick(), "--replicaof", host+" "+port)...)
	before, after := newStore(t, primary.URL()), newStore(t, replica.URL())
	trackOne(t, before, who, "1", 0, "1")
	if got := primary.Do("WAIT", "1", "60000"); got != "1" {
		t.Fatal("the replica does not follow")
	}
	replica.Do("REPLICAOF", "NO", "ONE") // and the primary has not noticed
	trackOne(t, before, who, "2", 0, "10")
	q, err := before.Ask(t.Context(), who, "d1")
	if err != nil {
		t.Fatal(err)
	}
	copied := load(t, before, who)
	primary.Kill()

	trackOne(t, after, who, "3", 0, "100")
	if st := load(t, after, who); st.Epoch != copied.Epoch || st.Revision != copied.Revision {
		t.Fatal("nothing coincides: this shows nothing")
	}
	tips, err := after.Tips(t.Context(), []Identity{who})
	if err != nil || tips[0] == (Tip{copied.Epoch, copied.Tip}) {
		t.Errorf("the audit sees no difference: %v", err)
	}
	changes, err := after.Track(t.Context(), oneEvent(who, "4", 0, "1000"))
	if err != nil {
		t.Fatal(err)
	}
	if m := changes[0].Message; m.Revision != copied.Revision+1 || copied.Apply(m) != Reload {
		t.Error("a copy goes on over lost writes")
	}
	if _, err := after.Apply(t.Context(), who, Answer{Token: q.Token, Version: 1, ColdUntil: bucketNumber(1)}); !errors.Is(err, ErrStaleQuestion) {
		t.Errorf("an answer to a lost question: %v", err)
	}
	if got := trackOne(t, after, who, "2", 0, "10"); got != Added {
		t.Errorf("a lost event is %s", got)
	}
	if a, _ := load(t, after, who).Aggregate(load(t, after, who).LoadedAt); a.Sum.Cmp(decimal.MustParse("1111")) != 0 {
		t.Errorf("%s is counted", text(a))
	}
}
