package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/examples/exporter-go/meterline/meterlinetest"
	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/host/carrier/process"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// program builds a main package as a plugin runs it.
func program(b *testing.B, folder string) []byte {
	b.Helper()
	out := filepath.Join(b.TempDir(), "plugin")
	cmd := exec.CommandContext(b.Context(), "go", "build", "-o", out, "../../"+folder)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if text, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("build %s: %v: %s", folder, err, text)
	}
	content, err := os.ReadFile(out)
	if err != nil {
		b.Fatal(err)
	}
	return content
}

// BenchmarkPluginCalls is W1 and W2: one delivery of an event, and of 200,
// through the sample exporter in Go as a module in the host and as a process.
// The provider answers at once, so what counts is the way there and back and the
// exporter. It is the CPU time of host and child: the clock of a busy machine
// counts everybody's.
func BenchmarkPluginCalls(b *testing.B) {
	const calls = 50
	configure := carrier.SetupCall{
		Method: uint32(wirev1.MethodConfigure), Request: wirev1.EncodeConfiguration(meterlinetest.Provider().Configuration),
	}
	for _, w := range []struct {
		items int
		goal  goal
	}{
		{1, goal{ID: "W1", What: "CPU of a module's call of one event over a process's", Floor: 0.4, Goal: 0.2, Lower: true}},
		{200, goal{ID: "W2", What: "CPU of a module's call of 200 events over a process's", Floor: 2.5, Goal: 1.5, Lower: true}},
	} {
		b.Run(w.goal.ID, func(b *testing.B) {
			request, answers := guestDelivery(b, w.items)
			image, err := process.NewImage("meterline", program(b, "examples/exporter-go"))
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = image.Close() })
			native, err := process.Open(process.Config{
				Name: "meterline", Image: image, Granted: []capability.Name{capability.HTTPName}, Setup: []carrier.SetupCall{configure},
				Host:   carrier.Host{HTTPSend: func(context.Context, []byte) ([]byte, error) { return answers, nil }},
				Limits: process.Limits{MaxInstances: 1},
			})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = native.Close(context.Background()) })
			through := func(c carrier.Caller) func(int) time.Duration {
				return func(int) time.Duration { return used(b, c, request, calls) }
			}
			module := guestModule(b, "go", answers)
			used(b, module, request, calls) // both are started, and their heaps settle
			used(b, native, request, calls)
			for b.Loop() {
				times := inTurns(rounds, through(native), through(module))
				w.goal.print(b, fmt.Sprintf("µs: module %d, process %d", times[1][0].Microseconds(), times[0][0].Microseconds()), over(times[0], times[1], 1, 1)...)
			}
		})
	}
}

// used is the CPU time of a call, in this process and its children.
func used(b *testing.B, c carrier.Caller, request []byte, calls int) time.Duration {
	b.Helper()
	before := cpuTime(b) + childrenTime(b)
	for range calls {
		if _, err := c.Call(b.Context(), uint32(wirev1.MethodDeliver), request); err != nil {
			b.Fatal(err)
		}
	}
	return (cpuTime(b) + childrenTime(b) - before) / time.Duration(calls)
}

// childrenTime is the CPU time of the children that live.
func childrenTime(b *testing.B) (sum time.Duration) {
	b.Helper()
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		pids, _ := os.ReadFile(list)
		for pid := range strings.FieldsSeq(string(pids)) {
			threads, _ := filepath.Glob("/proc/" + pid + "/task/*/schedstat")
			for _, t := range threads {
				text, _ := os.ReadFile(t)
				first, _, _ := strings.Cut(string(text), " ")
				ns, _ := strconv.ParseInt(first, 10, 64)
				sum += time.Duration(ns)
			}
		}
	}
	return sum
}

// BenchmarkStoragePlugin is W4: recording batches of 500 in SQLite, linked in
// and as a process.
func BenchmarkStoragePlugin(b *testing.B) {
	const events, batches = 500, 8
	linked, err := sqlite.Open(b.Context(), sqlite.Config{Path: filepath.Join(b.TempDir(), "linked.db"), Migrate: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = linked.Close() })
	child, err := host.StoragePlugin{Name: "sqlite", Isolation: grant.Process, Bytes: program(b, "plugins/storage/sqlite/plugin")}.Open(b.Context(), filepath.Join(b.TempDir(), "child.db"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = child.Close() })
	n := 0
	record := func(e *engine.Engine) func(int) time.Duration {
		return func(int) time.Duration {
			start := time.Now()
			for range batches {
				fill(b, e, events, n)
				n += events
			}
			return time.Since(start)
		}
	}
	var engines []*engine.Engine
	for _, cfg := range []engine.Config{{Store: child}, {Store: linked}} {
		cfg.Now, cfg.Meters = time.Now, meter.Set{}
		cfg.Features = map[string]engine.Feature{"tokens": {}}
		e, err := engine.New(cfg)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(e.Close)
		record(e)(0)
		engines = append(engines, e)
	}
	for b.Loop() {
		times := inTurns(rounds, record(engines[0]), record(engines[1]))
		rate := func(d time.Duration) float64 { return float64(events*batches) / d.Seconds() }
		goal{ID: "W4", What: "recording through a storage process over linked in, batch 500", Floor: 0.4, Goal: 0.6}.
			print(b, fmt.Sprintf("events/s: process %.0f, linked %.0f", rate(times[0][0]), rate(times[1][0])), over(times[0], times[1], 1, 1)...)
	}
}
