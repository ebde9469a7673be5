package egress

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// prepared is a request that keeps the rules, ready to be sent.
type prepared struct {
	method   string // empty, as the rest, until it was found good
	hostPort string
	url      *url.URL
	header   http.Header
	body     []byte
	items    []CallItem // those of the request that the call knows
	signer   signer     // of the secret that signs; nil: none does
	scope    string
}

// prepare checks a plugin's request and adds the host's own headers and the
// secrets. It returns the reason if the request is refused; p then holds what
// was found good so far, and always the items.
func (c *Client) prepare(call *Call, req *capability.Request) (p *prepared, reason string) {
	p = &prepared{}
	if reason := p.bindItems(call, req.Items); reason != "" {
		return p, reason
	}
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		p.method = req.Method
	default:
		return p, reasonMethodRefused
	}
	if len(p.items) == 0 && !reads(p.method) {
		// It may have an effect and would be evidence for nobody: a plugin
		// could charge with it and deny it.
		return p, reasonItemsMissing
	}
	u, hostPort, reason := parseURL(req.URL)
	if reason != "" {
		return p, reason
	}
	if reason := c.checkHost(hostPort); reason != "" {
		return p, reason
	}
	p.url, p.hostPort = u, hostPort
	if len(req.Body) > c.cfg.MaxRequestBytes {
		return p, reasonBodyTooLarge
	}
	p.body = req.Body
	if reason := c.setHeaders(p, req); reason != "" {
		return p, reason
	}
	if len(p.items) == 0 {
		return p, ""
	}
	if c.cfg.Records != nil {
		if len(p.items) != len(req.Items) {
			return p, reasonRecordsAlike
		}
		return p, c.checkBody(p.body, p.items)
	}
	for _, it := range p.items {
		if !identifierOccurs(req, u, it.Identifier) {
			return p, reasonIdentifierMissing
		}
	}
	return p, ""
}

// bindItems looks the covered items up in the call.
func (p *prepared) bindItems(call *Call, ids []string) string {
	if len(ids) > 0 && call == nil {
		return reasonNoCall
	}
	var reason string
	seen := make(map[string]struct{}, len(ids))
	for _, id := range ids {
		it, ok := call.items[id]
		if !ok {
			reason = reasonItemUnknown
			continue
		}
		if _, again := seen[id]; !again {
			seen[id] = struct{}{}
			p.items = append(p.items, it)
		}
	}
	if reason == "" && call != nil && !call.admit() {
		reason = reasonTooManyRequests
	}
	return reason
}

// setHeaders takes over the plugin's headers, then the secrets', then ours.
func (c *Client) setHeaders(p *prepared, req *capability.Request) string {
	if len(req.Headers) > headersMax {
		return reasonHeadersTooLarge
	}
	p.header = make(http.Header, len(req.Headers)+4)
	size := 0
	for _, h := range req.Headers {
		if size += len(h.Name) + len(h.Value) + 4; size > headerBytesMax {
			return reasonHeadersTooLarge
		}
		if !validHeaderName(h.Name) || !validHeaderValue(h.Value) {
			return reasonHeaderInvalid
		}
		name := http.CanonicalHeaderKey(h.Name)
		if _, owned := c.owned[name]; owned || hostHeader(name) {
			return reasonHeaderRefused
		}
		p.header.Add(name, h.Value)
	}
	// The host has matched by now; the scheme is https in any case.
	for _, name := range req.Secrets {
		s, ok := c.cfg.Secrets[name]
		if !ok {
			return reasonSecretUnknown
		}
		if sign := c.signers[name]; sign != nil {
			if reason := p.setSigner(sign, req.SigningScope); reason != "" {
				return reason
			}
			continue
		}
		header := http.CanonicalHeaderKey(s.Header)
		if _, twice := p.header[header]; twice || p.signer != nil && slices.Contains(p.signer.headers(), header) {
			return reasonHeaderRefused
		}
		p.header.Set(header, s.Prefix+s.Value.Reveal())
	}
	p.header.Set("Accept-Encoding", "identity")
	if p.header.Get("User-Agent") == "" {
		p.header.Set("User-Agent", "fencepost")
	}
	return ""
}

