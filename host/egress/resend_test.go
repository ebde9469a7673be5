package egress

import (
	"bufio"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// Q14: a server that takes a request on a kept-alive connection and closes it
// without an answer sees that request once. Go's transport would send it again:
// it regards an Idempotency-Key, and every GET, as leave to do so.
func TestConnectionClosedAfterEffectIsNotResent(t *testing.T) {
	t.Parallel()
	bare := func(method string) func(string) capability.Request {
		return func(host string) capability.Request {
			return capability.Request{
				Method: method, URL: "https://" + host + "/events/" + testIdent,
				Headers: []capability.Header{{Name: "Idempotency-Key", Value: "k-1"}},
				Items:   []string{"i1"},
			}
		}
	}
	requests := map[string]func(string) capability.Request{
		"post with body":    func(host string) capability.Request { return meterEvent(host, "i1", testIdent) },
		"post without body": bare("POST"),
		"get":               bare("GET"),
		"delete":            bare("DELETE"),
		"put without body":  bare("PUT"),
	}
	endings := map[string]func(net.Conn){
		"close": func(c net.Conn) { _ = c.Close() },
		"reset": func(c net.Conn) {
			tcp := c.(interface{ NetConn() net.Conn }).NetConn().(*net.TCPConn)
			_ = tcp.SetLinger(0)
			_ = tcp.Close()
		},
	}
	for name, build := range requests {
		for end, finish := range endings {
			t.Run(name+" "+end, func(t *testing.T) {
				t.Parallel()
				var effects, conns atomic.Int64
				host := raw(t, func(c net.Conn, r *bufio.Reader) {
					conns.Add(1)
					for {
						req, _, err := readRequest(r)
						if err != nil {
							return
						}
						if req.URL.Path == "/warm" {
							_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"))
							continue
						}
						effects.Add(1)
						finish(c)
						return
					}
				})
				client := newClient(t, host, nil)
				warm, err := client.Send(t.Context(), []capability.Request{{Method: "GET", URL: "https://" + host + "/warm"}})
				if err != nil || warm[0].Status != 200 {
					t.Fatalf("warm-up: %v, %v", warm, err)
				}
				got, ex := oneRequest(t, client, build(host))
				if ex.Class != exporter.ClassIndefinite || got.Failure != capability.FailureUnknown || ex.Code != reasonReset {
					t.Errorf("exchange %+v, response %+v; want indefinite, unknown, reset", ex, got)
				}
				if n := effects.Load(); n != 1 {
					t.Errorf("the request arrived %d times", n)
				}
				if got := client.Stats(); got.Connections < 1 || conns.Load() > 2 {
					t.Errorf("connections %d, accepted %d", got.Connections, conns.Load())
				}
			})
		}
	}
}

// Q14: nothing may leave under an exchange whose result has been given.
func TestSealedExchangeCannotWrite(t *testing.T) {
	t.Parallel()
	a, b := net.Pipe()
	defer func() { _, _ = a.Close(), b.Close() }()
	x := &wire{expired: func() bool { return false }}
	w := &wireConn{Conn: a}
	w.wire.Store(x)
	if sent, _ := x.seal(); sent {
		t.Fatal("sent before any write")
	}
	if _, err := w.Write([]byte("GET")); err != errSealed { //nolint:errorlint // the very value
		t.Errorf("write after seal: %v", err)
	}
	if _, err := (&wireConn{Conn: a}).Write([]byte("GET")); err != errSealed { //nolint:errorlint // the very value
		t.Errorf("write without an exchange: %v", err)
	}
}

// d5 is reached when the last byte is out: the largest request is one write.
func TestRequestIsOneWrite(t *testing.T) {
	t.Parallel()
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	client := newClient(t, s.host(), nil)
	req := meterEvent(s.host(), "i1", testIdent)
	req.Body = append(req.Body, ("&x=" + strings.Repeat("a", 64<<10-len(req.Body)-3))...)
	for range 7 {
		req.Headers = append(req.Headers, capability.Header{Name: "X-A", Value: strings.Repeat("b", 2<<10)})
	}
	req.URL += "?q=" + strings.Repeat("c", 7<<10)
	_, call := client.Begin(t.Context(), []CallItem{{ID: "i1", Identifier: testIdent}})
	p, reason := client.prepare(call, &req)
	if reason != "" {
		t.Fatal(reason)
	}
	var writesWhenSent, sent int
	x := &wire{expired: func() bool { return false }}
	x.onSent = func() { sent++; writesWhenSent = x.writes }
	resp, err := client.transport.RoundTrip(p.request(x.trace(t.Context())))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if sent != 1 || writesWhenSent != 1 || x.writes != 1 || len(s.requests[0]) != 64<<10 {
		t.Errorf("told %d times after %d writes of %d", sent, writesWhenSent, x.writes)
	}
}
