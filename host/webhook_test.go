package host_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/internal/stripedouble"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const hookSecret = "whsec_canaryCanaryCanary"

// hooked is a host that delivers to a double and takes its messages.
type hooked struct {
	t      *testing.T
	double *stripedouble.Server
	store  storage.OutboxStore
	host   *host.Host
	url    string
}

func openHooked(t *testing.T, store storage.Adapter, double *stripedouble.Server, change ...func(*config.Config)) *hooked {
	t.Helper()
	s := settings(double)
	s.StateDir = t.TempDir()
	s.Exporters[0].Secrets["webhook_secret"] = "env:HOOK"
	for _, f := range change {
		f(&s)
	}
	return openHookedHost(t, hostConfig(store, s), double)
}

func openHookedHost(t *testing.T, cfg host.Config, double *stripedouble.Server) *hooked {
	t.Helper()
	store := cfg.Store
	cfg.Getenv = func(name string) (string, bool) {
		v, ok := map[string]string{"STRIPE_API_KEY": apiKey, "HOOK": hookSecret}[name]
		return v, ok
	}
	h := open(t, cfg)
	srv := httptest.NewServer(h.Handler())
	t.Cleanup(srv.Close)
	items, _ := store.(storage.OutboxStore)
	return &hooked{t: t, double: double, store: items, host: h, url: srv.URL + "/v1/webhooks/stripe"}
}

// record records n events of one tenant and waits until they are accepted.
func (h *hooked) record(customer string, ids ...string) {
	h.t.Helper()
	e := h.host.Engine()
	if _, err := e.PutSubscription(h.t.Context(), storage.Subscription{
		Tenant: customer, Anchor: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Customers: map[string]string{"stripe": customer},
	}); err != nil {
		h.t.Fatal(err)
	}
	for _, id := range ids {
		if _, err := e.Record(h.t.Context(), engine.Event{ID: id, Tenant: customer, Feature: "tokens", Quantity: decimal.MustParse("12.5")}); err != nil {
			h.t.Fatal(err)
		}
	}
	if counts := wait(h.t, h.store); counts[storage.Accepted]+counts[storage.Confirmed] == 0 {
		h.t.Fatalf("nothing was accepted: %v", counts)
	}
}

func (h *hooked) items(q storage.ItemQuery) []storage.Item {
	h.t.Helper()
	q.Limit = 1000
	page, err := h.store.ListItems(h.t.Context(), q)
	if err != nil {
		h.t.Fatal(err)
	}
	return page.Items
}

