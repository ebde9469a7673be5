package telemetry_test

import (
	"bufio"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/host/telemetry"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) *telemetry.Metrics {
	t.Helper()
	m, err := telemetry.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return m
}

// scope are the labels that the OpenTelemetry exporter adds to every series.
var scope = regexp.MustCompile(`otel_scope_[a-z_]+="[^"]*",?`)

// page reads the Prometheus page: series without the labels of the scope, and
// their values.
func page(t *testing.T, m *telemetry.Metrics) map[string]string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		t.Fatalf("%d %s", w.Code, w.Header())
	}
	out := map[string]string{}
	lines := bufio.NewScanner(w.Body)
	for lines.Scan() {
		line := scope.ReplaceAllString(lines.Text(), "")
		if i := strings.LastIndexByte(line, ' '); i > 0 && !strings.HasPrefix(line, "#") {
			series := strings.ReplaceAll(strings.ReplaceAll(line[:i], ",}", "}"), "{}", "")
			out[series] = line[i+1:]
		}
	}
	return out
}

// The names of formats.md, turned into Prometheus names by the usual rules.
func TestNamesAndValues(t *testing.T) {
	t.Parallel()
	m := open(t)
	m.Recorded("inserted", 3)
	m.Recorded("inserted", 2)
	m.Recorded("conflict", 0)
	m.RecordTook(2 * time.Millisecond)
	m.Delivered("stripe", storage.Accepted, time.Second)
	m.Stale("stripe", 2)
	m.PluginCalled("stripe", "ok", time.Millisecond)
	m.PluginEnded("stripe", "deadline")
	m.SetPlugins(func() []telemetry.PluginSeries {
		return []telemetry.PluginSeries{{Plugin: "stripe", Version: "1.2.3", SHA256: "ab", Isolation: "worker", Parked: true, Instances: 2, MemoryBytes: 4096}}
	})
	m.Requested("stripe", "success")
	m.Lied("stripe", 1)
	m.Paused("stripe", "rate_limit", 1500*time.Millisecond)
	m.SetOutbox([]string{"stripe"}, storage.OutboxStats{
		Counts:        []storage.ItemCount{{Exporter: "stripe", State: storage.Quarantined, Items: 5, Open: 3}, {Exporter: "old", State: storage.Pending, Items: 1, Open: 1}},
		OldestPending: 90 * time.Second,
	})
	got := page(t, m)
	for series, want := range map[string]string{
		`fencepost_record_events_total{outcome="inserted"}`:                                     "5",
		`fencepost_record_duration_seconds_count`:                                               "1",
		`fencepost_record_duration_seconds_sum`:                                                 "0.002",
		`fencepost_outbox_deliver_duration_seconds_count{exporter="stripe",state="accepted"}`:   "1",
		`fencepost_outbox_stale_worker_total{exporter="stripe"}`:                                "2",
		`fencepost_plugin_calls_total{outcome="ok",plugin="stripe"}`:                            "1",
		`fencepost_plugin_duration_seconds_sum{plugin="stripe"}`:                                "0.001",
		`fencepost_plugin_ended_total{plugin="stripe",reason="deadline"}`:                       "1",
		`fencepost_plugin_parked{plugin="stripe"}`:                                              "1",
		`fencepost_plugin_instances{plugin="stripe"}`:                                           "2",
		`fencepost_plugin_memory_bytes{plugin="stripe"}`:                                        "4096",
		`fencepost_plugin_info{isolation="worker",plugin="stripe",sha256="ab",version="1.2.3"}`: "1",
		`fencepost_egress_requests_total{class="success",plugin="stripe"}`:                      "1",
		`fencepost_plugin_lied_total{plugin="stripe"}`:                                          "1",
		`fencepost_outbox_paused_seconds_total{exporter="stripe",reason="rate_limit"}`:          "1.5",
		`fencepost_outbox_oldest_pending_age_seconds`:                                           "90",
		`fencepost_outbox_items{exporter="stripe",open="true",state="quarantined"}`:             "3",
		`fencepost_outbox_items{exporter="stripe",open="false",state="quarantined"}`:            "2",
		`fencepost_outbox_items{exporter="old",open="true",state="pending"}`:                    "1",
		// A state without items is a zero, else an alert on it never resolves.
		`fencepost_outbox_items{exporter="stripe",open="true",state="uncertain"}`: "0",
		`fencepost_outbox_items{exporter="stripe",open="true",state="pending"}`:   "0",
	} {
		if got[series] != want {
			t.Errorf("%s is %q, want %q", series, got[series], want)
		}
	}
	for series := range got {
		if strings.HasPrefix(series, "fencepost_") && strings.Contains(series, "tenant") {
			t.Errorf("%s has a tenant", series) // formats.md: never as a label
		}
		if strings.Contains(series, `outcome="conflict"`) {
			t.Errorf("%s was made by nothing", series)
		}
	}
	if got["go_goroutines"] == "" {
		t.Error("no metrics of the process")
	}
	// What is set replaces what was set.
	m.SetOutbox([]string{"stripe"}, storage.OutboxStats{})
	if got := page(t, m); got[`fencepost_outbox_items{exporter="stripe",open="true",state="quarantined"}`] != "0" || got[`fencepost_outbox_items{exporter="old",open="true",state="pending"}`] != "" {
		t.Error("counts of before are still shown")
	}
}

// Two hosts in one process share nothing, and no metrics are no panic.
func TestInstances(t *testing.T) {
	t.Parallel()
	a, b := open(t), open(t)
	a.Recorded("inserted", 1)
	if got := page(t, b)[`fencepost_record_events_total{outcome="inserted"}`]; got != "" {
		t.Errorf("the other host counts %s", got)
	}
	var none *telemetry.Metrics
	none.Recorded("inserted", 1)
	none.RecordTook(1)
	none.Delivered("a", storage.Accepted, 1)
	none.Stale("a", 1)
	none.PluginCalled("a", "b", 1)
	none.PluginEnded("a", "b")
	none.SetPlugins(nil)
	none.Requested("a", "b")
	none.Lied("a", 1)
	none.Paused("a", "b", 1)
	none.SetOutbox(nil, storage.OutboxStats{})
}
