package providerdouble

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/fencepost/fencepost/internal/tlscert"
)

// Fault is a misbehaviour in place of one answer.
type Fault struct {
	// After: the request takes effect first. Otherwise it has none.
	After bool
	// Status and Body are answered; a Status of zero closes the connection
	// without an answer.
	Status     int
	Body       string
	RetryAfter string
}

// Server is the part that all doubles share. Its methods are safe for concurrent
// use.
type Server struct {
	// Listen is the address; empty: a free port of loopback. Set before Start.
	Listen string

	http *http.Server
	addr net.Addr
	ca   *tlscert.Authority
	done chan struct{}

	mu       sync.Mutex
	faults   []Fault
	now      func() time.Time
	requests int
}

// bodyMax bounds what a double reads of a request: what its original would.
const bodyMax = 1 << 20

// Start listens. handle gets each request with its
// body and answers; what it writes is dropped when a fault is due.
func (s *Server) Start(ctx context.Context, handle func(w http.ResponseWriter, r *http.Request, body []byte)) error {
	var err error
	if s.ca, err = tlscert.New(tlscert.Config{}); err != nil {
		return fmt.Errorf("certificate authority: %w", err)
	}
	cert, err := s.ca.Issue("127.0.0.1", "localhost") // with a DNS name, or OpenSSL takes the subject for one
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	at := s.Listen
	if at == "" {
		at = "127.0.0.1:0"
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s.addr, s.done = l.Addr(), make(chan struct{})
	s.http = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, handle) }),
		// A client's broken handshake is none of ours.
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ReadHeaderTimeout: 10 * time.Second,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
	}
	go func() {
		defer close(s.done)
		_ = s.http.ServeTLS(l, "", "")
	}()
	return nil
}

// URL is the address of the double.
func (s *Server) URL() string { return "https://" + s.addr.String() }

// Host is the address without its scheme.
func (s *Server) Host() string { return s.addr.String() }

// Pool trusts the double, and PEM is its authority as a ca_file has it.
func (s *Server) Pool() *x509.CertPool { return s.ca.Pool() }

// PEM is the certificate that a configuration's ca_file names.
func (s *Server) PEM() []byte { return s.ca.PEM() }

// Close ends the double.
func (s *Server) Close() error {
	err := s.http.Close()
	<-s.done
	return err
}

// Next lets the next requests that may have an effect meet faults, one each.
func (s *Server) Next(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, faults...)
}

// SetNow replaces the clock, which is the system's.
func (s *Server) SetNow(now func() time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = now
}

// Requests is how many arrived that may have an effect.
func (s *Server) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

func (s *Server) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now != nil {
		return s.now()
	}
	return time.Now()
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, handle func(http.ResponseWriter, *http.Request, []byte)) {
	body, err := io.ReadAll(io.LimitReader(r.Body, bodyMax+1))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	fault, due := s.take(r.Method)
	if !due {
		handle(w, r, body)
		return
	}
	if fault.After {
		handle(discard{http.Header{}}, r, body)
	}
	if fault.Status == 0 {
		panic(http.ErrAbortHandler)
	}
	if fault.RetryAfter != "" {
		w.Header().Set("Retry-After", fault.RetryAfter)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(fault.Status)
	_, _ = io.WriteString(w, fault.Body)
}

func (s *Server) take(method string) (Fault, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if method == http.MethodGet || method == http.MethodHead {
		return Fault{}, false
	}
	s.requests++
	if len(s.faults) == 0 {
		return Fault{}, false
	}
	f := s.faults[0]
	s.faults = s.faults[1:]
	return f, true
}

// discard is an answer that nobody gets.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

func answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}
