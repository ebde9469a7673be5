package stripedouble_test

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/internal/stripedouble"
)

// F29-F31, F37, Q14: every misbehaviour, before and after the effect: what the
// client sees, and that the ledger charged if and only if it was after. The
// rule must have fired.
func TestFaults(t *testing.T) {
	t.Parallel()
	isReset := func(t *testing.T, r reply) {
		t.Helper()
		if !errors.Is(r.err, syscall.ECONNRESET) {
			t.Errorf("error %v, want a reset", r.err)
		}
	}
	isClosed := func(t *testing.T, r reply) {
		t.Helper()
		if !errors.Is(r.err, io.EOF) {
			t.Errorf("error %v, want the end", r.err)
		}
	}
	isStatus := func(status int, header, value string) func(*testing.T, reply) {
		return func(t *testing.T, r reply) {
			t.Helper()
			if r.status != status || r.err != nil || (header != "" && r.header.Get(header) != value) {
				t.Errorf("status %d, error %v, header %v", r.status, r.err, r.header)
			}
			r.error(t)
		}
	}
	for rule, check := range map[string]func(*testing.T, reply){
		"500":                       isStatus(500, "", ""),
		"503(retry_after=7)":        isStatus(503, "Retry-After", "7"),
		"429(retry_after=2)":        isStatus(429, "Retry-After", "2"),
		"429(retry_after=date)":     isStatus(429, "Retry-After", "Mon, 30 Nov 2026 12:00:02 GMT"),
		"429(retry_after=past)":     isStatus(429, "Retry-After", "Mon, 30 Nov 2026 11:00:00 GMT"),
		"429(retry_after=day)":      isStatus(429, "Retry-After", "86400"),
		"429(retry_after=garbage)":  isStatus(429, "Retry-After", "soon; perhaps"),
		"429(retry_after=negative)": isStatus(429, "Retry-After", "-5"),
		"429":                       isStatus(429, "Retry-After", ""),
		"401":                       isStatus(401, "", ""),
		"403":                       isStatus(403, "", ""),
		"404":                       isStatus(404, "", ""),
		"408":                       isStatus(408, "", ""),
		"409":                       isStatus(409, "", ""),
		"refuse":                    isStatus(400, "", ""),
		"reset":                     isReset,
		"close":                     isClosed,
		"redirect(to=https://a.example/b@c)": func(t *testing.T, r reply) {
			t.Helper()
			if r.status != 307 || r.header.Get("Location") != "https://a.example/b@c" {
				t.Errorf("status %d, location %q", r.status, r.header.Get("Location"))
			}
		},
		"html(status=504)": func(t *testing.T, r reply) {
			t.Helper()
			if r.status != 504 || r.header.Get("Content-Type") != "text/html" || !strings.HasPrefix(string(r.body), "<html>") {
				t.Errorf("status %d, body %s", r.status, r.body)
			}
		},
		"empty": func(t *testing.T, r reply) {
			t.Helper()
			if r.status != 200 || len(r.body) != 0 || r.err != nil {
				t.Errorf("status %d, body %q, error %v", r.status, r.body, r.err)
			}
		},
		"truncate": func(t *testing.T, r reply) {
			t.Helper()
			if r.status != 200 || !errors.Is(r.err, io.ErrUnexpectedEOF) || len(r.body) == 0 || json.Valid(r.body) {
				t.Errorf("status %d, body %q, error %v", r.status, r.body, r.err)
			}
		},
		"slow(delay=30ms)":     isEvent("id_1", false),
		"slowloris(delay=1ms)": isEvent("id_1", false),
		"dup":                  isEvent("id_1", false),
		"livemode":             isEvent("id_1", true),
		"foreign":              isEvent("foreign_id_1", false),
		"huge(bytes=3000000)":  isEvent("id_1", false),
		"gzip(bytes=3000000)":  isEvent("id_1", false),
		"headers(bytes=50000)": isEvent("id_1", false),
	} {
		for _, phase := range []string{"before", "after"} {
			t.Run(phase+":"+rule, func(t *testing.T) {
				t.Parallel()
				text := phase + ":" + rule
				r := start(t, func(c *stripedouble.Config) { c.Faults = faults(t, text+"@n1") })
				check(t, r.post(event("id_1"), "Idempotency-Key", "k1"))
				if diff := cmp.Diff(map[string]int64{text + "@n1": 1}, r.FaultsFired()); diff != "" {
					t.Errorf("fired: %s", diff)
				}
				charged := phase == "after" || strings.HasPrefix(rule, "slow(")
				_, ok := r.Entry("", false, "id_1")
				if ok != charged {
					t.Errorf("charged %v, want %v", ok, charged)
				}
				// The next attempt, with a new key, finds what really happened. It
				// takes a connection of its own: one that a fault has touched may
				// be handed out in the instant before its end is seen.
				r.client.CloseIdleConnections()
				want := 200
				if charged {
					want = 400
				}
				r.mustPost(want, event("id_1"), "Idempotency-Key", "k2")
				if l := r.Ledger(); l.Charges != 1 || l.DoubleCharges != 0 {
					t.Errorf("ledger %+v", l)
				}
			})
		}
	}
}

