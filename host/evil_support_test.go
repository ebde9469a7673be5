package host_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// builds are the exporters of testdata/evil, by target and flags of the linker.
var builds struct {
	mu   sync.Mutex
	done map[string][]byte
}

// buildEvil returns testdata/evil as a module or as a program, with a version
// and what that version changes.
func buildEvil(t testing.TB, native bool, version, change string) []byte {
	t.Helper()
	builds.mu.Lock()
	defer builds.mu.Unlock()
	key := fmt.Sprint(native, version, change)
	if b := builds.done[key]; b != nil {
		return b
	}
	const pkg = "github.com/fencepost/fencepost/host/testdata/evil"
	out := filepath.Join(t.TempDir(), "evil")
	args := []string{"build", "-o", out, "-ldflags", "-X " + pkg + ".Version=" + version + " -X " + pkg + ".Change=" + change}
	env := []string{"CGO_ENABLED=0", "GOFLAGS="}
	if !native {
		args, env = append(args, "-buildmode=c-shared"), append(env, "GOOS=wasip1", "GOARCH=wasm")
	}
	cmd := exec.CommandContext(t.Context(), "go", append(args, "./testdata/evil/plugin")...)
	cmd.Env = append(os.Environ(), env...)
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, b)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if builds.done == nil {
		builds.done = map[string][]byte{}
	}
	builds.done[key] = b
	return b
}

// folder is a folder of plugins.
type folder struct {
	t   testing.TB
	dir string
}

func newFolder(t testing.TB) folder { return folder{t, t.TempDir()} }

func (f folder) config() config.Plugins {
	return config.Plugins{Dir: f.dir, Lock: filepath.Join(f.dir, "plugins.lock"), Memory: 1 << 50}
}

// install puts content into the folder and locks it, in the place of what was
// locked.
func (f folder) install(content []byte, isolation grant.Isolation, change func(*grant.Locked)) grant.Locked {
	f.t.Helper()
	native := !grant.IsModule(content)
	locked := grant.Locked{
		Name: "evil", Version: "1.0.0", Kind: grant.KindExporter, Isolation: isolation,
		Capabilities: []capability.Name{capability.HTTPName, capability.LogName}, Hosts: []string{"api.example.com"}, Secrets: []string{"api_key"},
	}
	if change != nil {
		change(&locked)
	}
	m := grant.Manifest{
		Name: locked.Name, Version: locked.Version, Kind: locked.Kind, Capabilities: []capability.Name{capability.HTTPName, capability.LogName},
		Hosts: locked.Hosts, Secrets: locked.Secrets,
	}
	sidecar, err := json.Marshal(m)
	if err == nil && !native {
		content, err = grant.EmbedManifest(content, m)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	if locked.SHA256 == "" {
		sum := sha256.Sum256(content)
		locked.SHA256 = hex.EncodeToString(sum[:])
	}
	if locked.File = locked.Name + "-" + locked.SHA256[:12]; !native {
		locked.File += ".wasm"
	}
	path := filepath.Join(f.dir, locked.File)
	lock := grant.Lock{Plugins: []grant.Locked{locked}}
	if err := errors.Join(os.WriteFile(path, content, 0o700), os.WriteFile(path+grant.ManifestSuffix, sidecar, 0o600), lock.Save(f.config().Lock)); err != nil {
		f.t.Fatal(err)
	}
	return locked
}

// receiver is a provider that takes usage and knows nothing else.
type receiver struct {
	*httptest.Server
	ca string

	mu sync.Mutex
	// took counts requests by identifier, seen by path.
	took, seen map[string]int
	keys       []string
	// hold keeps requests of usage until it is closed.
	hold chan struct{}
	held chan struct{}
}

func newReceiver(t testing.TB) *receiver {
	t.Helper()
	r := &receiver{took: map[string]int{}, seen: map[string]int{}, held: make(chan struct{}, 1000)}
	r.Server = httptest.NewUnstartedServer(r)
	r.Config.ErrorLog = log.New(io.Discard, "", 0)
	r.StartTLS()
	t.Cleanup(r.Close)
	r.ca = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(r.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	// A folder of the path is the exporter that asks.
	who, what := path.Split(req.URL.Path)
	r.mu.Lock()
	r.seen[req.URL.Path]++
	r.keys = append(r.keys, req.Header.Get("Authorization"))
	hold := r.hold
	r.mu.Unlock()
	switch what {
	case "usage":
		var said struct{ Identifier string }
		_ = json.Unmarshal(body, &said)
		r.mu.Lock()
		r.took[who+said.Identifier]++
		r.mu.Unlock()
		if hold != nil {
			r.held <- struct{}{}
			<-hold
		}
	case "redirect":
		http.Redirect(w, req, req.URL.Query().Get("to")+"/usage", http.StatusTemporaryRedirect)
		return
	case "echo":
		w.Header().Set("X-Key", req.Header.Get("Authorization"))
		_, _ = fmt.Fprintf(w, `{"you_sent": %q, "again": %q}`, req.Header.Get("Authorization"), base64.StdEncoding.EncodeToString([]byte(apiKey)))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, "{}")
}

// taken is how many items of an exporter whose path has this folder came, and
// how often the most frequent of them did.
func (r *receiver) taken(folder string) (items, most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, n := range r.took {
		if strings.HasPrefix(id, "/"+folder+"/") {
			items++
			most = max(most, n)
		}
	}
	return items, most
}

// total is the number of requests of any path.
func (r *receiver) total() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.seen {
		n += c
	}
	return n
}

func (r *receiver) lastKey() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.keys) == 0 {
		return ""
	}
	return r.keys[len(r.keys)-1]
}

