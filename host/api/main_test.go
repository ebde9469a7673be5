package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, time.November, 30, 12, 0, 0, 0, time.UTC)

// service is the API over a real store, behind a real server.
type service struct {
	t      testing.TB
	url    string
	engine *engine.Engine
	store  *sqlite.Adapter
	client *http.Client
}

// serve starts the API; change edits its configuration.
func serve(t testing.TB, change ...func(*api.Config)) *service {
	t.Helper()
	handler, s := build(t, change...)
	return s.start(handler)
}

// start puts a server in front of a handler.
func (s *service) start(handler http.Handler) *service {
	s.t.Helper()
	t := s.t
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	s.url, s.client = srv.URL, srv.Client()
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return s
}

// build returns the handler itself.
func build(t testing.TB, change ...func(*api.Config)) (http.Handler, *service) {
	t.Helper()
	return buildOver(t, func(*engine.Config) {}, change...)
}

// serveAt is serve with a clock that the test sets. It moves between requests.
func serveAt(t testing.TB, clock *time.Time) *service {
	t.Helper()
	handler, s := buildWith(t, func() time.Time { return *clock }, func(*engine.Config) {})
	return s.start(handler)
}

// buildOver is build with an engine whose configuration change edits.
func buildOver(t testing.TB, edit func(*engine.Config), change ...func(*api.Config)) (http.Handler, *service) {
	t.Helper()
	return buildWith(t, func() time.Time { return noon }, edit, change...)
}

func buildWith(t testing.TB, now func() time.Time, edit func(*engine.Config), change ...func(*api.Config)) (http.Handler, *service) {
	t.Helper()
	st, err := sqlite.Open(context.Background(), sqlite.Config{Path: filepath.Join(t.TempDir(), "fencepost.db"), Migrate: true, Now: now, LockWait: -1})
	if err != nil {
		t.Fatal(err)
	}
	meters, err := meter.NewSet([]meter.Meter{
		{Feature: "tokens_in", EventType: "llm.completion", Aggregation: meter.Sum, Value: "$.in", Dimensions: map[string]string{"model": "$.model"}},
		{Feature: "tokens_out", EventType: "llm.completion", Aggregation: meter.Sum, Value: "$.out"},
		{Feature: "requests", EventType: "http.request", Aggregation: meter.Count},
	})
	if err != nil {
		t.Fatal(err)
	}
	settings := engine.Config{Store: st, Meters: meters, Now: now, Manifests: map[string]exporter.Manifest{
		"stripe": {Name: "stripe", MappingKeys: []string{"event_name"}, Values: exporter.ValueDomain{MaxDecimals: -1}},
	}}
	edit(&settings)
	e, err := engine.New(settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.Close()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	_, err = e.ApplyRoutes(context.Background(), []engine.RoutePlan{{
		Exporter: "stripe", Provider: "stripe", Account: "acct_1", Mode: "test", Label: "1",
		Features: map[string]map[string]string{"tokens": {"event_name": "llm_tokens"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	cfg := api.Config{Engine: e, Outbox: st, Ready: st.Ping}
	for _, f := range change {
		f(&cfg)
	}
	return api.New(cfg), &service{t: t, engine: e, store: st}
}

// answer is a response with its body read.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// call sends a request. header holds pairs of name and value.
func (s *service) call(method, path, body string, header ...string) answer {
	s.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, b}
}

func (s *service) get(path string) answer {
	s.t.Helper()
	return s.call(http.MethodGet, path, "")
}

const (
	plainJSON = "application/json"
	ceJSON    = "application/cloudevents+json"
	ceBatch   = "application/cloudevents-batch+json"
)

func (s *service) post(contentType, body string) answer {
	s.t.Helper()
	return s.call(http.MethodPost, "/v1/events", body, "Content-Type", contentType)
}

// into decodes an answer strictly, after checking its status and type.
func (s *service) into(a answer, status int, out any) {
	s.t.Helper()
	if a.status != status || a.header.Get("Content-Type") != "application/json" {
		s.t.Fatalf("status %d, type %q, want %d and JSON: %s", a.status, a.header.Get("Content-Type"), status, a.body)
	}
	dec := json.NewDecoder(bytes.NewReader(a.body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(out); err != nil {
		s.t.Fatalf("%v in %s", err, a.body)
	}
}

// recorded decodes the answer of POST /v1/events and returns its outcomes as
// one text.
func (s *service) recorded(a answer, status int) (api.RecordAnswer, string) {
	s.t.Helper()
	var r struct {
		Results []struct {
			api.RecordResult
			Error  *message  `json:"error"`
			Errors []message `json:"errors"`
		} `json:"results"`
		Summary map[string]int `json:"summary"`
	}
	s.into(a, status, &r)
	out := api.RecordAnswer{Summary: r.Summary}
	var texts []string
	for i, res := range r.Results {
		if res.Index != i {
			s.t.Errorf("result %d has index %d", i, res.Index)
		}
		out.Results = append(out.Results, res.RecordResult)
		texts = append(texts, string(res.Outcome))
		if res.Error != nil && res.Error.Field != "" {
			texts[i] += "(" + res.Error.Field + ")"
		}
	}
	return out, strings.Join(texts, " ")
}

type message struct {
	Tag, Code, Field, Rule, Hint string
}

// problem is a problem document as formats.md states it.
type problem struct {
	Type      string    `json:"type"`
	Title     string    `json:"title"`
	Status    int       `json:"status"`
	Tag       string    `json:"tag"`
	Code      string    `json:"code"`
	Field     string    `json:"field"`
	Rule      string    `json:"rule"`
	Hint      string    `json:"hint"`
	Retryable *bool     `json:"retryable"`
	ItemIndex *int      `json:"item_index"`
	RequestID string    `json:"request_id"`
	Errors    []message `json:"errors"`
	Current   *struct {
		State        string
		LeaseToken   int64 `json:"lease_token"`
		Settled      bool
		SupersededBy string `json:"superseded_by"`
		Mapping      string `json:"mapping_version"`
	}
}

// refused checks that an answer is a whole problem document.
func (s *service) refused(a answer, status int, tag, field string) problem {
	s.t.Helper()
	var p problem
	if a.header.Get("Content-Type") != "application/problem+json" {
		s.t.Fatalf("status %d, type %q: %s", a.status, a.header.Get("Content-Type"), a.body)
	}
	dec := json.NewDecoder(bytes.NewReader(a.body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		s.t.Fatalf("%v in %s", err, a.body)
	}
	switch {
	case a.status != status || p.Status != status || p.Tag != tag || p.Field != field:
		s.t.Errorf("status %d, %+v; want %d %s %q", a.status, p, status, tag, field)
	case p.Type != "https://fencepost.dev/problems/"+tag || p.Title == "" || p.RequestID == "" || p.Retryable == nil:
		s.t.Errorf("a member is missing: %s", a.body)
	case *p.Retryable != (tag == "unavailable") || p.RequestID != a.header.Get("X-Request-Id"):
		s.t.Errorf("%s with request id %s", a.body, a.header.Get("X-Request-Id"))
	}
	return p
}
