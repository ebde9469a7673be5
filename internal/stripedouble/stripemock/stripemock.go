// Package stripemock runs Stripe's own stripe-mock for tests. stripe-mock
// checks requests against Stripe's OpenAPI and keeps no state, so it says
// whether a request is one that Stripe knows, and nothing of what would become
// of it.
//
// The certificate in stripe-mock names its host in a way that Go no longer
// accepts. The package therefore puts an HTTPS server of its own in front,
// with a certificate of the throwaway CA, so that a client reaches it as it
// reaches Stripe: over verified TLS.
package stripemock

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fencepost/fencepost/internal/tlscert"
)

// Config says what to run.
type Config struct {
	// Binary is the path of stripe-mock; scripts/stripe-mock.sh builds it.
	Binary string
	// Dir receives the CA. It is created if missing.
	Dir string
}

// Mock is a running stripe-mock. All methods are safe for concurrent use.
type Mock struct {
	dir     string
	url     string
	process *process
	http    *http.Server
	served  chan struct{}
	once    sync.Once
}

// Start runs stripe-mock and returns once it has answered a request through the
// server in front. It is killed when ctx is done or by Close; only Close frees
// everything.
func Start(ctx context.Context, c Config) (*Mock, error) {
	ca, err := tlscert.LoadOrCreate(c.Dir, tlscert.Config{})
	if err != nil {
		return nil, fmt.Errorf("stripe-mock: %w", err)
	}
	cert, err := ca.Issue("127.0.0.1")
	if err != nil {
		return nil, fmt.Errorf("stripe-mock: %w", err)
	}
	p, err := run(ctx, c.Binary)
	if err != nil {
		return nil, err
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		p.kill()
		return nil, fmt.Errorf("stripe-mock: listen: %w", err)
	}
	m := &Mock{dir: c.Dir, url: "https://" + ln.Addr().String(), process: p, served: make(chan struct{})}
	m.http = m.front(cert)
	go func() {
		defer close(m.served)
		_ = m.http.ServeTLS(ln, "", "") // Close ends it
	}()
	if err := m.probe(ctx); err != nil {
		_ = m.Close()
		return nil, fmt.Errorf("stripe-mock: first request: %w\n%s", err, m.Log())
	}
	return m, nil
}

// front is the HTTPS server in front of the process.
func (m *Mock) front(cert tls.Certificate) *http.Server {
	said := m.process.said
	return &http.Server{
		Handler: &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: m.process.addr}) },
			Transport: &patient{process: m.process},
			ErrorLog:  slog.NewLogLogger(slog.NewTextHandler(said, nil), slog.LevelError),
			ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
				said.note("proxy: %s %s: %v", r.Method, r.URL.Path, err)
				http.Error(w, "no answer from stripe-mock: "+err.Error(), http.StatusBadGateway)
			},
		},
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(slog.NewTextHandler(said, nil), slog.LevelError),
	}
}

// probe asks a question that needs no fixture and has one right answer: without
// a key stripe-mock says 401.
func (m *Mock) probe(ctx context.Context) error {
	pem, err := os.ReadFile(m.CAFile())
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	client := http.Client{
		Timeout:   30 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+"/v1/billing/meters", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusUnauthorized {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

// URL is the base URL, https://127.0.0.1:port.
func (m *Mock) URL() string { return m.url }

// CAFile is the path of the CA certificate: what ca_file names.
func (m *Mock) CAFile() string { return filepath.Join(m.dir, tlscert.CAFile) }

// Log is what stripe-mock printed, how it ended, and every request that it did
// not answer: what a failing test should show. It may be called after Close.
func (m *Mock) Log() string { return m.process.said.String() }

// Close ends stripe-mock and the server in front of it. It may be called more
// than once.
func (m *Mock) Close() error {
	m.once.Do(func() {
		_ = m.http.Close()
		<-m.served
		m.process.kill()
	})
	return nil
}

// patient sends a request again that got no answer. That is right here and
// nowhere else: stripe-mock keeps no state, and a connection lost between two
// processes of one test says nothing about a request.
type patient struct {
	process *process
}

const tries = 5

// RoundTrip implements [http.RoundTripper].
func (t *patient) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil {
			return nil, fmt.Errorf("read the request: %w", err)
		}
		body = b
	}
	var failures error
	for n := range tries {
		// Without keep-alive nothing is left over after Close.
		once := &http.Transport{DisableKeepAlives: true}
		again := r.Clone(r.Context())
		again.Body = http.NoBody
		if len(body) > 0 {
			again.Body = io.NopCloser(bytes.NewReader(body))
		}
		resp, err := once.RoundTrip(again)
		if err == nil {
			return resp, nil
		}
		t.process.said.note("proxy: try %d: %v", n+1, err)
		failures = errors.Join(failures, err)
		if !t.process.alive() {
			return nil, errors.Join(errors.New("the process has ended"), failures)
		}
		select {
		case <-r.Context().Done():
			return nil, failures
		case <-time.After(time.Duration(n+1) * 20 * time.Millisecond):
		}
	}
	return nil, failures
}
