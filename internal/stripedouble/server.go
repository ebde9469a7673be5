package stripedouble

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/fencepost/fencepost/internal/tlscert"
)

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
)

// Server is a Stripe double. New, then Start, then Close; Close works at any
// time and more than once. A closed server is not started again: make a new
// one on the same directory. All methods are safe for concurrent use.
type Server struct {
	cfg     Config
	clock   *clock
	limiter *rate.Limiter // nil: unlimited
	stats   stats
	faults  faultState
	stop    chan struct{} // closed by Close: ends every wait

	mu       sync.Mutex
	state    serverState
	book     *book // nil until started
	http     *http.Server
	addr     net.Addr
	ca       *tlscert.Authority
	served   chan struct{}
	handlers sync.WaitGroup
	sender   sync.WaitGroup
	hook     hook
	unwatch  func() bool
	closing  sync.Once
	failure  error
}

type serverState int

const (
	stateNew serverState = iota
	stateRunning
	stateClosed
)

// ErrClosed is answered by a server that was closed or never started.
var ErrClosed = errors.New("stripe double is not running")

// New checks the configuration. It touches neither disk nor network.
func New(c Config) (*Server, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: c, clock: &clock{base: c.Now}, stop: make(chan struct{}), served: make(chan struct{})}
	s.clock.add(c.ClockOffset)
	if c.RateLimit > 0 {
		s.limiter = rate.NewLimiter(rate.Limit(c.RateLimit), c.RateLimit)
	}
	s.faults.replace(c.Faults, c.Seed)
	s.hook.set(c.WebhookURL, c.WebhookSecret)
	return s, nil
}

// Start reads the ledger, makes the certificate and serves until ctx is done
// or Close is called. It returns once the server accepts connections.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != stateNew {
		return ErrClosed
	}
	host, _, err := net.SplitHostPort(s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("stripe double: listen: %w", err)
	}
	cert, err := s.certificate(host)
	if err != nil {
		return fmt.Errorf("stripe double: certificate: %w", err)
	}
	b, err := openBook(s.cfg, s.clock)
	if err != nil {
		return fmt.Errorf("stripe double: %w", err)
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return errors.Join(fmt.Errorf("stripe double: listen: %w", err), b.close())
	}
	s.book, s.addr, s.state = b, ln.Addr(), stateRunning
	// Faults that cut or repeat bytes need the connection itself, which
	// HTTP/2 does not hand out.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	s.http = &http.Server{
		Handler:           s.routes(),
		Protocols:         &protocols,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
	}
	go s.serve(ln)
	s.sender.Go(s.sendReports)
	s.unwatch = context.AfterFunc(ctx, func() { _ = s.Close() })
	s.cfg.Logger.InfoContext(ctx, "stripe double started", "url", s.urlLocked(), "ca_file", s.CAFile(), "events", len(b.entries))
	return nil
}

func (s *Server) serve(ln net.Listener) {
	defer close(s.served)
	err := s.http.ServeTLS(ln, "", "")
	if errors.Is(err, http.ErrServerClosed) {
		return
	}
	s.mu.Lock()
	s.failure = err
	s.mu.Unlock()
	s.cfg.Logger.Error("stripe double stopped serving", "error", err)
}

func (s *Server) certificate(host string) (tls.Certificate, error) {
	hosts := []string{"127.0.0.1", "::1", "localhost"}
	var c tlscert.Config
	ip := net.ParseIP(host)
	if host != "" && host != "localhost" && (ip == nil || (!ip.IsLoopback() && !ip.IsUnspecified())) {
		hosts = append(hosts, host)
		c.Hosts = hosts
	}
	c.Now = s.cfg.Now
	ca, err := tlscert.LoadOrCreate(s.cfg.Dir, c)
	if err != nil {
		return tls.Certificate{}, err
	}
	s.ca = ca
	if s.cfg.CertificateHost != "" {
		hosts = []string{s.cfg.CertificateHost}
	}
	return ca.Issue(hosts...)
}

// Close ends the server: open connections are cut, handlers are waited for,
// the ledger is closed. It returns the first error of serving or of the
// ledger; every call waits for the end and returns the same.
func (s *Server) Close() error {
	s.closing.Do(s.shutDown)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

func (s *Server) shutDown() {
	s.mu.Lock()
	wasRunning := s.state == stateRunning
	s.state = stateClosed
	srv, unwatch := s.http, s.unwatch
	close(s.stop)
	s.mu.Unlock()
	if !wasRunning {
		return
	}
	unwatch()
	_ = srv.Close() // only tells of listeners that were closed already
	<-s.served
	s.handlers.Wait()
	s.sender.Wait()
	err := s.book.close()
	s.mu.Lock()
	s.failure = errors.Join(s.failure, err)
	s.mu.Unlock()
}

// Done is closed when the server has stopped accepting connections.
func (s *Server) Done() <-chan struct{} { return s.served }

// Addr is the address that the server listens on, nil before Start.
func (s *Server) Addr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// URL is the base URL, https://127.0.0.1:port, empty before Start.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.urlLocked()
}

func (s *Server) urlLocked() string {
	tcp, ok := s.addr.(*net.TCPAddr)
	if !ok {
		return ""
	}
	host := tcp.IP.String()
	if tcp.IP.IsUnspecified() {
		host = "localhost"
	}
	return "https://" + net.JoinHostPort(host, strconv.Itoa(tcp.Port))
}

// CAFile is the path of the CA certificate: what ca_file names. The file
// exists after Start and stays the same over restarts.
func (s *Server) CAFile() string { return filepath.Join(s.cfg.Dir, tlscert.CAFile) }

// Pool trusts this server's CA and no other. Nil before Start.
func (s *Server) Pool() *x509.CertPool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ca == nil {
		return nil
	}
	return s.ca.Pool()
}

// Now is the double's time.
func (s *Server) Now() time.Time { return s.clock.now() }

// enter admits a handler unless the server is closing.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != stateRunning {
		return false
	}
	s.handlers.Add(1)
	return true
}

// running returns the book of a server that was started.
func (s *Server) running() (*book, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.book == nil {
		return nil, ErrClosed
	}
	return s.book, nil
}

// wait returns after d, or false at once when the server is closed.
func (s *Server) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.stop:
		return false
	}
}

// pause returns after d. If the server is closed meanwhile it ends the handler,
// and its connection, without an answer.
func (s *Server) pause(d time.Duration) {
	if !s.wait(d) {
		panic(http.ErrAbortHandler)
	}
}

// clock is the double's time: a base clock and an offset that only grows by
// what operators ask for.
type clock struct {
	base   func() time.Time
	offset atomic.Int64
}

func (c *clock) add(d time.Duration) { c.offset.Add(int64(d)) }

func (c *clock) now() time.Time {
	return c.base().Add(time.Duration(c.offset.Load())).UTC().Truncate(time.Microsecond)
}
