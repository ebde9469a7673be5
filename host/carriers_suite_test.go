package host_test

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/host/carrier/linked"
	"github.com/fencepost/fencepost/host/carrier/process"
	"github.com/fencepost/fencepost/host/carrier/wasm"
	"github.com/fencepost/fencepost/host/carrier/worker"
	"github.com/fencepost/fencepost/plugins/exporters/stripe"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/guest"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// opener opens an exporter on one carrier with one instance.
type opener func(tb testing.TB, acts carrier.Host, setup []carrier.SetupCall) (carrier.Caller, error)

// subject is an exporter that the carriers are to carry: one source, as what is
// linked in, as a module and as a program.
type subject struct {
	name    string
	build   exporter.New
	grants  []capability.Name
	module  func(tb testing.TB) []byte
	program func() ([]byte, error)
}

var stripeSubject = subject{
	name: "stripe", build: stripe.New, grants: []capability.Name{capability.HTTPName}, module: stripeModule, program: nativeStripe,
}

func (s subject) openers() map[string]opener {
	return map[string]opener{
		"linked": func(_ testing.TB, acts carrier.Host, setup []carrier.SetupCall) (carrier.Caller, error) {
			return linked.Open(linked.Config{
				Name: s.name, New: func(h capability.Host) linked.Callee { return guest.NewDispatcher(s.build, h) },
				Granted: s.grants, Host: acts, Setup: setup, MaxInstances: 1,
			})
		},
		"inproc": func(tb testing.TB, acts carrier.Host, setup []carrier.SetupCall) (carrier.Caller, error) {
			return wasm.Open(context.Background(), wasm.Config{
				Name: s.name, Module: s.module(tb), Declared: s.grants, Granted: s.grants, Host: acts, Setup: setup,
				InertFiles: true, CacheDir: filepath.Join(stateDir, "cache"), Limits: wasm.Limits{MaxInstances: 1},
			})
		},
		"worker": func(tb testing.TB, acts carrier.Host, setup []carrier.SetupCall) (carrier.Caller, error) {
			image, err := process.Self()
			if err != nil {
				return nil, err
			}
			tb.Cleanup(func() { _ = image.Close() })
			return worker.Open(worker.Config{
				Name: s.name, Image: image, Args: []string{workerArg}, Module: s.module(tb), Declared: s.grants, Granted: s.grants,
				Host: acts, Setup: setup, InertFiles: true, CacheDir: filepath.Join(stateDir, "cache"), Limits: wasm.Limits{MaxInstances: 1}, Memory: -1,
			})
		},
		"process": func(tb testing.TB, acts carrier.Host, setup []carrier.SetupCall) (carrier.Caller, error) {
			native, err := s.program()
			if err != nil {
				return nil, err
			}
			image, err := process.NewImage(s.name, native)
			if err != nil {
				return nil, err
			}
			tb.Cleanup(func() { _ = image.Close() })
			return process.Open(process.Config{
				Name: s.name, Image: image, Granted: s.grants, Host: acts, Setup: setup, Limits: process.Limits{MaxInstances: 1},
			})
		},
	}
}

// accept answers every request as Stripe does that takes the event.
func accept(_ context.Context, batch []byte) ([]byte, error) {
	requests, err := wirev1.DecodeRequests(batch)
	if err != nil {
		return nil, err
	}
	responses := make([]capability.Response, len(requests))
	for i, r := range requests {
		form, err := url.ParseQuery(string(r.Body))
		if err != nil {
			return nil, err
		}
		responses[i] = capability.Response{Status: 200, Body: fmt.Appendf(nil, `{"object":"billing.meter_event","identifier":%q,"livemode":false}`, form.Get("identifier"))}
	}
	return wirev1.EncodeResponses(responses, nil), nil
}

func batchOf(n int) []byte {
	d := exporter.Delivery{Deadline: time.Now().Add(time.Hour), Items: make([]exporter.Item, n)}
	for i := range d.Items {
		d.Items[i] = exporter.Item{
			ID: strconv.Itoa(i), Identifier: fmt.Sprintf("fencepost_%064d", i), Customer: "cus_1", Feature: "tokens", Value: "12.5",
			Kind: "event", Account: "acct_1", Mode: "test", Timestamp: time.Now(), Mapping: map[string]string{"event_name": "llm_tokens"}, Attempt: 1,
		}
	}
	return wirev1.EncodeDelivery(d)
}

// cpu is what this process and its children that have ended used.
func cpu() time.Duration {
	var sum time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}

// BenchmarkCarriers shows what a call of the Stripe exporter costs on each
// carrier: describing itself, and delivering one item and a hundred to a
// provider that answers at once. cpu counts host and child; open is a start
// with a warm cache, up to the first answer.
func BenchmarkCarriers(b *testing.B) {
	configure := []carrier.SetupCall{{
		Method:  uint32(wirev1.MethodConfigure),
		Request: wirev1.EncodeConfiguration(exporter.Configuration{Name: "stripe", Account: "acct_1", Mode: "test"}),
	}}
	for _, name := range []string{"linked", "inproc", "worker", "process"} {
		open := stripeSubject.openers()[name]
		run := func(n int, method wirev1.Method, request []byte) (best, opened, used time.Duration) {
			before := cpu()
			start := time.Now()
			c, err := open(b, carrier.Host{HTTPSend: accept}, configure)
			if err != nil {
				b.Fatal(err)
			}
			best = time.Hour
			for i := range n + 1 {
				at := time.Now()
				if _, err := c.Call(context.Background(), uint32(method), request); err != nil {
					b.Fatal(err)
				}
				if i == 0 {
					opened = time.Since(start)
					continue
				}
				best = min(best, time.Since(at))
			}
			if err := c.Close(context.Background()); err != nil {
				b.Fatal(err)
			}
			return best, opened, cpu() - before
		}
		for what, request := range map[string][]byte{"describe": nil, "deliver-1": batchOf(1), "deliver-100": batchOf(100)} {
			method := wirev1.MethodDeliver
			if request == nil {
				method = wirev1.MethodDescribe
			}
			b.Run(name+"/"+what, func(b *testing.B) {
				run(0, method, request) // the cache is warm
				_, opened, start := run(0, method, request)
				best, _, used := run(b.N, method, request)
				b.ReportMetric(float64(best.Nanoseconds())/1000, "best-µs")
				b.ReportMetric(float64((used-start).Nanoseconds())/1000/float64(b.N), "cpu-µs/call")
				b.ReportMetric(float64(opened.Milliseconds()), "open-ms")
			})
		}
	}
}