func (h *hooked) post(url, signature string, body []byte) (int, string) {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	if signature != "" {
		req.Header.Set("Stripe-Signature", signature)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

// O12, F35: what Stripe refuses after its 200 is shown as disputed, through the
// real module and with a thin message. The state stays, and the same message
// twice is one piece of evidence.
func TestLateRefusalIsDisputed(t *testing.T) {
	t.Parallel()
	double := newDouble(t)
	h := openHooked(t, newStore(t), double)
	h.record("cus_1", "a", "b", "c")
	victim := double.Entries()[1].Identifier
	if err := double.Reject("acct_1", false, "meter_event_customer_not_found", victim); err == nil {
		t.Fatal("the double knows acct_1")
	}
	if err := double.Reject("", false, "meter_event_customer_not_found", victim); err != nil {
		t.Fatal(err)
	}
	report := double.Reports()[0]
	signature := stripedouble.Sign(hookSecret, time.Now(), report.Body)
	for i, want := range []api.WebhookAnswer{
		{ID: report.ID, Code: "v1.billing.meter.error_report_triggered", Evidence: 1, Counted: 1},
		{ID: report.ID, Code: "v1.billing.meter.error_report_triggered", Repeated: 1, Counted: 1},
	} {
		status, body := h.post(h.url, signature, report.Body)
		var got api.WebhookAnswer
		if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusOK || got != want {
			t.Errorf("message %d: %d %s", i, status, body)
		}
	}
	disputed := h.items(storage.ItemQuery{Disputed: true})
	if len(disputed) != 1 || disputed[0].State != storage.Accepted || !disputed[0].SettledAt.IsZero() ||
		!strings.Contains(disputed[0].Disputed, "meter_event_customer_not_found") {
		t.Fatalf("disputed %+v", disputed)
	}
	page, err := h.host.Engine().Actions(t.Context(), storage.ActionQuery{ItemID: disputed[0].ItemID, Limit: 10})
	if err != nil || len(page.Actions) != 1 || page.Actions[0].Actor != "webhook:stripe" || !strings.Contains(page.Actions[0].Reason, report.ID) {
		t.Errorf("actions %+v, %v", page.Actions, err)
	}
	if st, err := h.store.OutboxStats(t.Context()); err != nil || st.Disputed != 1 {
		t.Errorf("stats %+v, %v", st, err)
	}
}

// O12: what Stripe says of another account than this exporter's is no evidence
// about its items, and a report that counts less than nothing is refused.
func TestMessagesOfAnotherAccount(t *testing.T) {
	t.Parallel()
	double, err := stripedouble.New(stripedouble.Config{Dir: t.TempDir(), FullReports: true})
	if err == nil {
		err = double.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = double.Close() })
	h := openHooked(t, newStore(t), double)
	h.record("cus_1", "a")
	if err := double.Reject("", false, "no_meter", double.Entries()[0].Identifier); err != nil {
		t.Fatal(err)
	}
	report := double.Reports()[0]
	for _, c := range []struct {
		from, to string
		status   int
		says     string
	}{
		{`"context":null`, `"context":"acct_other"`, http.StatusOK, `"account_mismatch"`},
		{`"error_count":1`, `"error_count":-5`, http.StatusBadRequest, "error_count"},
	} {
		whole := []byte(report.Body)
		body := bytes.Replace(whole, []byte(c.from), []byte(c.to), 1)
		if bytes.Equal(body, whole) {
			t.Fatalf("%s is not in %s", c.from, whole)
		}
		status, answer := h.post(h.url, stripedouble.Sign(hookSecret, time.Now(), body), body)
		if status != c.status || !strings.Contains(answer, c.says) {
			t.Errorf("%s: %d %s", c.to, status, answer)
		}
	}
	if got := h.items(storage.ItemQuery{Disputed: true}); len(got) != 0 {
		t.Errorf("disputed %+v", got)
	}
}

// The double delivers by itself, again until it is taken.
func TestReportsAreTaken(t *testing.T) {
	t.Parallel()
	double := newDouble(t)
	h := openHooked(t, newStore(t), double)
	h.record("cus_1", "a")
	double.SetWebhook(h.url, "wrong secret")
	if err := double.Reject("", false, "no_meter", double.Entries()[0].Identifier); err != nil {
		t.Fatal(err)
	}
	double.SetWebhook(h.url, hookSecret)
	deadline := time.After(time.Minute)
	for !double.Reports()[0].Delivered {
		select {
		case <-deadline:
			t.Fatal("not taken")
		case <-time.After(5 * time.Millisecond):
		}
	}
	if got := h.items(storage.ItemQuery{Disputed: true}); len(got) != 1 {
		t.Errorf("disputed %+v", got)
	}
}

// What is not signed by the provider's secret, now, is refused and changes
// nothing (T6).
func TestWebhookSignatures(t *testing.T) {
	t.Parallel()
	double := newDouble(t)
	h := openHooked(t, newStore(t), double)
	h.record("cus_1", "a")
	if err := double.Reject("", false, "no_meter", double.Entries()[0].Identifier); err != nil {
		t.Fatal(err)
	}
	body := []byte(double.Reports()[0].Body)
	now := time.Now()
	good := stripedouble.Sign(hookSecret, now, body)
	at, mac, _ := strings.Cut(good, ",v1=")
	other := stripedouble.Sign("whsec_other_other", now, body)
	_, wrong, _ := strings.Cut(other, ",v1=")
	for name, c := range map[string]struct {
		signature string
		body      []byte
		code      string
	}{
		"none":            {"", body, "signature_missing"},
		"empty":           {",", body, "signature_malformed"},
		"no time":         {"v1=" + mac, body, "signature_malformed"},
		"no v1":           {at, body, "signature_malformed"},
		"v0 only":         {at + ",v0=" + mac, body, "signature_malformed"},
		"two times":       {at + "," + at + ",v1=" + mac, body, "signature_malformed"},
		"of another":      {other, body, "signature_invalid"},
		"cut":             {good[:len(good)-2], body, "signature_invalid"},
		"other body":      {good, append([]byte(" "), body...), "signature_invalid"},
		"other time":      {"t=1," + "v1=" + mac, body, "signature_invalid"},
		"of yesterday":    {stripedouble.Sign(hookSecret, now.Add(-6*time.Minute), body), body, "signature_expired"},
		"of tomorrow":     {stripedouble.Sign(hookSecret, now.Add(6*time.Minute), body), body, "signature_expired"},
		"a long header":   {good + strings.Repeat(",v0=a", 2000), body, "signature_missing"},
		"17 signatures":   {at + strings.Repeat(",v1="+wrong, 16) + ",v1=" + mac, body, "signature_invalid"},
		"no hexadecimals": {at + ",v1=zz", body, "signature_malformed"},
	} {
		status, answer := h.post(h.url, c.signature, c.body)
		if status != http.StatusBadRequest || !strings.Contains(answer, `"`+c.code+`"`) || strings.Contains(answer, "whsec") {
			t.Errorf("%s: %d %s, want %s", name, status, answer, c.code)
		}
	}
	if status, answer := h.post(strings.Replace(h.url, "/stripe", "/other", 1), good, body); status != http.StatusNotFound {
		t.Errorf("another exporter: %d %s", status, answer)
	}
	if status, answer := h.post(h.url, good, bytes.Repeat([]byte("x"), 2<<20)); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a large body: %d %s", status, answer)
	}
	if got := h.items(storage.ItemQuery{Disputed: true}); len(got) != 0 {
		t.Errorf("evidence of a message that is not signed: %+v", got)
	}
	// While a secret is rolled there are two signatures.
	if status, answer := h.post(h.url, at+",v1="+wrong+",v1="+mac, body); status != http.StatusOK {
		t.Errorf("a rolled secret: %d %s", status, answer)
	}
}

// Without a secret nobody's word counts.
func TestWebhookWithoutSecret(t *testing.T) {
	t.Parallel()
	double := newDouble(t)
	h := openHooked(t, newStore(t), double)
	s := settings(double)
	s.StateDir = t.TempDir()
	bare := open(t, hostConfig(newStore(t), s))
	srv := httptest.NewServer(bare.Handler())
	defer srv.Close()
	body := []byte(`{}`)
	status, answer := h.post(srv.URL+"/v1/webhooks/stripe", stripedouble.Sign(hookSecret, time.Now(), body), body)
	if status != http.StatusNotImplemented || !strings.Contains(answer, "webhook_secret_missing") {
		t.Errorf("%d %s", status, answer)
	}
	if status, answer := h.post(h.url, stripedouble.Sign(hookSecret, time.Now(), body), body); status != http.StatusBadRequest {
		t.Errorf("a message that is none: %d %s", status, answer)
	}
}
