package stripe_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/exporters/stripe"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

func ask(customer, eventName string) exporter.ProbeQuestion {
	return exporter.ProbeQuestion{
		Customer: customer, Feature: "tokens", Mapping: map[string]string{"event_name": eventName},
		From: time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC), To: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC),
	}
}

func probe(t testing.TB, e exporter.Exporter, questions ...exporter.ProbeQuestion) []exporter.ProbeAnswer {
	t.Helper()
	prober, ok := e.(exporter.Prober)
	if !ok {
		t.Fatal("no prober")
	}
	answers, err := prober.Probe(context.Background(), exporter.Probe{Questions: questions})
	if err != nil {
		t.Fatal(err)
	}
	if len(answers) != len(questions) {
		t.Fatalf("%d answers to %d questions", len(answers), len(questions))
	}
	return answers
}

const meterList = `{"object":"list","has_more":false,"data":[` +
	`{"id":"mtr_old","event_name":"llm_tokens","status":"inactive","livemode":false},` +
	`{"id":"mtr_1","event_name":"llm_tokens","status":"active","livemode":false},` +
	`{"id":"mtr_2","event_name":"gone","status":"inactive","livemode":false}]}`

func oneSummary(meter, value string) string {
	return `{"object":"list","has_more":false,"data":[{"id":"mtrusg_1","aggregated_value":` + value +
		`,"start_time":1795996800,"end_time":1796083200,"meter":"` + meter + `","livemode":false}]}`
}

// routed answers the meters, and summaries by customer.
func routed(summaries map[string]string) func(capability.Request) capability.Response {
	return func(r capability.Request) capability.Response {
		u, _ := url.Parse(r.URL)
		if u.Path == "/v1/billing/meters" {
			return capability.Response{Status: 200, Body: []byte(meterList)}
		}
		return capability.Response{Status: 200, Body: []byte(summaries[u.Query().Get("customer")+u.Query().Get("starting_after")])}
	}
}

