package egress

import (
	"bufio"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
)

// FuzzURL: what is accepted has one reading: it goes to a granted host, by
// https, in one request line.
func FuzzURL(f *testing.F) {
	for _, s := range []string{
		"https://api.stripe.com/v1", "https://api.stripe.com:443", "https://API.STRIPE.COM/a?b=c", "https://api.stripe.com@evil/",
		"https://evil/?https://api.stripe.com", "https://api.stripe.com\\@evil/", "https://api.stripe.com%2eevil", "https://[::1]:443/", "https://api.stripe.com:0443/", "https:api.stripe.com", "https://api.stripe.com./",
	} {
		f.Add(s)
	}
	c, err := New(Config{Hosts: []string{"api.stripe.com"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = c.Close() })
	f.Fuzz(func(t *testing.T, raw string) {
		p, reason := c.prepare(nil, &capability.Request{Method: "GET", URL: raw})
		if reason != "" {
			return
		}
		rest, ok := strings.CutPrefix(strings.ToLower(raw), "https://api.stripe.com")
		if rest, _ = strings.CutPrefix(rest, ":443"); !ok || rest != "" && rest[0] != '/' && rest[0] != '?' {
			t.Fatalf("accepted %q", raw)
		}
		req := p.request(t.Context())
		if req.URL.Host != "api.stripe.com:443" || req.Host != "api.stripe.com" {
			t.Fatalf("%q goes to %q as %q", raw, req.URL.Host, req.Host)
		}
		checkOnWire(t, req, 0)
	})
}

// checkOnWire writes a request as the transport does and reads it again.
func checkOnWire(t *testing.T, req *http.Request, headers int) {
	t.Helper()
	var b strings.Builder
	if err := req.Write(&b); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(strings.NewReader(b.String()))
	back, err := http.ReadRequest(r)
	if err != nil {
		t.Fatalf("%v: %q", err, b.String())
	}
	if back.RequestURI != req.URL.RequestURI() || back.Host != req.Host || r.Buffered() != 0 {
		t.Fatalf("read back %q %q, %d bytes left, from %q", back.RequestURI, back.Host, r.Buffered(), b.String())
	}
	n := 0
	for _, v := range back.Header {
		n += len(v)
	}
	if headers > 0 && n != headers {
		t.Fatalf("%d headers, want %d: %q", n, headers, b.String())
	}
}

// FuzzHeader: what is accepted arrives as exactly one header of that value.
func FuzzHeader(f *testing.F) {
	for _, h := range [][2]string{{"X-A", "b"}, {"Stripe-Account", "acct_1"}, {"X-A", "b\r\nc: d"}, {"A: b\r\nC", "d"}, {"Content-Length", "1"}, {"host", "x"}, {"X", "\t"}, {"", ""}, {"Authorization", "x"}} {
		f.Add(h[0], h[1])
	}
	c, err := New(Config{Hosts: []string{"api.stripe.com"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = c.Close() })
	f.Fuzz(func(t *testing.T, name, value string) {
		p, reason := c.prepare(nil, &capability.Request{Method: "GET", URL: "https://api.stripe.com/", Headers: []capability.Header{{Name: name, Value: value}}})
		if reason != "" {
			return
		}
		want := 3 // the plugin's, Accept-Encoding, User-Agent
		if strings.EqualFold(name, "User-Agent") {
			want = 2
		}
		if got := p.header.Get(name); got != value && !strings.EqualFold(name, "User-Agent") {
			t.Fatalf("%q: %q became %q", name, value, got)
		}
		checkOnWire(t, p.request(t.Context()), want)
	})
}

// FuzzLookup: no panic; what is found is in the document, and a document of
// which encoding/json makes nothing holds nothing.
func FuzzLookup(f *testing.F) {
	f.Add([]byte(`{"error":{"code":"x","list":[1,{"a~b/c":true}]}}`), "/error/list/1/a~0b~1c")
	f.Add([]byte(`[[]]`), "/0/0")
	f.Add([]byte(`"x"`), "")
	f.Add([]byte(`{"":{"":1}}`), "//")
	f.Add([]byte(`{"a":`), "/a")
	f.Fuzz(func(t *testing.T, doc []byte, pointer string) {
		got, ok := lookup(doc, pointer)
		if ok && !json.Valid(doc) {
			t.Fatalf("found %q in what is not JSON", got)
		}
		if ok && pointer != "" && !strings.HasPrefix(pointer, "/") {
			t.Fatalf("found %q by %q", got, pointer)
		}
	})
}

// FuzzRetryAfter: always zero or within the bounds.
func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"1", "0", "-1", "3601", "18446744073709551616", "Mon, 30 Nov 2026 12:02:00 GMT", "soon", "1e3", " 5 "} {
		f.Add(s)
	}
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, s string) {
		if d := parseRetryAfter([]string{s}, now); d != 0 && (d < time.Second || d > time.Hour) {
			t.Fatalf("%q: %v", s, d)
		}
	})
}

// FuzzHost: a canonical host is a fixed point and splits.
func FuzzHost(f *testing.F) {
	for _, s := range []string{"a", "a:1", "A.b:65535", "[::1]:1", "[::ffff:1.2.3.4]", "a:65536", "a..b", "xn--e1afmkfd", "127.1", "a:01", "[fe80::1%25eth0]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := canonicalHost(s)
		if !ok {
			return
		}
		if again, ok := canonicalHost(got); !ok || again != got {
			t.Fatalf("%q -> %q -> %q, %v", s, got, again, ok)
		}
		if _, port, err := net.SplitHostPort(got); err != nil || port == "" {
			t.Fatalf("%q -> %q: %v", s, got, err)
		}
	})
}
