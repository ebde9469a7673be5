package stripedouble_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/internal/stripedouble"
)

// cancel posts an adjustment.
func (r *rig) cancel(identifier string, changes ...string) reply {
	r.t.Helper()
	form := url.Values{"event_name": {"llm_tokens"}, "type": {"cancel"}, "cancel[identifier]": {identifier}}
	for i := 0; i < len(changes); i += 2 {
		form.Set(changes[i], changes[i+1])
	}
	req := r.request(form)
	req.URL.Path = "/v1/billing/meter_event_adjustments"
	return r.do(req)
}

// get reads with the API key.
func (r *rig) get(path string) reply {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.URL()+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+testKey)
	return r.do(req)
}

// Q19, point 6: a cancel takes the value out of the net total, once.
func TestCancel(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.mustPost(200, event("id_1"))
	r.mustPost(200, event("id_2", "payload[value]", "7"))
	got := r.cancel("id_1")
	want := `{"object":"billing.meter_event_adjustment","cancel":{"identifier":"id_1"},"event_name":"llm_tokens","livemode":false,"status":"pending","type":"cancel"}`
	if got.status != 200 || string(got.body) != want {
		t.Errorf("cancel: %d %s", got.status, got.body)
	}
	// Assumed, see doc.go: what each other cancellation is answered.
	for name, c := range map[string]struct {
		reply   reply
		message string
	}{
		"repeated":        {r.cancel("id_1"), "The meter event with identifier id_1 has already been canceled."},
		"unknown":         {r.cancel("id_9"), "No such meter event: 'id_9'"},
		"of another name": {r.cancel("id_2", "event_name", "other"), "No such meter event: 'id_2'"},
		"no type":         {r.cancel("id_2", "type", ""), "Missing required param: type."},
		"other type":      {r.cancel("id_2", "type", "range"), "Invalid type: must be one of cancel"},
		"unknown param":   {r.cancel("id_2", "value", "1"), "Received unknown parameter: value"},
	} {
		if e := c.reply.error(t); c.reply.status != 400 || e.Message != c.message {
			t.Errorf("%s: %d %+v", name, c.reply.status, e)
		}
	}
	l := r.Ledger()
	if l.Cancelled != 1 || l.ChargesTotal["llm_tokens"] != "32" || l.NetTotal["llm_tokens"] != "7" || l.Charges != 2 || l.Adjustments != 7 || l.Requests != 2 {
		t.Errorf("ledger %+v", l)
	}
	if e, _ := r.Entry("", false, "id_1"); !e.CancelledAt.Equal(epoch) {
		t.Errorf("entry %+v", e)
	}
}

// Q19: by the double's clock, and only within a day of receipt.
func TestLateCancel(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.mustPost(200, event("id_1"))
	r.mustPost(200, event("id_2"))
	if err := r.Advance(24*time.Hour - time.Microsecond); err != nil {
		t.Fatal(err)
	}
	if got := r.cancel("id_1"); got.status != 200 {
		t.Errorf("in time: %d %s", got.status, got.body)
	}
	if err := r.Advance(time.Microsecond); err != nil {
		t.Fatal(err)
	}
	if e := r.cancel("id_2").error(t); !strings.Contains(e.Message, "within 24 hours") {
		t.Errorf("late: %+v", e)
	}
}

// F31 for a cancellation: the effect is there, the answer is not. The choice of
// what a repetition is answered is the test's.
func TestLostCancel(t *testing.T) {
	t.Parallel()
	for choice, status := range map[stripedouble.RepeatedCancel]int{stripedouble.RepeatedCancelTaken: 200, stripedouble.RepeatedCancelRefused: 400} {
		r := start(t, func(c *stripedouble.Config) {
			c.RepeatedCancel, c.Faults = choice, faults(t, "after:reset(times=1)@id=cancel:")
		})
		r.mustPost(200, event("id_1"))
		if got := r.cancel("id_1"); got.err == nil {
			t.Errorf("answered %d", got.status)
		}
		if got := r.cancel("id_1"); got.status != status {
			t.Errorf("%q: repeated %d %s", choice, got.status, got.body)
		}
		if l := r.Ledger(); l.Cancelled != 1 || l.NetTotal["llm_tokens"] != "0" {
			t.Errorf("ledger %+v", l)
		}
	}
}

