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
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
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
	dir    string
	url    string
	cmd    *exec.Cmd
	http   *http.Server
	served chan struct{}
	output *sync.WaitGroup
	once   sync.Once
}

// announcement is the line by which stripe-mock names its port.
const announcement = "Listening for HTTP at address: "

// Start runs stripe-mock and returns once it takes requests. It is killed when
// ctx is done or by Close; only Close frees everything.
func Start(ctx context.Context, c Config) (*Mock, error) {
	ca, err := tlscert.LoadOrCreate(c.Dir, tlscert.Config{})
	if err != nil {
		return nil, fmt.Errorf("stripe-mock: %w", err)
	}
	cert, err := ca.Issue("127.0.0.1")
	if err != nil {
		return nil, fmt.Errorf("stripe-mock: %w", err)
	}
	m := &Mock{dir: c.Dir, served: make(chan struct{}), output: &sync.WaitGroup{}}
	addr, err := m.run(ctx, c.Binary)
	if err != nil {
		return nil, err
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		m.kill()
		return nil, fmt.Errorf("stripe-mock: listen: %w", err)
	}
	m.url = "https://" + ln.Addr().String()
	m.http = &http.Server{
		Handler: &httputil.ReverseProxy{
			Rewrite:  func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: addr}) },
			ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
			// Without keep-alive nothing is left over after Close.
			Transport: &http.Transport{DisableKeepAlives: true},
		},
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	go func() {
		defer close(m.served)
		_ = m.http.ServeTLS(ln, "", "") // Close ends it
	}()
	return m, nil
}

// run starts the process and reads the port that it chose.
func (m *Mock) run(ctx context.Context, binary string) (string, error) {
	m.cmd = exec.CommandContext(ctx, binary, "-http-addr", "127.0.0.1:0")
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return "", fmt.Errorf("stripe-mock: %w", err)
	}
	if err := m.cmd.Start(); err != nil {
		return "", fmt.Errorf("stripe-mock: start %s: %w", filepath.Base(binary), err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if addr, ok := strings.CutPrefix(lines.Text(), announcement); ok {
			// Whoever does not read a process's output blocks it.
			m.output.Go(func() { _, _ = io.Copy(io.Discard, out) })
			return addr, nil
		}
	}
	m.kill()
	return "", errors.Join(errors.New("stripe-mock: ended before it named its port"), lines.Err())
}

func (m *Mock) kill() {
	_ = m.cmd.Process.Kill() // it may have ended by itself
	m.output.Wait()
	_ = m.cmd.Wait() // killed
}

// URL is the base URL, https://127.0.0.1:port.
func (m *Mock) URL() string { return m.url }

// CAFile is the path of the CA certificate: what ca_file names.
func (m *Mock) CAFile() string { return filepath.Join(m.dir, tlscert.CAFile) }

// Close ends stripe-mock and the server in front of it. It may be called more
// than once.
func (m *Mock) Close() error {
	m.once.Do(func() {
		_ = m.http.Close()
		<-m.served
		m.kill()
	})
	return nil
}
