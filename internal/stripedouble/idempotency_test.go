package stripedouble_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/stripedouble"
)

func replayed(r reply) bool { return r.header.Get("Idempotent-Replayed") == "true" }

// D3: the same key with the same parameters answers what was stored, byte for
// byte, without executing again.
func TestKeyReplays(t *testing.T) {
	t.Parallel()
	r := start(t)
	first := r.mustPost(200, event("id_1"), "Idempotency-Key", "k1")
	again := r.mustPost(200, event("id_1"), "Idempotency-Key", "k1")
	if replayed(first) || !replayed(again) || !bytes.Equal(first.body, again.body) {
		t.Errorf("replay differs: %s / %s, %v", first.body, again.body, again.header)
	}
	if got, want := again.header.Get("Original-Request"), first.header.Get("Request-Id"); got != want {
		t.Errorf("Original-Request %q, want %q", got, want)
	}
	// A refusal by execution is stored with its headers.
	dup := r.mustPost(400, event("id_1"), "Idempotency-Key", "k2")
	dupAgain := r.mustPost(400, event("id_1"), "Idempotency-Key", "k2")
	if !replayed(dupAgain) || !bytes.Equal(dup.body, dupAgain.body) || dupAgain.header.Get("Stripe-Should-Retry") != "false" {
		t.Errorf("refusal not replayed: %s %v", dupAgain.body, dupAgain.header)
	}
	if e, _ := r.Entry("", false, "id_1"); e.TimesSeen != 2 || e.Charges != 1 {
		t.Errorf("a replay executed: %+v", e)
	}
	if l := r.Ledger(); l.Replays != 2 || l.Requests != 4 {
		t.Errorf("ledger %+v", l)
	}
	// The store belongs to account and mode.
	if got := r.mustPost(200, event("id_1"), "Idempotency-Key", "k1", "Stripe-Account", "acct_2"); replayed(got) {
		t.Error("a key reached over to another account")
	}
}

// D3, F30: a stored 500 answers every later attempt with the same key, though
// nothing was charged; a new key gets through.
func TestKeyReplaysStored500(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *stripedouble.Config) { c.Faults = faults(t, "before:500@n1") })
	for i := range 3 {
		if got := r.mustPost(500, event("id_1"), "Idempotency-Key", "k1"); replayed(got) != (i > 0) {
			t.Errorf("attempt %d: replayed %v", i, replayed(got))
		}
	}
	if l := r.Ledger(); l.Charges != 0 {
		t.Fatalf("500 before the effect charged: %+v", l)
	}
	r.mustPost(200, event("id_1"), "Idempotency-Key", "k2")
}

// D3: the same key with other parameters is an idempotency_error and executes
// nothing, whatever the parameter.
func TestKeyWithOtherParameters(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.mustPost(200, event("id_1"), "Idempotency-Key", "k1")
	for _, form := range [][]string{{"identifier", "id_2"}, {"payload[value]", "26"}, {"timestamp", ""}, {"colour", "red"}} {
		e := r.mustPost(400, event("id_1", form...), "Idempotency-Key", "k1").error(t)
		if e.Type != "idempotency_error" || e.Code != "" || !strings.Contains(e.Message, "same parameters") {
			t.Errorf("%v: %+v", form, e)
		}
	}
	if l := r.Ledger(); l.Events != 1 || l.DuplicatesRefused != 0 {
		t.Errorf("ledger %+v", l)
	}
}

// Refused parameters, 401, 403 and answers of a proxy never were an execution,
// so the key is still good for the mended request.
func TestKeyNotStoredBeforeExecution(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *stripedouble.Config) { c.Faults = faults(t, "before:503@id=proxy") })
	r.mustPost(400, event("id_1", "payload[value]", "x"), "Idempotency-Key", "k1")
	r.mustPost(401, event("id_1"), "Idempotency-Key", "k1", "Authorization", "")
	r.mustPost(403, event("id_1"), "Idempotency-Key", "k1", "Stripe-Account", "x")
	if replayed(r.mustPost(200, event("id_1"), "Idempotency-Key", "k1")) {
		t.Error("something before execution was stored")
	}
	r.mustPost(503, event("proxy"), "Idempotency-Key", "k2")
	r.SetFaults(stripedouble.Faults{})
	if replayed(r.mustPost(200, event("proxy"), "Idempotency-Key", "k2")) {
		t.Error("a 503 was stored")
	}
	r.mustPost(400, event("id_2"), "Idempotency-Key", strings.Repeat("k", 256))
}

// D3, F26: a key in use answers 409; another identifier of the same customer
// and meter finds them locked. Neither is stored, neither has an effect; the
// first request ends as usual.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	const rule = "before:slow(delay=2s)@id=slow"
	r := start(t, func(c *stripedouble.Config) { c.Faults = faults(t, rule) })
	first := make(chan reply, 1)
	go func() { first <- r.post(event("slow"), "Idempotency-Key", "k1") }()
	awaitFired(t, r, rule)
	if e := r.mustPost(409, event("slow"), "Idempotency-Key", "k1").error(t); e.Type != "idempotency_error" || e.Code != "idempotency_key_in_use" {
		t.Errorf("key in use: %+v", e)
	}
	if e := r.mustPost(429, event("id_2"), "Idempotency-Key", "k2").error(t); e.Code != "lock_timeout" {
		t.Errorf("customer and meter in use: %+v", e)
	}
	r.mustPost(200, event("id_3", "payload[stripe_customer_id]", "cus_2"))
	r.mustPost(200, event("id_4", "event_name", "other"))
	if got := <-first; got.status != 200 || replayed(got) {
		t.Fatalf("first request: %d %v", got.status, got.err)
	}
	if !replayed(r.mustPost(200, event("slow"), "Idempotency-Key", "k1")) {
		t.Error("the key did not keep the first answer")
	}
	if replayed(r.mustPost(200, event("id_2"), "Idempotency-Key", "k2")) {
		t.Error("a 429 was stored")
	}
}

// A key is forgotten after a day.
func TestKeyExpires(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *stripedouble.Config) { c.DedupeWindow = time.Minute })
	r.mustPost(200, event("id_1", "timestamp", ""), "Idempotency-Key", "k1")
	if err := r.Advance(24*time.Hour - time.Microsecond); err != nil {
		t.Fatal(err)
	}
	if !replayed(r.mustPost(200, event("id_1", "timestamp", ""), "Idempotency-Key", "k1")) {
		t.Error("the key was forgotten within the day")
	}
	if err := r.Advance(time.Microsecond); err != nil {
		t.Fatal(err)
	}
	if replayed(r.mustPost(200, event("id_1", "timestamp", ""), "Idempotency-Key", "k1")) {
		t.Error("the key outlived the day")
	}
}
