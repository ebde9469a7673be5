package host_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/plugins/exporters/awsmarketplace"
	"github.com/fencepost/fencepost/plugins/exporters/awsmarketplace/awsmarketplacetest"
	"github.com/fencepost/fencepost/plugins/exporters/cloudevents"
	"github.com/fencepost/fencepost/plugins/exporters/cloudevents/cloudeventstest"
	"github.com/fencepost/fencepost/plugins/exporters/ndjson"
	"github.com/fencepost/fencepost/plugins/exporters/ndjson/ndjsontest"
	"github.com/fencepost/fencepost/plugins/exporters/stripe/stripetest"
	"github.com/fencepost/fencepost/plugins/exporters/webhook"
	"github.com/fencepost/fencepost/plugins/exporters/webhook/webhooktest"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest/conformance"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// built compiles the main package of an exporter, as a module or as a program.
func built(folder string, module bool) ([]byte, error) {
	dir, err := os.MkdirTemp("", "fencepost-built-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := filepath.Join(dir, folder)
	cmd := exec.Command("go", "build", "-o", out)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if module {
		cmd.Args = append(cmd.Args, "-buildmode=c-shared", "-ldflags", "-s -w")
		cmd.Env = append(cmd.Env, "GOOS=wasip1", "GOARCH=wasm")
	}
	cmd.Args = append(cmd.Args, "../plugins/exporters/"+folder+"/plugin")
	if b, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %s: %w: %s", folder, err, b)
	}
	return os.ReadFile(out)
}

// subjectOf is an exporter that is compiled when a carrier wants it.
func subjectOf(name, folder string, build exporter.New, grants ...capability.Name) subject {
	module := sync.OnceValues(func() ([]byte, error) { return built(folder, true) })
	return subject{
		name: name, build: build, grants: grants,
		module: func(tb testing.TB) []byte {
			tb.Helper()
			b, err := module()
			if err != nil {
				tb.Fatal(err)
			}
			return b
		},
		program: sync.OnceValues(func() ([]byte, error) { return built(folder, false) }),
	}
}

// matrix is what became of the suite, for each exporter and carrier.
type matrix struct {
	mu    sync.Mutex
	cells map[[2]string]map[conformance.Status]int
}

func (m *matrix) note(exporter, carrier string, s conformance.Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	cell := [2]string{exporter, carrier}
	if m.cells[cell] == nil {
		m.cells[cell] = map[conformance.Status]int{}
	}
	m.cells[cell][s]++
}

// text is a table: passed+skipped, and what failed.
func (m *matrix) text(exporters, carriers []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-16s", "exporter suite")
	for _, c := range carriers {
		fmt.Fprintf(&b, " %-22s", c)
	}
	for _, e := range exporters {
		fmt.Fprintf(&b, "\n%-16s", e)
		for _, c := range carriers {
			n := m.cells[[2]string{e, c}]
			cell := "not run"
			if n != nil {
				cell = fmt.Sprintf("%d passed, %d skipped", n[conformance.Passed], n[conformance.Skipped])
			}
			if n[conformance.Failed] > 0 {
				cell = fmt.Sprintf("%d FAILED", n[conformance.Failed])
			}
			fmt.Fprintf(&b, " %-22s", cell)
		}
	}
	return b.String() + "\n"
}

// Issue 5, point 1: every exporter passes the same suite on each carrier. The
// file that FENCEPOST_TEST_MATRIX names gets the table.
func TestCarriersConform(t *testing.T) { //nolint:tparallel // the table is written after the cells, which are parallel
	t.Parallel()
	if testing.Short() {
		t.Skip("builds programs")
	}
	providers := map[string]conformance.Provider{
		"stripe": stripetest.Provider(), "webhook": webhooktest.Provider(), "cloudevents": cloudeventstest.Provider(),
		"ndjson": ndjsontest.Provider(), "aws-marketplace": awsmarketplacetest.Provider(),
	}
	subjects := []subject{
		stripeSubject,
		subjectOf("webhook", "webhook", webhook.New, capability.HTTPName),
		subjectOf("cloudevents", "cloudevents", cloudevents.New, capability.HTTPName),
		subjectOf("ndjson", "ndjson", ndjson.New, capability.AppendName),
		subjectOf("aws-marketplace", "awsmarketplace", awsmarketplace.New, capability.HTTPName),
	}
	carriers := []string{"linked", "inproc", "worker", "process"}
	results := &matrix{cells: map[[2]string]map[conformance.Status]int{}}
	var names []string
	t.Run("suite", func(t *testing.T) {
		for _, s := range subjects {
			names = append(names, s.name)
			for _, c := range carriers {
				t.Run(s.name+"/"+c, func(t *testing.T) {
					t.Parallel()
					on := carried(t, s.openers()[c])
					on.Observe = func(r conformance.Result) { results.note(s.name, c, r.Status) }
					exportertest.Run(t, on, providers[s.name])
				})
			}
		}
	})
	table := results.text(names, carriers)
	t.Log("\n" + table)
	if path := os.Getenv("FENCEPOST_TEST_MATRIX"); path != "" {
		if err := os.WriteFile(path, []byte(table), 0o600); err != nil {
			t.Error(err)
		}
	}
}

// carried opens plugins for the suite by a carrier of the host.
func carried(t *testing.T, open opener) exportertest.Carrier {
	t.Helper()
	return exportertest.Carrier{
		Open: func(_ context.Context, double *conformance.Double, setup []conformance.SetupCall) (conformance.Caller, error) {
			var calls []carrier.SetupCall
			for _, c := range setup {
				calls = append(calls, carrier.SetupCall{Method: c.Method, Request: c.Request})
			}
			acts := carrier.Host{HTTPSend: double.Send, AppendSend: double.AppendSend, Now: double.Now, Random: double}
			c, err := open(t, acts, calls)
			if err == nil { // it runs before the suite measures deadlines
				_, _ = c.Call(context.Background(), uint32(wirev1.MethodDescribe), nil)
			}
			return c, err
		},
		Payload: func(err error) ([]byte, bool) {
			if e, ok := errors.AsType[*carrier.PluginError](err); ok {
				return e.Payload, true
			}
			return nil, false
		},
	}
}
