package egress

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// scripted answers every request with these bytes and closes.
func scripted(t *testing.T, answer string) string {
	t.Helper()
	return raw(t, func(c net.Conn, r *bufio.Reader) {
		if _, _, err := readRequest(r); err != nil {
			return
		}
		_, _ = io.WriteString(c, answer)
		_ = c.Close() // with close_notify: a proper end of the TLS stream
	})
}

// F31, F37: whatever a server answers after it has the request, short of a whole
// answer, is indefinite.
func TestBrokenAnswers(t *testing.T) {
	t.Parallel()
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, _ = z.Write(make([]byte, 8<<20))
	_ = z.Close()
	const json = "Content-Type: application/json\r\n"
	tests := map[string]struct {
		answer string
		reason string
		status int
	}{
		"nothing":                {"", "reset", 0},
		"half a status line":     {"HTTP/1.1 2", "protocol", 0},
		"not http":               {"SSH-2.0-OpenSSH_9.2\r\n\r\n", "protocol", 0},
		"body cut":               {"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{\"id\":", "truncated", 200},
		"chunk cut":              {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n14\r\n{\"id\":", "truncated", 200},
		"body cut without frame": {"HTTP/1.1 200 OK\r\n\r\n{\"id\":", "truncated", 200},
		"empty without frame":    {"HTTP/1.1 200 OK\r\n\r\n", "truncated", 200},
		"empty 200 of json":      {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + json + "\r\n", "response_malformed", 200},
		"cut json in its frame":  {"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n" + json + "\r\n{\"id\":", "response_malformed", 200},
		"gzip":                   {"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: " + itoa(bomb.Len()) + "\r\n\r\n" + bomb.String(), "response_encoding", 200},
		"header flood":           {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", 1<<20) + "\r\n\r\n{}", "protocol", 0},
		"many headers":           {"HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", 1<<16) + "\r\n{}", "protocol", 0},
		"endless 1xx":            {strings.Repeat("HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n", 1<<14), "protocol", 0},
		"switching protocols":    {"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", "response_malformed", 101},
		"refusal cut":            {"HTTP/1.1 400 Bad Request\r\nContent-Length: 99\r\n\r\n{\"error\":{\"code\":\"no_meter\"}}", "truncated", 400},
		"two lengths":            {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "protocol", 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := scripted(t, tt.answer)
			got, ex := one(t, newClient(t, host, nil), host)
			if ex.Class != exporter.ClassIndefinite || ex.Code != tt.reason || ex.Status != tt.status || ex.Mendable || ex.Message == "" {
				t.Errorf("exchange %+v, want indefinite %s %d", ex, tt.reason, tt.status)
			}
			if got.Failure != capability.FailureUnknown && tt.reason != "response_malformed" {
				t.Errorf("response %+v", got)
			}
		})
	}
}

func itoa(n int) string { return string(appendInt(nil, n)) }

func appendInt(b []byte, n int) []byte {
	if n >= 10 {
		b = appendInt(b, n/10)
	}
	return append(b, byte('0'+n%10))
}

// A body that ends with the connection is whole if its form says so.
func TestUnframedJSONIsWhole(t *testing.T) {
	t.Parallel()
	host := scripted(t, "HTTP/1.1 200 OK\r\n\r\n{\"id\":1}")
	if got, ex := one(t, newClient(t, host, nil), host); ex.Class != exporter.ClassSuccess || string(got.Body) != `{"id":1}` {
		t.Errorf("%+v %s", ex, got.Body)
	}
}

// F37: a large body is not read beyond the limit.
func TestLargeBody(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		block := make([]byte, 64<<10)
		for range 1024 { // 64 MiB
			n, err := w.Write(block)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	client := newClient(t, s.host(), nil)
	if _, ex := one(t, client, s.host()); ex.Class != exporter.ClassIndefinite || ex.Code != reasonTooLarge {
		t.Errorf("%+v", ex)
	}
	s.Close()
	if sent.Load() > 32<<20 {
		t.Errorf("the client took %d bytes", sent.Load())
	}
}

// F37: a batch of large answers does not fill the host's memory; what the host
// saw of them stands.
func TestLargeAnswers(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) })
	client := newClient(t, s.host(), nil)
	items, requests := batchOf(s.host(), 12)
	ctx, call := client.Begin(t.Context(), items)
	got, err := client.Send(ctx, requests)
	if err != nil {
		t.Fatal(err)
	}
	total, dropped := 0, 0
	for i, r := range got {
		total += len(r.Body)
		if r.Failure == capability.FailureUnknown && r.Reason == reasonTooLarge {
			dropped++
		}
		if ex := call.Exchanges()[items[i].ID]; ex[0].Class != exporter.ClassSuccess {
			t.Errorf("%+v", ex)
		}
	}
	if total > 8<<20 || dropped < 4 {
		t.Errorf("%d bytes kept, %d dropped", total, dropped)
	}
}

// F28: the timeout covers a body that trickles, and an answer that never comes.
func TestSlowAnswers(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]string{"body": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", "head": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := raw(t, func(c net.Conn, r *bufio.Reader) {
				if _, _, err := readRequest(r); err != nil {
					return
				}
				_, _ = io.WriteString(c, first)
				_, _ = io.Copy(io.Discard, r) // until the client gives up
			})
			client := newClient(t, host, func(c *Config) { c.RequestTimeout = 300 * time.Millisecond })
			if _, ex := one(t, client, host); ex.Class != exporter.ClassIndefinite || ex.Code != reasonTimeout {
				t.Errorf("%+v", ex)
			}
		})
	}
}