type summary struct {
	Value json.Number `json:"aggregated_value"`
	Start int64       `json:"start_time"`
	End   int64       `json:"end_time"`
}

func (r *rig) summaries(query string) []summary {
	r.t.Helper()
	var meters struct {
		Data []struct {
			ID        string
			EventName string `json:"event_name"`
		}
	}
	got := r.get("/v1/billing/meters?limit=100")
	if err := json.Unmarshal(got.body, &meters); err != nil {
		r.t.Fatalf("meters: %d %s", got.status, got.body)
	}
	for _, m := range meters.Data {
		if m.EventName != "llm_tokens" {
			continue
		}
		got := r.get("/v1/billing/meters/" + m.ID + "/event_summaries?" + query)
		var list struct{ Data []summary }
		if err := json.Unmarshal(got.body, &list); err != nil || got.status != 200 {
			r.t.Fatalf("summaries: %d %s", got.status, got.body)
		}
		return list.Data
	}
	r.t.Fatal("no meter")
	return nil
}

// O25, F35: sums by customer and stretch, that lag and omit.
func TestSummaries(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *stripedouble.Config) {
		c.SummaryLag, c.Faults = 10*time.Minute, faults(t, "late:omit@id=omitted")
	})
	r.mustPost(200, event("id_1", "payload[value]", "0.1"))
	r.mustPost(200, event("id_2", "payload[value]", "0.2"))
	r.mustPost(200, event("id_3", "payload[value]", "4", "timestamp", "1796036400")) // an hour before
	r.mustPost(200, event("id_4", "payload[value]", "9", "payload[stripe_customer_id]", "cus_2"))
	r.mustPost(200, event("id_5", "payload[value]", "11", "event_name", "other"))
	r.mustPost(200, event("omitted", "payload[value]", "100"))
	const day = "customer=cus_1&start_time=1795996800&end_time=1796083200"
	if got := r.summaries(day); len(got) != 0 {
		t.Errorf("before the lag: %+v", got)
	}
	if err := r.Advance(10 * time.Minute); err != nil {
		t.Fatal(err)
	}
	want := []summary{{"4.3", 1795996800, 1796083200}}
	if d := cmp.Diff(want, r.summaries(day)); d != "" {
		t.Error(d)
	}
	hours := []summary{{"0.3", 1796040000, 1796043600}, {"4", 1796036400, 1796040000}}
	if d := cmp.Diff(hours, r.summaries(day+"&value_grouping_window=hour")); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(hours[:1], r.summaries(day+"&value_grouping_window=hour&limit=1")); d != "" {
		t.Error(d)
	}
	if got := r.summaries("customer=cus_1&start_time=1796040000&end_time=1796040060"); len(got) != 1 || got[0].Value != "0.3" {
		t.Errorf("half-open: %+v", got)
	}
	r.cancel("id_3")
	if err := r.Advance(10 * time.Minute); err != nil {
		t.Fatal(err)
	}
	if got := r.summaries(day); got[0].Value != "0.3" {
		t.Errorf("after a cancel: %+v", got)
	}
	for query, part := range map[string]string{
		"customer=cus_1&start_time=1796040001&end_time=1796083200":                            "align",
		"customer=cus_1&start_time=1796040060&end_time=1796083200&value_grouping_window=hour": "align",
		"customer=cus_1&start_time=1796040000&end_time=1796040000":                            "after the start",
		"start_time=1796040000&end_time=1796083200":                                           "customer",
		"customer=cus_1&end_time=1796083200":                                                  "start_time",
		"customer=cus_1&start_time=0&end_time=x":                                              "nteger",
	} {
		m := r.get("/v1/billing/meters?status=active")
		id := string(m.body[strings.Index(string(m.body), "mtr_"):][:28])
		if got := r.get("/v1/billing/meters/" + id + "/event_summaries?" + query); got.status != 400 || !strings.Contains(string(got.body), part) {
			t.Errorf("%s: %d %s", query, got.status, got.body)
		}
	}
	if got := r.get("/v1/billing/meters/mtr_none/event_summaries?" + day); got.status != 404 {
		t.Errorf("no such meter: %d %s", got.status, got.body)
	}
}

