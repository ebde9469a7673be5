package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testKey   = "sk_test_CANARY0123456789" // never to be seen anywhere but in the header
	testIdent = "fencepost_0f"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// stripePatterns are as a real manifest would have them.
var stripePatterns = []exporter.AnswerPattern{
	{Class: exporter.AnswerDuplicate, Status: 400, Path: "/error/message", Contains: "already exists with identifier {identifier}"},
	{Class: exporter.AnswerMendable, Status: 400, Path: "/error/code", Equals: []string{"resource_missing", "no_meter"}},
	{Class: exporter.AnswerRefused, Status: 400, Path: "/error/code", Equals: []string{"timestamp_too_far_in_past"}},
}

// server is an HTTPS server that counts what reaches it.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string // bodies
}

func serve(t *testing.T, h http.HandlerFunc) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.requests = append(s.requests, string(body))
		s.mu.Unlock()
		h(w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

func (s *server) host() string { return s.Listener.Addr().String() }

// pool trusts the certificate that httptest uses, for 127.0.0.1 and example.com.
func pool(t *testing.T) (*x509.CertPool, tls.Certificate) {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	p := x509.NewCertPool()
	p.AddCert(s.Certificate())
	return p, s.TLS.Certificates[0]
}

// raw is a TLS server below HTTP: the script gets each connection.
func raw(t *testing.T, script func(net.Conn, *bufio.Reader)) string {
	t.Helper()
	_, cert := pool(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				tc := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})
				script(tc, bufio.NewReader(tc))
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return l.Addr().String()
}

// readRequest reads one request whole.
func readRequest(r *bufio.Reader) (*http.Request, string, error) {
	req, err := http.ReadRequest(r)
	if err != nil {
		return nil, "", err
	}
	body, err := io.ReadAll(req.Body)
	return req, string(body), err
}

func newClient(t *testing.T, host string, change func(*Config)) *Client {
	t.Helper()
	roots, _ := pool(t)
	cfg := Config{
		Plugin: "stripe", Hosts: []string{host}, AllowPrivate: loopback, RootCAs: roots,
		Secrets: map[string]InjectedSecret{"api_key": {Header: "Authorization", Prefix: "Bearer ", Value: grant.NewSecret(testKey)}},
		Answers: stripePatterns,
	}
	if change != nil {
		change(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func meterEvent(host, item, identifier string) capability.Request {
	return capability.Request{
		Method: "POST", URL: "https://" + host + "/v1/billing/meter_events",
		Headers: []capability.Header{
			{Name: "Content-Type", Value: "application/x-www-form-urlencoded"},
			{Name: "Idempotency-Key", Value: identifier + "-1"},
		},
		Body:  []byte("event_name=tokens&identifier=" + identifier + "&payload[value]=1"),
		Items: []string{item}, Secrets: []string{"api_key"},
	}
}

// one sends a single meter event in a call of its own and returns the answer
// and the one exchange of its item.
func one(t *testing.T, c *Client, host string) (capability.Response, exporter.Exchange) {
	t.Helper()
	return oneRequest(t, c, meterEvent(host, "i1", testIdent))
}

func oneRequest(t *testing.T, c *Client, req capability.Request) (capability.Response, exporter.Exchange) {
	t.Helper()
	ctx, call := c.Begin(t.Context(), []CallItem{{ID: "i1", Identifier: testIdent, SerialKey: "cus_1"}})
	return sendOne(ctx, t, c, call, req)
}

func sendOne(ctx context.Context, t *testing.T, c *Client, call *Call, req capability.Request) (capability.Response, exporter.Exchange) {
	t.Helper()
	got, err := c.Send(ctx, []capability.Request{req})
	if err != nil {
		t.Fatal(err)
	}
	list := call.Exchanges()["i1"]
	if len(got) != 1 || len(list) != 1 {
		t.Fatalf("%d responses, %d exchanges, want 1 and 1", len(got), len(list))
	}
	return got[0], list[0]
}

func answerWith(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func header(r capability.Response, name string) string {
	for _, h := range r.Headers {
		if strings.EqualFold(h.Name, name) {
			return h.Value
		}
	}
	return ""
}

// fixed is a clock that stands still.
func fixed(t time.Time) func() time.Time { return func() time.Time { return t } }
