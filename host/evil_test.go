package host_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/host/testdata/evil"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// evilHost is a host with one exporter for each mode of the evil one, on one
// carrier, and an honest one among them.
type evilHost struct {
	*running
	rec, victim *receiver
	modes       []string
	files       string
	// seen: a plugin has no way out but the host. Of others the host has to
	// take the word for what was accepted (Q9).
	seen bool
	// isolated: what it does to itself it does to nobody else.
	isolated bool
}

// honest is the exporter that does nothing wrong.
const honest = "honest"

func evilConfig(t testing.TB, isolation grant.Isolation, modes []string) (host.Config, *evilHost) {
	t.Helper()
	e := &evilHost{rec: newReceiver(t), victim: newReceiver(t), modes: modes, files: t.TempDir()}
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(e.files, "store.db"), Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	f := newFolder(t)
	s := config.Config{StateDir: e.files, Plugins: f.config()}
	s.Plugins.Cache = filepath.Join(t.TempDir(), "cache")
	s.Outbox = config.Outbox{
		Tick: config.Duration(20 * time.Millisecond), Base: config.Duration(100 * time.Millisecond), Cap: config.Duration(time.Second),
		Lease: config.Duration(4 * time.Second), Attempts: 1000,
	}
	ref := "builtin:evil"
	if isolation != "linked" {
		native := isolation == grant.Process
		f.install(buildEvil(t, native, "1.0.0", ""), isolation, nil)
		if ref = "wasm:evil"; native {
			ref, s.Plugins.Memory = "exec:evil", 1<<30
		}
	}
	for _, mode := range append([]string{honest}, modes...) {
		x := e.rec.exporter(mode, ref)
		x.BaseURL += "/" + mode
		x.Settings = map[string]any{"mode": mode, "victim": e.victim.URL}
		s.Exporters = append(s.Exporters, x)
	}
	cfg := hostConfig(store, s)
	cfg.Builtins.Linked = map[string]exporter.New{"evil": evil.New}
	return cfg, e
}

// called is how often the plugin of an exporter was called, as the metrics say.
func (e *evilHost) called(name string) (n int) {
	e.Helper()
	for _, l := range e.page("fencepost_plugin_calls_total") {
		if strings.Contains(l, `plugin="`+name+`"`) {
			count, err := strconv.Atoi(strings.TrimSpace(l[strings.LastIndexByte(l, ' '):]))
			if err != nil {
				e.Fatal(err)
			}
			n += count
		}
	}
	return n
}

// notLinked are those that code of this program cannot be kept from: they are
// why nothing is linked in that was not read.
var notLinked = []string{"loops", "recurses", "eats", "exits", "sleeps", "prints", "logs", "looks-around", "tells-secrets"}

// endings are how the calls of a mode end on every carrier that isolates. What
// takes a processor some time may be overtaken by its deadline on a busy machine.
var endings = map[string][]string{
	"loops": {"deadline"}, "sleeps": {"deadline"}, "panics": {"trap"}, "exits": {"exit"},
	"eats": {"memory", "deadline"}, "answers-much": {"protocol", "deadline"},
}

// endsAs waits until a call of a mode has ended as it must.
func (e *evilHost) endsAs(mode string, reasons []string) {
	e.Helper()
	e.until(mode+" ends as "+strings.Join(reasons, " or "), func() bool {
		return slices.ContainsFunc(e.page("fencepost_plugin_ended_total"), func(l string) bool {
			return strings.Contains(l, `plugin="`+mode+`"`) && slices.ContainsFunc(reasons, func(r string) bool { return strings.Contains(l, `reason="`+r+`"`) })
		})
	})
}

// Issue 5, "It must hold"; F38 to F44, F46, F47, I16: whatever a plugin does,
// only its own calls fail. Recording goes on, the honest exporter on the same
// carrier delivers everything once, nothing of the evil ones is accepted that
// their provider was not sent, nothing is rejected, nobody was called who was
// not granted, and no secret is anywhere.
func TestEvilExporters(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds plugins")
	}
	modes := func(more ...string) []string { return append(slices.Clone(evil.Modes), more...) }
	for isolation, modes := range map[grant.Isolation][]string{
		"linked":        slices.DeleteFunc(modes(), func(m string) bool { return slices.Contains(notLinked, m) }),
		grant.InProcess: modes(), grant.Worker: modes(), grant.Process: modes(evil.NativeModes...),
	} {
		t.Run(string(isolation), func(t *testing.T) {
			t.Parallel()
			cfg, e := evilConfig(t, isolation, modes)
			e.running = run(t, cfg)
			e.isolated = isolation != "linked"
			e.seen = isolation != "linked" && !e.log.contains("gives plugins no namespaces")
			for range 3 {
				e.record()
			}
			e.until("each has delivered, or failed to", func() bool {
				return !slices.ContainsFunc(modes, func(m string) bool { return e.called(m) < 2 })
			})
			for range 3 { // while they go on
				e.record()
			}
			e.accepts(honest)
			e.judge()
			for _, name := range append([]string{honest}, modes...) {
				t.Logf("%-20s %v", name, e.counts(name))
			}
		})
	}
}

