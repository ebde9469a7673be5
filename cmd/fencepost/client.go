package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/plugins/sdk"
)

// client speaks the HTTP API, over a connection or inside this process, so
// that a command behaves the same on a file and on a server.
type client struct {
	base  string
	http  *http.Client
	close func() error
}

func remoteClient(base string) (*client, error) {
	u, err := url.Parse(base)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || (u.Path != "" && u.Path != "/") {
		return nil, usageError{sdk.Invalid("--server", "a URL such as http://127.0.0.1:8787")}
	}
	return &client{
		base: strings.TrimSuffix(base, "/"), http: &http.Client{Timeout: time.Minute},
		close: func() error { return nil },
	}, nil
}

func localClient(h *host.Host) *client {
	return &client{
		base: "http://local", http: &http.Client{Transport: inProcess{h.Handler()}},
		close: func() error { return h.Close(context.Background()) },
	}
}

// inProcess answers requests with a handler of this process.
type inProcess struct{ handler http.Handler }

func (t inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := &answer{header: http.Header{}, status: http.StatusOK}
	t.handler.ServeHTTP(w, r)
	return &http.Response{
		StatusCode: w.status, Header: w.header, Body: io.NopCloser(&w.body), Request: r,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

// answer is what a handler of this process wrote.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }

// alive reports whether a server answers there.
func (c *client) alive(ctx context.Context) bool {
	_, ok := c.livez(ctx)
	return ok
}

// serves reports whether a server answers there that has the store of that
// name open. Another one's answers would be about other events.
func (c *client) serves(ctx context.Context, store string) bool {
	h, ok := c.livez(ctx)
	return ok && h.Get(storeHeader) == store
}

func (c *client) livez(ctx context.Context) (http.Header, bool) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/livez", nil)
	if err != nil {
		return nil, false
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, false
	}
	defer func() { _ = res.Body.Close() }()
	return res.Header, res.StatusCode == http.StatusOK
}

// get reads path with parameters into out. Empty parameters are left out.
func (c *client) get(ctx context.Context, path string, params map[string]string, out any) error {
	q := url.Values{}
	for k, v := range params {
		if v != "" {
			q.Set(k, v)
		}
	}
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return c.do(ctx, request{method: http.MethodGet, path: path}, out)
}

// request is one call.
type request struct {
	method string
	path   string
	media  string
	body   []byte
}

// do performs a call and decodes the answer. A problem document becomes a
// tagged error; a broken connection is unavailable, because the call may have
// happened.
func (c *client) do(ctx context.Context, r request, out any) error {
	req, err := http.NewRequestWithContext(ctx, r.method, c.base+r.path, bytes.NewReader(r.body))
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	if r.media != "" {
		req.Header.Set("Content-Type", r.media)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return c.noAnswer(ctx, err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, 64<<20))
	if err != nil {
		return c.noAnswer(ctx, err)
	}
	if res.StatusCode >= http.StatusBadRequest {
		return problemError(res.StatusCode, body)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return sdk.Unavailable("bad_answer", err)
	}
	return nil
}

// noAnswer is the error of a call of which nobody knows whether it happened.
func (c *client) noAnswer(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if op, ok := errors.AsType[*url.Error](err); ok {
		err = op.Err // the address is said once
	}
	return &sdk.Error{
		Tag: sdk.TagUnavailable, Field: "--server", Rule: "a server that answers at " + c.base, Code: "no_answer", Err: err,
		Hint: "start it, or mend the address; to repeat the command is safe",
	}
}

// refusedError is an error about the content of a request as a whole: too
// large, or not to be taken apart. Parts of it may be right.
type refusedError struct{ error }

func (e refusedError) Unwrap() error { return e.error }

func problemError(status int, body []byte) error {
	var p struct {
		Tag       sdk.Tag `json:"tag"`
		Code      string  `json:"code"`
		Field     string  `json:"field"`
		Rule      string  `json:"rule"`
		Hint      string  `json:"hint"`
		Title     string  `json:"title"`
		ItemIndex *int    `json:"item_index"`
	}
	if err := json.Unmarshal(body, &p); err != nil || p.Tag == "" {
		return sdk.Unavailable("bad_answer", fmt.Errorf("the server answered with status %d", status))
	}
	e := &sdk.Error{Tag: p.Tag, Code: p.Code, Field: p.Field, Rule: p.Rule, Hint: p.Hint}
	if e.Rule == "" {
		e.Rule = p.Title
	}
	if p.ItemIndex != nil {
		e = e.At(*p.ItemIndex)
	}
	if status == http.StatusRequestEntityTooLarge || status == http.StatusBadRequest {
		return refusedError{e}
	}
	return e
}
