//go:build faults && linux

package faults

import (
	"net/http"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// F03 with corrections: killed at each step while cancellations and negative
// events are told, beside another host on PostgreSQL. In the end the provider bills what
// events and corrections come to: none is told twice, none by both methods.
func TestKillWhileCorrectionsAreTold(t *testing.T) {
	t.Parallel()
	for store, open := range pairs() {
		for _, label := range []string{"d2", "d5", "d7", "d9", "d10"} {
			t.Run(store+"/"+label, func(t *testing.T) {
				t.Parallel()
				s := shortLease()
				s.page = 4
				killWhileCorrectionsAreTold(t, open(t, s), label)
			})
		}
	}
}

func killWhileCorrectionsAreTold(t *testing.T, r *rig, label string) {
	t.Helper()
	r.subscribe()
	all := events("e", 60)
	r.start("")
	r.record(all)
	r.drain()
	r.server.stop()

	victim := r.start(label + "=kill@n3")
	if r.separate {
		r.second = victim
		if r.server = r.launchSecond(""); !r.server.serving() {
			t.Fatalf("the other host ended: %v", r.server.err)
		}
	}
	var sent []correction
	for i, e := range all {
		c := correction{"c-" + e.id, e.id, e.quantity}
		if i%2 == 1 {
			c.quantity = "0.001"
		}
		sent = append(sent, c)
	}
	for _, c := range sent {
		if _, err := r.correct(c); err != nil && !within(patience, victim.hasEnded) {
			t.Fatalf("correct: %v", err)
		}
		if victim.hasEnded() {
			break
		}
	}
	victim.died(label)
	r.down()
	r.both()
	if a, err := r.correct(sent...); err != nil || a.Summary["inserted"]+a.Summary["duplicate"] != len(sent) {
		t.Fatalf("again: %+v, %v", a, err)
	}
	r.drain()
	r.auditCorrections()
	l := r.double.Ledger()
	t.Logf("%s: %d corrections, %d adjustments, %d cancelled, bills %s", label, len(sent), l.Adjustments, l.Cancelled, l.NetTotal["llm_tokens"])
	if l.Cancelled == 0 || l.Charges == len(all) {
		t.Errorf("%d cancelled, %d charges of %d events: this proves nothing of one of the methods", l.Cancelled, l.Charges, len(all))
	}
}

// counting are settings under which usage is counted and not recorded.
func counting() settings {
	s := shortLease()
	s.more = "features: {tokens: {source: buffered}}\ncounters: {flush: 50ms, report: 1s}\n"
	return s
}

// counter starts a program that counts: two hosts in one on SQLite, one of two
// processes on PostgreSQL.
func (r *rig) counter(config, rules string) *server {
	r.t.Helper()
	self, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	hosts := "2"
	if r.separate {
		hosts = "1"
	}
	return r.launchAs(rules, self, pairVar, config, hosts)
}

// counters starts all of them.
func (r *rig) counters(rules string) (victim *server) {
	r.t.Helper()
	if r.separate {
		if r.second = r.counter(r.secondConfig(), ""); !r.second.serving() {
			r.t.Fatalf("the other host ended: %v", r.second.err)
		}
	}
	r.server = r.counter(r.config(), rules)
	if !r.server.serving() && rules == "" {
		r.t.Fatalf("the host ended: %v", r.server.err)
	}
	return r.server
}

// O19-O23 under kill -9: the reporter dies between its steps and another one goes
// on. What the store has counted is told once: the windows of a period add up to
// its counter, whoever staged them.
func TestKillWhileReporting(t *testing.T) {
	t.Parallel()
	for store, labels := range map[string][]string{"sqlite": {"w2", "w4"}, "postgres": {"w1", "w2", "w3", "w4", "f1", "f2"}} {
		open, ok := pairs()[store]
		for _, label := range labels {
			t.Run(store+"/"+label, func(t *testing.T) {
				t.Parallel()
				if !ok {
					t.Fatalf("no store %s", store)
				}
				killWhileReporting(t, open(t, counting()), label)
			})
		}
	}
}

func killWhileReporting(t *testing.T, r *rig, label string) {
	t.Helper()
	r.subscribe()
	r.faults("after:500@n1")
	// The role of the reporter is with one host at a time: the one with the rule
	// must get it, so the other is there only afterwards.
	r.server = r.counter(r.config(), label+"=kill@n2")
	victim := r.server
	if !victim.serving() {
		t.Fatalf("ended before it served: %v", victim.err)
	}
	var acked, sent decimal.Decimal
	use := func() error {
		q := decimal.MustParse("1.001")
		form := url.Values{"tenant": {tenant}, "feature": {"tokens"}, "quantity": {q.String()}}
		sent = sent.Add(q)
		err := r.call(http.MethodPost, "/track", "application/x-www-form-urlencoded", []byte(form.Encode()), &struct{}{})
		if err == nil {
			acked = acked.Add(q)
		}
		return err
	}
	eventually(t, "the fault kills the host", func() bool { _ = use(); return victim.hasEnded() })
	victim.died(label)
	r.counters("")
	for range 5 {
		if err := use(); err != nil {
			t.Fatal(err)
		}
	}
	var counted decimal.Decimal
	told := func() bool {
		var usage api.UsageAnswer
		r.get("/v1/usage?tenant="+tenant, &usage)
		counted = decimal.Decimal{}
		for _, row := range usage.Data {
			counted = counted.Add(decimal.MustParse(string(row.Value)))
		}
		net, err := decimal.ParseTotal(r.double.Ledger().NetTotal["llm_tokens"])
		return err == nil && net.Equal(counted)
	}
	if !within(3*time.Minute, told) {
		t.Errorf("%s is counted, the provider bills %s", counted, r.double.Ledger().NetTotal["llm_tokens"])
	}
	if counted.Cmp(acked) < 0 || counted.Cmp(sent) > 0 {
		t.Errorf("%s is counted; %s was acknowledged, %s sent", counted, acked, sent)
	}
	r.drain()
	if !told() {
		t.Error("told more than is counted")
	}
	for _, s := range []*server{r.server, r.second} {
		if s != nil && !s.hasEnded() {
			s.stop()
		}
	}
	b := r.read()
	for _, p := range b.problems {
		t.Errorf("store: %s", p)
	}
	r.auditLedgers(b)
	r.auditSecret()
	r.fired()
	l := r.double.Ledger()
	t.Logf("%s: %d windows, %d charges, %d duplicates refused, bills %s", label, len(b.items), l.Charges, l.DuplicatesRefused, l.NetTotal["llm_tokens"])
	if l.DoubleCharges != 0 || l.DuplicatesRefused == 0 || len(b.items) == 0 {
		t.Errorf("%d windows, %d double charges", len(b.items), l.DoubleCharges)
	}
}
