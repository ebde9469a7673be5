//go:build faults && linux

package faults

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/internal/stripedouble"
)

// reconcile compares the last hours, on the host that is asked, and returns the
// lines by customer.
func (r *rig) reconcile() map[string]api.ReconciliationLineView {
	r.t.Helper()
	now := time.Now().UTC().Truncate(time.Minute)
	out, diag, err := r.run("reconcile", "run", "--json", "--exporter", "stripe", "--whole", "--actor", "ada", "--server", r.server.base,
		"--from", now.Add(-3*time.Hour).Format(time.RFC3339), "--to", now.Add(2*time.Minute).Format(time.RFC3339))
	var page struct{ Data []api.ReconciliationLineView }
	if json.Unmarshal([]byte(out), &page) != nil {
		r.t.Logf("reconcile run: %v: %s%s", err, out, diag)
		return nil
	}
	lines := map[string]api.ReconciliationLineView{}
	for _, l := range page.Data {
		lines[l.Customer] = l
	}
	return lines
}

// reported posts a message of the provider to a host.
func (s *server) reported(body []byte) {
	s.r.t.Helper()
	req, err := http.NewRequestWithContext(s.r.t.Context(), http.MethodPost, s.base+"/v1/webhooks/stripe", bytes.NewReader(body))
	if err != nil {
		s.r.t.Fatal(err)
	}
	req.Header.Set("Stripe-Signature", stripedouble.Sign(hookSecret, time.Now(), body))
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.r.t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		s.r.t.Errorf("a message was answered %d", res.StatusCode)
	}
}

// F35, O12, O25 with two hosts: the provider says 200 and later that it did not count,
// names one of two in its message, leaves others out of its sums, and its sums come
// an hour late. What it took stays accepted, is disputed where a message names it,
// confirmed where the sums agree, and a difference where they do not. The host that
// compares is killed before it has written what it found. Nothing is sent again.
func TestRefusedLate(t *testing.T) {
	t.Parallel()
	s := defaults()
	s.webhook = true
	b := newTimed(t, s, func(c *stripedouble.Config) { c.SummaryLag, c.Samples = time.Hour, 1 })
	b.subscribeCrowd()
	b.faults("late:omit@customer=cus_globex; late:reject@customer=cus_initech")
	b.pair("")
	b.double.SetWebhook(b.second.base+"/v1/webhooks/stripe", hookSecret)
	b.record(crowd("e", 10))
	b.drain()
	disputed := func() (n int) {
		for _, it := range b.read().items {
			if it.disputed != "" {
				n++
			}
		}
		return n
	}
	eventually(t, "the message arrives", func() bool { return disputed() > 0 })
	b.fired()
	reports := b.double.Reports()
	for _, host := range b.running() {
		for _, r := range reports { // again, and to the other one
			host.reported(r.Body)
		}
	}
	named := disputed()
	if named != len(reports) || named == 0 {
		t.Errorf("%d items are disputed, %d messages name one each", named, len(reports))
	}
	for customer, l := range b.reconcile() {
		if l.Confirmed != "0" {
			t.Errorf("%s: %s items were confirmed before the provider could show them", customer, l.Confirmed)
		}
	}

	b.later(2 * time.Hour)
	b.server.stop()
	victim := b.launchSecond("k3=kill@n1")
	if !victim.serving() {
		t.Fatalf("ended before it served: %v", victim.err)
	}
	other := b.second
	b.server = victim
	b.reconcile()
	victim.died("k3")
	b.server, b.second = other, nil
	lines := b.reconcile()
	for customer, want := range map[string]string{"cus_acme": "none", "cus_umbrella": "none", "cus_hooli": "none", "cus_globex": "provider_less"} {
		if got := lines[customer].Cause; got != want {
			t.Errorf("%s: cause %s, want %s: %+v", customer, got, want, lines[customer])
		}
	}
	if l := lines["cus_initech"]; !strings.HasPrefix(l.Cause, "disputed") && l.Cause != "provider_less" && named < 2 {
		t.Errorf("what was refused late: %+v", l)
	}
	books := b.healed()
	if n := books.states(); n["confirmed"] != 6 || n["accepted"] != 4 {
		t.Errorf("states %v, want 6 confirmed and 4 accepted", n)
	}
	if l := b.double.Ledger(); l.Requests != 10 || l.Rejected != 2 || l.Charges != 8 {
		t.Errorf("%d requests, %d refused late, %d charges", l.Requests, l.Rejected, l.Charges)
	}
}
