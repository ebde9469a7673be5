package egress

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// usage is a provider that recognises a record by who, when and how much.
func usage() *exporter.Records {
	return &exporter.Records{
		Path: "/Records",
		Key: []exporter.RecordKey{
			{Field: "customer", Path: "/Who"},
			{Field: "mapping.dimension", Path: "/What"},
			{Field: "timestamp", Path: "/When"},
			{Field: "value", Path: "/Much"},
		},
		Answers: []exporter.RecordAnswers{{Path: "/Done", Record: "/Record"}, {Path: "/Left"}},
	}
}

var usagePatterns = []exporter.AnswerPattern{
	{Class: exporter.AnswerAccepted, Status: 200, In: "/Done", Path: "/Status", Equals: []string{"Success"}},
	{Class: exporter.AnswerRefused, Status: 200, In: "/Done", Path: "/Status", Equals: []string{"Duplicate"}},
	{Class: exporter.AnswerAgain, Status: 200, In: "/Left"},
	{Class: exporter.AnswerRefused, Status: 400, Path: "/type", Equals: []string{"BadCustomer"}},
	{Class: exporter.AnswerAgain, Status: 400, Path: "/type", Equals: []string{"BadCustomer"}},
}

const (
	recordA = `{"Who":"a","What":"calls","When":1764504000,"Much":5}`
	recordB = `{"Who":"b","What":"calls","When":1764504000,"Much":7}`
)

// twoRecords sends the records of two items and returns what the host saw.
func twoRecords(t *testing.T, body string, answer http.HandlerFunc) (capability.Response, map[string][]exporter.Exchange) {
	t.Helper()
	s := serve(t, answer)
	client := newClient(t, s.host(), func(c *Config) { c.Records, c.Answers = usage(), usagePatterns })
	at := time.Unix(1764504000, 0)
	mapping := map[string]string{"dimension": "calls"}
	items := []CallItem{
		{ID: "1", Identifier: "x", Key: KeyOf(usage(), exporter.Item{Customer: "a", Value: "5", Timestamp: at, Mapping: mapping})},
		{ID: "2", Identifier: "y", Key: KeyOf(usage(), exporter.Item{Customer: "b", Value: "7", Timestamp: at, Mapping: mapping})},
	}
	ctx, call := client.Begin(t.Context(), items)
	got, err := client.Send(ctx, []capability.Request{{
		Method: "POST", URL: "https://" + s.host() + "/", Body: []byte(body), Items: []string{"1", "2"}, Secrets: []string{"api_key"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return got[0], call.Exchanges()
}

// A record is what its item says, or the request does not leave (P4).
func TestRecordsMustBeThoseOfTheItems(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ body, reason string }{
		"right":          {`{"Records":[` + recordA + `,` + recordB + `]}`, ""},
		"as text":        {`{"Records":[` + strings.Replace(recordA, `:5`, `:"5.0"`, 1) + `,` + recordB + `]}`, ""},
		"exponent":       {`{"Records":[` + strings.Replace(recordA, `1764504000`, `1.764504E9`, 1) + `,` + recordB + `]}`, ""},
		"other order":    {`{"Records":[` + recordB + `,` + recordA + `]}`, reasonRecordsDiffer},
		"one missing":    {`{"Records":[` + recordA + `]}`, reasonRecordsDiffer},
		"one more":       {`{"Records":[` + recordA + `,` + recordB + `,` + recordB + `]}`, reasonRecordsDiffer},
		"other value":    {`{"Records":[` + strings.Replace(recordA, `:5`, `:50`, 1) + `,` + recordB + `]}`, reasonRecordsDiffer},
		"other customer": {`{"Records":[` + strings.Replace(recordA, `"a"`, `"c"`, 1) + `,` + recordB + `]}`, reasonRecordsDiffer},
		"other hour":     {`{"Records":[` + strings.Replace(recordA, `1764504000`, `1764507600`, 1) + `,` + recordB + `]}`, reasonRecordsDiffer},
		"value twice":    {`{"Records":[` + strings.Replace(recordA, `"Much":5`, `"Much":500,"Much":5`, 1) + `,` + recordB + `]}`, reasonRecordsDiffer},
		"in other case":  {`{"Records":[` + strings.Replace(recordA, `"Much":5`, `"much":500,"Much":5`, 1) + `,` + recordB + `]}`, reasonRecordsDiffer},
		"two lists":      {`{"Records":[` + recordB + `],"Records":[` + recordA + `,` + recordB + `]}`, reasonRecordsDiffer},
		"no list":        {`{"Records":{}}`, reasonRecordsDiffer},
		"no JSON":        {`Records`, reasonRecordsDiffer},
		"a second value": {`{"Records":[` + recordA + `,` + recordB + `]}{}`, reasonRecordsDiffer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, seen := twoRecords(t, tt.body, answerWith(200, "application/json", `{}`))
			if got.Reason != tt.reason || (tt.reason != "") != (seen["1"][0].Class == exporter.ClassNotSent) {
				t.Errorf("%+v %+v", got, seen)
			}
		})
	}
}

// Each record has the verdict of its own list; what is not named once is unknown.
func TestVerdictsOfRecords(t *testing.T) {
	t.Parallel()
	done := func(record, status string) string { return `{"Record":` + record + `,"Status":"` + status + `"}` }
	type class = exporter.HostClass
	for name, tt := range map[string]struct {
		status int
		body   string
		a, b   class
	}{
		"both taken":         {200, `{"Done":[` + done(recordB, "Success") + `,` + done(recordA, "Success") + `],"Left":[]}`, exporter.ClassSuccess, exporter.ClassSuccess},
		"one refused":        {200, `{"Done":[` + done(recordA, "Duplicate") + `,` + done(recordB, "Success") + `]}`, exporter.ClassRefused, exporter.ClassSuccess},
		"one left":           {200, `{"Done":[` + done(recordA, "Success") + `],"Left":[` + recordB + `]}`, exporter.ClassSuccess, exporter.ClassThrottled},
		"one missing":        {200, `{"Done":[` + done(recordA, "Success") + `]}`, exporter.ClassSuccess, exporter.ClassIndefinite},
		"in both lists":      {200, `{"Done":[` + done(recordA, "Success") + `,` + done(recordB, "Success") + `],"Left":[` + recordB + `]}`, exporter.ClassSuccess, exporter.ClassIndefinite},
		"twice":              {200, `{"Done":[` + done(recordA, "Success") + `,` + done(recordA, "Duplicate") + `]}`, exporter.ClassIndefinite, exporter.ClassIndefinite},
		"unknown status":     {200, `{"Done":[` + done(recordA, "Maybe") + `,` + done(recordB, "Success") + `]}`, exporter.ClassIndefinite, exporter.ClassSuccess},
		"another quantity":   {200, `{"Done":[` + done(strings.Replace(recordA, ":5", ":6", 1), "Success") + `]}`, exporter.ClassIndefinite, exporter.ClassIndefinite},
		"nothing":            {200, `{}`, exporter.ClassIndefinite, exporter.ClassIndefinite},
		"refused as a whole": {400, `{"type":"BadCustomer"}`, exporter.ClassThrottled, exporter.ClassThrottled},
		"unknown refusal":    {400, `{"type":"Other"}`, exporter.ClassIndefinite, exporter.ClassIndefinite},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, seen := twoRecords(t, `{"Records":[`+recordA+`,`+recordB+`]}`, answerWith(tt.status, "application/json", tt.body))
			if a, b := seen["1"][0].Class, seen["2"][0].Class; a != tt.a || b != tt.b {
				t.Errorf("%s %s, want %s %s", a, b, tt.a, tt.b)
			}
		})
	}
}

