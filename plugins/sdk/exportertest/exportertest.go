// Package exportertest runs the conformance suite of exporters as a Go test:
//
//	func TestConformance(t *testing.T) {
//		exportertest.Run(t, exportertest.Linked(myexporter.New), conformance.Provider{
//			Configuration: exporter.Configuration{Mode: "test"},
//			Mapping:       map[string]string{"meter": "m"},
//			Answer:        answer, // what the provider says
//		})
//	}
//
// What the cases are, and what they do not prove, is in package conformance.
package exportertest

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest/conformance"
	"github.com/fencepost/fencepost/plugins/sdk/guest"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// Carrier says how plugins are opened: the parts of [conformance.Options] that
// depend on what carries the calls.
type Carrier struct {
	Open    func(ctx context.Context, double *conformance.Double, setup []conformance.SetupCall) (conformance.Caller, error)
	Payload func(error) ([]byte, bool)
	Memory  func(conformance.Caller) uint64
	// Observe hears the result of every case that ran. Nil: nobody does.
	Observe func(conformance.Result)
}

// Linked calls an exporter of this program through the dispatcher that every
// carrier uses.
func Linked(build exporter.New) Carrier {
	return Carrier{
		Open: func(ctx context.Context, double *conformance.Double, setup []conformance.SetupCall) (conformance.Caller, error) {
			l := linked{guest.NewDispatcher(build, double.Host())}
			for _, c := range setup {
				if _, err := l.Call(ctx, c.Method, c.Request); err != nil {
					return nil, err
				}
			}
			return l, nil
		},
		Memory: func(conformance.Caller) uint64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		},
	}
}

type linked struct{ dispatcher *guest.Dispatcher }

// Call implements [conformance.Caller].
func (l linked) Call(ctx context.Context, method uint32, request []byte) ([]byte, error) {
	output, status := l.dispatcher.Call(ctx, wirev1.Method(int32(method)), request)
	if status == wirev1.StatusError {
		return nil, &conformance.Refusal{Payload: output}
	}
	return output, nil
}

// Close implements [conformance.Caller].
func (linked) Close(context.Context) error { return nil }

// Run runs every case as a subtest of t, one after another. A case that the
// provider has nothing for is skipped.
//
// A subtest that passes is necessary, not sufficient: see package conformance.
func Run(t *testing.T, carrier Carrier, provider conformance.Provider) {
	t.Helper()
	s, err := conformance.Start(t.Context(), conformance.Options{
		Open: carrier.Open, Payload: carrier.Payload, Memory: carrier.Memory, Provider: provider,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	for _, c := range conformance.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			r := s.Run(t.Context(), c)
			if carrier.Observe != nil {
				carrier.Observe(r)
			}
			switch r.Status {
			case conformance.Failed:
				t.Errorf("%s", strings.Join(r.Messages, "\n"))
			case conformance.Skipped:
				t.Skip(strings.Join(r.Messages, "\n"))
			case conformance.Passed:
			}
		})
	}
}
