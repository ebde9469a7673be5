//go:build faults && unix

package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/stripedouble"
)

const microsecond = time.Microsecond // the precision of a stored time

const (
	// keyVar is the variable that the configuration takes the API key from.
	keyVar = "FENCEPOST_TEST_STRIPE_KEY"
	// canary is that key. It must be seen by the provider and by nobody else.
	canary = "sk_test_c4n4ryMustNeverBeSeen0123456789"

	// hookVar names the secret that messages are signed with.
	hookVar    = "FENCEPOST_TEST_STRIPE_HOOK"
	hookSecret = "whsec_c4n4ryOfTheWebhook0123456789"

	account = "acct_faults"
	tenant  = "acme"
)

// settings are the knobs of a configuration. Durations are as YAML has them.
type settings struct {
	page, attempts, rate, concurrency      int
	lease, base, cap, rateLimitDelay, mode string
	baseURL                                string // instead of the double's
	extra                                  string // YAML of further exporters
	record                                 string // limits.record_timeout
	more                                   string // YAML beside all of this
	mapping                                int    // version of the mapping
	horizon                                string // outbox.horizon
	webhook                                bool   // the exporter takes messages
}

func defaults() settings {
	return settings{
		mapping: 1, page: 50, attempts: 20, rate: 1000, concurrency: 8, mode: "test",
		record: "15s", horizon: "23h", lease: "10s", base: "50ms", cap: "200ms", rateLimitDelay: "100ms",
	}
}

// rig is one store, one double, and the server that is or is not running.
type rig struct {
	t        *testing.T
	dir      string
	settings settings
	program  string // the binary that runs
	storage  string // of the configuration, YAML
	books    func() (*books, error)
	double   *stripedouble.Server
	others   map[string]*stripedouble.Server // of exporters beside "stripe"
	server   *server
	starts   int
	rounds   int
	key      string
	// separate: two deliverers are two processes, each with a configuration and
	// a state_dir of its own. Without it they are two hosts in one process.
	separate bool
	second   *server
	// skew is how far the clocks of hosts are off that are started next, see skewed.
	skew time.Duration

	mu sync.Mutex
	// sent is every event that some call carried, acked those of which a call
	// said that they are recorded.
	sent  map[eventKey]event
	acked map[eventKey]bool
	// foreign are identifiers that a test charged at the double itself.
	foreign map[string]bool
	// resolved are items that a test settled as an operator.
	resolved map[int64]bool
}

// newRig starts a double. Nothing else runs yet.
func newRig(t *testing.T, s settings, change ...func(*stripedouble.Config)) *rig {
	t.Helper()
	r := newBareRig(t, s, change...)
	path := filepath.Join(r.dir, "fencepost.db")
	r.storage = fmt.Sprintf(`{plugin: "builtin:sqlite", dsn: %q}`, path)
	r.books = func() (*books, error) { return readBooks(path) }
	r.configure()
	return r
}

// newBareRig is newRig without a store and a configuration.
func newBareRig(t *testing.T, s settings, change ...func(*stripedouble.Config)) *rig {
	t.Helper()
	return &rig{
		t: t, dir: t.TempDir(), settings: s, program: binary, key: canary, double: newDouble(t, change...),
		sent: map[eventKey]event{}, acked: map[eventKey]bool{}, foreign: map[string]bool{}, resolved: map[int64]bool{},
	}
}

func newDouble(t *testing.T, change ...func(*stripedouble.Config)) *stripedouble.Server {
	t.Helper()
	c := stripedouble.Config{Dir: t.TempDir(), Seed: 1, Account: account}
	for _, f := range change {
		f(&c)
	}
	d, err := stripedouble.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close the double: %v", err)
		}
	})
	return d
}

func withSerialLimit(n int) func(*stripedouble.Config) {
	return func(c *stripedouble.Config) { c.SerialLimit = n }
}

// exporterYAML is one exporter that reports to a double.
func exporterYAML(name, account string, d *stripedouble.Server, s settings) string {
	url := d.URL()
	if s.baseURL != "" {
		url = s.baseURL
	}
	secrets := "api_key: env:" + keyVar
	if s.webhook {
		secrets += ", webhook_secret: env:" + hookVar
	}
	return fmt.Sprintf(`  - name: %s
    plugin: builtin:stripe
    account: %s
    mode: %s
    secrets: {%s}
    base_url: %q
    ca_file: %q
    allow_private: ["127.0.0.0/8"]
    rate: %d
    concurrency: %d
    mapping: {version: %[9]d, features: {tokens: {event_name: llm_tokens, release: "%[9]d"}, context_tokens: {event_name: llm_context_tokens}, generated_tokens: {event_name: llm_generated_tokens}}}
`, name, account, s.mode, secrets, url, d.CAFile(), s.rate, s.concurrency, s.mapping)
}

// configure writes the configuration file.
func (r *rig) configure() {
	r.t.Helper()
	s := r.settings
	r.writeConfig(r.config(), "state", s)
	if r.separate {
		r.writeConfig(r.secondConfig(), "state-2", s)
	}
}

// writeConfig writes one host's configuration.
func (r *rig) writeConfig(path, state string, s settings) {
	r.t.Helper()
	text := fmt.Sprintf(`%sstorage: %s
listen: 127.0.0.1:0
state_dir: %q
meters:
  - {feature: context_tokens, event_type: llm.completion, aggregation: sum, value: $.context}
  - {feature: generated_tokens, event_type: llm.completion, aggregation: sum, value: $.generated}
limits: {record_timeout: %s}
outbox: {tick: 20ms, page: %d, lease: %s, base: %s, cap: %s, attempts: %d, rate_limit_delay: %s, horizon: %s}
exporters:
%s%s`, s.more, r.storage, filepath.Join(r.dir, state), s.record, s.page, s.lease, s.base, s.cap, s.attempts, s.rateLimitDelay, s.horizon,
		exporterYAML("stripe", account, r.double, s), s.extra)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) config() string { return filepath.Join(r.dir, "fencepost.yaml") }

// secondConfig is that of the second of two hosts, with a state_dir of its own.
func (r *rig) secondConfig() string { return filepath.Join(r.dir, "fencepost-2.yaml") }

// faults sets the double's schedule.
func (r *rig) faults(schedule string) {
	r.t.Helper()
	f, err := stripedouble.ParseFaults(schedule)
	if err != nil {
		r.t.Fatal(err)
	}
	r.double.SetFaults(f)
}

// fired fails the test unless every rule of the schedules so far took place: a
// fault that never happens proves nothing.
func (r *rig) fired() {
	r.t.Helper()
	for rule, n := range r.double.FaultsFired() {
		if n == 0 {
			r.t.Errorf("the double never did %s", rule)
		}
	}
}

// patience bounds every wait for another process. Machines that run this are
// shared, so it is long; nothing waits for it unless something is wrong.
const patience = 60 * time.Second

// eventually waits until done reports true.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	if !within(patience, done) {
		t.Fatalf("did not happen in %v: %s", patience, what)
	}
}

func within(limit time.Duration, done func() bool) bool {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if done() {
			return true
		}
	}
	return done()
}

// subtest is a name without characters that a shell minds.
func subtest(parts ...string) string {
	return strings.NewReplacer(":", "_", "@", "_", "(", "_", ")", "", "=", "", ",", "_", ";", "", " ", "").Replace(strings.Join(parts, "_"))
}
