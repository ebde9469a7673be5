package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/host/api"
)

func (s *service) correct(body string) answer {
	s.t.Helper()
	return s.call(http.MethodPost, "/v1/corrections", body, "Content-Type", plainJSON)
}

// corrected decodes the answer of POST /v1/corrections and returns its outcomes
// as one text.
func (s *service) corrected(a answer, status int) (api.CorrectionAnswer, string) {
	s.t.Helper()
	var out api.CorrectionAnswer
	s.into(a, status, &out)
	texts := make([]string, len(out.Results))
	for i, r := range out.Results {
		if texts[i] = string(r.Outcome); r.Index != i {
			s.t.Errorf("result %d carries index %d", i, r.Index)
		}
	}
	return out, strings.Join(texts, " ")
}

// formats.md: one correction or an array; an outcome for each, in order; what is
// left, and a repeat that stays a duplicate when nothing is (F02).
func TestPostCorrections(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.recorded(s.post(plainJSON, "["+plain("a", "10")+","+plain("b", "3")+"]"), http.StatusOK)
	one := `{"id":"c1","tenant":"acme","event_id":"a","quantity":"2.5","reason":"counted twice"}`
	out, outcomes := s.corrected(s.correct(one), http.StatusOK)
	if r := out.Results[0]; outcomes != "inserted" || r.ID != "c1" || r.Seq == "" || r.Quantity != "2.5" || r.Remaining != "7.5" || r.Error != nil {
		t.Errorf("%+v", out)
	}
	first := out.Results[0].Seq
	out, outcomes = s.corrected(s.correct(`[`+one+`,
		{"id":"c2","tenant":"acme","event_id":"a","quantity":8},
		{"id":"c1","tenant":"acme","event_id":"a","quantity":"2"},
		{"id":"c3","tenant":"acme","event_id":"nope","quantity":1},
		{"id":"c4","tenant":"acme","event_id":"c1","quantity":1},
		{"id":"c5","tenant":"acme","event_id":"a","quantity":-1},
		{"id":"c6","tenant":"acme","event_id":"a","remaining":true},
		{"id":"c7","tenant":"acme","event_id":"a","remaining":true},
		{"id":"c6","tenant":"acme","event_id":"a","remaining":true},
		{"id":"c8","tenant":"acme","event_id":"b","replace":{"id":"b2","tenant":"acme","feature":"tokens","quantity":4}}]`), http.StatusMultiStatus)
	if outcomes != "duplicate invalid conflict invalid invalid invalid inserted invalid duplicate inserted" {
		t.Errorf("outcomes %s", outcomes)
	}
	if out.Summary["inserted"] != 2 || out.Summary["duplicate"] != 2 || out.Summary["conflict"] != 1 || out.Summary["invalid"] != 5 {
		t.Errorf("summary %v", out.Summary)
	}
	for i, want := range map[int][3]string{
		1: {"invalid", "exceeds_original", "corrections[1].quantity"},
		2: {"conflict", "payload_differs", "corrections[2].id"},
		3: {"not_found", "original", "corrections[3].event_id"},
		4: {"invalid", "not_usage", "corrections[4].event_id"},
		5: {"invalid", "", "corrections[5].quantity"},
		7: {"invalid", "nothing_remaining", "corrections[7].remaining"},
	} {
		if e := out.Results[i].Error; e == nil || string(e.Tag) != want[0] || e.Code != want[1] || e.Field != want[2] || e.Rule == "" {
			t.Errorf("%d: %+v, want %v", i, e, want)
		}
	}
	if r := out.Results[0]; r.Seq != first || r.Quantity != "2.5" || r.Remaining != "7.5" {
		t.Errorf("the repeat: %+v", r)
	}
	for i, want := range map[int]string{6: "inserted", 8: "duplicate"} {
		if r := out.Results[i]; string(r.Outcome) != want || r.Quantity != "7.5" || r.Remaining != "0" {
			t.Errorf("%d: %+v", i, r)
		}
	}
	if r := out.Results[9]; r.Replacement == nil || r.Replacement.ID != "b2" || r.Replacement.Seq == "" || r.Quantity != "3" {
		t.Errorf("%+v", r)
	}
}