// Lists are cut into pages.
func TestMeterPages(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *stripedouble.Config) {
		c.Meters = map[string]stripedouble.MeterStatus{"a": stripedouble.MeterActive, "b": stripedouble.MeterArchived, "c": stripedouble.MeterActive}
	})
	var seen []string
	after := ""
	for {
		var page struct {
			Data []struct {
				ID, Status string
				EventName  string `json:"event_name"`
			}
			HasMore bool `json:"has_more"`
		}
		got := r.get("/v1/billing/meters?limit=1" + after)
		if err := json.Unmarshal(got.body, &page); err != nil || len(page.Data) != 1 {
			t.Fatalf("%d %s", got.status, got.body)
		}
		seen = append(seen, page.Data[0].EventName+" "+page.Data[0].Status)
		if !page.HasMore {
			break
		}
		after = "&starting_after=" + page.Data[0].ID
	}
	if d := cmp.Diff([]string{"a active", "b inactive", "c active"}, seen); d != "" {
		t.Error(d)
	}
}

type reportBody struct {
	ID   string
	Type string
	Data *struct {
		Reason struct {
			ErrorCount int `json:"error_count"`
			ErrorTypes []struct {
				Code    string
				Samples []struct{ Request struct{ Identifier string } } `json:"sample_errors"`
			} `json:"error_types"`
		}
	}
}

func decodeReport(t *testing.T, b []byte) reportBody {
	t.Helper()
	var out reportBody
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// O12, F35, point 5: 200 now, not counted later, and the report names some of
// the victims. All of it survives a restart.
func TestLateRejection(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *stripedouble.Config) {
		c.Samples = 1
		c.Faults = faults(t, "late:reject(delay=1h)@id=bad; late:reject(code=no_meter,delay=1h)@id=lost; late:reject(code=duplicate_meter_event,delay=1h)@id=dup")
	})
	for _, id := range []string{"good", "bad_1", "bad_2", "lost", "dup_1"} {
		r.mustPost(200, event(id, "payload[value]", "1"))
	}
	if l := r.Ledger(); l.Charges != 5 || l.Rejected != 0 || len(r.Reports()) != 0 {
		t.Errorf("before: %+v", l)
	}
	if err := r.Advance(time.Hour); err != nil {
		t.Fatal(err)
	}
	reports := r.Reports()
	if len(reports) != 2 {
		t.Fatalf("reports %+v", reports)
	}
	thin := decodeReport(t, reports[0].Body)
	if thin.Data != nil || thin.Type != "v1.billing.meter.error_report_triggered" || decodeReport(t, reports[1].Body).Type != "v1.billing.meter.no_meter_found" {
		t.Errorf("thin: %s", reports[0].Body)
	}
	full := decodeReport(t, r.get("/v2/core/events/"+thin.ID).body)
	if full.Data == nil || full.Data.Reason.ErrorCount != 3 || len(full.Data.Reason.ErrorTypes) != 2 {
		t.Fatalf("full: %+v", full)
	}
	types := full.Data.Reason.ErrorTypes
	if types[0].Code != "duplicate_meter_event" || types[1].Code != "meter_event_customer_not_found" || len(types[1].Samples) != 1 || types[1].Samples[0].Request.Identifier != "bad_1" {
		t.Errorf("types: %+v", types)
	}
	if got := r.get("/v2/core/events/evt_none"); got.status != 404 {
		t.Errorf("unknown event: %d", got.status)
	}
	before := r.Ledger()
	if before.Charges != 2 || before.Rejected != 3 || before.ChargesTotal["llm_tokens"] != "2" || before.NetTotal["llm_tokens"] != "2" {
		t.Errorf("after: %+v", before)
	}
	if e, _ := r.Entry("", false, "bad_1"); e.Charges != 0 || e.Rejected != "meter_event_customer_not_found" || !e.RejectedAt.Equal(epoch.Add(time.Hour)) {
		t.Errorf("entry %+v", e)
	}
	if e, _ := r.Entry("", false, "dup_1"); e.Charges != 1 || e.Rejected != "" {
		t.Errorf("a report of a repetition took a charge back: %+v", e)
	}
	r.mustPost(400, event("bad_1")) // still known
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	again := start(t, in(r.dir), func(c *stripedouble.Config) { c.Samples = 1 })
	after := again.Ledger()
	if after.Charges != 2 || after.Rejected != 3 || len(again.Reports()) != 2 {
		t.Errorf("restarted: %+v", after)
	}
}

