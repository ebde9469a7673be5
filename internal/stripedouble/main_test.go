package stripedouble_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/internal/stripedouble"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testKey = "sk_test_abc"

// epoch is when the tests take place.
var epoch = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// rig is a started double and a client that trusts its CA.
type rig struct {
	*stripedouble.Server
	t      *testing.T
	client *http.Client
	dir    string
}

func start(t *testing.T, change ...func(*stripedouble.Config)) *rig {
	t.Helper()
	// The server's certificate is made by the same clock, so the client
	// verifies it at that time too.
	c := stripedouble.Config{Dir: t.TempDir(), Seed: 1, Now: func() time.Time { return epoch }}
	for _, f := range change {
		f(&c)
	}
	s, err := stripedouble.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.Pool(), Time: func() time.Time { return epoch }}, MaxIdleConnsPerHost: 16}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		tr.CloseIdleConnections()
	})
	return &rig{Server: s, t: t, dir: c.Dir, client: &http.Client{
		Transport:     tr,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func faults(t *testing.T, s string) stripedouble.Faults {
	t.Helper()
	f, err := stripedouble.ParseFaults(s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// reply is an answer read to its end.
type reply struct {
	status int
	header http.Header
	body   []byte
	err    error
}

type stripeError struct {
	Type, Code, Message, Param string
	DocURL                     string `json:"doc_url"`
	RequestLogURL              string `json:"request_log_url"`
}

func (r reply) error(t *testing.T) stripeError {
	t.Helper()
	var b struct{ Error stripeError }
	if err := json.Unmarshal(r.body, &b); err != nil || r.err != nil {
		t.Fatalf("answer %d is no Stripe error: %v %v", r.status, err, r.err)
	}
	return b.Error
}

// event is the form of a good event; changes are name, value pairs, "" deletes.
func event(identifier string, changes ...string) url.Values {
	v := url.Values{
		"event_name": {"llm_tokens"}, "identifier": {identifier}, "timestamp": {"1796040000"},
		"payload[stripe_customer_id]": {"cus_1"}, "payload[value]": {"25"},
	}
	for i := 0; i < len(changes); i += 2 {
		if changes[i+1] == "" {
			v.Del(changes[i])
		} else {
			v.Set(changes[i], changes[i+1])
		}
	}
	return v
}

// post sends a form with headers given as name, value pairs, "" deletes.
func (r *rig) post(form url.Values, header ...string) reply {
	r.t.Helper()
	return r.do(r.request(form, header...))
}

func (r *rig) request(form url.Values, header ...string) *http.Request {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.URL()+"/v1/billing/meter_events", strings.NewReader(form.Encode()))
	if err != nil {
		r.t.Fatal(err)
	}
	req.GetBody = nil // the client must not send twice by itself (Q14)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "Bearer "+testKey)
	for i := 0; i < len(header); i += 2 {
		if header[i+1] == "" {
			req.Header.Del(header[i])
		} else {
			req.Header.Set(header[i], header[i+1])
		}
	}
	return req
}

func (r *rig) do(req *http.Request) reply {
	resp, err := r.client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, b, err}
}

// control calls /__path with a JSON body, or GETs it without one.
func (r *rig) control(path, body string) reply {
	r.t.Helper()
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.URL()+path, bytes.NewReader([]byte(body)))
	if err != nil {
		r.t.Fatal(err)
	}
	return r.do(req)
}

func (r *rig) mustPost(want int, form url.Values, header ...string) reply {
	r.t.Helper()
	got := r.post(form, header...)
	if got.err != nil || got.status != want {
		r.t.Fatalf("status %d, error %v, body %s; want %d", got.status, got.err, got.body, want)
	}
	return got
}

// movable is a clock that a test moves.
type movable struct{ at atomic.Int64 }

func newMovable() *movable {
	m := &movable{}
	m.at.Store(epoch.UnixMicro())
	return m
}

func (m *movable) now() time.Time       { return time.UnixMicro(m.at.Load()).UTC() }
func (m *movable) move(d time.Duration) { m.at.Add(d.Microseconds()) }

// patience is how long a poll for another goroutine or process may take on a
// machine that is busy with other things.
const patience = time.Minute

// await polls until something has happened.
func await(t *testing.T, what string, happened func() bool) {
	t.Helper()
	tick, late := time.NewTicker(time.Millisecond), time.NewTimer(patience)
	defer tick.Stop()
	defer late.Stop()
	for !happened() {
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatalf("%s did not come", what)
		}
	}
}

// awaitFired polls until a rule has fired.
func awaitFired(t *testing.T, r *rig, rule string) {
	t.Helper()
	await(t, "fault "+rule, func() bool { return r.FaultsFired()[rule] > 0 })
}

// awaitFile polls until another process has written a file or ended.
func awaitFile(path string, ended <-chan struct{}) (string, bool) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if b, err := os.ReadFile(path); err == nil {
			return string(b), true
		}
		select {
		case <-tick.C:
		case <-ended:
			return "", false
		}
	}
}

// clientFor trusts the CA in a file, as a configuration's ca_file does.
func clientFor(t *testing.T, caFile string) *http.Client {
	t.Helper()
	pem, err := os.ReadFile(caFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		t.Fatal("no certificate in ca.pem")
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
}

// postTo sends one event and reports whether it was answered 200.
func postTo(t *testing.T, client *http.Client, base, id string, customer int) bool {
	t.Helper()
	form := event(id, "timestamp", "", "payload[stripe_customer_id]", fmt.Sprint("cus_", customer))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/v1/billing/meter_events", strings.NewReader(form.Encode()))
	if err != nil {
		t.Error(err)
		return false
	}
	req.GetBody = nil
	req.Header.Set("Authorization", "Bearer "+testKey)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return err == nil && resp.StatusCode == http.StatusOK
}
