package egress

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// Q9, Q10: the class of a whole answer about one item.
func TestClasses(t *testing.T) {
	t.Parallel()
	exists := func(id string) string {
		return `{"error":{"type":"invalid_request_error","message":"An event already exists with identifier ` + id + `."}}`
	}
	const html = "<html>502 Bad Gateway already exists with identifier " + testIdent + "</html>"
	tests := map[string]struct {
		status   int
		body     string
		class    exporter.HostClass
		code     string
		mendable bool
		breaker  bool
	}{
		"accepted":              {200, `{}`, exporter.ClassSuccess, "", false, false},
		"no content":            {204, ``, exporter.ClassSuccess, "", false, false},
		"duplicate":             {400, exists(testIdent), exporter.ClassDuplicateOwn, "duplicate", false, false},
		"duplicate of other":    {400, exists("fencepost_10"), exporter.ClassIndefinite, "status_400", false, false},
		"duplicate of longer":   {400, exists(testIdent + "0"), exporter.ClassIndefinite, "status_400", false, false},
		"duplicate, other code": {409, exists(testIdent), exporter.ClassIndefinite, "status_409", false, false},
		"refused":               {400, `{"error":{"code":"timestamp_too_far_in_past"}}`, exporter.ClassRefused, "timestamp_too_far_in_past", false, false},
		"mendable":              {400, `{"error":{"code":"resource_missing"}}`, exporter.ClassRefused, "resource_missing", true, false},
		"unknown refusal":       {400, `{"error":{"code":"parameter_unknown"}}`, exporter.ClassIndefinite, "status_400", false, false},
		"refusal, not json":     {400, `error code timestamp_too_far_in_past`, exporter.ClassIndefinite, "status_400", false, false},
		"refusal and more":      {400, `{"error":{"code":"no_meter"}} {}`, exporter.ClassIndefinite, "status_400", false, false},
		"proxy":                 {400, html, exporter.ClassIndefinite, "status_400", false, false},
		"bad gateway":           {502, html, exporter.ClassIndefinite, "status_502", false, false},
		"server error as dup":   {500, exists(testIdent), exporter.ClassIndefinite, "status_500", false, false},
		"unauthorized":          {401, `{}`, exporter.ClassIndefinite, "status_401", false, true},
		"forbidden":             {403, `{}`, exporter.ClassIndefinite, "status_403", false, true},
		"not found":             {404, html, exporter.ClassIndefinite, "status_404", false, true},
		"request timeout":       {408, ``, exporter.ClassIndefinite, "status_408", false, false},
		"in use":                {409, `{"error":{"code":"idempotency_key_in_use"}}`, exporter.ClassIndefinite, "status_409", false, false},
		"throttled":             {429, html, exporter.ClassThrottled, "throttled", false, false},
		"found":                 {302, ``, exporter.ClassIndefinite, "status_302", false, false},
	}
	client := newClient(t, "api.stripe.com", nil)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := client.classify(answer{status: tt.status, body: []byte(tt.body)}, CallItem{Identifier: testIdent}, true)
			want := exporter.Exchange{Class: tt.class, Status: tt.status, Code: tt.code, Mendable: tt.mendable, Breaker: tt.breaker}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// A pattern that explains a 404 keeps the breaker shut.
func TestExplainedNotFoundIsNoBreaker(t *testing.T) {
	t.Parallel()
	client := newClient(t, "api.stripe.com", func(c *Config) {
		c.Answers = []exporter.AnswerPattern{{Class: exporter.AnswerMendable, Status: 404, Path: "/error/code", Equals: []string{"no_meter"}}}
	})
	got := client.classify(answer{status: 404, body: []byte(`{"error":{"code":"no_meter"}}`)}, CallItem{Identifier: testIdent}, true)
	if got.Class != exporter.ClassRefused || !got.Mendable || got.Breaker {
		t.Errorf("%+v", got)
	}
}

// Q9: an answer to a request for several items is about those that it names.
func TestSharedAnswer(t *testing.T) {
	t.Parallel()
	s := serve(t, answerWith(400, "application/json", `{"error":{"code":"timestamp_too_far_in_past","message":"already exists with identifier fencepost_001"}}`))
	client := newClient(t, s.host(), nil)
	items, requests := batchOf(s.host(), 2)
	req := requests[0]
	req.Body = []byte(`["fencepost_000","fencepost_001"]`)
	req.Items = []string{"i0", "i1", "i0"}
	ctx, call := client.Begin(t.Context(), items)
	if _, err := client.Send(ctx, []capability.Request{req}); err != nil {
		t.Fatal(err)
	}
	got := call.Exchanges()
	if len(got["i0"]) != 1 || got["i0"][0].Class != exporter.ClassIndefinite {
		t.Errorf("i0: %+v", got["i0"])
	}
	if len(got["i1"]) != 1 || got["i1"][0].Class != exporter.ClassDuplicateOwn {
		t.Errorf("i1: %+v", got["i1"])
	}
}

// F29, O15.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		in   []string
		want time.Duration
	}{
		"absent":      {nil, 0},
		"seconds":     {[]string{"30"}, 30 * time.Second},
		"zero":        {[]string{"0"}, time.Second},
		"a day":       {[]string{"86400"}, time.Hour},
		"beyond 64":   {[]string{"99999999999999999999999"}, time.Hour},
		"overflow":    {[]string{"9223372036854775807"}, time.Hour},
		"negative":    {[]string{"-5"}, 0},
		"fraction":    {[]string{"1.5"}, 0},
		"garbage":     {[]string{"soon"}, 0},
		"empty":       {[]string{""}, 0},
		"repeated":    {[]string{"1", "2"}, 0},
		"date":        {[]string{"Mon, 30 Nov 2026 12:02:00 GMT"}, 2 * time.Minute},
		"date before": {[]string{"Mon, 30 Nov 2026 11:00:00 GMT"}, time.Second},
		"date far":    {[]string{"Fri, 31 Dec 9999 23:59:59 GMT"}, time.Hour},
		"other zone":  {[]string{"Mon, 30 Nov 2026 12:02:00 CET"}, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := parseRetryAfter(tt.in, now); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// The examples of RFC 6901 section 5 that name scalars, and its errors.
func TestJSONPointer(t *testing.T) {
	t.Parallel()
	const doc = `{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8,"t":true,"nul":null,"o":{"x":"é"}}`
	tests := map[string]string{
		"/foo/0": "bar", "/foo/1": "baz", "/": "0", "/a~1b": "1", "/c%d": "2", "/e^f": "3", "/g|h": "4",
		`/i\j`: "5", `/k"l`: "6", "/" + " ": "7", "/m~0n": "8", "/t": "true", "/o/x": "é",
	}
	for pointer, want := range tests {
		if got, ok := lookup([]byte(doc), pointer); !ok || got != want {
			t.Errorf("%q: %q, %v; want %q", pointer, got, ok, want)
		}
	}
	for _, pointer := range []string{"", "/foo", "/o", "/nul", "/foo/2", "/foo/-", "/foo/00", "/foo/+0", "/foo/-1", "/missing", "/t/x", "/a~b", "/~2", "foo", "/m~"} {
		if got, ok := lookup([]byte(doc), pointer); ok {
			t.Errorf("%q: found %q", pointer, got)
		}
	}
	if got, ok := lookup([]byte(` "x" `), ""); !ok || got != "x" {
		t.Errorf("whole document: %q, %v", got, ok)
	}
	for _, bad := range []string{"", "{", `{"a":1}x`, "nan"} {
		if _, ok := lookup([]byte(bad), "/a"); ok {
			t.Errorf("found something in %q", bad)
		}
	}
}

// T5: one address of every range that is not public, and neighbours that are.
func TestAddresses(t *testing.T) {
	t.Parallel()
	refused := []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.254",
		"169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255",
		"198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::a00:1", "64:ff9b::808:808", "64:ff9b:1::1",
		"100::1", "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:10::1", "2001:20::1", "2001:2::1", "2001:db8::1", "2002:7f00:1::", "2002:808:808::1", "3fff::1",
		"fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "2606:4700::1%eth0", "fec0::1", "ff02::1", "ff0e::1", "5f00::1", "4000::1",
	}
	for _, s := range refused {
		a := netip.MustParseAddr(s)
		if allowed(a, nil) {
			t.Errorf("%s is allowed", s)
		}
	}
	for _, s := range []string{"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.1", "100.63.255.255", "100.128.0.1", "126.255.255.255", "172.15.0.1", "172.32.0.1", "191.255.255.255", "198.17.255.255", "198.20.0.1", "223.255.255.255", "2606:4700::1111", "2a00:1450::1", "2600::1", "2001:4860:4860::8888"} {
		if !allowed(netip.MustParseAddr(s), nil) {
			t.Errorf("%s is refused", s)
		}
	}
	for in, prefix := range map[string]string{"127.0.0.1": "127.0.0.0/8", "::ffff:127.0.0.1": "127.0.0.0/8", "fd00::1": "fd00::/8", "::1": "::1/128", "64:ff9b::a00:1": "64:ff9b::/96"} {
		if !allowed(netip.MustParseAddr(in), []netip.Prefix{netip.MustParsePrefix(prefix)}) {
			t.Errorf("%s is refused in spite of %s", in, prefix)
		}
	}
	if allowed(netip.MustParseAddr("10.0.0.1"), loopback) {
		t.Error("a grant of loopback allows 10.0.0.1")
	}
}

// P4: a read hands nothing over, so that no answer to it accepts or refuses an
// item. That the provider has it already is told by its identifier alone.
func TestReadIsNoAcceptance(t *testing.T) {
	t.Parallel()
	duplicate := `{"error":{"message":"already exists with identifier ` + testIdent + `"}}`
	tests := map[string]struct {
		method string
		status int
		body   string
		want   exporter.HostClass
	}{
		"get":           {"GET", 200, `{}`, exporter.ClassIndefinite},
		"head":          {"HEAD", 200, ``, exporter.ClassIndefinite},
		"no content":    {"GET", 204, ``, exporter.ClassIndefinite},
		"refused":       {"GET", 400, `{"error":{"code":"timestamp_too_far_in_past"}}`, exporter.ClassIndefinite},
		"mendable":      {"GET", 400, `{"error":{"code":"no_meter"}}`, exporter.ClassIndefinite},
		"found":         {"GET", 400, duplicate, exporter.ClassDuplicateOwn},
		"post the same": {"POST", 200, `{}`, exporter.ClassSuccess},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, answerWith(tt.status, "application/json", tt.body))
			req := meterEvent(s.host(), "i1", testIdent)
			req.Method = tt.method
			client := newClient(t, s.host(), nil)
			response, ex := oneRequest(t, client, req)
			if ex.Class != tt.want || ex.Status != tt.status {
				t.Errorf("%+v, want %s", ex, tt.want)
			}
			_, call := client.Begin(t.Context(), []CallItem{{ID: "i1", Identifier: testIdent}})
			client.Judge(call, req, response)
			if got := call.Exchanges()["i1"]; len(got) != 1 || got[0].Class != tt.want {
				t.Errorf("judged %+v, want %s", got, tt.want)
			}
		})
	}
}

// P4: what a server says of an address or of a credential is no word on an item:
// it may repeat whatever it was sent.
func TestPatternsOfDestination(t *testing.T) {
	t.Parallel()
	for _, status := range []int{401, 403, 404, 410} {
		for _, p := range []exporter.AnswerPattern{
			{Class: exporter.AnswerDuplicate, Status: status, Path: "/m", Contains: "unknown URL {identifier}"},
			{Class: exporter.AnswerRefused, Status: status, Path: "/m", Equals: []string{"gone"}},
		} {
			if err := checkPatterns([]exporter.AnswerPattern{p}, nil); !errors.Is(err, sdk.ErrInvalid) {
				t.Errorf("%s on %d: %v", p.Class, status, err)
			}
			p.Status = 409
			if err := checkPatterns([]exporter.AnswerPattern{p}, nil); err != nil {
				t.Errorf("%s on 409: %v", p.Class, err)
			}
		}
	}
}