// hostHeader reports whether a header, in canonical form, frames the message or
// belongs to the connection, and so to the host.
func hostHeader(name string) bool {
	switch name {
	case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Te", "Trailer",
		"Upgrade", "Http2-Settings", "Expect", "Accept-Encoding", "Cookie", "Set-Cookie":
		return true
	}
	return strings.HasPrefix(name, "Proxy-")
}

// validHeaderName accepts an RFC 9110 token.
func validHeaderName(s string) bool {
	if s == "" || len(s) > 256 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// validHeaderValue accepts RFC 9110 field content in ASCII. Bytes beyond are
// legal and obsolete, and every server reads them in its own way.
func validHeaderValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < ' ' && c != '\t') || c >= 0x7f {
			return false
		}
	}
	return s == strings.Trim(s, " \t")
}

// identifierOccurs reports whether the request carries the identifier where a
// provider can find it: in URL or body, raw or form-encoded, as a word of its
// own, or as the whole value of a header for it: in any other nobody would look.
// As part of a longer word it is another
// identifier, which is what Idempotency-Key is made of.
func identifierOccurs(req *capability.Request, u *url.URL, identifier string) bool {
	if identifier == "" {
		return false
	}
	for _, h := range req.Headers {
		if h.Value == identifier && identifierHeader(h.Name) {
			return true
		}
	}
	if containsWord(req.URL, identifier) || containsWord(u.Path, identifier) || containsWord(string(req.Body), identifier) {
		return true
	}
	for _, raw := range []string{u.RawQuery, string(req.Body)} {
		if form, err := url.ParseQuery(raw); err == nil && formHolds(form, identifier) {
			return true
		}
	}
	return false
}

// identifierHeader reports whether a header is one by which providers tell
// requests or events apart.
func identifierHeader(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "Idempotency-Key", "X-Idempotency-Key", "Webhook-Id", "Ce-Id":
		return true
	}
	return false
}

func formHolds(form url.Values, identifier string) bool {
	for _, values := range form {
		for _, v := range values {
			if containsWord(v, identifier) {
				return true
			}
		}
	}
	return false
}

// containsWord reports whether word occurs in s with nothing beside it that
// could belong to an identifier.
func containsWord(s, word string) bool {
	for at := 0; ; at++ {
		i := strings.Index(s[at:], word)
		if i < 0 {
			return false
		}
		at += i
		end := at + len(word)
		if (at == 0 || !wordByte(s[at-1])) && (end == len(s) || !wordByte(s[end])) {
			return true
		}
	}
}

func wordByte(c byte) bool {
	return c == '_' || c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// headerSecretRule is the rule that a secret which goes into a header breaks, or
// "".
func headerSecretRule(s InjectedSecret) string {
	value := s.Value.Reveal()
	switch {
	case s.Scheme != exporter.SecretHeader:
		return "a scheme that this version has"
	case !validHeaderName(s.Header) || hostHeader(http.CanonicalHeaderKey(s.Header)):
		return "goes into a header that is not the connection's own"
	case len(value) < secretBytesMin:
		return "at least 8 bytes; a shorter one could not be hidden"
	case !validHeaderValue(value) || !validHeaderValue("x"+s.Prefix+"x"):
		return "printable ASCII without blanks at the ends"
	}
	return ""
}

// prepareSecrets checks the secrets and how they are hidden in answers.
func (c *Client) prepareSecrets() error {
	c.owned, c.signers = make(map[string]struct{}, len(c.cfg.Secrets)), make(map[string]signer)
	for name, s := range c.cfg.Secrets {
		sign, hide, err := newSigner(s)
		switch {
		case err != nil:
			return sdk.Invalid("secrets."+name, "a value of its scheme")
		case sign != nil:
			c.signers[name] = sign
		default:
			if rule := headerSecretRule(s); rule != "" {
				return sdk.Invalid("secrets."+name, rule)
			}
			hide = []string{s.Value.Reveal()}
		}
		for _, header := range canonicalOwned(s, sign) {
			c.owned[header] = struct{}{}
		}
		for _, value := range hide {
			c.masks = append(c.masks, maskedForms(value)...)
		}
	}
	// One secret may be part of another: the longer goes first.
	slices.SortFunc(c.masks, func(a, b maskedForm) int {
		return cmp.Or(len(b.text)-len(a.text), strings.Compare(a.text, b.text))
	})
	return nil
}
