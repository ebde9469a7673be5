package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

var (
	errResend   = errors.New("a request is written once")
	errSealed   = errors.New("the exchange has ended")
	errExpired  = errors.New("the time for sending is used up")
	errShutdown = errors.New("the client is closed")
	errNotHTTPS = errors.New("only https")
)

// newTransport returns the HTTP/1.1 transport: no proxy, no HTTP/2 (which has
// its own ways of sending again), no decompression.
func (c *Client) newTransport() *http.Transport {
	var http1 http.Protocols
	http1.SetHTTP1(true)
	return &http.Transport{
		DialTLSContext: c.dialTLS,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return nil, errNotHTTPS
		},
		Protocols:              &http1,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    c.cfg.Concurrency,
		IdleConnTimeout:        idleTimeout,
		WriteBufferSize:        c.writeBufferBytes(),
		MaxResponseHeaderBytes: responseHeaderBytesMax,
	}
}

// dialTLS connects and shakes hands. http.Transport keeps dialling after the
// request that wanted the connection has given up, so the time is bounded here
// and Close waits for it.
func (c *Client) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	if !c.enter() {
		return nil, errShutdown
	}
	defer c.active.Done()
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()

	dialer := net.Dialer{Resolver: c.cfg.Resolver, Control: c.control}
	raw, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(address)
	conn := tls.Client(raw, &tls.Config{
		ServerName: host,
		RootCAs:    c.cfg.RootCAs,
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
	})
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, &handshakeError{err}
	}
	c.counts.add(func(s *Stats) { s.Connections++ })
	return &wireConn{Conn: conn}, nil
}

type handshakeError struct{ err error }

func (e *handshakeError) Error() string { return "tls handshake: " + e.err.Error() }
func (e *handshakeError) Unwrap() error { return e.err }

// wireConn asks the exchange that holds the connection before each write, above
// TLS: what it counts is the request, not the handshake.
type wireConn struct {
	net.Conn
	wire atomic.Pointer[wire]
}

// Write passes on what the exchange allows.
func (w *wireConn) Write(p []byte) (int, error) {
	x := w.wire.Load()
	if x == nil {
		return 0, errSealed
	}
	if err := x.allowWrite(w); err != nil {
		return 0, err
	}
	n, err := w.Conn.Write(p)
	if err == nil {
		x.written()
	}
	return n, err
}

// wire counts what one exchange puts on the wire, and stops a second copy.
//
// Go's transport sends a request again if a reused connection breaks before the
// answer and the request looks repeatable, as any GET does and, with an
// Idempotency-Key, a POST that has no body or can rewind it. Our bodies cannot
// be rewound; for the rest, and for whatever a later Go thinks repeatable, the
// first byte binds the exchange to its connection.
type wire struct {
	expired func() bool // asked before the first byte
	onSent  func()      // told once, when the last byte is out

	mu      sync.Mutex
	built   bool // the whole request is in the transport's buffer or out
	told    bool
	conn    *wireConn // that carried the first byte
	writes  int
	sealed  bool
	resends int
}

// gotConn is called by the transport before it writes to the connection.
func (x *wire) gotConn(info httptrace.GotConnInfo) {
	if w, ok := info.Conn.(*wireConn); ok {
		w.wire.Store(x)
	}
}

func (x *wire) allowWrite(w *wireConn) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.sealed:
		return errSealed
	case x.conn != nil && x.conn != w:
		x.resends++
		return errResend
	case x.conn == nil && x.expired():
		return errExpired
	}
	x.conn = w
	x.writes++
	return nil
}

// seal ends the exchange: nothing more goes out. It reports whether anything
// did, and how often a second copy was stopped.
func (x *wire) seal() (sent bool, resends int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sealed = true
	return x.writes > 0, x.resends
}

// expiredFunc tells whether an exchange may no longer begin, on all the clocks.
func (c *Client) expiredFunc(ctx context.Context, sendBefore time.Duration) func() bool {
	return func() bool {
		return c.reasonNotSent(ctx) != "" || sendBefore != 0 && c.cfg.Elapsed() >= sendBefore
	}
}

// written follows every write. The transport says that it wrote a request when
// the request is in its buffer, which holds any request whole: the write after
// that is the one that sends it.
func (x *wire) written() {
	x.mu.Lock()
	sent := x.built && !x.told
	x.told = x.told || sent
	x.mu.Unlock()
	if sent {
		x.onSent()
	}
}

// writeBufferBytes is more than any request takes.
func (c *Client) writeBufferBytes() int {
	n := urlBytesMax + headerBytesMax + c.cfg.MaxRequestBytes + 4<<10
	for _, s := range c.cfg.Secrets {
		n += len(s.Header) + len(s.Prefix) + len(s.Value.Reveal()) + 4
	}
	return n
}

// trace ties the exchange to its connection.
func (x *wire) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: x.gotConn,
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.built = info.Err == nil
		},
	})
}
