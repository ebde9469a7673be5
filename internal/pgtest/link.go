package pgtest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"net"
	"sync"
)

// idle is the state in a ReadyForQuery outside a transaction.
const idle = 'I'

// The requests that come before a connection has begun.
const (
	cancelRequest = 80877102
	sslRequest    = 80877103
	gssRequest    = 80877104
)

// link is one connection of a client, with its connection to the server.
type link struct {
	p      *Proxy
	client net.Conn

	mu         sync.Mutex
	server     net.Conn // nil before the first message
	ended      bool
	status     byte     // of the last ReadyForQuery, 0 before the first
	pending    []Action // of exchanges without a ReadyForQuery yet
	statements map[string]string
	portals    map[string]string
}

// reset ends both connections, with RST where there is anything to send.
func (l *link) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for _, c := range []net.Conn{l.client, l.server} {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
			_ = tcp.Close()
		}
	}
}

// serve forwards until either side ends.
func (l *link) serve() {
	from := bufio.NewReader(l.client)
	first, ok := l.begin(from)
	if !ok {
		return
	}
	server, err := l.p.dial()
	if err != nil {
		return
	}
	l.mu.Lock()
	l.server = server
	ended := l.ended
	l.mu.Unlock()
	if ended {
		_ = server.Close()
		return
	}
	if _, err := server.Write(first.raw); err != nil {
		return
	}
	if binary.BigEndian.Uint32(first.body()) == cancelRequest {
		_, _ = server.Read(make([]byte, 1)) // it closes when it is done
		return
	}
	var answers sync.WaitGroup
	answers.Go(func() {
		l.answers(bufio.NewReader(server))
		l.reset()
	})
	l.requests(from)
	l.reset()
	answers.Wait()
}

// begin reads the message that starts a connection. Encryption is declined.
func (l *link) begin(from *bufio.Reader) (message, bool) {
	for {
		m, err := readMessage(from, false)
		if err != nil || len(m.raw) < 8 {
			return m, false
		}
		l.p.pass()
		switch binary.BigEndian.Uint32(m.body()) {
		case sslRequest, gssRequest:
			if _, err := l.client.Write([]byte("N")); err != nil {
				return m, false
			}
		default:
			return m, true
		}
	}
}

// requests forwards what the client sends, one exchange at a time.
func (l *link) requests(from *bufio.Reader) {
	var held bytes.Buffer
	var e Exchange
	waiting := false
	for {
		m, err := readMessage(from, true)
		if err != nil {
			return
		}
		if !waiting {
			l.countTrip()
			waiting = true
		}
		held.Write(l.p.rewritten(m).raw)
		l.note(m, &e)
		switch m.kind {
		case 'P', 'B', 'D', 'E', 'C': // Parse, Bind, Describe, Execute, Close: more follows
			continue
		case 'S', 'Q', 'F': // Sync, Query, FunctionCall: a ReadyForQuery is due
			if !l.exchange(e, held.Bytes()) {
				return
			}
			e = Exchange{}
		default: // passwords, COPY data, Flush, Terminate
			if !l.send(held.Bytes()) {
				return
			}
		}
		held.Reset()
		waiting = from.Buffered() > 0 // sent with what went before
	}
}

// countTrip counts a message that is sent while nothing is due.
func (l *link) countTrip() {
	l.mu.Lock()
	due := len(l.pending)
	begun := l.status != 0
	l.mu.Unlock()
	if begun && due == 0 {
		l.p.trip()
	}
}

// exchange carries out what the rules say. It reports false if the connection
// has ended.
func (l *link) exchange(e Exchange, raw []byte) bool {
	l.mu.Lock()
	e.InTransaction = l.status != 0 && l.status != idle
	l.mu.Unlock()
	do := l.p.judge(e)
	if do == DropRequest {
		return false
	}
	if do == HangRequest {
		return true
	}
	l.mu.Lock()
	l.pending = append(l.pending, do)
	l.mu.Unlock()
	return l.send(raw)
}

func (l *link) send(raw []byte) bool {
	l.p.pass()
	_, err := l.server.Write(raw)
	return err == nil
}

// note remembers which statement is which, and adds the ones that run to e.
func (l *link) note(m message, e *Exchange) {
	switch m.kind {
	case 'Q':
		e.SQL = append(e.SQL, text(m.body()))
	case 'P':
		name, rest := cut(m.body())
		l.statements[name] = text(rest)
	case 'B':
		portal, rest := cut(m.body())
		l.portals[portal] = l.statements[text(rest)]
	case 'E':
		e.SQL = append(e.SQL, l.portals[text(m.body())])
	}
}

// cut splits off a string that ends with a zero byte.
func cut(b []byte) (string, []byte) {
	before, after, _ := bytes.Cut(b, []byte{0})
	return string(before), after
}

func text(b []byte) string {
	s, _ := cut(b)
	return s
}

// answers forwards what the server sends, or swallows it.
func (l *link) answers(from *bufio.Reader) {
	for {
		m, err := readMessage(from, true)
		if err != nil {
			return
		}
		l.p.pass()
		do := l.current()
		if do == forward {
			if _, err := l.client.Write(m.raw); err != nil {
				return
			}
		}
		if m.kind != 'Z' { // ReadyForQuery
			continue
		}
		l.mu.Lock()
		l.status = m.body()[0]
		if len(l.pending) > 0 {
			l.pending = l.pending[1:]
		}
		l.mu.Unlock()
		if do == DropAnswer {
			return
		}
	}
}

// current is what becomes of the answers that come now.
func (l *link) current() Action {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) == 0 {
		return forward
	}
	return l.pending[0]
}
