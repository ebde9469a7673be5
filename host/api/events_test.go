package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/host/api"
)

func completion(id, subject string, in, out any) string {
	b, _ := json.Marshal(map[string]any{
		"specversion": "1.0", "id": id, "source": "/gw", "type": "llm.completion", "subject": subject,
		"time": "2026-11-30T11:00:00Z", "datacontenttype": "application/json", "data": map[string]any{"in": in, "out": out, "model": "m1"},
	})
	return string(b)
}

func plain(id, quantity string) string {
	return fmt.Sprintf(`{"id":%q,"tenant":"acme","feature":"tokens","quantity":%q,"time":"2026-11-30T11:00:00Z"}`, id, quantity)
}

// The official SDK's events in structured and batch mode, and the same in
// binary mode, are one event: whichever comes first, the others are duplicates.
func TestCloudEventModes(t *testing.T) {
	t.Parallel()
	s := serve(t)
	e := event.New()
	e.SetID("a/1 ü.%2F")
	e.SetSource("https://example.com/gw?x=1")
	e.SetType("llm.completion")
	e.SetSubject("acme")
	e.SetTime(time.Date(2026, 11, 30, 11, 0, 0, 123456789, time.UTC))
	e.SetExtension("traceparent", "00-ab")
	if err := e.SetData(event.ApplicationJSON, json.RawMessage(`{"in":9007199254740993,"out":"0.25","model":"m1"}`)); err != nil {
		t.Fatal(err)
	}
	structured, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	got, outcomes := s.recorded(s.post(ceJSON, string(structured)), http.StatusOK)
	if outcomes != "inserted" || got.Results[0].ID != e.ID() || got.Results[0].Seq != "" {
		t.Fatalf("%s: %+v", outcomes, got)
	}
	var features []string
	for _, en := range got.Results[0].Entries {
		if en.Outcome != "inserted" || en.Seq == "" {
			t.Errorf("entry %+v", en)
		}
		features = append(features, en.Feature)
	}
	if diff := cmp.Diff([]string{"tokens_in", "tokens_out"}, features); diff != "" {
		t.Error(diff)
	}
	binary := []string{
		"Content-Type", "application/json", "ce-specversion", "1.0", "ce-id", "a/1 %C3%BC.%252F", "ce-source", e.Source(), "ce-type", e.Type(),
		"ce-subject", "acme", "ce-time", "2026-11-30T11:00:00.123456789Z", "ce-traceparent", "00-ab",
	}
	again, outcomes := s.recorded(s.call(http.MethodPost, "/v1/events", string(e.Data()), binary...), http.StatusOK)
	if outcomes != "duplicate" || len(again.Results[0].Entries) != 2 || again.Results[0].Entries[0].Seq != got.Results[0].Entries[0].Seq {
		t.Errorf("binary: %s %+v", outcomes, again)
	}
	batch, err := json.Marshal([]event.Event{e, e})
	if err != nil {
		t.Fatal(err)
	}
	if _, outcomes = s.recorded(s.post(ceBatch+"; charset=utf-8", string(batch)), http.StatusOK); outcomes != "duplicate duplicate" {
		t.Errorf("batch: %s", outcomes)
	}
	var u api.UsageAnswer
	s.into(s.get("/v1/usage?tenant=acme"), http.StatusOK, &u)
	values := map[string]string{}
	for _, r := range u.Data {
		values[r.Feature] = string(r.Value + "/" + r.Count)
	}
	if diff := cmp.Diff(map[string]string{"tokens_in": "9007199254740993/1", "tokens_out": "0.25/1"}, values); diff != "" {
		t.Error(diff)
	}
	// Public report 79: a legal id is found again, whatever is in it.
	var found struct {
		ID, Source, Type, Tenant, Time string
		RecordedAt                     string `json:"recorded_at"`
		Event                          json.RawMessage
		Entries                        []json.RawMessage
	}
	s.into(s.get("/v1/events/"+url.PathEscape(e.ID())+"?tenant=acme&source="+url.QueryEscape(e.Source())), http.StatusOK, &found)
	if found.ID != e.ID() || len(found.Entries) != 2 || found.Time != "2026-11-30T11:00:00.123456Z" {
		t.Errorf("%+v", found)
	}
}

