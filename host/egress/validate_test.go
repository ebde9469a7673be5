package egress

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// Q9, F44, T5: what a plugin may not ask for. Each row changes one thing in a
// request that is otherwise sent.
func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	host := s.host()
	set := func(name, value string) func(*capability.Request) {
		return func(r *capability.Request) {
			r.Headers = append(r.Headers, capability.Header{Name: name, Value: value})
		}
	}
	to := func(u string) func(*capability.Request) { return func(r *capability.Request) { r.URL = u } }
	body := func(b string) func(*capability.Request) { return func(r *capability.Request) { r.Body = []byte(b) } }
	tests := map[string]struct {
		change func(*capability.Request)
		reason string
	}{
		"other host":         {to("https://evil.example/x"), reasonHostNotGranted},
		"other port":         {to("https://127.0.0.1/x"), reasonHostNotGranted},
		"sub domain":         {to("https://" + host + ".evil.example/"), reasonURLInvalid},
		"http":               {to("http://" + host + "/"), reasonNotHTTPS},
		"file":               {to("file:///etc/passwd"), reasonURLInvalid},
		"no scheme":          {to("//" + host + "/"), reasonNotHTTPS},
		"user info":          {to("https://api.stripe.com@" + host + "/"), reasonUserInfo},
		"granted as user":    {to("https://" + host + "@evil.example/"), reasonUserInfo},
		"empty user":         {to("https://@" + host + "/"), reasonUserInfo},
		"backslash":          {to("https://" + host + "\\@evil.example/"), reasonURLInvalid},
		"fragment":           {to("https://" + host + "/#a"), reasonURLInvalid},
		"empty fragment":     {to("https://" + host + "/#"), reasonURLInvalid},
		"blank":              {to("https://" + host + "/a?b c"), reasonURLInvalid},
		"line end":           {to("https://" + host + "/a\r\nX: y"), reasonURLInvalid},
		"nul":                {to("https://" + host + "/\x00"), reasonURLInvalid},
		"not ascii":          {to("https://" + host + "/é"), reasonURLInvalid},
		"long":               {to("https://" + host + "/" + strings.Repeat("a", 9000)), reasonURLTooLong},
		"empty url":          {to(""), reasonURLInvalid},
		"method":             {func(r *capability.Request) { r.Method = "CONNECT" }, reasonMethodRefused},
		"method in small":    {func(r *capability.Request) { r.Method = "post" }, reasonMethodRefused},
		"method smuggling":   {func(r *capability.Request) { r.Method = "GET /x HTTP/1.1\r\nA: b\r\n\r\nPOST" }, reasonMethodRefused},
		"no method":          {func(r *capability.Request) { r.Method = "" }, reasonMethodRefused},
		"host header":        {set("Host", "evil.example"), reasonHeaderRefused},
		"content length":     {set("content-length", "0"), reasonHeaderRefused},
		"transfer encoding":  {set("Transfer-Encoding", "chunked"), reasonHeaderRefused},
		"connection":         {set("cOnnection", "close"), reasonHeaderRefused},
		"te":                 {set("TE", "trailers"), reasonHeaderRefused},
		"upgrade":            {set("Upgrade", "websocket"), reasonHeaderRefused},
		"expect":             {set("Expect", "100-continue"), reasonHeaderRefused},
		"cookie":             {set("Cookie", "a=b"), reasonHeaderRefused},
		"proxy":              {set("Proxy-Authorization", "Basic x"), reasonHeaderRefused},
		"accept encoding":    {set("Accept-Encoding", "gzip"), reasonHeaderRefused},
		"secret's header":    {set("authorization", "Bearer mine"), reasonHeaderRefused},
		"line end in value":  {set("X-A", "b\r\nEvil: 1"), reasonHeaderInvalid},
		"newline in value":   {set("X-A", "b\nEvil: 1"), reasonHeaderInvalid},
		"nul in value":       {set("X-A", "b\x00"), reasonHeaderInvalid},
		"blank before value": {set("X-A", " b"), reasonHeaderInvalid},
		"not ascii in value": {set("X-A", "é"), reasonHeaderInvalid},
		"colon in name":      {set("X-A: b\r\nY", "z"), reasonHeaderInvalid},
		"blank in name":      {set("Transfer-Encoding ", "chunked"), reasonHeaderInvalid},
		"empty name":         {set("", "z"), reasonHeaderInvalid},
		"large headers":      {set("X-A", strings.Repeat("a", 20<<10)), reasonHeadersTooLarge},
		"many headers": {func(r *capability.Request) {
			for range 70 {
				set("X-A", "b")(r)
			}
		}, reasonHeadersTooLarge},
		"large body":       {body("identifier=" + testIdent + "&x=" + strings.Repeat("a", 64<<10)), reasonBodyTooLarge},
		"unknown secret":   {func(r *capability.Request) { r.Secrets = []string{"other"} }, reasonSecretUnknown},
		"secret twice":     {func(r *capability.Request) { r.Secrets = []string{"api_key", "api_key"} }, reasonHeaderRefused},
		"foreign item":     {func(r *capability.Request) { r.Items = []string{"i1", "i2"} }, reasonItemUnknown},
		"no identifier":    {body("event_name=tokens"), reasonIdentifierMissing},
		"longer":           {body("identifier=" + testIdent + "0"), reasonIdentifierMissing},
		"per attempt":      {body("identifier=" + testIdent + "-1"), reasonIdentifierMissing},
		"prefixed":         {body("identifier=x" + testIdent), reasonIdentifierMissing},
		"other identifier": {body("identifier=fencepost_10"), reasonIdentifierMissing},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := meterEvent(host, "i1", testIdent)
			tt.change(&req)
			client := newClient(t, host, nil)
			got, ex := oneRequest(t, client, req)
			if ex.Class != exporter.ClassNotSent || ex.Code != tt.reason || got.Failure != capability.FailureNotSent || got.Reason != tt.reason {
				t.Errorf("exchange %+v, want not_sent %s", ex, tt.reason)
			}
			if st := client.Stats(); st.Refused != 1 || st.Connections != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
	t.Cleanup(func() {
		if s.count() != 0 {
			t.Errorf("%d refused requests arrived", s.count())
		}
	})
}

