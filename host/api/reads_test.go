package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

var streamAll = storage.StreamQuery{Limit: 1000}

// post sends a request straight into a handler.
func post(h http.Handler, contentType string, body []byte, specversion string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/v1/events", bytes.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	if specversion != "" {
		for name, v := range map[string]string{"specversion": specversion, "id": "1", "source": "/f", "type": "llm.completion", "subject": "acme"} {
			r.Header.Set("ce-"+name, v)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// Public report 79: any legal id round-trips through every route.
func TestEveryLegalIDIsFoundAgain(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, id := range []string{
		"a", "a.b", "a/b", "/a", "a/", "a//b", ".", "..", "../x", "a/../b", "./a", "%2F", "%", "a%00b", "a b", "a+b", "a?b=c", "a#b", "a;b", "a&b",
		"ü", "日本", "\u202egnp", "e\u0301", "\U0001F600", `"quoted"`, `back\slash`, "<b>", "a:b", "stats", "{id}", strings.Repeat("ü", 64),
	} {
		body, err := json.Marshal(map[string]string{"id": id, "tenant": id, "feature": "tokens", "quantity": "1"})
		if err != nil {
			t.Fatal(err)
		}
		if _, outcomes := s.recorded(s.post(plainJSON, string(body)), http.StatusOK); outcomes != "inserted" {
			t.Errorf("%q: %s", id, outcomes)
			continue
		}
		path := escape(id)
		var ev api.EventView
		s.into(s.get("/v1/events/"+path+"?tenant="+url.QueryEscape(id)), http.StatusOK, &ev)
		if ev.ID != id || ev.Tenant != id {
			t.Errorf("%q came back as %q of %q", id, ev.ID, ev.Tenant)
		}
		var sub api.SubscriptionBody
		s.into(s.call(http.MethodPut, "/v1/subscriptions/"+path, `{}`), http.StatusOK, &sub)
		s.into(s.get("/v1/subscriptions/"+path), http.StatusOK, &sub)
		if sub.Tenant != id {
			t.Errorf("tenant %q came back as %q", id, sub.Tenant)
		}
		var u api.UsageAnswer
		s.into(s.get("/v1/usage?tenant="+url.QueryEscape(id)), http.StatusOK, &u)
		if len(u.Data) != 1 || u.Data[0].Value != "1" {
			t.Errorf("usage of %q: %+v", id, u)
		}
	}
}

// escape makes an id one segment of a path. A segment of dots alone would be
// taken for a folder, so its dots are escaped too.
func escape(id string) string {
	if id == "." || id == ".." {
		return strings.ReplaceAll(id, ".", "%2E")
	}
	return url.PathEscape(id)
}

// An id of the other form is not there, and the answer says where it may be.
func TestNotFoundSaysWhereToLook(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for path, hint := range map[string]string{
		"/v1/events/x?tenant=acme":          "what came as a CloudEvent is found by its source and id",
		"/v1/events/x?tenant=acme&source=y": "what came in the plain form is found by its id without source",
	} {
		if p := s.refused(s.get(path), http.StatusNotFound, "not_found", ""); p.Hint != hint {
			t.Errorf("%s: hint %q", path, p.Hint)
		}
	}
}

func TestReads(t *testing.T) { //nolint:tparallel // the cases share a server
	t.Parallel()
	s := serve(t)
	for name, tc := range map[string]struct {
		path   string
		status int
		tag    string
		field  string
	}{
		"no such event":                         {"/v1/events/x?tenant=acme", 404, "not_found", ""},
		"no such CloudEvent":                    {"/v1/events/x?tenant=acme&source=y", 404, "not_found", ""},
		"an event without tenant":               {"/v1/events/x", 400, "invalid", "tenant"},
		"an unknown parameter":                  {"/v1/events/x?tenant=acme&expand=1", 400, "invalid", "query"},
		"events, unknown":                       {"/v1/events?cursor=1", 400, "invalid", "query"},
		"events, limit 0":                       {"/v1/events?limit=0", 400, "invalid", "limit"},
		"events, limit 1001":                    {"/v1/events?limit=1001", 400, "invalid", "limit"},
		"events, limit in words":                {"/v1/events?limit=many", 400, "invalid", "limit"},
		"events, after nothing":                 {"/v1/events?after=-1", 400, "invalid", "after"},
		"events, after too much":                {"/v1/events?after=9223372036854775808", 400, "invalid", "after"},
		"usage without tenant":                  {"/v1/usage", 400, "invalid", "tenant"},
		"usage of an empty tenant":              {"/v1/usage?tenant=", 400, "invalid", "tenant"},
		"usage twice":                           {"/v1/usage?tenant=a&tenant=b", 400, "invalid", "tenant"},
		"usage from no time":                    {"/v1/usage?tenant=a&feature=f&window=day&from=0001-01-01T00:00:00Z&to=2026-11-02T00:00:00Z", 400, "invalid", "from"},
		"usage from soon":                       {"/v1/usage?tenant=a&from=soon", 400, "invalid", "from"},
		"usage by the fortnight":                {"/v1/usage?tenant=a&feature=f&window=fortnight&from=2026-11-01T00:00:00Z&to=2026-11-02T00:00:00Z", 400, "invalid", "window"},
		"usage by the day":                      {"/v1/usage?tenant=a&feature=f&window=day", 400, "invalid", "from"},
		"usage to no end":                       {"/v1/usage?tenant=a&feature=f&window=day&from=2026-11-01T00:00:00Z", 400, "invalid", "to"},
		"usage backwards":                       {"/v1/usage?tenant=a&from=2026-11-01T00:00:00Z&to=2026-11-01T00:00:00Z", 400, "invalid", "to"},
		"usage of all, grouped":                 {"/v1/usage?tenant=a&group_by=model", 400, "invalid", "feature"},
		"usage in no zone":                      {"/v1/usage?tenant=a&feature=f&window=day&timezone=Mars&from=2026-11-01T00:00:00Z&to=2026-11-02T00:00:00Z", 400, "invalid", "timezone"},
		"usage of periods in one":               {"/v1/usage?tenant=a&timezone=UTC", 400, "invalid", "timezone"},
		"usage, grouped twice":                  {"/v1/usage?tenant=a&feature=f&group_by=m&group_by=n,m", 400, "invalid", "group_by"},
		"usage, grouped by none":                {"/v1/usage?tenant=a&feature=f&group_by=", 400, "invalid", "group_by"},
		"usage, filtered twice":                 {"/v1/usage?tenant=a&feature=f&filter[m]=1&filter[m]=2", 400, "invalid", "filter"},
		"usage, half a filter":                  {"/v1/usage?tenant=a&feature=f&filter[m=1", 400, "invalid", "filter"},
		"usage, filter by nothing":              {"/v1/usage?tenant=a&feature=f&filter[]=1", 400, "invalid", "filter"},
		"usage, some other key":                 {"/v1/usage?tenant=a&group=m", 400, "invalid", "query"},
		"usage, no aggregation":                 {"/v1/usage?tenant=a&feature=f&aggregation=mode", 400, "invalid", "aggregation"},
		"usage, NUL":                            {"/v1/usage?tenant=a&feature=f&filter[m]=%00", 400, "invalid", "filter"},
		"usage of ten thousand and one minutes": {"/v1/usage?tenant=a&feature=f&window=minute&from=2026-11-01T00:00:00Z&to=2026-11-07T22:41:00Z", 400, "invalid", "window"},
		"a broken query":                        {"/v1/usage?tenant=%zz", 400, "invalid", "query"},
		"items of no state":                     {"/v1/outbox?state=done", 400, "invalid", "state"},
		"items, unknown":                        {"/v1/outbox?x=1", 400, "invalid", "query"},
		"no such item":                          {"/v1/outbox/17", 404, "not_found", ""},
		"an item by name":                       {"/v1/outbox/abc", 404, "not_found", "id"},
		"an item, unknown":                      {"/v1/outbox/17?x=1", 400, "invalid", "query"},
		"stats, unknown":                        {"/v1/outbox/stats?x=1", 400, "invalid", "query"},
		"no such subscription":                  {"/v1/subscriptions/acme", 404, "not_found", "tenant"},
		"subscription, unknown":                 {"/v1/subscriptions/acme?x=1", 400, "invalid", "query"},
		"subscriptions, unknown":                {"/v1/subscriptions?x=1", 400, "invalid", "query"},
		"nothing there":                         {"/v2/events", 404, "not_found", ""},
		"the root":                              {"/", 404, "not_found", ""},
		"metrics, not served":                   {"/metrics", 404, "not_found", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := *s
			s.t = t
			s.refused(s.get(tc.path), tc.status, tc.tag, tc.field)
		})
	}
	for path, want := range map[string]string{
		"/v1/events": `{"data":[]}`, "/v1/outbox": `{"data":[]}`, "/v1/subscriptions": `{"data":[]}`,
		"/v1/usage?tenant=acme": `{"data":[],"as_of":"2026-11-30T12:00:00.000000Z"}`, // nothing is an empty list
		"/livez":                `{"status":"ok"}`, "/readyz": `{"status":"ok"}`,
	} {
		if a := s.get(path); a.status != 200 || strings.TrimSpace(string(a.body)) != want {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// Public report 99: an empty filter is none, and never another tenant's.
func TestPagesHoldEverythingOnce(t *testing.T) {
	t.Parallel()
	s := serve(t)
	var want []string
	for i := range 25 {
		tenant := []string{"a", "b"}[i%2]
		id := fmt.Sprintf("e%02d", i)
		body := fmt.Sprintf(`{"id":%q,"tenant":%q,"feature":"tokens","quantity":"1"}`, id, tenant)
		s.recorded(s.post(plainJSON, body), http.StatusOK)
		var sub api.SubscriptionBody
		s.into(s.call(http.MethodPut, "/v1/subscriptions/"+id, `{"plan":"p"}`), http.StatusOK, &sub)
		if tenant == "a" {
			want = append(want, id)
		}
	}
	read := func(path string, key func(json.RawMessage) string) (all []string) {
		after := ""
		for range 30 {
			sep := "?"
			if strings.Contains(path, "?") {
				sep = "&"
			}
			var page api.Page[json.RawMessage]
			s.into(s.get(path+sep+"limit=4"+after), http.StatusOK, &page)
			for _, d := range page.Data {
				all = append(all, key(d))
			}
			if page.Next == "" {
				return all
			}
			after = "&after=" + url.QueryEscape(page.Next)
		}
		t.Error("the pages never end")
		return nil
	}
	id := func(raw json.RawMessage) string {
		var v struct {
			ID, Tenant string
		}
		_ = json.Unmarshal(raw, &v)
		if v.ID == "" {
			return v.Tenant
		}
		return v.ID
	}
	if diff := cmp.Diff(want, read("/v1/events?tenant=a", id)); diff != "" {
		t.Error(diff)
	}
	for path, n := range map[string]int{"/v1/events": 25, "/v1/outbox": 25, "/v1/outbox?tenant=b": 12, "/v1/subscriptions": 25, "/v1/outbox?state=pending": 0} {
		seen := map[string]bool{}
		all := read(path, id)
		for _, k := range all {
			seen[k] = true
		}
		if len(all) != n || len(seen) != n {
			t.Errorf("%s: %d rows, %d different, want %d", path, len(all), len(seen), n)
		}
	}
}

func TestOutboxViews(t *testing.T) {
	t.Parallel()
	s := serve(t)
	var sub api.SubscriptionBody
	s.into(s.call(http.MethodPut, "/v1/subscriptions/acme", `{"customers":{"stripe":"cus_1"},"anchor":"2026-01-31T00:00:00Z","timezone":"America/New_York"}`), 200, &sub)
	s.recorded(s.post(plainJSON, "["+plain("a", "12.50")+`,{"id":"b","tenant":"acme","feature":"images","quantity":1}]`), http.StatusOK)
	var page api.Page[api.ItemView]
	s.into(s.get("/v1/outbox?tenant=acme"), 200, &page)
	if len(page.Data) != 2 {
		t.Fatalf("%+v", page)
	}
	var it api.ItemView
	s.into(s.get("/v1/outbox/"+page.Data[0].ID), 200, &it)
	if it.State != "pending" || it.Customer != "cus_1" || it.Attempts != 0 || it.AttemptBudget != 20 || it.QuarantineReason != nil ||
		it.NextAttemptAt == nil || !strings.HasPrefix(it.Identifier, "fencepost_") || len(it.Identifier) != 74 {
		t.Errorf("%+v", it)
	}
	var payload map[string]any
	if err := json.Unmarshal(it.Payload, &payload); err != nil || payload["value"] != "12.5" || payload["customer"] != "cus_1" {
		t.Errorf("payload %s, %v", it.Payload, err)
	}
	second := page.Data[1]
	if second.State != "quarantined" || second.QuarantineReason == nil || *second.QuarantineReason != "feature_unmapped" || second.NextAttemptAt != nil {
		t.Errorf("%+v", second)
	}
	var st api.StatsAnswer
	s.into(s.get("/v1/outbox/stats"), 200, &st)
	if st.States["pending"] != 1 || st.States["quarantined"] != 1 || len(st.States) != 7 || st.Exporters["stripe"]["quarantined"].Open != 1 {
		t.Errorf("%+v", st)
	}
	s.into(s.get("/v1/outbox?reason=feature_unmapped&exporter=stripe&feature=images&state=quarantined"), 200, &page)
	if len(page.Data) != 1 {
		t.Errorf("%d rows of the reason", len(page.Data))
	}
}

func TestSubscriptionBodies(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for name, tc := range map[string]struct{ body, field string }{
		"nothing":             {"", ""},
		"a list":              {"[]", "body"},
		"an unknown key":      {`{"plan":"a","color":"red"}`, "body"},
		"a repeated key":      {`{"plan":"a","plan":"b"}`, ""},
		"another tenant":      {`{"tenant":"other"}`, "tenant"},
		"an anchor in words":  {`{"anchor":"today"}`, "anchor"},
		"an unknown interval": {`{"interval":"hour"}`, "interval"},
		"an unknown zone":     {`{"timezone":"Mars/Olympus"}`, "timezone"},
		"the host's zone":     {`{"timezone":"Local"}`, "timezone"},
		"a customer of 1 MB":  {`{"customers":{"stripe":"` + strings.Repeat("x", 300) + `"}}`, "customers"},
		"a lone surrogate":    {`{"customers":{"stripe":"\ud800"}}`, ""},
		"a customer of 5":     {`{"customers":{"stripe":5}}`, "customers.stripe"},
		"something after":     {`{}]`, ""},
	} {
		a := s.call(http.MethodPut, "/v1/subscriptions/acme", tc.body)
		var p problem
		if err := json.Unmarshal(a.body, &p); err != nil || a.status != 400 || p.Rule == "" || (tc.field != "" && p.Field != tc.field) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	s.refused(s.get("/v1/subscriptions/acme"), 404, "not_found", "tenant")
	var sub api.SubscriptionBody
	s.into(s.call(http.MethodPut, "/v1/subscriptions/acme", `{"tenant":"acme","customers":{"stripe":"cus_1"}}`), 200, &sub)
	sub = api.SubscriptionBody{}
	s.into(s.call(http.MethodPut, "/v1/subscriptions/acme", `{"plan":"pro","interval":"year"}`), 200, &sub)
	if sub.Revision != 2 || sub.Customers["stripe"] != "" || sub.Interval != "year" || sub.Timezone != "UTC" || sub.Anchor != "2000-01-01T00:00:00.000000Z" {
		t.Errorf("PUT replaces: %+v", sub)
	}
}

func TestMethods(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for path, allow := range map[string]string{
		"/v1/events": "GET, POST", "/v1/events/a/b": "GET", "/v1/usage": "GET", "/v1/outbox": "GET", "/v1/outbox/17": "GET", "/v1/outbox/stats": "GET",
		"/v1/subscriptions": "GET", "/v1/subscriptions/acme": "GET, PUT", "/readyz": "GET", "/livez": "GET",
	} {
		a := s.call(http.MethodDelete, path, "")
		s.refused(a, http.StatusMethodNotAllowed, "invalid", "method")
		if got := a.header.Get("Allow"); got != allow {
			t.Errorf("%s: Allow %q, want %q", path, got, allow)
		}
	}
	if a := s.call(http.MethodHead, "/v1/usage?tenant=a", ""); a.status != 200 || len(a.body) != 0 {
		t.Errorf("HEAD: %d %s", a.status, a.body)
	}
	for _, origin := range []string{"https://evil.example", "null"} {
		s.refused(s.call(http.MethodPost, "/v1/events", plain("x", "1"), "Content-Type", plainJSON, "Origin", origin), http.StatusForbidden, "invalid", "origin")
	}
	s.recorded(s.call(http.MethodPost, "/v1/events", plain("x", "1"), "Content-Type", plainJSON, "Origin", s.url), http.StatusOK)
	if a := s.get("/livez"); a.header.Get("X-Content-Type-Options") != "nosniff" || a.header.Get("X-Request-Id") == "" {
		t.Errorf("%v", a.header)
	}
}

// Q17a: readiness is about Record alone; what else is wrong degrades.
func TestReadiness(t *testing.T) {
	t.Parallel()
	var broken error
	var reasons []string
	s := serve(t, func(c *api.Config) {
		c.Ready = func(context.Context) error { return broken }
		c.Degraded = func() []string { return reasons }
	})
	reasons = []string{"exporter stripe is not served by this host"}
	if a := s.get("/readyz"); a.status != 200 || strings.TrimSpace(string(a.body)) != `{"degraded":["exporter stripe is not served by this host"],"status":"degraded"}` {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, broken = range []error{sdk.Unavailable("disk_full", nil), errors.New("sk_live_abc"), &sdk.Error{Tag: sdk.TagUnsupported, Code: "schema_newer"}} {
		p := s.refused(s.get("/readyz"), 503, "unavailable", "")
		if p.Code != codeOf(broken) {
			t.Errorf("code %q of %v", p.Code, broken)
		}
	}
	if a := s.get("/livez"); a.status != 200 {
		t.Errorf("livez: %d", a.status)
	}
}

func codeOf(err error) string {
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		return e.Code
	}
	return ""
}

// A closed store is unavailable and says when to come back.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	s := serve(t)
	if err := s.store.Close(); err != nil {
		t.Fatal(err)
	}
	for _, a := range []answer{s.post(plainJSON, plain("a", "1")), s.get("/v1/usage?tenant=acme"), s.get("/v1/outbox"), s.get("/readyz")} {
		s.refused(a, http.StatusServiceUnavailable, "unavailable", "")
		if strings.Contains(string(a.body), "fencepost.db") {
			t.Errorf("the answer shows a path of the host: %s", a.body)
		}
	}
	if a := s.post(plainJSON, plain("a", "1")); a.header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
	}
}

// panicking is an outbox whose counting panics.
type panicking struct{ storage.OutboxStore }

func (panicking) OutboxStats(context.Context) (storage.OutboxStats, error) {
	panic("sk_live_secret")
}

// A panic is a problem document and the server goes on.
func TestPanic(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *api.Config) { c.Outbox = panicking{c.Outbox} })
	a := s.get("/v1/outbox/stats")
	s.refused(a, http.StatusInternalServerError, "unavailable", "")
	if strings.Contains(string(a.body), "sk_live") {
		t.Errorf("the panic's value is in the answer: %s", a.body)
	}
	if a := s.get("/v1/outbox"); a.status != 200 {
		t.Errorf("afterwards: %d", a.status)
	}
}
