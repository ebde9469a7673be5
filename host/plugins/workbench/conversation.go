package workbench

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
)

// Conversation is what a plugin asked of a provider and was answered, with the
// time and the chance that it saw, so that it can be had again without either.
// No secret of the configuration is in it: the host adds those to what a plugin
// asks. An answer is kept as it came, and may hold one that the provider made.
type Conversation struct {
	Started   time.Time  `json:"started"`
	Seed      string     `json:"seed"` // hex
	Exchanges []Exchange `json:"exchanges"`
}

// Exchange is one request and its answer.
type Exchange struct {
	Request Request `json:"request"`
	Answer  Answer  `json:"answer"`
}

// Request is what a plugin asked the host to send. In a conversation the address
// begins with {base_url} where it begins with the configuration's.
type Request struct {
	Method  string   `json:"method"`
	URL     string   `json:"url"`
	Headers []Header `json:"headers,omitempty"`
	Content
	Items        []string `json:"items,omitempty"`
	Secrets      []string `json:"secrets,omitempty"`
	SigningScope string   `json:"signing_scope,omitempty"`
}

// Answer is what the plugin was told.
type Answer struct {
	Status  int      `json:"status,omitempty"`
	Failure string   `json:"failure,omitempty"` // not_sent or unknown
	Reason  string   `json:"reason,omitempty"`
	Headers []Header `json:"headers,omitempty"`
	Content
}

// Header is one field.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Content is a body: JSON as it stands where that says it all, text, or base64.
type Content struct {
	Body       string `json:"body,omitempty"`
	BodyBase64 string `json:"body_base64,omitempty"`
}

func contentOf(body []byte) Content {
	if utf8.Valid(body) {
		return Content{Body: string(body)}
	}
	return Content{BodyBase64: base64.StdEncoding.EncodeToString(body)}
}

func (c Content) bytes() []byte {
	if c.BodyBase64 != "" {
		b, _ := base64.StdEncoding.DecodeString(c.BodyBase64) // checked when it was read
		return b
	}
	if c.Body == "" {
		return nil
	}
	return []byte(c.Body)
}

const baseURLPlace = "{base_url}"

func requestOf(r capability.Request, baseURL string) Request {
	out := Request{
		Method: r.Method, URL: r.URL, Content: contentOf(r.Body), Items: slices.Clone(r.Items),
		Secrets: slices.Clone(r.Secrets), SigningScope: r.SigningScope, Headers: headersOf(r.Headers),
	}
	base := strings.TrimRight(baseURL, "/")
	if rest, ok := strings.CutPrefix(out.URL, base); ok && base != "" && (rest == "" || strings.ContainsRune("/?", rune(rest[0]))) {
		out.URL = baseURLPlace + rest
	}
	return out
}

func headersOf(list []capability.Header) []Header {
	out := make([]Header, 0, len(list))
	for _, h := range list {
		out = append(out, Header(h))
	}
	return out
}

func answerOf(r capability.Response) Answer {
	return Answer{Status: r.Status, Failure: string(r.Failure), Reason: r.Reason, Headers: headersOf(r.Headers), Content: contentOf(r.Body)}
}

func (a Answer) response() capability.Response {
	r := capability.Response{Status: a.Status, Failure: capability.Failure(a.Failure), Reason: a.Reason, Body: a.bytes()}
	for _, h := range a.Headers {
		r.Headers = append(r.Headers, capability.Header(h))
	}
	return r
}

