package egress

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// What an author is told of an answer is what a server would have noted of it,
// and of a request that a server refuses, its rule.
func TestJudgeIsAsSend(t *testing.T) {
	t.Parallel()
	now := fixed(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))
	for name, answer := range map[string]http.HandlerFunc{
		"accepted":     answerWith(200, "application/json", `{}`),
		"no content":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"malformed":    answerWith(200, "application/json", `{`),
		"text":         answerWith(200, "text/plain", `ok`),
		"duplicate":    answerWith(400, "application/json", `{"error":{"message":"An event already exists with identifier `+testIdent+`."}}`),
		"refused":      answerWith(400, "application/json", `{"error":{"code":"timestamp_too_far_in_past"}}`),
		"mendable":     answerWith(400, "application/json", `{"error":{"code":"resource_missing"}}`),
		"unknown":      answerWith(422, "application/json", `{"error":{}}`),
		"unauthorised": answerWith(401, "application/json", `{}`),
		"throttled": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.Header().Set("Request-Id", "req_1")
			answerWith(429, "application/json", `{}`)(w, r)
		},
		"down": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "7")
			answerWith(503, "text/html", `<html>`)(w, r)
		},
		"later, and no error": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "7")
			answerWith(404, "text/html", `<html>`)(w, r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, answer)
			c := newClient(t, s.host(), func(c *Config) { c.Now = now })
			response, want := one(t, c, s.host())
			_, call := c.Begin(t.Context(), []CallItem{{ID: "i1", Identifier: testIdent}})
			c.Judge(call, meterEvent(s.host(), "i1", testIdent), response)
			got := call.Exchanges()["i1"]
			if len(got) != 1 {
				t.Fatalf("%d exchanges", len(got))
			}
			if d := cmp.Diff(want, got[0], cmpopts.IgnoreFields(exporter.Exchange{}, "StartedAt", "FinishedAt")); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestRefusesIsAsSend(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*capability.Request){
		"good":           func(*capability.Request) {},
		"another host":   func(r *capability.Request) { r.URL = "https://evil.example/" },
		"no identifier":  func(r *capability.Request) { r.Body, r.Headers = nil, nil },
		"no items":       func(r *capability.Request) { r.Items = nil },
		"unknown item":   func(r *capability.Request) { r.Items = []string{"i2"} },
		"unknown secret": func(r *capability.Request) { r.Secrets = []string{"other"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, answerWith(200, "application/json", `{}`))
			c := newClient(t, s.host(), nil)
			req := meterEvent(s.host(), "i1", testIdent)
			change(&req)
			ctx, call := c.Begin(t.Context(), []CallItem{{ID: "i1", Identifier: testIdent}})
			got, _ := c.Refuses(call, req)
			responses, err := c.Send(ctx, []capability.Request{req})
			if err != nil {
				t.Fatal(err)
			}
			want := responses[0].Reason
			if got != want || (got == "") != (name == "good") {
				t.Errorf("%q, and a server says %q", got, want)
			}
		})
	}
}
