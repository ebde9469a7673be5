package telemetry_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/fencepost/fencepost/host/telemetry"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const alertsFile = "../../docs/alerts.yaml"

// O29: each rule of the shipped file fires from what a host serves when its
// condition holds, only it does, and none fires on a healthy host. Prometheus'
// own program evaluates them.
func TestEachAlertFires(t *testing.T) {
	t.Parallel()
	promtool := os.Getenv("FENCEPOST_TEST_PROMTOOL")
	if promtool == "" {
		if os.Getenv("FENCEPOST_TEST_STRICT") == "1" {
			t.Fatal("FENCEPOST_TEST_PROMTOOL is not set")
		}
		t.Skip("set FENCEPOST_TEST_PROMTOOL to the path of promtool")
	}
	open := func(state storage.ItemState) func(*telemetry.Metrics, *storage.OutboxStats) {
		return func(_ *telemetry.Metrics, s *storage.OutboxStats) {
			s.Counts = append(s.Counts, storage.ItemCount{Exporter: "stripe", State: state, Items: 3, Open: 1})
		}
	}
	// growing counts: at each of the minutes of the test once more.
	conditions := map[string]func(*telemetry.Metrics, *storage.OutboxStats){
		"FencepostItemsUncertain":        open(storage.Uncertain),
		"FencepostItemsRejected":         open(storage.Rejected),
		"FencepostItemsQuarantined":      open(storage.Quarantined),
		"FencepostPendingGrowsOld":       func(_ *telemetry.Metrics, s *storage.OutboxStats) { s.OldestPending = 1000e9 },
		"FencepostItemsDisputed":         func(_ *telemetry.Metrics, s *storage.OutboxStats) { s.Disputed = 2 },
		"FencepostItemsUnconfirmed":      func(m *telemetry.Metrics, _ *storage.OutboxStats) { m.Reconciled("stripe", 0, 4) },
		"FencepostReconciliationDiffers": func(m *telemetry.Metrics, _ *storage.OutboxStats) { m.Reconciled("stripe", 2, 0) },
		"FencepostDegraded": func(m *telemetry.Metrics, _ *storage.OutboxStats) {
			m.SetDegraded([]string{"restore_pending"}, func() []string { return []string{"restore_pending"} })
		},
		"FencepostStaleWorkers": func(m *telemetry.Metrics, _ *storage.OutboxStats) { m.Stale("stripe", 1) },
		"FencepostPluginParked": func(m *telemetry.Metrics, _ *storage.OutboxStats) {
			m.SetPlugins(func() []telemetry.PluginSeries { return []telemetry.PluginSeries{{Plugin: "stripe", Parked: true}} })
		},
		"FencepostPluginLies": func(m *telemetry.Metrics, _ *storage.OutboxStats) { m.Lied("stripe", 1) },
	}
	for _, name := range append(alertNames(t), "") {
		condition := conditions[name]
		if name != "" && condition == nil {
			t.Errorf("%s: no condition in this test", name)
			continue
		}
		delete(conditions, name)
		t.Run("fires "+name, func(t *testing.T) {
			t.Parallel()
			fire(t, promtool, name, condition)
		})
	}
	for name := range conditions {
		if name != "" {
			t.Errorf("%s is not in %s", name, alertsFile)
		}
	}
}

func alertNames(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert string `yaml:"alert"`
			} `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			names = append(names, r.Alert)
		}
	}
	return names
}

// fire holds a condition for two hours and asks for every rule at their end.
func fire(t *testing.T, promtool, name string, condition func(*telemetry.Metrics, *storage.OutboxStats)) {
	t.Helper()
	m, err := telemetry.New()
	if err != nil {
		t.Fatal(err)
	}
	healthy := storage.OutboxStats{Counts: []storage.ItemCount{{Exporter: "stripe", State: storage.Accepted, Items: 9}}, OldestPending: 5e9}
	m.Reconciled("stripe", 0, 0)
	m.SetDegraded([]string{"restore_pending"}, func() []string { return nil })
	m.SetPlugins(func() []telemetry.PluginSeries { return []telemetry.PluginSeries{{Plugin: "stripe", Instances: 1}} })
	if condition != nil {
		condition(m, &healthy)
	}
	m.SetOutbox([]string{"stripe"}, healthy)
	var test strings.Builder
	rules, err := filepath.Abs(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&test, "rule_files: [%q]\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:\n", rules)
	for _, s := range samples(t, m) {
		values := s.value + "x120"
		if strings.Contains(s.series, "_total{") {
			values = "0+" + s.value + "x120" // a counter that goes on counting
		}
		fmt.Fprintf(&test, "  - series: '%s'\n    values: '%s'\n", s.series, values)
	}
	test.WriteString("  promql_expr_test:\n")
	want := "[]"
	if name != "" {
		want = "[{labels: 'fired', value: 1}]"
	}
	// Which of the rules fires, whatever its labels, and that no other does.
	fmt.Fprintf(&test, "  - {expr: 'group(ALERTS{alertstate=\"firing\", alertname=\"%s\"})', eval_time: 2h, exp_samples: %s}\n", name,
		strings.Replace(want, "'fired'", "'{}'", 1))
	fmt.Fprintf(&test, "  - {expr: 'ALERTS{alertstate=\"firing\", alertname!=\"%s\"}', eval_time: 2h, exp_samples: []}\n", name)
	file := filepath.Join(t.TempDir(), "test.yaml")
	if err := os.WriteFile(file, []byte(test.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, out, test.String())
	}
}

type sample struct{ series, value string }

// samples are the series of this project on a page, as Prometheus reads them.
func samples(t *testing.T, m *telemetry.Metrics) []sample {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	var list []sample
	for line := range strings.Lines(w.Body.String()) {
		if at := strings.LastIndexByte(line, ' '); strings.HasPrefix(line, "fencepost_") && at > 0 {
			list = append(list, sample{series: line[:at], value: strings.TrimSpace(line[at+1:])})
		}
	}
	if len(list) == 0 {
		t.Fatal("no samples")
	}
	return list
}
