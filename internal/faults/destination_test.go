//go:build faults && unix

package faults

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/stripedouble"
)

func withCustomers(ids ...string) func(*stripedouble.Config) {
	return func(c *stripedouble.Config) { c.Customers = ids }
}

func withMeters(name, status string) func(*stripedouble.Config) {
	return func(c *stripedouble.Config) {
		c.Meters = map[string]stripedouble.MeterStatus{name: stripedouble.MeterStatus(status)}
	}
}

// preload charges an identifier that is not the engine's doing.
func (r *rig) preload(identifier, value string) {
	r.t.Helper()
	err := r.double.Preload(stripedouble.Entry{Identifier: identifier, EventName: "llm_tokens", Customer: "cus_acme", Value: value})
	if err != nil {
		r.t.Fatal(err)
	}
	r.foreign[identifier] = true
}

// holds fails if it stops being so within the time.
func holds(t *testing.T, what string, limit time.Duration, so func() bool) {
	t.Helper()
	if within(limit, func() bool { return !so() }) {
		t.Errorf("did not hold for %v: %s", limit, what)
	}
}

// F29: a rate limit pauses the destination as long as it asks, within bounds,
// and costs nothing but time.
func TestRateLimits(t *testing.T) {
	t.Parallel()
	onPairs(t, "", rateLimits)
}

func rateLimits(t *testing.T, open opener) {
	t.Helper()
	r := open(defaults())
	r.subscribe()
	r.both()
	for _, retry := range []string{"", "(retry_after=0)", "(retry_after=1)", "(retry_after=2)", "(retry_after=date)", "(retry_after=past)", "(retry_after=garbage)", "(retry_after=negative)"} {
		began := time.Now()
		for _, it := range r.round("before:429"+retry+"@first1", 3) {
			if it.State != "accepted" || it.Unresolved || it.Attempts > 2 {
				t.Errorf("429%s: item %s is %s, unresolved %t, %d attempts", retry, it.ID, it.State, it.Unresolved, it.Attempts)
			}
		}
		least := time.Second
		if strings.HasSuffix(retry, "=2)") {
			least = 2 * time.Second
		}
		if took := time.Since(began); took < least {
			t.Errorf("429%s: delivered after %v, at least %v were asked for", retry, took, least)
		}
	}
	r.fired()
	r.audit().accepted(r)
	if l := r.double.Ledger(); l.DuplicatesRefused != 0 {
		t.Errorf("%d duplicates", l.DuplicatesRefused)
	}
}

// F29: a day is more than anybody waits; the engine waits an hour.
func TestRateLimitOfADay(t *testing.T) {
	t.Parallel()
	onPairs(t, "", rateLimitOfADay)
}

func rateLimitOfADay(t *testing.T, open opener) {
	t.Helper()
	r := open(defaults())
	r.subscribe()
	r.load(events("e", 5))
	r.faults("before:429(retry_after=day)")
	r.both()
	eventually(t, "the first answer is written", func() bool { return r.double.Ledger().Requests > 0 && r.stats().States["leased"] == 0 })
	holds(t, "the first 429 of each host stops it", 2*time.Second, func() bool { return r.double.Ledger().Requests <= int64(r.hosts()) })
	r.quit()
	b := r.audit()
	for _, it := range b.items {
		if it.state != "pending" || it.unresolved || it.attempts > 1 {
			t.Errorf("item %d is %s, unresolved %t, %d attempts", it.id, it.state, it.unresolved, it.attempts)
		}
	}
}

// F28: answers that come too slowly are given up with the lease, body included,
// and another destination does not wait for them.
func TestSlowDestinationHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	onPairs(t, "", slowDestination)
}

