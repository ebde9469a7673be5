package engine_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/engine"
)

// F55, O24, Q4: in a rolling upgrade a host of the old release that starts again
// does not turn the mapping back, whatever it lacks or moves; both versions are
// named. Nothing is reported twice. What was never there, and what is asked for, is
// carried out.
func TestOldHostStartsAgain(t *testing.T) {
	t.Parallel()
	onDesks(t, func(d *desk) {
		var out bytes.Buffer
		d.Engine = over(d.t, d.st, known, func(c *engine.Config) { c.Logger = slog.New(slog.NewTextHandler(&out, nil)) })
		version := func(label, event, account string) engine.RoutePlan {
			p := plan(map[string]string{"tokens": event})
			p.Label, p.Account = label, account
			return p
		}
		start := func(p engine.RoutePlan, behind bool) {
			d.t.Helper()
			out.Reset()
			before, err := d.Routes(d.t.Context())
			if err != nil {
				d.t.Fatal(err)
			}
			d.apply(p)
			after, err := d.Routes(d.t.Context())
			if err != nil {
				d.t.Fatal(err)
			}
			how, err := p.Behind(after)
			if err != nil || (how != "") != behind || behind != (before.Revision == after.Revision) || behind != strings.Contains(out.String(), "stays so") {
				d.t.Errorf("%s: revision %d to %d, behind %q, %v, log %s", p.Label, before.Revision, after.Revision, how, err, out.String())
			}
			if behind && (!strings.Contains(how, "(version "+p.Label+")") || !strings.Contains(how, "in force")) {
				d.t.Errorf("says %q", how)
			}
		}
		old, next := version("1", "llm", "acct_1"), version("2", "llm_2", "acct_1")
		start(old, false)
		d.customer("cus_1")
		record(d.t, d.Engine, plain("req_1", "1"))
		start(next, false)
		record(d.t, d.Engine, plain("req_2", "1"))
		start(old, true)
		record(d.t, d.Engine, plain("req_3", "1"))
		d.deliver()
		d.want("accepted", "accepted", "accepted")
		for i, event := range []string{"llm", "llm_2", "llm_2"} {
			if d.sent[i].Mapping["event_name"] != event {
				d.t.Errorf("item %d went to %s", i, d.sent[i].Mapping["event_name"])
			}
		}
		moved := version("3", "llm_2", "acct_2")
		start(moved, false)
		start(next, true) // nor the account
		start(version("4", "llm_2", "acct_1"), false)
		start(version("1", "llm_3", "acct_1"), false) // it never was
		// A label that asked for a return, and one that came alone, do not ask again.
		start(version("5", "llm", "acct_1"), false)
		start(version("6", "llm_2", "acct_1"), false)
		start(version("5", "llm", "acct_1"), true)
		start(version("7", "llm_2", "acct_1"), false)
		start(version("8", "llm", "acct_1"), false)
		start(version("7", "llm_2", "acct_1"), true)
		start(version("6", "llm_2", "acct_1"), true)
		start(version("3", "llm_2", "acct_2"), true)
		// Neither do those that it had under another name, and another exporter's
		// labels are its own.
		if _, err := d.RenameRoute(d.t.Context(), "stripe", "billing", anna); err != nil {
			d.t.Fatal(err)
		}
		start(as("billing", version("7", "llm_2", "acct_1")), true)
		start(as("stripe", version("8", "other", "acct_1")), false)
		start(as("stripe", version("9", "other_2", "acct_1")), false)
		start(as("stripe", version("7", "other", "acct_1")), true)
		start(as("billing", version("9", "llm_2", "acct_1")), false)
		// It is a server's wish, so it is none of a command.
		if _, err := d.FirstRoutes(d.t.Context(), []engine.RoutePlan{as("billing", version("10", "llm_2", "acct_1"))}); err != nil {
			d.t.Fatal(err)
		}
		start(as("billing", version("10", "llm", "acct_1")), false)
	})
}
