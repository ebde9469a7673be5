package stripedouble

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const proxyPage = "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>\r\n<hr><center>proxy</center>\r\n</body>\r\n</html>\r\n"

// misbehave answers as f says; a is what would have been answered.
func (s *Server) misbehave(w http.ResponseWriter, rq *request, f *rule, a answer) {
	s.cfg.Logger.Debug("fault", "rule", f.String(), "request_id", rq.id)
	if f.isStatus() {
		spoilt := s.refuse(rq, statusError(f.status))
		spoilt.retryAfter = s.retryAfter(f.retry)
		s.send(w, rq, spoilt)
		return
	}
	switch f.kind {
	case kindReset, kindClose, kindTruncate, kindDup:
		s.header(w, rq.Request, rq.id)
		s.raw(w, f, a)
	case kindSlow:
		s.pause(f.delay)
		s.send(w, rq, a)
	case kindHeaders:
		value := strings.Repeat("x", 1000)
		w.Header()["X-Padding"] = slices.Repeat([]string{value}, f.bytes/len(value)+1)
		s.send(w, rq, a)
	case kindRefuse:
		s.send(w, rq, s.refuse(rq, tooManyDigits("1234567890.123456")))
	case kindEmpty:
		s.send(w, rq, answer{status: http.StatusOK})
	case kindHTML:
		s.stats.status[f.status].Add(1)
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(f.status)
		_, _ = io.WriteString(w, proxyPage)
	case kindRedirect:
		w.Header().Set("Location", f.to)
		s.send(w, rq, answer{status: f.status})
	case kindSlowloris:
		s.drip(w, rq, f, a)
	case kindHuge, kindGzip:
		s.bloat(w, rq, f, a)
	case kindLivemode, kindForeign:
		s.send(w, rq, lie(f.kind, a))
	}
}

// retryAfter renders the header's text.
func (s *Server) retryAfter(word string) string {
	switch word {
	case retryDate:
		return s.clock.now().Add(2 * time.Second).Format(http.TimeFormat)
	case retryPast:
		return s.clock.now().Add(-time.Hour).Format(http.TimeFormat)
	case retryDay:
		return "86400"
	case retryGarbage:
		return "soon; perhaps"
	case retryNegative:
		return "-5"
	}
	return word
}

// lie changes what a success says. Refusals stay as they are: they name
// neither mode nor event.
func lie(kind string, a answer) answer {
	var b eventBody
	if a.status != http.StatusOK || json.Unmarshal(a.body, &b) != nil {
		return a
	}
	if kind == kindLivemode {
		b.Livemode = !b.Livemode
	} else {
		b.Identifier = "foreign_" + b.Identifier
	}
	body, err := json.Marshal(b)
	if err != nil {
		return a
	}
	a.body = body
	return a
}

// drip sends the answer byte by byte until the client or the server gives up.
func (s *Server) drip(w http.ResponseWriter, rq *request, f *rule, a answer) {
	s.header(w, rq.Request, rq.id)
	w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	w.WriteHeader(a.status)
	flush := http.NewResponseController(w)
	for i := range a.body {
		s.pause(f.delay)
		if _, err := w.Write(a.body[i : i+1]); err != nil {
			return
		}
		if flush.Flush() != nil {
			return
		}
	}
	s.stats.status[a.status].Add(1)
}

// bloat sends the answer followed by blanks, which JSON allows, so that only a
// limit on the body's size protects the reader.
func (s *Server) bloat(w http.ResponseWriter, rq *request, f *rule, a answer) {
	s.stats.status[a.status].Add(1)
	s.header(w, rq.Request, rq.id)
	var out io.Writer = w
	if f.kind == kindGzip {
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(a.status)
		z := gzip.NewWriter(w)
		defer func() { _ = z.Close() }()
		out = z
	} else {
		w.Header().Set("Content-Length", strconv.Itoa(max(f.bytes, len(a.body))))
		w.WriteHeader(a.status)
	}
	if _, err := out.Write(a.body); err != nil {
		return
	}
	blanks := bytes.Repeat([]byte{' '}, 1<<16)
	for left := f.bytes - len(a.body); left > 0; left -= len(blanks) {
		if _, err := out.Write(blanks[:min(left, len(blanks))]); err != nil {
			return
		}
	}
}

// raw takes the connection and writes what net/http would not.
func (s *Server) raw(w http.ResponseWriter, f *rule, a answer) {
	head := head(w.Header(), a)
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		s.cfg.Logger.Error("fault needs the connection", "error", err)
		panic(http.ErrAbortHandler)
	}
	defer func() { _ = conn.Close() }()
	// A client that does not read must not hold up the server's end. The
	// network keeps wall time, hence not the clock of the configuration.
	_ = conn.SetWriteDeadline(time.Now().Add(readHeaderTimeout))
	switch f.kind {
	case kindReset:
		reset(conn)
	case kindTruncate:
		_, _ = conn.Write(append(head, a.body[:len(a.body)/2]...))
	case kindDup:
		whole := slices.Concat(head, a.body)
		_, _ = conn.Write(slices.Concat(whole, whole))
	}
}

// head renders status line and headers of a.
func head(h http.Header, a answer) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", a.status, http.StatusText(a.status))
	h.Set("Content-Length", strconv.Itoa(len(a.body)))
	_ = h.Write(&b) // a buffer takes everything
	b.WriteString("\r\n")
	return b.Bytes()
}

// reset ends the connection with RST, without TLS's good-bye.
func reset(conn net.Conn) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