// S6 over HTTP: an outcome for each item in the order of input, 207 if any
// failed, and the rest recorded.
func TestBatchOfPlainEvents(t *testing.T) {
	t.Parallel()
	s := serve(t)
	body := "[" + strings.Join([]string{
		plain("a", "1"), plain("b", "0.1234567890123"), plain("a", "1.0"), plain("a", "2"), plain("c", "-1"),
		`{"id":"d"}`, `5`, plain("e", "3"), strings.Replace(plain("f", "1"), `"id"`, `"color":"red","id"`, 1),
	}, ",") + "]"
	got, outcomes := s.recorded(s.post(plainJSON, body), http.StatusMultiStatus)
	want := "inserted invalid(events[1].quantity) duplicate conflict(events[3].id) invalid(events[4].quantity) " +
		"invalid(events[5].quantity) invalid(events[6]) inserted invalid(events[8].color)"
	if outcomes != want {
		t.Errorf("got  %s\nwant %s", outcomes, want)
	}
	if diff := cmp.Diff(map[string]int{"inserted": 2, "duplicate": 1, "conflict": 1, "invalid": 5, "unmatched": 0}, got.Summary); diff != "" {
		t.Error(diff)
	}
	if got.Results[0].Seq != "1" || got.Results[2].Seq != "1" || got.Results[7].Seq != "2" {
		t.Errorf("%+v", got.Results)
	}
	_, outcomes = s.recorded(s.post(plainJSON, " \r\n["+plain("a", "1")+","+plain("e", "3")+"]\n"), http.StatusOK)
	if outcomes != "duplicate duplicate" {
		t.Error(outcomes)
	}
	if _, outcomes = s.recorded(s.post(plainJSON, "[]"), http.StatusOK); outcomes != "" {
		t.Error(outcomes)
	}
}

// An event with several meters answers entries, and the worst outcome.
func TestBatchOfCloudEvents(t *testing.T) {
	t.Parallel()
	s := serve(t)
	unmatched := strings.Replace(completion("u", "acme", 1, 1), "llm.completion", "other", 1)
	body := "[" + strings.Join([]string{
		completion("1", "acme", 1, 2), completion("1", "acme", 1, 2), completion("1", "acme", 9, 2), unmatched, unmatched,
		completion("2", "acme", "x", 2), completion("3", "", 1, 2), `{"id":"4"}`,
	}, ",") + "]"
	got, outcomes := s.recorded(s.post(ceBatch, body), http.StatusMultiStatus)
	want := "inserted duplicate conflict(events[2].id) unmatched duplicate invalid(events[5].data.in) invalid(events[6].subject) invalid(events[7].specversion)"
	if outcomes != want {
		t.Errorf("got  %s\nwant %s", outcomes, want)
	}
	if diff := cmp.Diff(map[string]int{"inserted": 1, "duplicate": 2, "conflict": 1, "invalid": 3, "unmatched": 1}, got.Summary); diff != "" {
		t.Error(diff)
	}
	if _, outcomes = s.recorded(s.post(ceJSON, unmatched), http.StatusOK); outcomes != "duplicate" {
		t.Error(outcomes)
	}
}

// What is wrong with a single event is wrong with the request; a conflict is
// an outcome.
func TestSingleEvents(t *testing.T) {
	t.Parallel()
	s := serve(t)
	if _, outcomes := s.recorded(s.post(plainJSON, plain("a", "1")), http.StatusOK); outcomes != "inserted" {
		t.Error(outcomes)
	}
	if _, outcomes := s.recorded(s.post(plainJSON, plain("a", "2")), http.StatusMultiStatus); outcomes != "conflict(id)" {
		t.Error(outcomes)
	}
	s.refused(s.post(plainJSON, plain("b", "x")), http.StatusBadRequest, "invalid", "quantity")
	s.refused(s.post(plainJSON, plain("b", "-1")), http.StatusBadRequest, "invalid", "quantity") // the engine's rule, the same answer
	late := strings.Replace(plain("b", "1"), "2026-11-30T11:00:00Z", "2026-11-30T12:05:01Z", 1)
	s.refused(s.post(plainJSON, late), http.StatusBadRequest, "invalid", "time")
	s.refused(s.post(ceJSON, completion("1", "acme", "x", 1)), http.StatusBadRequest, "invalid", "data.in")
	p := s.refused(s.post(plainJSON, `{"id":"","tenant":"acme","feature":"tokens","quantity":"1","x":1}`), http.StatusBadRequest, "invalid", "x")
	if len(p.Errors) != 2 || p.ItemIndex != nil {
		t.Errorf("%+v: want both faults", p)
	}
	if page, err := s.engine.Events(t.Context(), streamAll); err != nil || len(page.Events) != 1 {
		t.Errorf("%d events, %v", len(page.Events), err)
	}
}