// exporterOf is an exporter that sends to the receiver.
func (r *receiver) exporter(name, plugin string) config.Exporter {
	return config.Exporter{
		Name: name, Plugin: plugin, Account: "acct_" + name, Mode: "test", Secrets: map[string]string{"api_key": "env:STRIPE_API_KEY"},
		BaseURL: r.URL, CAFile: r.ca, AllowPrivate: []string{"127.0.0.0/8"},
		Mapping: config.Mapping{Features: map[string]map[string]string{"tokens": {}}},
	}
}

// running is a host whose exporters are watched.
type running struct {
	testing.TB
	*host.Host
	store storage.Adapter
	log   *syncBuffer
	n     int
}

// run opens a host with exporters and one customer.
func run(t testing.TB, cfg host.Config) *running {
	t.Helper()
	r := &running{TB: t, log: &syncBuffer{}, store: cfg.Store}
	cfg.Logger = slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	if r.Host, err = host.Open(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	customers := map[string]string{}
	for _, e := range cfg.Settings.Exporters {
		customers[e.Name] = "cus_1"
	}
	customers["evil"] = "cus_1"
	if _, err := r.Engine().PutSubscription(t.Context(), storage.Subscription{
		Tenant: "acme", Anchor: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Customers: customers,
	}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *running) record() {
	r.Helper()
	r.n++
	out, err := r.Engine().Record(r.Context(), engine.Event{ID: strconv.Itoa(r.n), Tenant: "acme", Feature: "tokens", Quantity: decimal.One})
	if err != nil {
		r.Fatalf("record %d: %v %v", r.n, out, err)
	}
}

// counts are the items of an exporter by state.
func (r *running) counts(exporter string) map[storage.ItemState]int64 {
	r.Helper()
	items, _ := r.store.(storage.OutboxStore)
	st, err := items.OutboxStats(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	counts := map[storage.ItemState]int64{}
	for _, c := range st.Counts {
		if c.Exporter == exporter {
			counts[c.State] += c.Items
		}
	}
	return counts
}

// until polls for what has to come.
func (r *running) until(what string, holds func() bool) {
	r.Helper()
	deadline := time.After(3 * time.Minute)
	for !holds() {
		select {
		case <-deadline:
			r.Fatalf("never: %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// accepts waits until all that was recorded is accepted for an exporter.
func (r *running) accepts(exporter string) {
	r.Helper()
	r.until("all accepted for "+exporter, func() bool { return r.counts(exporter)[storage.Accepted] == int64(r.n) })
}

// api asks the host over HTTP.
func (r *running) api(method, path, body string, into any) int {
	r.Helper()
	w := httptest.NewRecorder()
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	r.Handler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body)))
	if into != nil {
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			r.Fatalf("%s: %v: %s", path, err, w.Body)
		}
	}
	return w.Code
}

// page are the lines of the metrics that name a plugin's series.
func (r *running) page(series string) []string {
	r.Helper()
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequestWithContext(r.Context(), http.MethodGet, "/metrics", nil))
	lines := slices.Collect(strings.Lines(w.Body.String()))
	return slices.DeleteFunc(lines, func(l string) bool { return !strings.HasPrefix(l, series+"{") })
}