func isEvent(identifier string, live bool) func(*testing.T, reply) {
	return func(t *testing.T, r reply) {
		t.Helper()
		var got struct {
			Object, Identifier string
			Livemode           bool
		}
		if r.status != 200 || r.err != nil || json.Unmarshal(r.body, &got) != nil {
			t.Fatalf("status %d, error %v, %d bytes", r.status, r.err, len(r.body))
		}
		if got.Object != "billing.meter_event" || got.Identifier != identifier || got.Livemode != live {
			t.Errorf("got %+v", got)
		}
	}
}

// After a fault on the network the true answer is what the key replays; after
// a 500 it is the 500 (D3).
func TestFaultAfterEffectAndKey(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]int{"after:reset@n1": 200, "after:429@n1": 200, "after:503@n1": 200, "after:500@n1": 500} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			r := start(t, func(c *stripedouble.Config) { c.Faults = faults(t, rule) })
			r.post(event("id_1"), "Idempotency-Key", "k1")
			if !replayed(r.mustPost(want, event("id_1"), "Idempotency-Key", "k1")) {
				t.Error("not a replay")
			}
			r.mustPost(400, event("id_1"), "Idempotency-Key", "k2")
		})
	}
}

// F37: sizes that a client must bound.
func TestFaultSizes(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *stripedouble.Config) {
		c.Faults = faults(t, "before:huge(bytes=8000000)@n1; before:gzip(bytes=8000000)@n2; before:headers@n3")
	})
	if got := r.post(event("id_1")); len(got.body) != 8e6 || got.err != nil {
		t.Errorf("huge: %d bytes, %v", len(got.body), got.err)
	}
	// A client that decompresses by itself would hide the bomb's small size.
	r.client.Transport.(*http.Transport).DisableCompression = true
	got := r.post(event("id_1"))
	if got.header.Get("Content-Encoding") != "gzip" || len(got.body) > 20000 {
		t.Errorf("gzip: %d bytes, %v", len(got.body), got.header)
	}
	z, err := gzip.NewReader(strings.NewReader(string(got.body)))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, z); n != 8e6 || err != nil {
		t.Errorf("gzip expands to %d bytes, %v", n, err)
	}
	if got := r.post(event("id_1")); got.err == nil {
		t.Error("the headers passed a client with Go's limit of 10 MiB")
	}
	if got := faults(t, "after:huge(bytes=67108864); after:gzip(bytes=67108864)").String(); got != "after:huge; after:gzip" {
		t.Errorf("64 MiB is not the default: %s", got)
	}
}

// The trigger forms, counted from the moment the schedule was set; "times"
// bounds every form.
func TestTriggers(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]string{
		"after:500":                 "xxxxxxxxxx",
		"after:500@n3":              "..x.......",
		"after:500@every3":          "..x..x..x.",
		"after:500@first4":          "xxxx......",
		"after:500(times=2)@every3": "..x..x....",
		"after:500@id=_7":           ".......x..",
		"after:500@p1":              "xxxxxxxxxx",
		"after:500@n2; after:404":   "4444444444", // the 500 is the reply, the 404 spoils it
	} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			r := start(t)
			r.mustPost(200, event("not counted"))
			r.SetFaults(faults(t, rule))
			got := ""
			for i := range 10 {
				switch a := r.post(event("id_" + strconv.Itoa(i))); a.status {
				case 500:
					got += "x"
				case 404:
					got += "4"
				default:
					got += "."
				}
			}
			if got != want {
				t.Errorf("fired %s, want %s", got, want)
			}
		})
	}
}

// The same seed hits the same requests, another seed others, and the share is
// about the probability.
func TestProbabilityFollowsTheSeed(t *testing.T) {
	t.Parallel()
	pattern := func(seed uint64) string {
		r := start(t, func(c *stripedouble.Config) { c.Seed, c.Faults = seed, faults(t, "before:503@p0.3") })
		var b strings.Builder
		for i := range 200 {
			b.WriteByte(byte('0' + r.post(event("id_"+strconv.Itoa(i))).status/100))
		}
		if n := int64(strings.Count(b.String(), "5")); n < 30 || n > 90 || n != r.FaultsFired()["before:503@p0.3"] {
			t.Errorf("seed %d: %d of 200 fired, counted %v", seed, n, r.FaultsFired())
		}
		return b.String()
	}
	if a, b := pattern(7), pattern(7); a != b {
		t.Errorf("one seed, two patterns:\n%s\n%s", a, b)
	}
	if pattern(7) == pattern(8) {
		t.Error("two seeds, one pattern")
	}
}

func TestParseFaultsErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"500":                             "rule 1: the phase, before, after or late",
		"before:reset; during:reset":      "rule 2: the phase",
		"before:":                         "unknown kind",
		"before:399":                      "unknown kind",
		"before:600":                      "unknown kind",
		"before:implode":                  "unknown kind; known are",
		"before:429(retry_after=soon)":    "retry_after",
		"before:429(retry_after=+2)":      "retry_after",
		"before:reset(retry_after=2)":     "does not apply to reset",
		"before:slow(delay=2h)":           "delay",
		"before:slow(delay=fast)":         "delay",
		"before:slow(bytes=1)":            "does not apply",
		"before:huge(bytes=0)":            "whole number",
		"before:huge(bytes=9999999999)":   "whole number",
		"before:redirect(to=elsewhere)":   "absolute URL",
		"before:redirect(status=200)":     "does not suit",
		"before:429(retry_after)":         "name=value",
		"before:429(retry_after=2":        "closing bracket",
		"before:reject":                   "late goes with",
		"late:reset":                      "late goes with",
		"late:reject(code=Not OK)":        "code is of",
		"late:omit(delay=1s)":             "does not apply",
		"before:429()":                    "name=value",
		"before:429(retry_after=2)x@n1":   "unexpected text",
		"before:reset@":                   "unknown trigger",
		"before:reset@n0":                 "whole number",
		"before:reset@p0":                 "probability",
		"before:reset@p1.1":               "probability",
		"before:reset@pNaN":               "probability",
		"before:reset@id=":                "needs a text",
		"late:omit@customer=":             "needs a text",
		"before:reset@customer=cus_1":     "go with late",
		"after:500@meter=llm_tokens":      "go with late",
		strings.Repeat("a", 5000):         "at most 4096 bytes",
		strings.Repeat("before:500;", 33): "at most 32 rules",
	} {
		if _, err := stripedouble.ParseFaults(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
	text := "late:reject(code=no_meter,delay=1m0s)@id=a; late:omit@n1; late:reject@customer=cus_1; late:omit@meter=llm_tokens"
	if f, err := stripedouble.ParseFaults(text); err != nil || f.String() != text || f.Rules() != 4 {
		t.Errorf("late: %v, %v", f, err)
	}
	f, err := stripedouble.ParseFaults(" before:429( retry_after=2 , times=3 )@p0.05 ;after:slow(delay=1s); ")
	if err != nil || f.String() != "before:429(retry_after=2,times=3)@p0.05; after:slow" {
		t.Errorf("%v, %v", f, err)
	}
}

// F37: a certificate for another host is refused by the client, so nothing is
// charged.
func TestWrongCertificate(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *stripedouble.Config) { c.CertificateHost = "api.stripe.com" })
	var wrong *tls.CertificateVerificationError
	if got := r.post(event("id_1")); !errors.As(got.err, &wrong) {
		t.Errorf("error %v, want a certificate error", got.err)
	}
	if n := len(r.Entries()); n != 0 {
		t.Errorf("%d events charged", n)
	}
}

// Close ends what a fault holds up, and a held-up request has no effect.
func TestCloseEndsSlowRequests(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := start(t, in(dir), func(c *stripedouble.Config) {
		c.Faults = faults(t, "before:slow(delay=1h)@id=a; after:slowloris(delay=1h)@id=b")
	})
	ended := make(chan reply, 2)
	go func() { ended <- r.post(event("a")) }()
	go func() { ended <- r.post(event("b", "payload[stripe_customer_id]", "cus_2")) }()
	awaitFired(t, r, "before:slow(delay=1h0m0s)@id=a")
	awaitFired(t, r, "after:slowloris(delay=1h0m0s)@id=b")
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if got := <-ended; got.err == nil {
			t.Errorf("a request ended with %d", got.status)
		}
	}
	if got := start(t, in(dir)).Entries(); len(got) != 1 || got[0].Identifier != "b" {
		t.Errorf("entries %+v", got)
	}
}

// A client that gives up does not undo what the server is about to do (F26).
func TestEffectOutlivesTheClient(t *testing.T) {
	t.Parallel()
	const rule = "before:slow(delay=300ms)@id=a"
	r := start(t, func(c *stripedouble.Config) { c.Faults = faults(t, rule) })
	ctx, giveUp := context.WithCancel(t.Context())
	req := r.request(event("a")).WithContext(ctx)
	ended := make(chan reply, 1)
	go func() { ended <- r.do(req) }()
	awaitFired(t, r, rule)
	giveUp()
	if got := <-ended; got.err == nil {
		t.Skip("the answer was there before the client had given up")
	}
	await(t, "the effect", func() bool {
		_, ok := r.Entry("", false, "a")
		return ok
	})
}