// O25: the meters are listed once for an instance, summaries asked in one batch.
func TestProbe(t *testing.T) {
	t.Parallel()
	h := &host{answer: routed(map[string]string{
		"cus_1": oneSummary("mtr_1", "12.5"), "cus_2": `{"data":[],"has_more":false}`, "cus_3": oneSummary("mtr_2", "1e3"),
	})}
	e := open(t, h, testMode())
	unaligned := ask("cus_1", "llm_tokens")
	unaligned.To = unaligned.To.Add(time.Second)
	got := probe(t, e, ask("cus_1", "llm_tokens"), ask("cus_2", "llm_tokens"), ask("cus_3", "gone"), ask("cus_1", "never"), ask("", "llm_tokens"), unaligned, ask("cus_1", ""))
	for i := range got {
		got[i].Message = ""
	}
	want := []exporter.ProbeAnswer{
		{Sum: new("12.5"), Meter: "mtr_1"},
		{Sum: new("0"), Meter: "mtr_1"},
		{Sum: new("1000"), Meter: "mtr_2"},
		{Code: stripe.CodeMeterUnknown},
		{Code: stripe.CodeCustomerMissing},
		{Code: stripe.CodeWindowUnaligned},
		{Code: stripe.CodeMappingIncomplete},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if len(h.batches) != 2 || len(h.batches[1]) != 3 {
		t.Fatalf("%d batches", len(h.batches))
	}
	r := h.batches[1][0]
	if r.Method != http.MethodGet || r.URL != "https://api.stripe.com/v1/billing/meters/mtr_1/event_summaries?customer=cus_1&end_time=1796083200&limit=100&start_time=1795996800" ||
		len(r.Items) != 0 || cmp.Diff([]string{"api_key"}, r.Secrets) != "" {
		t.Errorf("request %+v", r)
	}
	if probe(t, e, ask("cus_1", "llm_tokens")); len(h.batches) != 3 {
		t.Error("the meters were listed again")
	}
}

// Lists go on where has_more says so, and never for ever.
func TestProbePages(t *testing.T) {
	t.Parallel()
	first := strings.Replace(oneSummary("mtr_1", "0.1"), `"has_more":false`, `"has_more":true`, 1)
	second := strings.Replace(oneSummary("mtr_1", "0.2"), "mtrusg_1", "mtrusg_2", 1)
	h := &host{answer: routed(map[string]string{"cus_1": first, "cus_1mtrusg_1": second, "cus_2": first, "cus_2mtrusg_1": first})}
	got := probe(t, open(t, h, testMode()), ask("cus_1", "llm_tokens"), ask("cus_2", "llm_tokens"))
	if got[0].Sum == nil || *got[0].Sum != "0.3" || got[1].Sum != nil || got[1].Code != stripe.CodeTooManyPages || len(h.batches) > 60 {
		t.Errorf("%+v after %d batches", got, len(h.batches))
	}
	page := 0
	h = &host{answer: func(r capability.Request) capability.Response {
		if strings.Contains(r.URL, "event_summaries") {
			return capability.Response{Status: 200, Body: []byte(oneSummary("mtr_9", "4"))}
		}
		page++
		body := fmt.Sprintf(`{"has_more":%v,"data":[{"id":"mtr_%d","event_name":"m%d","status":"active"}]}`, page < 9, page, page)
		return capability.Response{Status: 200, Body: []byte(body)}
	}}
	if got := probe(t, open(t, h, testMode()), ask("cus_1", "m9")); got[0].Sum == nil || *got[0].Sum != "4" || page != 9 {
		t.Errorf("%+v after %d pages", got, page)
	}
}

// What is no sum is an answer without one, and says why (P4).
func TestProbeAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(capability.Request) capability.Response
		code   string
	}{
		"401":             {answer(401, refusal("", "Invalid API Key provided: sk_test_****1234")), stripe.CodeUnauthorized},
		"404":             {answer(404, refusal("resource_missing", "No such billing meter")), "resource_missing"},
		"429":             {answer(429, ""), stripe.CodeRateLimited},
		"500":             {answer(500, ""), "http_500"},
		"HTML":            {answer(200, "<html>"), stripe.CodeUnreadableAnswer},
		"no list":         {answer(200, "{}"), stripe.CodeUnreadableAnswer},
		"endless":         {answer(200, `{"data":[],"has_more":true}`), stripe.CodeUnreadableAnswer},
		"lost":            {failure(capability.FailureUnknown, "reset"), stripe.CodeNoAnswer},
		"not sent":        {failure(capability.FailureNotSent, "deadline"), stripe.CodeNotSent},
		"another meter":   {answer(200, oneSummary("mtr_9", "1")), stripe.CodeForeignAnswer},
		"another time":    {answer(200, strings.Replace(oneSummary("mtr_1", "1"), "1795996800", "1795996799", 1)), stripe.CodeForeignAnswer},
		"the other mode":  {answer(200, strings.Replace(oneSummary("mtr_1", "1"), "false}", "true}", 1)), stripe.CodeModeMismatch},
		"no number":       {answer(200, oneSummary("mtr_1", "null")), stripe.CodeUnreadableAnswer},
		"a text":          {answer(200, oneSummary("mtr_1", `"x"`)), stripe.CodeUnreadableAnswer},
		"a great number":  {answer(200, oneSummary("mtr_1", "1e300")), stripe.CodeUnreadableAnswer},
		"a list of lists": {answer(200, `{"data":[[]],"has_more":false}`), stripe.CodeUnreadableAnswer},
	} {
		h := &host{answer: func(r capability.Request) capability.Response {
			if strings.HasSuffix(r.URL, "/v1/billing/meters?limit=100") {
				return capability.Response{Status: 200, Body: []byte(meterList)}
			}
			return c.answer(r)
		}}
		if got := probe(t, open(t, h, testMode()), ask("cus_1", "llm_tokens"))[0]; got.Sum != nil || got.Code != c.code {
			t.Errorf("%s: %+v, want %s", name, got, c.code)
		}
		h = &host{answer: c.answer}
		if got := probe(t, open(t, h, testMode()), ask("cus_1", "unlisted"))[0]; got.Sum != nil || got.Code == "" || strings.Contains(got.Message, "sk_test") {
			t.Errorf("%s of the meters: %+v", name, got)
		}
	}
	h := &host{err: errors.New("refused")}
	if got := probe(t, open(t, h, testMode()), ask("cus_1", "x"))[0]; got.Code != stripe.CodeNotSent {
		t.Errorf("refused: %+v", got)
	}
}

// A sum is exact where a double is, and rounded to the 15 digits that a double
// holds where it is not.
func TestProbeNumbers(t *testing.T) {
	t.Parallel()
	for number, want := range map[string]string{
		"0": "0", "-0": "0", "25": "25", "12.50": "12.5", "-3.25": "-3.25", "0.000000000001": "0.000000000001",
		"0.30000000000000004": "0.3", "1e-7": "0.0000001", "1.5E+3": "1500", "9007199254740991": "9007199254740991",
		"9007199254740993": "9007199254740990", "1234567890123456.7": "1234567890123460", "99999999999999.99": "100000000000000",
		"1e21": "1000000000000000000000", "2.675": "2.675", "1234567.8999999999": "1234567.9",
	} {
		h := &host{answer: routed(map[string]string{"cus_1": oneSummary("mtr_1", number)})}
		if got := probe(t, open(t, h, testMode()), ask("cus_1", "llm_tokens"))[0]; got.Sum == nil || *got.Sum != want {
			t.Errorf("%s: %+v, want %s", number, got, want)
		}
	}
}

// FuzzProbe feeds arbitrary summaries: no panic, and a sum only of numbers.
func FuzzProbe(f *testing.F) {
	f.Add([]byte(oneSummary("mtr_1", "12.5")))
	f.Add([]byte(`{"data":[],"has_more":false}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		h := &host{answer: routed(map[string]string{"cus_1": string(body)})}
		got := probe(t, open(t, h, testMode()), ask("cus_1", "llm_tokens"))[0]
		if (got.Sum == nil) == (got.Code == "") {
			t.Fatalf("%q: %+v", body, got)
		}
	})
}
