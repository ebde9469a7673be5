//go:build faults && linux

package faults

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/pgtest"
)

// F13, D10, Q17: the old primary lives on when the standby is promoted, and one host
// of two still reaches it. Both send what was waiting, both record, and a client
// repeats at one what the other has taken. The provider takes each identity once,
// because both call it by one identifier. When the old primary is gone its host
// finds that what it sent from is not in the store: both stop until an operator has
// said what that means, and what only the old primary knew is charged once more
// often by nobody: its client repeats it, and the provider remembers.
func TestSplitPrimary(t *testing.T) {
	t.Parallel()
	primary := pgtest.NewCluster(t, pgtest.ClusterConfig{})
	b := newOwn(t, defaults(), primary)
	away := pgtest.NewProxy(t, b.dsn) // what the second host reaches
	r := b.apart()
	was := b.storage
	b.storage = fmt.Sprintf(`{plugin: "builtin:postgres", dsn: %q}`, away.DSN())
	b.writeConfig(b.secondConfig(), "state-2", b.settings)
	b.storage = was
	r.beforeTheLoss()
	standby := pgtest.NewCluster(t, pgtest.ClusterConfig{From: primary})
	b.sql(b.at(standby), "SELECT pg_promote()")
	b.proxy.Redirect(standby.Addr())
	b.proxy.Cut()

	r.both()
	onNew, onOld := r.second, r.server
	old, twice := events("old", 5), events("twice", 5)
	r.record(old)
	r.record(twice)
	r.drain()
	if n := r.double.Ledger().Charges; n != 30 {
		t.Errorf("%d charges by the old primary's host, want 30", n)
	}
	r.server = onNew
	r.record(events("new", 5))
	r.record(twice)
	eventually(t, "the host of the new primary goes on", func() bool {
		var text string
		return r.call(http.MethodGet, "/readyz", "", nil, &text) == nil && !strings.Contains(text, "failover_pending")
	})
	r.drain()
	l := r.double.Ledger()
	if l.Charges != 35 || l.DoubleCharges != 0 || l.Requests <= 35 {
		t.Errorf("%d requests for 35 identities, of which both sent 15: %d charges, %d double", l.Requests, l.Charges, l.DoubleCharges)
	}
	t.Logf("on the new primary: %v, %d replays", r.stats().States, l.Replays)

	r.server, r.second = onOld, onNew
	primary.Stop(syscall.SIGQUIT)
	away.Redirect(standby.Addr())
	away.Cut()
	b.dsn = standby.DSN() + "&fencepost_schema=" + b.schema
	r.mu.Lock()
	for _, e := range old { // the old primary alone has them
		delete(r.acked, eventKey{tenant, e.id})
	}
	r.mu.Unlock()
	r.everywhere("a host says that it stopped", "/readyz", func(text string) bool { return strings.Contains(text, "restore_pending") })
	r.record(events("during", 3))
	requests := r.double.Ledger().Requests
	holds(t, "nothing is sent", 2*time.Second, func() bool { return r.double.Ledger().Requests == requests })
	if _, diag, err := r.run("recover", "restore", "--reason", "the old primary lived on", "--actor", "ada", "--yes", "--server", r.server.base); err != nil {
		t.Fatalf("recover restore: %v: %s", err, diag)
	}
	r.everywhere("a host goes on", "/readyz", func(text string) bool { return !strings.Contains(text, "restore_pending") })
	r.record(old)
	books := r.healed()
	t.Logf("states %v", books.states())
	if l := r.double.Ledger(); l.Charges != 38 || l.DoubleCharges != 0 {
		t.Errorf("%d charges, %d double", l.Charges, l.DoubleCharges)
	}
	if n := len(books.items); n != 38 {
		t.Errorf("%d items of 38 events", n)
	}
}