// Bad input of the issue, each naming field and rule, none written.
func TestBadInput(t *testing.T) { //nolint:tparallel // the cases share a server
	t.Parallel()
	s := serve(t)
	with := func(member, value string) string {
		return `{"id":"a","tenant":"acme","feature":"tokens","quantity":"1",` + `"` + member + `":` + value + `}`
	}
	quantity := func(v string) string { return `{"id":"a","tenant":"acme","feature":"tokens","quantity":` + v + `}` }
	var dims strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&dims, `,"k%d":"v"`, i)
	}
	for name, tc := range map[string]struct {
		media, body string
		status      int
		field       string
	}{
		"nothing":              {plainJSON, "", 400, ""},
		"half an object":       {plainJSON, `{"id":"a"`, 400, ""},
		"half an array":        {plainJSON, `[{"id":"a"}`, 400, ""},
		"text after the value": {plainJSON, plain("a", "1") + "x", 400, ""},
		"two values":           {plainJSON, plain("a", "1") + plain("b", "1"), 400, ""},
		"a number":             {plainJSON, "5", 400, ""},
		"NaN":                  {plainJSON, quantity("NaN"), 400, "quantity"},
		"NaN as text":          {plainJSON, quantity(`"NaN"`), 400, "quantity"},
		"infinity":             {plainJSON, quantity(`"Infinity"`), 400, "quantity"},
		"1e400":                {plainJSON, quantity("1e400"), 400, "quantity"},
		"1e-400":               {plainJSON, quantity("1e-400"), 400, "quantity"},
		"39 digits":            {plainJSON, quantity(strings.Repeat("9", 39)), 400, "quantity"},
		"27 integer digits":    {plainJSON, quantity("1" + strings.Repeat("0", 26)), 400, "quantity"},
		"13 decimals":          {plainJSON, quantity("0.0000000000001"), 400, "quantity"},
		"hexadecimal":          {plainJSON, quantity(`"0x10"`), 400, "quantity"},
		"a comma":              {plainJSON, quantity(`"1,5"`), 400, "quantity"},
		"null":                 {plainJSON, quantity("null"), 400, "quantity"},
		"NUL in an id":         {plainJSON, strings.Replace(plain("a", "1"), `"a"`, `"a\u0000"`, 1), 400, "id"},
		"NUL as a byte":        {plainJSON, strings.Replace(plain("a", "1"), `"a"`, "\"a\x00\"", 1), 400, "id"},
		"a lone surrogate":     {plainJSON, strings.Replace(plain("a", "1"), `"a"`, `"\ud800"`, 1), 400, "id"},
		"broken UTF-8":         {plainJSON, strings.Replace(plain("a", "1"), `"a"`, "\"\xff\"", 1), 400, "id"},
		"an id too long":       {plainJSON, plain(strings.Repeat("x", 129), "1"), 400, "id"},
		"a repeated key":       {plainJSON, with("id", `"b"`), 400, ""},
		"an unknown key":       {plainJSON, with("qty", `"b"`), 400, "qty"},
		"10,000 dimensions":    {plainJSON, with("dimensions", "{"+dims.String()[1:]+"}"), 400, "dimensions"},
		"dimensions, a list":   {plainJSON, with("dimensions", "[]"), 400, "dimensions"},
		"metadata of 17 KiB":   {plainJSON, with("metadata", `{"a":"`+strings.Repeat("x", 17<<10)+`"}`), 400, "metadata"},
		"deep metadata":        {plainJSON, with("metadata", strings.Repeat(`{"a":`, 200)+"1"+strings.Repeat("}", 200)), 400, "metadata"},
		"a time without zone":  {plainJSON, with("time", `"2026-11-30T12:00:00"`), 400, "time"},
		"a time as a number":   {plainJSON, with("time", "1780586634.1"), 400, "time"},
		"no specversion":       {ceJSON, `{"id":"1","source":"/","type":"llm.completion","subject":"acme"}`, 400, "specversion"},
		"another specversion":  {ceJSON, `{"specversion":"0.3","id":"1","source":"/","type":"t","subject":"acme"}`, 400, "specversion"},
		"a batch as an event":  {ceJSON, "[" + completion("1", "acme", 1, 1) + "]", 400, ""},
		"an event as a batch":  {ceBatch, completion("1", "acme", 1, 1), 400, ""},
		"no type":              {"", plain("a", "1"), 415, "content-type"},
		"text":                 {"text/plain", plain("a", "1"), 415, "content-type"},
		"a form":               {"application/x-www-form-urlencoded", plain("a", "1"), 415, "content-type"},
		"no media type":        {";;;", plain("a", "1"), 415, "content-type"},
		"a string of 1 MB":     {plainJSON, plain(strings.Repeat("x", 1<<20), "1"), 413, "body"},
		"501 events":           {plainJSON, "[" + strings.Repeat(plain("a", "1")+",", 500) + plain("a", "1") + "]", 413, "events"},
		"501 CloudEvents":      {ceBatch, "[" + strings.Repeat(completion("1", "acme", 1, 1)+",", 500) + completion("1", "acme", 1, 1) + "]", 413, "events"},
	} {
		t.Run(name, func(t *testing.T) {
			s := *s
			s.t = t
			p := s.refused(s.post(tc.media, tc.body), tc.status, "invalid", tc.field)
			if p.Rule == "" {
				t.Errorf("no rule: %+v", p)
			}
		})
	}
	s.refused(s.call(http.MethodPost, "/v1/events", plain("a", "1"), "Content-Type", plainJSON, "Content-Encoding", "gzip"), 415, "invalid", "content-encoding")
	s.refused(s.call(http.MethodPost, "/v1/events", "{}", "Content-Type", plainJSON, "ce-id", "1", "ce-source", "/", "ce-type", "t"), 400, "invalid", "specversion")
	if page, err := s.engine.Events(t.Context(), streamAll); err != nil || len(page.Events) != 0 {
		t.Errorf("%d events, %v", len(page.Events), err)
	}
}