// Patterns of a status alone, of lists and of whole requests, and what none of
// them may say (P4).
func TestPatternsWithoutABody(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		pattern exporter.AnswerPattern
		ok      bool
	}{
		"redirect is mended":       {exporter.AnswerPattern{Class: exporter.AnswerMendable, Status: 308}, true},
		"redirect is not final":    {exporter.AnswerPattern{Class: exporter.AnswerRefused, Status: 308}, false},
		"status alone, not final":  {exporter.AnswerPattern{Class: exporter.AnswerRefused, Status: 422}, false},
		"success is not mended":    {exporter.AnswerPattern{Class: exporter.AnswerMendable, Status: 204}, false},
		"accepted by a whole":      {exporter.AnswerPattern{Class: exporter.AnswerAccepted, Status: 200, Path: "/a", Equals: []string{"b"}}, false},
		"again of a success":       {exporter.AnswerPattern{Class: exporter.AnswerAgain, Status: 200, Path: "/a", Equals: []string{"b"}}, false},
		"again of the destination": {exporter.AnswerPattern{Class: exporter.AnswerAgain, Status: 403, Path: "/a", Equals: []string{"b"}}, false},
		"again of a status":        {exporter.AnswerPattern{Class: exporter.AnswerAgain, Status: 400}, false},
		"again of a request":       {exporter.AnswerPattern{Class: exporter.AnswerAgain, Status: 400, Path: "/a", Equals: []string{"b"}}, true},
		"unknown list":             {exporter.AnswerPattern{Class: exporter.AnswerAccepted, Status: 200, In: "/Nowhere"}, false},
		"duplicate of a list":      {exporter.AnswerPattern{Class: exporter.AnswerDuplicate, Status: 200, In: "/Done", Path: "/a", Contains: "{identifier}"}, false},
	} {
		_, err := New(Config{Hosts: []string{"example.com"}, Records: usage(), Answers: []exporter.AnswerPattern{tt.pattern}})
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := serve(t, answerWith(308, "text/html", "moved"))
	client := newClient(t, s.host(), func(c *Config) { c.Answers = []exporter.AnswerPattern{{Class: exporter.AnswerMendable, Status: 308}} })
	if _, ex := one(t, client, s.host()); ex.Class != exporter.ClassRefused || !ex.Mendable || ex.Code != "status_308" {
		t.Errorf("%+v", ex)
	}
}
