package pgtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"
)

// Proxy stands between clients and a PostgreSQL server. It understands the
// protocol well enough to lose one message and no other: the answer to a
// COMMIT, or the COMMIT itself. It speaks no TLS. All methods are safe for
// concurrent use.
type Proxy struct {
	ln   net.Listener
	dsn  *url.URL
	wait sync.WaitGroup

	mu     sync.Mutex
	thaw   *sync.Cond // signals frozen and closed
	server string
	rules  []Rule
	edit   func(sql string) string // nil: statements go as they come
	fired  int
	trips  int
	frozen bool
	closed bool
	links  map[*link]bool
}

// NewProxy starts a proxy in front of the server that a DSN (URL) names. It
// ends with the test.
func NewProxy(t testing.TB, dsn string) *Proxy {
	t.Helper()
	p, err := OpenProxy(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// OpenProxy is NewProxy without a test.
func OpenProxy(dsn string) (*Proxy, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p := &Proxy{ln: ln, dsn: u, server: u.Host, links: map[*link]bool{}}
	p.thaw = sync.NewCond(&p.mu)
	p.wait.Go(p.accept)
	return p, nil
}

// DSN is the DSN that the proxy was made with, by way of the proxy.
func (p *Proxy) DSN() string { return p.Through(p.dsn.String()) }

// Through returns a DSN with the proxy's address in place of its own: for a
// schema on the same server.
func (p *Proxy) Through(dsn string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		return dsn
	}
	u.Host = p.ln.Addr().String()
	return u.String()
}

// Set replaces the rules, and begins a new count of what fired. The first rule
// that matches an exchange is carried out.
func (p *Proxy) Set(rules ...Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules, p.fired = slices.Clone(rules), 0
}

// Rewrite changes the text of statements on their way to the server: for a
// server that does not do what a statement asks for. Nil ends it. Statements
// that were prepared before stay as they were.
func (p *Proxy) Rewrite(edit func(sql string) string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.edit = edit
}

// rewritten is a message with its statement changed, if it has one.
func (p *Proxy) rewritten(m message) message {
	p.mu.Lock()
	edit := p.edit
	p.mu.Unlock()
	if edit == nil || m.kind != 'Q' && m.kind != 'P' {
		return m
	}
	var name, rest []byte
	sql := m.body()
	if m.kind == 'P' { // its name, the statement, the types of parameters
		name, sql, _ = bytes.Cut(sql, []byte{0})
		name = append(slices.Clone(name), 0)
	}
	sql, rest, _ = bytes.Cut(sql, []byte{0})
	body := slices.Concat(name, []byte(edit(string(sql))), []byte{0}, rest)
	raw := binary.BigEndian.AppendUint32([]byte{m.kind}, uint32(len(body)+4))
	return message{kind: m.kind, raw: append(raw, body...)}
}

// Fired says how often a rule was carried out since Set. A fault that never
// happened proves nothing: tests look.
func (p *Proxy) Fired() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fired
}

// RoundTrips counts how often a client sent something while no answer was due:
// the times that it had to wait for the network. Connecting is not counted.
func (p *Proxy) RoundTrips() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trips
}

// Freeze makes a black hole: nothing is forwarded in either direction, nothing
// is closed, and new connections are accepted and never answered.
func (p *Proxy) Freeze() { p.setFrozen(true) }

// Thaw ends Freeze. What was held back is forwarded, except on connections that
// were closed meanwhile.
func (p *Proxy) Thaw() { p.setFrozen(false) }

func (p *Proxy) setFrozen(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = on
	p.thaw.Broadcast()
}

// Redirect makes new connections go to another server (host:port): a new node
// behind the same address. Those that are open stay.
func (p *Proxy) Redirect(server string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server = server
}

// Cut resets every open connection and returns how many there were.
func (p *Proxy) Cut() int {
	p.mu.Lock()
	open := make([]*link, 0, len(p.links))
	for l := range p.links {
		open = append(open, l)
	}
	p.mu.Unlock()
	for _, l := range open {
		l.reset()
	}
	return len(open)
}

// Close ends the proxy and its connections. It may be called more than once.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.thaw.Broadcast()
	p.mu.Unlock()
	_ = p.ln.Close()
	p.Cut()
	p.wait.Wait()
}

func (p *Proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return // closed
		}
		l := &link{p: p, client: c, statements: map[string]string{}, portals: map[string]string{}}
		p.mu.Lock()
		closed := p.closed
		p.links[l] = true
		p.mu.Unlock()
		if closed {
			l.reset()
		}
		p.wait.Go(func() {
			defer func() {
				l.reset()
				p.mu.Lock()
				delete(p.links, l)
				p.mu.Unlock()
			}()
			l.serve()
		})
	}
}

// pass waits while the proxy is frozen.
func (p *Proxy) pass() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.frozen && !p.closed {
		p.thaw.Wait()
	}
}

// judge finds what is to become of an exchange.
func (p *Proxy) judge(e Exchange) Action {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.rules {
		r := &p.rules[i]
		if r.Times < 0 || !r.On(e) {
			continue
		}
		if r.Times > 0 {
			if r.Times--; r.Times == 0 {
				r.Times = -1 // used up
			}
		}
		p.fired++
		return r.Do
	}
	return forward
}

func (p *Proxy) trip() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trips++
}

func (p *Proxy) dial() (net.Conn, error) {
	p.mu.Lock()
	server := p.server
	p.mu.Unlock()
	return (&net.Dialer{Timeout: 10 * time.Second}).DialContext(context.Background(), "tcp", server)
}

// message is one of the protocol; kind is 0 for those of the start, which have
// none. raw is all of it.
type message struct {
	kind byte
	raw  []byte
}

// body is what follows the kind and the length.
func (m message) body() []byte {
	if m.kind == 0 {
		return m.raw[4:]
	}
	return m.raw[5:]
}

// mostMessage is longer than any message of a test.
const mostMessage = 256 << 20

func readMessage(r io.Reader, hasKind bool) (message, error) {
	size := 4
	if hasKind {
		size++
	}
	head := make([]byte, size)
	if _, err := io.ReadFull(r, head); err != nil {
		return message{}, err
	}
	length := binary.BigEndian.Uint32(head[len(head)-4:])
	if length < 4 || length > mostMessage {
		return message{}, fmt.Errorf("a message of %d bytes", length)
	}
	raw := slices.Grow(head, int(length)-4)[:len(head)+int(length)-4]
	if _, err := io.ReadFull(r, raw[len(head):]); err != nil {
		return message{}, err
	}
	m := message{raw: raw}
	if hasKind {
		m.kind = raw[0]
	}
	return m, nil
}