func slowDestination(t *testing.T, open opener) {
	t.Helper()
	const other = "acct_other"
	fast := newDouble(t, func(c *stripedouble.Config) { c.Account = other })
	s := shortLease()
	s.extra = exporterYAML("fast", other, fast, s)
	r := open(s)
	r.others = map[string]*stripedouble.Server{"fast": fast}
	r.subscribe("stripe=cus_acme", "fast=cus_acme")
	r.load(events("e", 8))
	r.faults("before:slowloris(delay=250ms)")
	r.both()
	eventually(t, "the other destination has everything", func() bool { return fast.Ledger().Charges == 8 })
	if st := r.stats(); st.Exporters["stripe"]["accepted"].Items != 0 {
		t.Errorf("the slow destination: %v", st.Exporters["stripe"])
	}
	eventually(t, "a slow answer is given up", func() bool {
		return r.stats().States["uncertain"] == 0 && r.double.Ledger().Requests > 2
	})
	r.faults("")
	r.drain()
	b := r.audit()
	if n := b.accepted(r); n != 16 {
		t.Errorf("%d items", n)
	}
}

// F28: a page that does not fit into the lease keeps what it got: only what was
// not sent, or not answered, is sent again.
func TestPageThatDoesNotFitIntoTheLease(t *testing.T) {
	t.Parallel()
	onPairs(t, "", pageThatDoesNotFit)
}

func pageThatDoesNotFit(t *testing.T, open opener) {
	t.Helper()
	s := defaults()
	s.lease = "6s"
	r := open(s, func(c *stripedouble.Config) { c.Latency = 400 * time.Millisecond })
	r.subscribe()
	const n = 24 // of one customer: one after another, 9.6 s, and three quarters of the lease are for sending
	r.load(events("e", n))
	r.both()
	r.drain()
	r.audit().accepted(r)
	l := r.double.Ledger() // how often a page is cut is the machine's: that it ends is what counts
	t.Logf("%d requests for %d charges, %d duplicates", l.Requests, l.Charges, l.DuplicatesRefused)
}

// F34, Q10: a key that the provider does not take stops the destination. Items
// wait, their attempts are not used up, and a good key delivers them.
func TestWrongKeyOpensTheBreaker(t *testing.T) {
	t.Parallel()
	onPairs(t, "", wrongKey)
}

func wrongKey(t *testing.T, open opener) {
	t.Helper()
	s := defaults()
	s.attempts = 5
	r := open(s, func(c *stripedouble.Config) { c.Keys = []string{canary} })
	r.subscribe()
	r.load(events("e", 30))
	r.key = "sk_test_rotatedAway000000"
	r.both()
	// Many more failures than an item has attempts.
	eventually(t, "the breaker probes again and again", func() bool { return r.double.Ledger().Answers["401"] >= 12 })
	if st := r.stats(); st.States["pending"]+st.States["leased"] != 30 {
		t.Errorf("states %v", st.States)
	}
	r.quit()
	b := r.audit()
	touched := 0
	for _, it := range b.items {
		if it.attempts >= s.attempts {
			t.Errorf("item %d has used up its %d attempts", it.id, it.attempts)
		}
		touched += it.attempts
	}
	if touched > 10*r.hosts() {
		t.Errorf("30 items lost %d attempts to one wrong key", touched)
	}
	r.key = canary
	r.both()
	r.drain()
	if n := r.audit().accepted(r); n != 30 {
		t.Errorf("%d items", n)
	}
}

// F34: 403 and 404 concern the destination too.
func TestRefusedDestinationOpensTheBreaker(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"403", "404"} {
		onPairs(t, status, func(t *testing.T, open opener) {
			t.Helper()
			s := defaults()
			s.attempts = 4
			r := open(s)
			r.subscribe()
			r.load(events("e", 10))
			r.faults("before:" + status)
			r.both()
			eventually(t, "the breaker probes", func() bool { return r.double.Ledger().Answers[status] >= 10 })
			if st := r.stats(); st.States["pending"]+st.States["leased"] != 10 {
				t.Errorf("states %v", st.States)
			}
			r.faults("")
			r.drain()
			r.audit().accepted(r)
		})
	}
}