// P5: 2^53+1 and its kin arrive as they were sent.
func TestExactNumbers(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for i, tc := range [][2]string{
		{"9007199254740993", "9007199254740993"},
		{`"9007199254740993.000000000001"`, "9007199254740993.000000000001"},
		{"1e3", "1000"},
		{"0.10", "0.1"},
		{"-0", "0"},
		{strings.Repeat("9", 26) + "." + strings.Repeat("9", 12), strings.Repeat("9", 26) + "." + strings.Repeat("9", 12)},
	} {
		id := fmt.Sprint("n", i)
		body := `{"id":"` + id + `","tenant":"acme","feature":"tokens","quantity":` + tc[0] + `}`
		if _, outcomes := s.recorded(s.post(plainJSON, body), http.StatusOK); outcomes != "inserted" {
			t.Fatalf("%s: %s", tc[0], outcomes)
		}
		var ev api.EventView
		s.into(s.get("/v1/events/"+id+"?tenant=acme"), http.StatusOK, &ev)
		if ev.Quantity != tc[1] {
			t.Errorf("%s came back as %s", tc[0], ev.Quantity)
		}
	}
}

// The configured bounds hold, whatever the engine would take.
func TestConfiguredBounds(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *api.Config) { c.MaxEvents, c.MaxBody = 2, 1024 })
	s.refused(s.post(plainJSON, "["+plain("a", "1")+","+plain("b", "1")+","+plain("c", "1")+"]"), 413, "invalid", "events")
	p := s.refused(s.post(plainJSON, strings.Repeat(" ", 1025)), 413, "invalid", "body")
	if !strings.Contains(p.Rule, "1024") {
		t.Errorf("rule %q does not say the bound", p.Rule)
	}
	s.recorded(s.post(plainJSON, "["+plain("a", "1")+","+plain("b", "1")+"]"), http.StatusOK)
}

// FuzzPostEvents: whatever comes, the answer is JSON or a problem document, and
// a refused request leaves nothing.
func FuzzPostEvents(f *testing.F) {
	f.Add(plainJSON, []byte(plain("a", "1")), "")
	f.Add(plainJSON, []byte("["+plain("a", "1")+",5,{}]"), "")
	f.Add(ceJSON, []byte(completion("1", "acme", 1, 2)), "")
	f.Add(ceBatch, []byte("["+completion("1", "acme", 1, 2)+"]"), "")
	f.Add("application/json", []byte(`{"in":1,"out":2}`), "1.0")
	f.Add("text/plain", []byte("\xff\x00"), "1.0")
	f.Add(";;", []byte("{"), "")
	handler, _ := build(f)
	f.Fuzz(func(t *testing.T, contentType string, body []byte, specversion string) {
		w := post(handler, contentType, body, specversion)
		got := w.Header().Get("Content-Type")
		switch w.Code {
		case http.StatusOK, http.StatusMultiStatus:
			var a api.RecordAnswer
			if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || got != "application/json" {
				t.Errorf("status %d, type %q: %v", w.Code, got, err)
			}
		case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType:
			var p problem
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || got != "application/problem+json" || p.Rule == "" || p.Tag != "invalid" {
				t.Errorf("status %d, type %q, %+v: %v", w.Code, got, p, err)
			}
		default:
			t.Errorf("status %d: %s", w.Code, w.Body)
		}
	})
}
