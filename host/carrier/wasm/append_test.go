package wasm

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/host/journal"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// The append capability from a guest to the disk: a module of the ndjson exporter
// writes lines of a journal, finds them again, and is told what the host refused.
func TestAppendFromAGuest(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds a Wasm module")
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-o", filepath.Join(dir, "m.wasm"), "../../../plugins/exporters/ndjson/plugin")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	module, err := os.ReadFile(filepath.Join(dir, "m.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	file, err := journal.Open(t.Context(), journal.Config{Path: filepath.Join(dir, "usage.ndjson")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	refuse := false
	granted := []capability.Name{capability.AppendName}
	cfg := Config{
		Name: "ndjson", Module: module, Declared: granted, Granted: granted, InertFiles: true,
		Host: Host{AppendSend: func(ctx context.Context, batch []byte) ([]byte, error) {
			if refuse {
				return nil, errors.New("refused")
			}
			records, err := wirev1.DecodeRecords(batch)
			if err != nil {
				return nil, err
			}
			return wirev1.EncodeAppended(file.Append(ctx, records)), nil
		}},
		Setup: []SetupCall{{Method: uint32(wirev1.MethodConfigure), Request: wirev1.EncodeConfiguration(exporter.Configuration{Mode: "test"})}},
	}
	m, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close(context.WithoutCancel(t.Context())) })
	items := []exporter.Item{{ID: "1", Identifier: "fencepost_1", Attempt: 1, Mode: "test", Value: "5"}, {ID: "2", Identifier: "fencepost_2", Attempt: 1, Mode: "test", Value: "7"}}
	for _, want := range []exporter.OutcomeKind{exporter.Accepted, exporter.AcceptedEarlier} {
		ctx, call := file.Begin(t.Context(), []journal.Item{{ID: "1", Identifier: "fencepost_1"}, {ID: "2", Identifier: "fencepost_2"}})
		answer, err := m.Call(ctx, uint32(wirev1.MethodDeliver), wirev1.EncodeDelivery(exporter.Delivery{Items: items}))
		if err != nil {
			t.Fatal(err)
		}
		outcomes, err := wirev1.DecodeOutcomes(answer)
		if err != nil || len(outcomes) != 2 || outcomes[0].Kind != want || outcomes[1].ProviderRef != "line 2" {
			t.Fatalf("%+v %v, want %s", outcomes, err, want)
		}
		if seen := call.Exchanges(); len(seen) != 2 {
			t.Errorf("%+v", seen)
		}
		items[0].Attempt, items[1].Attempt = 2, 2
	}
	refuse = true
	var refused *carrier.PluginError
	if _, err := m.Call(t.Context(), uint32(wirev1.MethodDeliver), wirev1.EncodeDelivery(exporter.Delivery{Items: items})); !errors.As(err, &refused) {
		t.Errorf("a refused batch: %v", err)
	}
	cfg.Granted = nil
	if _, err := Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), CodeNotGranted) {
		t.Errorf("without a grant: %v", err)
	}
}