// F37, T5: a redirect is an answer, and nobody follows it.
func TestRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) {})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL+"/stolen", http.StatusTemporaryRedirect)
	})
	client := newClient(t, s.host(), func(c *Config) { c.Hosts = append(c.Hosts, elsewhere.host()) })
	got, ex := one(t, client, s.host())
	if ex.Class != exporter.ClassIndefinite || ex.Code != "status_307" || got.Status != 307 || elsewhere.count() != 0 || s.count() != 1 {
		t.Errorf("exchange %+v, elsewhere %d", ex, elsewhere.count())
	}
}

// T5: without the grant the same server is out of reach, by address and by name.
func TestPrivateAddressNeedsGrant(t *testing.T) {
	t.Parallel()
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	_, port, _ := net.SplitHostPort(s.host())
	for name, host := range map[string]string{"address": s.host(), "localhost": "localhost:" + port} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t, host, func(c *Config) { c.AllowPrivate = nil })
			if _, ex := one(t, client, host); ex.Class != exporter.ClassNotSent || ex.Code != reasonAddressRefused {
				t.Errorf("%+v", ex)
			}
		})
	}
}

// T5, F44: a name that is public when looked at and private when dialled.
func TestRebinding(t *testing.T) {
	t.Parallel()
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	_, port, _ := net.SplitHostPort(s.host())
	dns := newDNS(t, netip.MustParseAddr("127.0.0.1"))
	host := "example.com:" + port
	refused := newClient(t, host, func(c *Config) { c.AllowPrivate, c.Resolver = nil, dns })
	if _, ex := one(t, refused, host); ex.Class != exporter.ClassNotSent || ex.Code != reasonAddressRefused || s.count() != 0 {
		t.Errorf("%+v, %d requests", ex, s.count())
	}
	// The same name and answer with the grant: it was the address check that
	// refused, and names do work.
	granted := newClient(t, host, func(c *Config) { c.Resolver = dns })
	if _, ex := one(t, granted, host); ex.Class != exporter.ClassSuccess || s.count() != 1 {
		t.Errorf("%+v", ex)
	}
}

// newDNS returns a resolver that gives addr for every IPv4 question.
func newDNS(t *testing.T, addr netip.Addr) *net.Resolver {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]byte, 512)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = pc.WriteTo(dnsAnswer(buf[:n], addr), from)
		}
	})
	t.Cleanup(func() { _ = pc.Close(); wg.Wait() })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", pc.LocalAddr().String())
	}}
}

// dnsAnswer answers one question (RFC 1035 section 4): an A record, or none.
func dnsAnswer(q []byte, addr netip.Addr) []byte {
	end := 12
	for q[end] != 0 {
		end += int(q[end]) + 1
	}
	end += 5
	answer := append([]byte(nil), q[:end]...)
	copy(answer[2:], []byte{0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0})
	if binary.BigEndian.Uint16(q[end-4:]) == 1 {
		answer[7] = 1
		answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		answer = append(answer, addr.AsSlice()...)
	}
	return answer
}

// F37: no connection is not_sent, whatever the cause.
func TestNoConnection(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	deaf := l.Addr().String()
	_ = l.Close()
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	noDNS := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no server")
	}}
	tests := map[string]struct {
		host, reason string
		change       func(*Config)
	}{
		"refused":           {deaf, reasonConnect, nil},
		"unknown authority": {s.host(), reasonTLS, func(c *Config) { c.RootCAs = x509.NewCertPool() }},
		"wrong name":        {"other.test" + s.host()[strings.LastIndexByte(s.host(), ':'):], reasonTLS, func(c *Config) { c.Resolver = newDNS(t, netip.MustParseAddr("127.0.0.1")) }},
		"dns":               {"example.com", reasonDNS, func(c *Config) { c.Resolver = noDNS }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ex := one(t, newClient(t, tt.host, tt.change), tt.host)
			if ex.Class != exporter.ClassNotSent || ex.Code != tt.reason || got.Failure != capability.FailureNotSent || got.Reason != tt.reason {
				t.Errorf("%+v, want not_sent %s", ex, tt.reason)
			}
		})
	}
	if s.count() != 0 {
		t.Error("a request arrived over a bad certificate")
	}
}

// Q15: a server that does not speak TLS never sees the request or the secret.
func TestPlainServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		buf := make([]byte, 4096)
		n, _ := c.Read(buf)
		_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
		_ = c.Close()
		got <- string(buf[:n])
	}()
	defer func() { _ = l.Close() }()
	host := l.Addr().String()
	if _, ex := one(t, newClient(t, host, nil), host); ex.Class != exporter.ClassNotSent || ex.Code != reasonTLS {
		t.Errorf("%+v", ex)
	}
	if seen := <-got; strings.Contains(seen, testKey) || strings.Contains(seen, "POST") {
		t.Errorf("in clear: %q", seen)
	}
}

// T5: proxies in the environment are not asked.
func TestNoProxyFromEnvironment(t *testing.T) { //nolint:paralleltest // it sets the environment
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "ALL_PROXY"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	client := newClient(t, s.host(), nil)
	if client.transport.Proxy != nil {
		t.Error("a proxy function is set") // net/http never asks it for loopback
	}
	if _, ex := one(t, client, s.host()); ex.Class != exporter.ClassSuccess {
		t.Errorf("%+v", ex)
	}
}