// What is wrong with a single correction is wrong with the request, and nothing
// is written.
func TestSingleCorrectionProblems(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.recorded(s.post(plainJSON, plain("a", "10")), http.StatusOK)
	for body, want := range map[string]struct {
		status     int
		tag, field string
	}{
		`{"id":"c","tenant":"acme","event_id":"nope","quantity":1}`:                {http.StatusNotFound, "not_found", "event_id"},
		`{"id":"c","tenant":"other","event_id":"a","quantity":1}`:                  {http.StatusNotFound, "not_found", "event_id"},
		`{"id":"c","tenant":"acme","event_id":"a","quantity":11}`:                  {http.StatusBadRequest, "invalid", "quantity"},
		`{"id":"c","tenant":"acme","event_id":"a","quantity":0}`:                   {http.StatusBadRequest, "invalid", "quantity"},
		`{"id":"c","tenant":"acme","event_id":"a"}`:                                {http.StatusBadRequest, "invalid", "quantity"},
		`{"id":"c","tenant":"acme","event_id":"a","quantity":1,"dimensions":{}}`:   {http.StatusBadRequest, "invalid", "dimensions"},
		`{"id":"c","tenant":"acme","event_id":"a","quantity":1,"occurred_at":"x"}`: {http.StatusBadRequest, "invalid", "occurred_at"},
		`{"id":"c","tenant":"acme","event_id":"a","quantity":1,"x":1}`:             {http.StatusBadRequest, "invalid", "x"},
		`{"id":"ce:1","tenant":"acme","event_id":"a","quantity":1}`:                {http.StatusBadRequest, "invalid", "id"},
		`{"id":"a","tenant":"acme","event_id":"a","quantity":1}`:                   {http.StatusBadRequest, "invalid", "id"},
		`{"id":"c","tenant":"acme","event_id":"a","replace":{"id":"r"}}`:           {http.StatusBadRequest, "invalid", "replace.quantity"},
		`not JSON`: {http.StatusBadRequest, "invalid", ""},
		``:         {http.StatusBadRequest, "invalid", ""},
	} {
		p := s.refused(s.correct(body), want.status, want.tag, want.field)
		if p.Rule == "" {
			t.Errorf("%s: %+v", body, p)
		}
	}
	s.refused(s.call(http.MethodPost, "/v1/corrections", "{}", "Content-Type", "text/plain"), http.StatusUnsupportedMediaType, "invalid", "content-type")
	s.refused(s.call(http.MethodPost, "/v1/corrections?x=1", "{}", "Content-Type", plainJSON), http.StatusBadRequest, "invalid", "query")
	s.refused(s.correct("["+strings.Repeat("{},", 500)+"{}]"), http.StatusRequestEntityTooLarge, "invalid", "corrections")
	if a := s.get("/v1/events?tenant=acme"); strings.Count(string(a.body), `"id"`) != 1 {
		t.Errorf("something was written: %s", a.body)
	}
	if _, outcomes := s.corrected(s.correct("[]"), http.StatusOK); outcomes != "" {
		t.Errorf("no corrections: %s", outcomes)
	}
}

// GET /v1/events/{id} shows what was taken back of an event and what is left,
// and of a correction what it did.
func TestEventsShowTheirCorrections(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.recorded(s.post(plainJSON, plain("a", "10")), http.StatusOK)
	s.corrected(s.correct(`[{"id":"c1","tenant":"acme","event_id":"a","quantity":"2.5","reason":"why"},{"id":"c2","tenant":"acme","event_id":"a","remaining":true}]`), http.StatusOK)
	view := func(id string) (v api.EventView) {
		s.into(s.get("/v1/events/"+id+"?tenant=acme"), http.StatusOK, &v)
		return v
	}
	if v := view("a"); v.Effect != "10" || v.Corrected != "10" || v.Remaining != "0" || v.Kind != "usage" {
		t.Errorf("%+v", v)
	}
	if v := view("c1"); v.Effect != "-2.5" || v.Quantity != "2.5" || v.Kind != "correction" || v.OriginalEventID != "a" || v.Reverses || v.Remaining != "" {
		t.Errorf("%+v", v)
	}
	if v := view("c2"); v.Effect != "-7.5" || !v.Reverses {
		t.Errorf("%+v", v)
	}
	var meta map[string]string
	if err := json.Unmarshal(view("c1").Metadata, &meta); err != nil || meta["reason"] != "why" {
		t.Errorf("%v, %v", meta, err)
	}
}

// A CloudEvent is corrected by the id of the event that it led to.
func TestCloudEventsAreCorrected(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ce := `{"specversion":"1.0","id":"x","source":"/s","type":"llm.completion","subject":"acme","time":"2026-11-30T11:00:00Z","data":{"in":5,"out":7}}`
	s.recorded(s.post(ceJSON, ce), http.StatusOK)
	var view struct {
		Entries []api.EventView `json:"entries"`
	}
	if err := json.Unmarshal(s.get("/v1/events/x?tenant=acme&source=/s").body, &view); err != nil || len(view.Entries) != 2 {
		t.Fatalf("%+v, %v", view, err)
	}
	body, err := json.Marshal(map[string]any{"id": "c", "tenant": "acme", "event_id": view.Entries[0].ID, "quantity": 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, outcomes := s.corrected(s.correct(string(body)), http.StatusOK); outcomes != "inserted" {
		t.Error(outcomes)
	}
	if err := json.Unmarshal(s.get("/v1/events/x?tenant=acme&source=/s").body, &view); err != nil || view.Entries[0].Remaining != "3" || view.Entries[1].Remaining != "7" {
		t.Errorf("%+v, %v", view, err)
	}
}

// The configured limit of events holds for corrections too.
func TestTooManyCorrections(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *api.Config) { c.MaxEvents = 2 })
	s.refused(s.correct("[{},{},{}]"), http.StatusRequestEntityTooLarge, "invalid", "corrections")
	s.corrected(s.correct("[{},{}]"), http.StatusMultiStatus)
}