// What is reported arrives signed, again until it is taken, and then no more.
func TestReportsAreDelivered(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got []string
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		mu.Lock()
		defer mu.Unlock()
		if q.Header.Get("Stripe-Signature") != stripedouble.Sign("whsec_1", epoch, body) {
			t.Error("signature")
		}
		if got = append(got, string(body)); len(got) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer hook.Close()
	r := start(t, func(c *stripedouble.Config) { c.FullReports = true })
	r.mustPost(200, event("id_1"))
	if got := r.control("/__reject", `{"code":"no_meter","identifiers":["id_2"]}`); got.status != 400 {
		t.Errorf("reject of nothing: %d", got.status)
	}
	if got := r.control("/__reject", `{"code":"archived_meter","identifiers":["id_1"]}`); got.status != 200 {
		t.Fatalf("reject: %d %s", got.status, got.body)
	}
	if got := r.control("/__webhook", `{"url":"`+hook.URL+`","secret":"whsec_1"}`); got.status != 200 {
		t.Fatalf("webhook: %d %s", got.status, got.body)
	}
	await(t, "delivery", func() bool { all := r.Reports(); return len(all) == 1 && all[0].Delivered })
	mu.Lock()
	defer mu.Unlock()
	if len(got) != 2 || got[0] != got[1] || decodeReport(t, []byte(got[1])).Data == nil {
		t.Errorf("delivered %q", got)
	}
}

// O12, point 5: what is refused later is chosen by customer or by meter, whole
// names and nothing else.
func TestLateRejectionByCustomerAndMeter(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *stripedouble.Config) {
		c.Faults = faults(t, "late:reject(code=no_meter)@customer=cus_2; late:reject@meter=llm_images; late:omit@meter=llm_calls")
	})
	for id, changes := range map[string][]string{
		"other": nil, "longer": {"payload[stripe_customer_id]", "cus_22"}, "customer": {"payload[stripe_customer_id]", "cus_2"},
		"meter": {"event_name", "llm_images"}, "omitted": {"event_name", "llm_calls"},
	} {
		r.mustPost(200, event(id, changes...))
	}
	reports := len(r.Reports()) // and what is due is taken back
	got := map[string]string{}
	for _, e := range r.Entries() {
		if e.Rejected != "" || e.Omitted {
			got[e.Identifier] = e.Rejected
		}
	}
	if d := cmp.Diff(map[string]string{"customer": "no_meter", "meter": "meter_event_customer_not_found", "omitted": ""}, got); d != "" || reports != 2 {
		t.Errorf("%d reports, %s", reports, d)
	}
}
