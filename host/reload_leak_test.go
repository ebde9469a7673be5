package host_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/exporters/stripe"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// held is what this process holds that a leak would make grow.
type held struct{ goroutines, files, maps, children, heapKB, mappedMB int }

func holds(t *testing.T) held {
	t.Helper()
	entries := func(dir string) int {
		list, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return len(list)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	var children int
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, f := range tasks {
		b, _ := os.ReadFile(f)
		children += len(strings.Fields(string(b)))
	}
	statm, err := os.ReadFile("/proc/self/statm") // regions side by side are one line of maps
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(statm))[0])
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return held{
		goroutines: runtime.NumGoroutine(), files: entries("/proc/self/fd"), maps: strings.Count(string(maps), "\n"),
		children: children, heapKB: int(m.HeapAlloc >> 10), mappedMB: pages * os.Getpagesize() >> 20,
	}
}

// reloads is how often a plugin is loaded anew: 1,000 times what takes a
// moment, and less often what starts a process, unless somebody waits for it.
func reloads(t *testing.T, most, usual int) int {
	t.Helper()
	if all, err := strconv.Atoi(os.Getenv("FENCEPOST_TEST_RELOADS")); err == nil {
		return min(most, all)
	}
	return usual
}

// F45; wazero 1534, 1600: after a thousand reloads the host holds what it held
// after some: goroutines, descriptors, mappings of code, processes and memory.
func TestReloadsLeakNothing(t *testing.T) { //nolint:paralleltest // it looks at the whole process
	if testing.Short() {
		t.Skip("reloads for some time")
	}
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	for name, c := range map[string]struct {
		isolation grant.Isolation
		content   func(t *testing.T) []byte
		usual     int
	}{
		"linked":  {isolation: "linked", usual: 1_000},
		"inproc":  {isolation: grant.InProcess, content: cMeterline, usual: 1_000},
		"worker":  {isolation: grant.Worker, content: cMeterline, usual: 20},
		"process": {isolation: grant.Process, content: func(t *testing.T) []byte { t.Helper(); return buildEvil(t, true, "1.0.0", "") }, usual: 40},
	} {
		t.Run(name, func(t *testing.T) {
			testReloads(t, c.isolation, c.content, reloads(t, 1_000, c.usual))
		})
	}
}

// cMeterline is the sample exporter in C: a module that compiles in a moment.
func cMeterline(t *testing.T) []byte {
	t.Helper()
	b, err := os.ReadFile("../bin/sdk/meterline-c.wasm")
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("FENCEPOST_TEST_STRICT") != "1" {
		t.Skip("no sample in C: run scripts/build-sdk-samples.sh")
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func testReloads(t *testing.T, isolation grant.Isolation, content func(*testing.T) []byte, times int) {
	t.Helper()
	rec, f := newReceiver(t), newFolder(t)
	s := config.Config{StateDir: t.TempDir(), Plugins: f.config()}
	s.Plugins.Cache = filepath.Join(t.TempDir(), "cache")
	x := rec.exporter("evil", "builtin:stripe")
	x.Mapping.Features["tokens"] = map[string]string{"event_name": "tokens", "meter": "tokens"}
	x.Secrets["token"] = "env:ANY"
	install := func(int) {}
	key := "sk_test_0"
	if content != nil {
		b := content(t)
		name := map[bool]string{true: "evil", false: "meterline"}[isolation == grant.Process]
		install = func(i int) { // another file each time
			f.install(append(slices.Clip(b), section(isolation, i)...), isolation, func(l *grant.Locked) {
				l.Name = name
				l.Capabilities = []capability.Name{capability.HTTPName, capability.LogName}
				l.Hosts, l.Secrets = []string{"api.example.com", "api.meterline.example"}, []string{"api_key", "token"}
			})
		}
		if x.Plugin = "wasm:" + name; isolation == grant.Process {
			x.Plugin = "exec:" + name
		}
	}
	s.Exporters = []config.Exporter{x}
	cfg := hostConfig(newStore(t), s)
	cfg.Builtins.Linked = linkedStripe()
	cfg.Getenv = func(string) (string, bool) { return key, true }
	install(0)
	h, err := host.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	reload := func(i int) {
		install(i % 2)
		key = fmt.Sprintf("sk_test_%012d", i)
		list, err := h.Reload(t.Context(), "evil")
		if err != nil || len(list) != 1 || list[0].Err != nil || list[0].Outcome != "reloaded" {
			t.Fatalf("reload %d: %+v %v", i, list, err)
		}
	}
	warm := min(times/4, 20)
	for i := range warm {
		reload(i + 1)
	}
	settled := func() held { // the version before is closed behind a reload
		last := holds(t)
		for range 200 {
			time.Sleep(10 * time.Millisecond)
			now := holds(t)
			if now.goroutines >= last.goroutines && now.children >= last.children && now.files >= last.files {
				return now
			}
			last = now
		}
		return last
	}
	before := settled()
	for i := range times {
		reload(warm + i + 1)
	}
	after := settled()
	t.Logf("%d reloads: %+v, then %+v", times, before, after)
	if after.goroutines > before.goroutines+2 || after.files > before.files+2 || after.children > before.children ||
		after.maps > before.maps+40 || after.heapKB > before.heapKB+4096 || after.mappedMB > before.mappedMB+512 {
		t.Errorf("%d reloads: %+v, then %+v", times, before, after)
	}
}

// section makes a file another one that does the same: a custom section of a
// module, or something behind the end of a program.
func section(isolation grant.Isolation, i int) []byte {
	if isolation == grant.Process {
		return []byte{byte(i)}
	}
	return []byte{0, 3, 1, 'n', byte(i)}
}

func linkedStripe() map[string]exporter.New { return map[string]exporter.New{"stripe": stripe.New} }