// F34: a test key on live items sends nothing: the server does not start. What
// the provider takes in the wrong mode all the same is in TestOddSuccesses.
func TestTestKeyOnLiveItems(t *testing.T) {
	t.Parallel()
	onPairs(t, "", func(t *testing.T, open opener) {
		t.Helper()
		r := open(defaults())
		r.settings.mode = "live"
		r.configure()
		testKey := r.key
		r.key = strings.Replace(testKey, "sk_test_", "sk_live_", 1)
		r.both() // only a server puts the mapping of the mode in force
		r.quit()
		r.key = testKey
		r.subscribe()
		r.load(events("e", 1))
		for n := range r.hosts() {
			start := r.launch
			if n > 0 {
				start = func(string) *server { return r.launchSecond("") }
			}
			if start("").serving() {
				t.Error("a server with a key of the other mode started")
			}
		}
		if b := r.audit(); b.items[0].mode != "live" || b.items[0].attempts != 0 {
			t.Errorf("the item is %+v", b.items[0])
		}
		if n := r.double.Ledger().Requests; n != 0 {
			t.Errorf("%d requests were sent", n)
		}
	})
}

// F37: answers made to hurt. Memory stays bounded, redirects are not followed,
// and what was not charged is in the end.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	onPairs(t, "", hostileAnswers)
}

func hostileAnswers(t *testing.T, open opener) {
	t.Helper()
	elsewhere := newDouble(t)
	r := open(shortLease())
	r.subscribe()
	r.both()
	for _, kind := range []string{
		"redirect(to=" + elsewhere.URL() + "/v1/billing/meter_events)", "redirect(to=" + elsewhere.URL() + "/,status=302)",
		"huge", "gzip", "headers", "html", "html(status=403)", "html(status=200)",
	} {
		for _, it := range r.round("before:"+kind+"@first3", 4) {
			if e, _ := r.charged(it); it.State != "accepted" || e.Charges != 1 {
				t.Errorf("%s: item %s is %s, charged %d times: %+v", kind, it.ID, it.State, e.Charges, it.LastError)
			}
		}
	}
	r.fired()
	if n := elsewhere.Ledger().Requests; n != 0 {
		t.Errorf("%d requests followed a redirect", n)
	}
	for _, s := range r.running() {
		if mib := peakMemory(t, s.cmd.Process.Pid) >> 20; mib > 300 {
			t.Errorf("a host needed %d MiB", mib)
		} else {
			t.Logf("a host needed %d MiB at most", mib)
		}
	}
	r.audit().accepted(r)
}

// peakMemory is the most resident memory of a process, in bytes.
func peakMemory(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip("no /proc here")
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			kib, err := strconv.Atoi(strings.Fields(string(rest))[0])
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// F37: no connection, no name, or a certificate of somebody else. Nothing was
// sent, so no item loses an attempt, however often that is found out.
func TestUnreachableDestination(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		baseURL string
		change  func(*stripedouble.Config)
		code    string
	}{
		"name":        {"https://stripe.invalid", func(*stripedouble.Config) {}, ""},
		"port":        {"https://127.0.0.1:1", func(*stripedouble.Config) {}, ""},
		"certificate": {"", func(c *stripedouble.Config) { c.CertificateHost = "elsewhere.example" }, ""},
	}
	for name, test := range tests {
		onPairs(t, name, func(t *testing.T, open opener) {
			t.Helper()
			s := defaults()
			s.attempts, s.baseURL = 3, test.baseURL
			r := open(s, test.change)
			r.subscribe()
			r.load(events("e", 5))
			r.both()
			eventually(t, "the breaker opens again and again", func() bool {
				n := 0
				for _, s := range r.running() {
					n += len(s.logged("breaker open"))
				}
				return n >= 5*r.hosts()
			})
			r.quit()
			for _, it := range r.audit().items {
				if it.state != "pending" || it.attempts != 0 || it.unresolved {
					t.Errorf("item %d is %s after %d attempts, unresolved %t", it.id, it.state, it.attempts, it.unresolved)
				}
			}
			if l := r.double.Ledger(); l.Requests != 0 {
				t.Errorf("%d requests", l.Requests)
			}

			// Mended, everything is delivered. (Another certificate needs
			// another double.)
			if test.baseURL != "" {
				r.settings.baseURL = ""
				r.configure()
				r.both()
				r.drain()
				r.audit().accepted(r)
			}
		})
	}
}
