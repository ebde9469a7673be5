package wasm

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/fencepost/fencepost/examples/exporter-go/meterline/meterlinetest"
	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/plugins/exporters/stripe/module"
	"github.com/fencepost/fencepost/plugins/exporters/stripe/stripetest"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest/conformance"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// languages in which the sample exporter is written. The first is the one that
// the others are compared with.
var languages = []string{"go", "c", "rust", "assemblyscript"}

// sample is the module of a language, from bin/sdk, where
// scripts/build-sdk-samples.sh puts it.
func sample(t testing.TB, language string) []byte {
	t.Helper()
	return built(t, "meterline", language)
}

func built(t testing.TB, name, language string) []byte {
	t.Helper()
	module, err := os.ReadFile(filepath.Join("..", "..", "..", "bin", "sdk", name+"-"+language+".wasm"))
	switch {
	case err == nil:
		return module
	case errors.Is(err, fs.ErrNotExist) && os.Getenv("FENCEPOST_TEST_STRICT") != "1":
		t.Skipf("no sample in %s: run scripts/build-sdk-samples.sh", language)
	}
	t.Fatalf("the sample in %s: %v: run scripts/build-sdk-samples.sh", language, err)
	return nil
}

// wasmCarrier opens a module as the host does, but with one instance that is
// never replaced, so that what it keeps can be seen.
func wasmCarrier(t testing.TB, module []byte) exportertest.Carrier {
	t.Helper()
	cache := filepath.Join(t.TempDir(), "cache")
	return exportertest.Carrier{
		Open: func(ctx context.Context, double *conformance.Double, setup []conformance.SetupCall) (conformance.Caller, error) {
			cfg := Config{
				Name: "sample", Version: "1.0.0", Module: module, Declared: allCapabilities, Granted: allCapabilities,
				InertFiles: true, CacheDir: cache,
				Host:   Host{HTTPSend: double.Send, Now: double.Now, Random: double},
				Limits: Limits{MaxInstances: 1, MemoryPages: 512, HighWaterPages: 512, MaxCalls: 1 << 30},
			}
			for _, c := range setup {
				cfg.Setup = append(cfg.Setup, SetupCall{Method: c.Method, Request: c.Request})
			}
			return Open(ctx, cfg)
		},
		Payload: func(err error) ([]byte, bool) {
			if e, ok := errors.AsType[*carrier.PluginError](err); ok {
				return e.Payload, true
			}
			return nil, false
		},
		Memory: func(c conformance.Caller) uint64 {
			m, ok := c.(*Module)
			if !ok || m.Stats().Recycled > 0 {
				return 1 << 62
			}
			return m.Stats().MemoryBytes
		},
	}
}

// Q29, issue 5: an exporter in any language passes the suite as a Wasm module.
func TestSamplesConform(t *testing.T) {
	t.Parallel()
	for _, language := range languages {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			exportertest.Run(t, wasmCarrier(t, sample(t, language)), meterlinetest.Provider())
		})
	}
}

// Q29, P1-P6: the module that is in the binary passes what its source passes.
func TestStripeModuleConforms(t *testing.T) {
	t.Parallel()
	b, err := module.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	exportertest.Run(t, wasmCarrier(t, b), stripetest.Provider())
}

// All describe themselves with the same bytes.
func TestSamplesDescribeTheSame(t *testing.T) {
	t.Parallel()
	want := describe(t, languages[0])
	for _, language := range languages[1:] {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			if got := describe(t, language); !bytes.Equal(got, want) {
				t.Errorf("in %s\n got %x\nwant %x", language, got, want)
			}
		})
	}
}

func describe(t *testing.T, language string) []byte {
	t.Helper()
	cfg := config(sample(t, language))
	cfg.InertFiles, cfg.CacheDir = true, filepath.Join(scratch, "cache")
	answer, err := mustOpen(t, cfg).Call(t.Context(), uint32(wirev1.MethodDescribe), nil)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// The examples of docs/plugins/languages.md do what they say.
func TestDocumentedExamples(t *testing.T) {
	t.Parallel()
	for _, language := range languages {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			cfg := config(built(t, "example", language))
			cfg.InertFiles, cfg.CacheDir = true, filepath.Join(scratch, "cache")
			cfg.Host.HTTPSend = func(_ context.Context, batch []byte) ([]byte, error) {
				requests, err := wirev1.DecodeRequests(batch)
				if err != nil || len(requests) != 1 || string(requests[0].Body) != "7" || requests[0].Headers[0].Value != "fencepost_1" {
					t.Errorf("sends %+v, %v", requests, err)
				}
				return wirev1.EncodeResponses([]capability.Response{{Status: 200}}, nil), nil
			}
			m := mustOpen(t, cfg)
			answer, err := m.Call(t.Context(), uint32(wirev1.MethodDescribe), nil)
			manifest, bad := wirev1.DecodeManifest(answer)
			if err != nil || bad != nil || manifest.Name != "mine" || manifest.MaxBatch != 1 || manifest.Hosts[0] != "api.example.com" {
				t.Errorf("describes itself as %+v, %v, %v", manifest, err, bad)
			}
			items := []exporter.Item{{ID: "item-1", Identifier: "fencepost_1", Value: "7"}}
			answer, err = m.Call(t.Context(), uint32(wirev1.MethodDeliver), wirev1.EncodeDelivery(exporter.Delivery{Items: items}))
			outcomes, bad := wirev1.DecodeOutcomes(answer)
			if err != nil || bad != nil || len(outcomes) != 1 || outcomes[0].ItemID != "item-1" || outcomes[0].Kind != exporter.Accepted {
				t.Errorf("answers %+v, %v, %v", outcomes, err, bad)
			}
		})
	}
}