// An engine that takes nothing takes no correction; the index says how far it got.
func TestCorrectionsThatAreNotTaken(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.engine.Close()
	if p := s.refused(s.correct(`[{"id":"c","tenant":"acme","event_id":"a","quantity":1}]`), http.StatusServiceUnavailable, "unavailable", "corrections[0]"); p.Code != "closed" {
		t.Errorf("%+v", p)
	}
}

// The corrections of one event, in the order of recording and in pages; of
// another tenant's event of the same id nothing.
func TestListCorrections(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.recorded(s.post(plainJSON, "["+plain("a/1", "10")+","+plain("b", "3")+"]"), http.StatusOK)
	_, outcomes := s.corrected(s.correct(`[{"id":"c1","tenant":"acme","event_id":"a/1","quantity":"2.5"},
		{"id":"d1","tenant":"acme","event_id":"b","quantity":1},{"id":"c2","tenant":"acme","event_id":"a/1","remaining":true}]`), http.StatusOK)
	if outcomes != "inserted inserted inserted" {
		t.Fatal(outcomes)
	}
	list := func(query string) (ids []string, next string) {
		t.Helper()
		var page api.Page[api.EventView]
		s.into(s.call(http.MethodGet, "/v1/corrections?"+query, ""), http.StatusOK, &page)
		for _, e := range page.Data {
			ids = append(ids, e.ID+" "+e.Quantity)
		}
		return ids, page.Next
	}
	ids, next := list("tenant=acme&event=a%2F1&limit=1")
	if strings.Join(ids, ",") != "c1 2.5" || next == "" {
		t.Errorf("first page %v, next %q", ids, next)
	}
	ids, next = list("tenant=acme&event=a%2F1&limit=1&after=" + next)
	if strings.Join(ids, ",") != "c2 7.5" || next != "" {
		t.Errorf("second page %v, next %q", ids, next)
	}
	// That there is none of an event that does not exist would be no answer.
	s.recorded(s.post(plainJSON, plain("e", "1")), http.StatusOK)
	if ids, next = list("tenant=acme&event=e"); len(ids) != 0 || next != "" {
		t.Errorf("of an event without: %v", ids)
	}
	s.refused(s.get("/v1/corrections?tenant=globex&event=a%2F1"), 404, "not_found", "") // another tenant's
	s.refused(s.get("/v1/corrections?tenant=acme&event=nope"), 404, "not_found", "")
	for _, query := range []string{"", "tenant=acme", "event=a", "tenant=acme&event=a&limit=0", "tenant=acme&event=a&more=1"} {
		if a := s.call(http.MethodGet, "/v1/corrections?"+query, ""); a.status != http.StatusBadRequest {
			t.Errorf("%q: status %d", query, a.status)
		}
	}
}

// D15: with dry_run each correction answers what it would, and nothing is written.
func TestCorrectionDryRun(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.recorded(s.post(plainJSON, plain("a", "2")), http.StatusOK)
	post := func(body string) answer {
		return s.call(http.MethodPost, "/v1/corrections", body, "Content-Type", plainJSON)
	}
	const take = `{"id":"c","tenant":"acme","event_id":"a","quantity":"1.5"%s}`
	var out struct {
		Results []struct {
			ID, Outcome, Quantity, Remaining, Seq string
			Index                                 int
			DryRun                                bool `json:"dry_run"`
		}
		Summary map[string]int
	}
	for range 2 {
		s.into(post(fmt.Sprintf(take, `,"dry_run":true`)), 200, &out)
		if r := out.Results[0]; r.Outcome != "inserted" || r.Quantity != "1.5" || r.Remaining != "0.5" || r.Seq != "" || !r.DryRun {
			t.Errorf("%+v", r)
		}
	}
	s.refused(s.get("/v1/events/c?tenant=acme"), 404, "not_found", "")
	s.refused(post(fmt.Sprintf(take, `,"dry_run":"yes"`)), 400, "invalid", "dry_run")
	s.into(post(fmt.Sprintf(take, `,"dry_run":false`)), 200, &out)
	s.into(post(fmt.Sprintf(take, `,"dry_run":true`)), 200, &out)
	if r := out.Results[0]; r.Outcome != "duplicate" || r.Seq != "2" {
		t.Errorf("of what is there: %+v", r)
	}
}
