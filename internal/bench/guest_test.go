package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fencepost/fencepost/examples/exporter-go/meterline/meterlinetest"
	"github.com/fencepost/fencepost/host/carrier/wasm"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest/conformance"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// BenchmarkGuests is W5: the CPU time of one delivery of 100 items, answered at
// once, through the same exporter in each language. The host's own part is in
// both sides of each ratio.
func BenchmarkGuests(b *testing.B) {
	const calls = 20
	request, answers := guestDelivery(b, 100)
	call := map[string]func(int) time.Duration{}
	for _, language := range []string{"go", "c", "rust", "assemblyscript"} {
		m := guestModule(b, language, answers)
		deliver := func(n int) {
			for range n {
				if _, err := m.Call(b.Context(), uint32(wirev1.MethodDeliver), request); err != nil {
					b.Fatal(err)
				}
			}
		}
		deliver(calls) // instances are made, and the Go guest's heap settles
		call[language] = func(int) time.Duration {
			before := cpuTime(b)
			deliver(calls)
			return (cpuTime(b) - before) / calls
		}
	}
	for b.Loop() {
		times := inTurns(rounds, call["go"], call["c"], call["rust"], call["assemblyscript"])
		for i, language := range []string{"C", "Rust", "AssemblyScript"} {
			limit := goal{ID: "W5", What: "CPU of a C guest over a Go guest, 100 items", Floor: 0.1, Goal: 0.1, Lower: true}
			if i > 0 { // told, and not promised
				limit = goal{ID: "W5" + language[:1], What: "CPU of a guest in " + language + " over a Go guest", Floor: 1, Goal: 0.5, Lower: true}
			}
			note := fmt.Sprintf("µs: Go %d, %s %d", times[0][0].Microseconds(), language, times[i+1][0].Microseconds())
			limit.print(b, note, over(times[0], times[i+1], 1, 1)...)
		}
	}
}

func guestDelivery(b *testing.B, n int) (request, answers []byte) {
	b.Helper()
	provider := meterlinetest.Provider()
	items := make([]exporter.Item, n)
	responses := make([]capability.Response, len(items))
	for i := range items {
		items[i] = exporter.Item{
			ID: fmt.Sprintf("item-%d", i), Identifier: fmt.Sprintf("fencepost_%026d", i), Attempt: 1, Kind: "event",
			Account: provider.Configuration.Account, Mode: provider.Configuration.Mode, Customer: fmt.Sprintf("cus_%08d", i),
			Feature: "tokens", Value: "1234.5678", Timestamp: time.Date(2026, 11, 30, 12, 0, i%60, 0, time.UTC), Mapping: provider.Mapping,
		}
		responses[i], _ = provider.Answer(conformance.Accept, capability.Request{}, items[i:i+1])
	}
	return wirev1.EncodeDelivery(exporter.Delivery{Items: items}), wirev1.EncodeResponses(responses, nil)
}

func guestModule(b *testing.B, language string, answers []byte) *wasm.Module {
	b.Helper()
	module, err := os.ReadFile(filepath.Join("..", "..", "bin", "sdk", "meterline-"+language+".wasm"))
	if errors.Is(err, fs.ErrNotExist) {
		b.Skipf("no sample in %s: run scripts/build-sdk-samples.sh", language)
	} else if err != nil {
		b.Fatal(err)
	}
	m, err := wasm.Open(b.Context(), wasm.Config{
		Name: language, Module: module, InertFiles: true,
		Declared: []capability.Name{capability.HTTPName}, Granted: []capability.Name{capability.HTTPName},
		Host: wasm.Host{HTTPSend: func(context.Context, []byte) ([]byte, error) { return answers, nil }},
		Setup: []wasm.SetupCall{{
			Method: uint32(wirev1.MethodConfigure), Request: wirev1.EncodeConfiguration(meterlinetest.Provider().Configuration),
		}},
		Limits: wasm.Limits{MaxInstances: 1},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = m.Close(context.Background()) })
	return m
}