// ReadConversation reads a recorded conversation. Errors have tag invalid.
func ReadConversation(path string) (*Conversation, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, sdk.Invalid("conversation", err.Error())
	}
	var c Conversation
	if err := strict(text, &c); err != nil {
		return nil, sdk.Invalid("conversation", "a JSON object of the documented shape: "+err.Error())
	}
	if _, err := c.random(); err != nil {
		return nil, err
	}
	for i, x := range c.Exchanges {
		field := fmt.Sprintf("conversation.exchanges[%d]", i)
		if f := capability.Failure(x.Answer.Failure); f != capability.FailureNone && f != capability.FailureNotSent && f != capability.FailureUnknown {
			return nil, sdk.Invalid(field+".answer.failure", "absent, not_sent or unknown")
		}
		if (x.Answer.Failure == "") != (x.Answer.Status != 0) {
			return nil, sdk.Invalid(field+".answer", "a status, or a failure")
		}
		for _, b := range []Content{x.Request.Content, x.Answer.Content} {
			if _, err := base64.StdEncoding.DecodeString(b.BodyBase64); err != nil || b.Body != "" && b.BodyBase64 != "" {
				return nil, sdk.Invalid(field, "one body, as text or as base64")
			}
		}
	}
	return &c, nil
}

// Write writes the conversation to a file.
func (c *Conversation) Write(path string) error { return writeJSON(path, c, 0o600) }

func writeJSON(path string, v any, mode fs.FileMode) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return grant.WriteFile(path, b.Bytes(), mode)
}

func (c *Conversation) random() (*rand.ChaCha8, error) {
	seed, err := hex.DecodeString(c.Seed)
	if err != nil || len(seed) != 32 {
		return nil, sdk.Invalid("conversation.seed", "64 digits of hex")
	}
	return rand.NewChaCha8([32]byte(seed)), nil
}

// world is the time and the chance of a conversation. It is safe for concurrent
// use.
type world struct {
	mu     sync.Mutex
	now    time.Time
	random *rand.ChaCha8
}

// Now is a nanosecond later at each look: enough for a guest's own machinery,
// and the same microsecond for all that it does.
func (w *world) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(time.Nanosecond)
	return w.now
}

// Read implements [io.Reader].
func (w *world) Read(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.Read(p)
}

// player answers requests from a conversation. It is not safe for concurrent use.
type player struct {
	exchanges []Exchange
	next      int
	problems  []string
}

// answer is the answer to the next request, which has to be the one recorded.
func (p *player) answer(r Request) (capability.Response, bool) {
	if p.next >= len(p.exchanges) {
		p.problems = append(p.problems, fmt.Sprintf("request %d (%s %s): the conversation has %d", p.next+1, r.Method, r.URL, len(p.exchanges)))
		p.next++
		return capability.Response{Failure: capability.FailureNotSent, Reason: "not_recorded"}, false
	}
	x := p.exchanges[p.next]
	p.next++
	if d := differences(x.Request, r); len(d) > 0 {
		for _, line := range d {
			p.problems = append(p.problems, fmt.Sprintf("request %d: %s", p.next, line))
		}
		return capability.Response{Failure: capability.FailureNotSent, Reason: "not_recorded"}, false
	}
	return x.Answer.response(), true
}

// end lists what went otherwise than recorded.
func (p *player) end() []string {
	if left := len(p.exchanges) - p.next; left > 0 {
		return append(p.problems, fmt.Sprintf("the conversation has %d requests more: next %s %s", left, p.exchanges[p.next].Request.Method, p.exchanges[p.next].Request.URL))
	}
	return p.problems
}

func differences(want, got Request) []string {
	var out []string
	differ := func(what string, want, got any) {
		w, _ := json.Marshal(want)
		g, _ := json.Marshal(got)
		if !bytes.Equal(w, g) {
			out = append(out, fmt.Sprintf("%s is %s, recorded was %s", what, g, w))
		}
	}
	differ("method", want.Method, got.Method)
	differ("url", want.URL, got.URL)
	differ("headers", nonNil(want.Headers), nonNil(got.Headers))
	differ("body", want.Content, got.Content)
	differ("items", nonNil(want.Items), nonNil(got.Items))
	differ("secrets", nonNil(want.Secrets), nonNil(got.Secrets))
	differ("signing_scope", want.SigningScope, got.SigningScope)
	return out
}

func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