// judge looks at what has become of everything.
func (e *evilHost) judge() {
	e.Helper()
	// A call that was cut is made again, with the same identifiers: this provider
	// takes an identifier once.
	if items, most := e.rec.taken(honest); items != e.n {
		e.Errorf("the honest exporter sent %d items of %d, one of them %d times", items, e.n, most)
	}
	for _, m := range e.modes {
		c := e.counts(m)
		items, _ := e.rec.taken(m)
		if e.seen && (c[storage.Accepted] > int64(items) || c[storage.Confirmed] != 0) {
			e.Errorf("%s: %v accepted, and %d were sent", m, c, items)
		}
		if c[storage.Rejected] != 0 {
			e.Errorf("%s: %v rejected without an answer that says so", m, c)
		}
		var all int64
		for n := range maps.Values(c) {
			all += n
		}
		if all != int64(e.n) {
			e.Errorf("%s: %d items of %d", m, all, e.n)
		}
	}
	for mode, reasons := range endings {
		if e.isolated && slices.Contains(e.modes, mode) {
			e.endsAs(mode, reasons)
		}
	}
	if n := e.victim.total(); n != 0 {
		e.Errorf("%d requests reached a host that was not granted", n)
	}
	e.noSecret()
}

// noSecret looks for the canaries in all that the host wrote (I15).
func (e *evilHost) noSecret() {
	e.Helper()
	for _, canary := range []string{apiKey, envCanary} {
		if e.log.contains(canary) {
			e.Errorf("the log has %.8s…", canary)
		}
		if strings.Contains(strings.Join(e.page("fencepost_plugin_info"), ""), canary) {
			e.Errorf("the metrics have %.8s…", canary)
		}
		err := filepath.WalkDir(e.files, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			if strings.Contains(string(b), canary) {
				e.Errorf("%s has %.8s…", d.Name(), canary)
			}
			return err
		})
		if err != nil {
			e.Error(err)
		}
	}
	var list struct{ Data json.RawMessage }
	if code := e.api("GET", "/v1/outbox?limit=500", "", &list); code != 200 || strings.Contains(string(list.Data), apiKey) {
		e.Errorf("the outbox: %d", code)
	}
}

// I16, in one run: how much slower recording is beside exporters that loop, eat
// memory and flood the log, and for how long the collector stops the world. It
// asserts nothing (Q31): p99-ratio is to be 2 at most, the pause 100 ms.
func BenchmarkRecordUnderAttack(b *testing.B) {
	attackers := []string{"loops", "recurses", "eats", "logs", "prints", "asks-much"}
	idle := make([]string, len(attackers)) // as many items to stage, and nobody who attacks
	for i := range idle {
		idle[i] = "idle" + strconv.Itoa(i)
	}
	for _, isolation := range []grant.Isolation{grant.InProcess, grant.Worker, grant.Process} {
		b.Run(string(isolation), func(b *testing.B) {
			for b.Loop() {
				calm, before := recordBeside(b, isolation, idle)
				hot, during := recordBeside(b, isolation, attackers)
				b.ReportMetric(float64(hot)/float64(calm), "p99-ratio")
				b.ReportMetric(before.Seconds()*1e3, "ms-gc-calm")
				b.ReportMetric(during.Seconds()*1e3, "ms-gc-attacked")
			}
		})
	}
}

// recordBeside returns the 99th percentile of Record and the longest stop for
// the collector while exporters do what their modes say.
func recordBeside(b *testing.B, isolation grant.Isolation, modes []string) (p99, pause time.Duration) {
	b.Helper()
	cfg, e := evilConfig(b, isolation, modes)
	e.running = run(b, cfg)
	e.record()
	e.until("each was called", func() bool {
		return !slices.ContainsFunc(modes, func(m string) bool { return e.called(m) < 2 })
	})
	began := time.Now()
	took := make([]time.Duration, 0, 500)
	for range cap(took) {
		start := time.Now()
		e.record()
		took = append(took, time.Since(start))
		if len(took)%50 == 0 {
			runtime.GC()
		}
	}
	var gc debug.GCStats
	debug.ReadGCStats(&gc)
	for i, p := range gc.Pause {
		if gc.PauseEnd[i].After(began) {
			pause = max(pause, p)
		}
	}
	slices.Sort(took)
	if err := e.Close(b.Context()); err != nil {
		b.Error(err)
	}
	return took[len(took)*99/100], pause
}