// Where an identifier may stand.
func TestIdentifierOccurs(t *testing.T) {
	t.Parallel()
	form := url.Values{"identifier": {testIdent}}.Encode()
	tests := map[string]struct {
		url, body string
		header    string
		name      string // of the header; empty: webhook-id
		id        string
		want      bool
	}{
		"form":            {body: "a=b&" + form, id: testIdent, want: true},
		"escaped form":    {body: "identifier=fencepost%5f0f", id: testIdent, want: true},
		"json":            {body: `{"identifier":"fencepost_0f"}`, id: testIdent, want: true},
		"path":            {url: "/e/fencepost_0f/cancel", id: testIdent, want: true},
		"escaped path":    {url: "/e/fencepost%5F0f", id: testIdent, want: true},
		"query":           {url: "/?id=fencepost%5F0f", id: testIdent, want: true},
		"whole header":    {header: testIdent, id: testIdent, want: true},
		"other header":    {header: testIdent, name: "X-Note", id: testIdent}, // P4: nobody looks there
		"idempotency key": {header: testIdent, name: "idempotency-key", id: testIdent, want: true},
		"cloud event":     {header: testIdent, name: "ce-id", id: testIdent, want: true},
		"part of header":  {header: testIdent + "-1", id: testIdent},
		"second is whole": {body: "a=fencepost_0f1&b=fencepost_0f", id: testIdent, want: true},
		"empty is none":   {body: "a=", header: "", id: ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := &capability.Request{URL: "https://h" + tt.url, Body: []byte(tt.body), Headers: []capability.Header{{Name: cmp.Or(tt.name, "webhook-id"), Value: tt.header}}}
			u, _, reason := parseURL(req.URL)
			if reason != "" {
				t.Fatal(reason)
			}
			if got := identifierOccurs(req, u, tt.id); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// Outside of a call only what reports nothing is sent.
func TestOutsideOfCall(t *testing.T) {
	t.Parallel()
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	client := newClient(t, s.host(), nil)
	other := newClient(t, s.host(), nil)
	// The call of another client is none.
	ctx, call := other.Begin(t.Context(), []CallItem{{ID: "i1", Identifier: testIdent}})
	got, err := client.Send(ctx, []capability.Request{
		meterEvent(s.host(), "i1", testIdent),
		{Method: "GET", URL: "https://" + s.host() + "/"},
	})
	if err != nil || got[0].Reason != reasonNoCall || got[1].Status != 200 || s.count() != 1 || len(call.Exchanges()) != 0 {
		t.Errorf("%+v, %v, %d requests", got, err, s.count())
	}
}

// A request that may have an effect is evidence for somebody, or it is not
// sent: else a plugin could charge with it and say that nothing was sent. // F42
func TestEffectNeedsItems(t *testing.T) {
	t.Parallel()
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	client := newClient(t, s.host(), nil)
	inside, _ := client.Begin(t.Context(), []CallItem{{ID: "i1", Identifier: testIdent}})
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		req := meterEvent(s.host(), "i1", testIdent)
		req.Method, req.Items = method, nil
		for _, ctx := range []context.Context{t.Context(), inside} {
			got, err := client.Send(ctx, []capability.Request{req})
			if err != nil || got[0].Reason != reasonItemsMissing {
				t.Errorf("%s: %+v, %v", method, got, err)
			}
		}
	}
	if s.count() != 0 {
		t.Errorf("%d requests arrived", s.count())
	}
}

// What New refuses, by field.
func TestNewRefuses(t *testing.T) {
	t.Parallel()
	pattern := func(p exporter.AnswerPattern) func(*Config) {
		return func(c *Config) { c.Answers = []exporter.AnswerPattern{p} }
	}
	secret := func(s InjectedSecret) func(*Config) {
		return func(c *Config) { c.Secrets = map[string]InjectedSecret{"k": s} }
	}
	long := grant.NewSecret("0123456789")
	tests := map[string]struct {
		change func(*Config)
		field  string
	}{
		"no hosts":           {func(c *Config) { c.Hosts = nil }, "hosts"},
		"wildcard":           {func(c *Config) { c.Hosts = []string{"*.stripe.com"} }, "hosts[0]"},
		"url":                {func(c *Config) { c.Hosts = []string{"https://api.stripe.com"} }, "hosts[0]"},
		"port":               {func(c *Config) { c.Hosts = []string{"a:0"} }, "hosts[0]"},
		"port with sign":     {func(c *Config) { c.Hosts = []string{"a:+1"} }, "hosts[0]"},
		"trailing dot":       {func(c *Config) { c.Hosts = []string{"a.", "b"} }, "hosts[0]"},
		"zone":               {func(c *Config) { c.Hosts = []string{"[fe80::1%eth0]:1"} }, "hosts[0]"},
		"rate":               {func(c *Config) { c.Rate = -1 }, "rate"},
		"absent secret":      {secret(InjectedSecret{Header: "A"}), "secrets.k"},
		"short secret":       {secret(InjectedSecret{Header: "A", Value: grant.NewSecret("1234567")}), "secrets.k"},
		"secret in host":     {secret(InjectedSecret{Header: "Host", Value: long}), "secrets.k"},
		"secret with crlf":   {secret(InjectedSecret{Header: "A", Value: grant.NewSecret("0123456\r\nX: y")}), "secrets.k"},
		"500 is a refusal":   {pattern(exporter.AnswerPattern{Class: exporter.AnswerRefused, Status: 500, Path: "/a", Equals: []string{"b"}}), "answers[0]"},
		"429 is a refusal":   {pattern(exporter.AnswerPattern{Class: exporter.AnswerRefused, Status: 429, Path: "/a", Equals: []string{"b"}}), "answers[0]"},
		"302 is a refusal":   {pattern(exporter.AnswerPattern{Class: exporter.AnswerRefused, Status: 302, Path: "/a", Equals: []string{"b"}}), "answers[0]"},
		"anybody's double":   {pattern(exporter.AnswerPattern{Class: exporter.AnswerDuplicate, Status: 400, Path: "/a", Equals: []string{"duplicate"}}), "answers[0]"},
		"neither":            {pattern(exporter.AnswerPattern{Class: exporter.AnswerRefused, Status: 400, Path: "/a"}), "answers[0]"},
		"both":               {pattern(exporter.AnswerPattern{Class: exporter.AnswerRefused, Status: 400, Path: "/a", Equals: []string{"b"}, Contains: "c"}), "answers[0]"},
		"no pointer":         {pattern(exporter.AnswerPattern{Class: exporter.AnswerRefused, Status: 400, Path: "a.b", Equals: []string{"b"}}), "answers[0]"},
		"no class":           {pattern(exporter.AnswerPattern{Status: 400, Path: "/a", Equals: []string{"b"}}), "answers[0]"},
		"equals the nothing": {pattern(exporter.AnswerPattern{Class: exporter.AnswerRefused, Status: 400, Path: "/a", Equals: []string{""}}), "answers[0]"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := Config{Hosts: []string{"api.stripe.com"}}
			tt.change(&cfg)
			_, err := New(cfg)
			if err == nil || !strings.Contains(err.Error(), "invalid "+tt.field) {
				t.Errorf("%v, want field %s", err, tt.field)
			}
		})
	}
}

func TestHostOf(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"https://127.0.0.1:9999":     "127.0.0.1:9999",
		"https://API.Stripe.com/v1":  "api.stripe.com:443",
		"HTTPS://[2001:DB8::1]:8443": "[2001:db8::1]:8443",
		"http://127.0.0.1:9999":      "",
		"https://u:p@h":              "",
		"https://h?a=b":              "",
		"https://":                   "",
		"127.0.0.1:9999":             "",
	} {
		got, err := HostOf(in)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", in, got, err, want)
		}
	}
}
