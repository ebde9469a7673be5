package egress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/fault"
)

// answer is what came of one request.
type answer struct {
	failure capability.Failure
	reason  string
	// status is set as soon as one arrived, complete or not.
	status     int
	headers    []capability.Header
	body       []byte // masked
	requestID  string
	retryAfter time.Duration
	started    time.Time
	finished   time.Time
	admitted   bool // holds a slot
	read       bool // of a request that has no effect
}

// responseReason is what the plugin is told. A whole answer needs no reason.
func (a *answer) responseReason() string {
	if a.failure == capability.FailureNone {
		return ""
	}
	return a.reason
}

// exchange sends one request, once, and reads its answer.
func (c *Client) exchange(ctx context.Context, p *prepared, sendBefore time.Duration) answer {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	if fault.Point(ctx, "d4") != nil {
		return answer{failure: capability.FailureNotSent, reason: reasonFault}
	}
	x := &wire{
		expired: c.expiredFunc(ctx, sendBefore),
		onSent: func() {
			if fault.Point(ctx, "d5") != nil {
				cancel()
			}
		},
	}
	resp, err := c.transport.RoundTrip(p.request(x.trace(ctx)))
	if err != nil {
		sent, resends := x.seal()
		if resends > 0 {
			c.counts.add(func(s *Stats) { s.ResendsBlocked += uint64(resends) })
		}
		if !sent {
			return answer{failure: capability.FailureNotSent, reason: c.dialReason(ctx, err)}
		}
		return answer{failure: capability.FailureUnknown, reason: brokenReason(ctx, err)}
	}
	defer func() { _ = resp.Body.Close() }()
	if fault.Point(ctx, "d6") != nil {
		return answer{failure: capability.FailureUnknown, reason: reasonFault}
	}
	a := c.read(ctx, p.method, resp)
	if fault.Point(ctx, "d7") != nil {
		return answer{failure: capability.FailureUnknown, reason: reasonFault}
	}
	return a
}

// request builds what goes to the transport. GetBody stays nil: a body that
// cannot be read twice cannot be sent twice.
func (p *prepared) request(ctx context.Context) *http.Request {
	u := *p.url
	host := strings.TrimSuffix(p.hostPort, ":443")
	req := &http.Request{
		Method: p.method, URL: &u, Host: host, Header: p.header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if len(p.body) > 0 {
		// This very type, so that head and body leave in one write.
		req.Body = io.NopCloser(bytes.NewReader(p.body))
		req.ContentLength = int64(len(p.body))
	}
	return req.WithContext(ctx)
}

// read takes in an answer within the limits.
func (c *Client) read(ctx context.Context, method string, resp *http.Response) answer {
	a := answer{
		status:    resp.StatusCode,
		requestID: c.requestID(resp.Header),
	}
	if a.status == http.StatusTooManyRequests || a.status >= 500 {
		a.retryAfter = parseRetryAfter(resp.Header.Values("Retry-After"), c.cfg.Now())
	}
	if a.status < 200 { // 101: what follows is not HTTP
		return a.unknown(reasonMalformed)
	}
	hasBody := method != http.MethodHead && a.status != http.StatusNoContent && a.status != http.StatusNotModified
	if hasBody {
		for _, enc := range resp.Header.Values("Content-Encoding") {
			if !strings.EqualFold(strings.TrimSpace(enc), "identity") {
				return a.unknown(reasonEncoding)
			}
		}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(c.cfg.MaxResponseBytes)+1))
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return a.unknown(reasonTruncated)
	case err != nil:
		return a.unknown(brokenReason(ctx, err))
	case len(body) > c.cfg.MaxResponseBytes:
		return a.unknown(reasonTooLarge)
	}
	a.body = c.maskBody(body)
	if hasBody {
		valid := json.Valid(a.body)
		// A body that ends with the connection may have ended early. Only its
		// form can tell.
		if resp.ContentLength < 0 && len(resp.TransferEncoding) == 0 && !valid {
			a.body = nil
			return a.unknown(reasonTruncated)
		}
		if !valid && isJSON(resp.Header.Get("Content-Type")) {
			a.reason = reasonMalformed
		}
	}
	a.headers = c.answerHeaders(resp.Header)
	return a
}

// unknown turns a into an answer of which only the status is known.
func (a answer) unknown(reason string) answer {
	a.failure, a.reason = capability.FailureUnknown, reason
	return a
}

func isJSON(contentType string) bool {
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && (t == "application/json" || strings.HasSuffix(t, "+json"))
}

// answerHeaders returns an answer's headers in the order of their names, without
// cookies and secrets.
func (c *Client) answerHeaders(h http.Header) []capability.Header {
	var out []capability.Header
	for name, values := range h {
		if strings.HasPrefix(name, "Set-Cookie") || c.secretName(name) {
			continue
		}
		for _, v := range values {
			out = append(out, capability.Header{Name: name, Value: c.maskText(v)})
		}
	}
	slices.SortStableFunc(out, func(a, b capability.Header) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// requestID returns the provider's name for the exchange, or "" if it is long
// or holds what a name does not.
func (c *Client) requestID(h http.Header) string {
	for _, name := range []string{"Request-Id", "X-Request-Id"} {
		id := c.maskText(h.Get(name))
		if id == "" || len(id) > 128 {
			continue
		}
		if strings.IndexFunc(id, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"'<>\\`", r) }) < 0 {
			return id
		}
	}
	return ""
}

// dialReason says why nothing was sent.
func (c *Client) dialReason(ctx context.Context, err error) string {
	var (
		dns       *net.DNSError
		handshake *handshakeError
	)
	switch {
	case errors.Is(err, errAddressRefused):
		return reasonAddressRefused
	case errors.Is(err, errExpired):
		return reasonDeadline
	}
	if reason := c.reasonNotSent(ctx); reason != "" {
		return reason
	}
	switch {
	case errors.As(err, &dns):
		return reasonDNS
	case errors.As(err, &handshake):
		return reasonTLS
	}
	return reasonConnect
}

// brokenReason says why an exchange that had begun has no whole answer.
func brokenReason(ctx context.Context, err error) string {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return reasonTimeout
	case ctx.Err() != nil:
		return reasonInterrupted
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, errResend):
		return reasonReset
	}
	return reasonProtocol
}
