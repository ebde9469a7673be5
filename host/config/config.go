// Package config reads fencepost.yaml: one file, unknown keys are errors,
// secrets by reference only. It decides nothing; it holds what the operator
// wrote, checked, with defaults filled in.
package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk"
)

// Config is the whole configuration. The zero value is a working default:
// SQLite in ./fencepost.db, no meters, no exporters, loopback only.
type Config struct {
	Storage   Storage            `yaml:"storage"`
	Listen    string             `yaml:"listen"`
	Meters    []Meter            `yaml:"meters"`
	Features  map[string]Feature `yaml:"features"`
	Exporters []Exporter         `yaml:"exporters"`
	Outbox    Outbox             `yaml:"outbox"`
	Limits    Limits             `yaml:"limits"`
	Counters  Counters           `yaml:"counters"`
	Outpost   Outpost            `yaml:"outpost"`
	StateDir  string             `yaml:"state_dir"`
	Keys      []string           `yaml:"keys"`
	Console   Console            `yaml:"console"`
	Plugins   Plugins            `yaml:"plugins"`
}

// Storage names the storage plugin and its data source.
type Storage struct {
	Plugin string `yaml:"plugin"` // builtin:sqlite
	DSN    string `yaml:"dsn"`
}

// Meter turns CloudEvents of one type into usage of one feature.
type Meter struct {
	Feature     string            `yaml:"feature"`
	EventType   string            `yaml:"event_type"`
	Aggregation string            `yaml:"aggregation"`
	Value       string            `yaml:"value"`
	Dimensions  map[string]string `yaml:"dimensions"`
}

// Exporter is one destination for usage.
type Exporter struct {
	Name         string            `yaml:"name"`
	Plugin       string            `yaml:"plugin"`
	Account      string            `yaml:"account"`
	Mode         string            `yaml:"mode"`
	Secrets      map[string]string `yaml:"secrets"`
	Mapping      Mapping           `yaml:"mapping"`
	BaseURL      string            `yaml:"base_url"`
	CAFile       string            `yaml:"ca_file"`
	AllowPrivate []string          `yaml:"allow_private"`
	// Rate is requests a second, 25 by default, and Concurrency requests in
	// flight, 16 by default. The plugin's own limits count where they are smaller.
	Rate        int    `yaml:"rate"`
	Concurrency int    `yaml:"concurrency"`
	Trust       string `yaml:"trust"` // "" or outcomes
	// Isolation is where the plugin runs: inproc or worker for a module, process
	// for a program. Empty: as plugins.lock says; a builtin module inproc.
	Isolation string `yaml:"isolation"`
	// Horizon is how long the provider recognises a repeated identifier, where
	// that is less than the plugin says. Zero: as the plugin says.
	Horizon Duration `yaml:"horizon"`
	// File is what a plugin with the capability append appends to.
	File     string         `yaml:"file"`
	Settings map[string]any `yaml:"settings"`
}

// Mapping says how each feature is expressed at the provider.
type Mapping struct {
	// Version is a label for people; identity uses the hash of the content.
	Version  any                          `yaml:"version"`
	Features map[string]map[string]string `yaml:"features"`
	// Ignore lists features that are not this exporter's business. Any other
	// feature without a mapping is staged as quarantined feature_unmapped.
	Ignore []string `yaml:"ignore"`
}

// Outbox tunes delivery.
type Outbox struct {
	Tick           Duration `yaml:"tick"`
	Page           int      `yaml:"page"`
	Lease          Duration `yaml:"lease"`
	Base           Duration `yaml:"base"`
	Cap            Duration `yaml:"cap"`
	Attempts       int      `yaml:"attempts"`
	RateLimitDelay Duration `yaml:"rate_limit_delay"`
	Horizon        Duration `yaml:"horizon"`
	QuietTime      Duration `yaml:"quiet_time"`
	BackwardStep   Duration `yaml:"backward_step"`
}

// Limits bound what one call may ask for.
type Limits struct {
	BatchEvents       int      `yaml:"batch_events"`
	BatchBytes        Size     `yaml:"batch_bytes"`
	RecordConcurrency int      `yaml:"record_concurrency"`
	RecordTimeout     Duration `yaml:"record_timeout"`
}

// Counters tune the counting of buffered features.
type Counters struct {
	// Flush is the time between two writings of what was counted. It is also
	// the most that a kill loses.
	Flush Duration `yaml:"flush"`
	// Max bounds the counters in memory.
	Max int64 `yaml:"max"`
	// Report is the time between two passes of the reporter, which stages what
	// was counted since the last one for exporters.
	Report Duration `yaml:"report"`
}

// Console configures the operator console.
type Console struct {
	Mode string `yaml:"mode"`
}

// Plugins says where plugins and their compiled code live.
type Plugins struct {
	Dir   string `yaml:"dir"`
	Cache string `yaml:"cache"`
	Lock  string `yaml:"lock"`
	// Memory is what a process of a plugin may have for its data, 2GiB by
	// default.
	Memory Size `yaml:"memory"`
}

// CacheDir is where compiled plugins are kept: Cache with ~ made the user's
// home, or a folder of the user's caches; empty if the system names neither.
func (p Plugins) CacheDir() string {
	if rest, ok := strings.CutPrefix(p.Cache, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		return filepath.Join(home, rest)
	}
	if p.Cache != "" {
		return p.Cache
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(base, "fencepost")
}

// WithDefaults returns a copy with every unset value at its documented default.
func (c Config) WithDefaults() Config {
	set(&c.Storage.Plugin, "builtin:sqlite")
	set(&c.Storage.DSN, "./fencepost.db")
	set(&c.Listen, "127.0.0.1:8787")
	set(&c.StateDir, "./state")
	set(&c.Console.Mode, "read-only")
	set(&c.Plugins.Dir, "./plugins")
	set(&c.Plugins.Lock, "./plugins.lock")
	set(&c.Plugins.Memory, 2<<30)
	c.Outbox = c.Outbox.withDefaults()
	set(&c.Limits.BatchEvents, 500)
	set(&c.Limits.BatchBytes, 1<<20)
	set(&c.Limits.RecordConcurrency, 64)
	set(&c.Limits.RecordTimeout, Duration(15*time.Second))
	set(&c.Counters.Flush, Duration(5*time.Second))
	set(&c.Counters.Max, 1_000_000)
	set(&c.Counters.Report, Duration(5*time.Minute))
	c.Exporters = exportersWithDefaults(c.Exporters)
	return c
}

func exportersWithDefaults(list []Exporter) []Exporter {
	list = slices.Clone(list)
	for i := range list {
		set(&list[i].Mode, "test")
		set(&list[i].Rate, 25)
		set(&list[i].Concurrency, 16)
	}
	return list
}

func (o Outbox) withDefaults() Outbox {
	set(&o.Tick, Duration(time.Second))
	set(&o.Page, 100)
	set(&o.Lease, Duration(120*time.Second))
	set(&o.Base, Duration(5*time.Second))
	set(&o.Cap, Duration(900*time.Second))
	set(&o.Attempts, 20)
	set(&o.RateLimitDelay, Duration(30*time.Second))
	set(&o.Horizon, Duration(23*time.Hour))
	set(&o.QuietTime, Duration(10*time.Minute))
	set(&o.BackwardStep, Duration(10*time.Minute))
	return o
}

func set[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// MeterSet compiles the meters. Errors name the meter and the rule.
func (c Config) MeterSet() (meter.Set, error) { return meter.NewSet(c.MeterList()) }

// MeterList is the meters as the engine knows them.
func (c Config) MeterList() []meter.Meter {
	ms := make([]meter.Meter, len(c.Meters))
	for i, m := range c.Meters {
		ms[i] = meter.Meter{
			Feature: m.Feature, EventType: m.EventType,
			Aggregation: meter.Aggregation(m.Aggregation), Value: m.Value, Dimensions: m.Dimensions,
		}
	}
	return ms
}

// Validate checks everything that can be checked without opening anything. It
// expects defaults to be filled in. The first broken rule is returned, tagged
// invalid, with the path of the key.
func (c Config) Validate() error {
	meters, err := c.MeterSet()
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for i, e := range c.Exporters {
		path := fmt.Sprintf("exporters[%d]", i)
		if err := e.validate(path); err != nil {
			return err
		}
		if seen[e.Name] {
			return sdk.Invalid(path+".name", "no two exporters share a name")
		}
		seen[e.Name] = true
	}
	if err := c.validateFeatures(meters); err != nil {
		return err
	}
	if err := c.Outpost.validate(); err != nil {
		return err
	}
	if c.Console.Mode != "read-only" {
		return unsupported("console.mode", "read-only, the only mode of this version")
	}
	if len(c.Keys) > 0 {
		return unsupported("keys", "API keys are not part of this version; listen on loopback only")
	}
	if err := c.loopbackOnly(); err != nil {
		return err
	}
	return c.validateNumbers()
}

func (c Config) loopbackOnly() error {
	ap, err := netip.ParseAddrPort(c.Listen)
	if err != nil {
		return sdk.Invalid("listen", "an IP address and a port, such as 127.0.0.1:8787")
	}
	if !ap.Addr().IsLoopback() {
		e := sdk.Invalid("listen", "a loopback address while no API key is configured")
		e.Hint = "anyone who can reach the port can record and read usage"
		return e
	}
	return nil
}

func (c Config) validateNumbers() error {
	o := c.Outbox
	for _, d := range []struct {
		name string
		v    Duration
		min  time.Duration
	}{
		{"tick", o.Tick, 10 * time.Millisecond},
		{"lease", o.Lease, time.Second},
		{"base", o.Base, 10 * time.Millisecond},
		{"cap", o.Cap, 10 * time.Millisecond},
		{"rate_limit_delay", o.RateLimitDelay, 100 * time.Millisecond},
		{"horizon", o.Horizon, time.Second},
		{"quiet_time", o.QuietTime, time.Second},
		{"backward_step", o.BackwardStep, time.Second},
	} {
		if time.Duration(d.v) < d.min {
			return sdk.Invalid("outbox."+d.name, "at least "+d.min.String())
		}
	}
	switch {
	case o.Page < 1 || o.Page > 1000:
		return sdk.Invalid("outbox.page", "1 to 1000")
	case o.Attempts < 1 || o.Attempts > 1000:
		return sdk.Invalid("outbox.attempts", "1 to 1000")
	case c.Limits.BatchEvents < 1 || c.Limits.BatchEvents > 500:
		return sdk.Invalid("limits.batch_events", "1 to 500")
	case c.Limits.BatchBytes < 1024 || c.Limits.BatchBytes > meter.MaxBatchBytes:
		return sdk.Invalid("limits.batch_bytes", "1KiB to 1MiB")
	case c.Limits.RecordConcurrency < 1:
		return sdk.Invalid("limits.record_concurrency", "at least 1")
	case time.Duration(c.Limits.RecordTimeout) < time.Millisecond:
		return sdk.Invalid("limits.record_timeout", "at least 1ms")
	case time.Duration(c.Counters.Flush) < 10*time.Millisecond:
		return sdk.Invalid("counters.flush", "at least 10ms")
	case time.Duration(c.Counters.Report) < time.Second:
		return sdk.Invalid("counters.report", "at least 1s")
	case c.Plugins.Memory < 64<<20:
		return sdk.Invalid("plugins.memory", "at least 64MiB")
	case c.Counters.Max < 1:
		return sdk.Invalid("counters.max", "at least 1")
	}
	return nil
}

// exporterName is part of metrics, of subscriptions and of every item.
var exporterName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)

func (e Exporter) validate(path string) error {
	switch {
	case !exporterName.MatchString(e.Name):
		return sdk.Invalid(path+".name", "a lower-case letter, then at most 62 lower-case letters, digits, '_' or '-'")
	case e.Plugin == "":
		return sdk.Invalid(path+".plugin", "a plugin reference, such as builtin:stripe")
	case e.Mode != "test" && e.Mode != "live":
		return sdk.Invalid(path+".mode", "test or live")
	case e.Trust != "" && e.Trust != "outcomes":
		return sdk.Invalid(path+".trust", "absent or outcomes")
	case e.Isolation != "" && e.Isolation != "inproc" && e.Isolation != "worker" && e.Isolation != "process":
		return sdk.Invalid(path+".isolation", "absent, inproc, worker or process")
	case e.Rate < 0:
		return sdk.Invalid(path+".rate", "not negative")
	case e.Horizon != 0 && time.Duration(e.Horizon) < time.Second:
		return sdk.Invalid(path+".horizon", "at least 1s")
	case e.Concurrency < 0:
		return sdk.Invalid(path+".concurrency", "not negative")
	}
	if u, err := url.Parse(e.BaseURL); e.BaseURL != "" && (err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil) {
		return sdk.Invalid(path+".base_url", "an https URL without user and password, such as https://127.0.0.1:9999")
	}
	for _, c := range e.AllowPrivate {
		if _, err := netip.ParsePrefix(c); err != nil {
			return sdk.Invalid(path+".allow_private", "CIDR prefixes, such as 127.0.0.0/8")
		}
	}
	if err := e.validateSecrets(path + ".secrets"); err != nil {
		return err
	}
	return e.Mapping.validate(path + ".mapping")
}

// secretName is what manifests call their secrets.
var secretName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

// validateSecrets refuses a secret itself where a reference belongs, without
// repeating either: a name may be the pasted secret too.
func (e Exporter) validateSecrets(path string) error {
	for _, name := range sortedKeys(e.Secrets) {
		if !secretName.MatchString(name) || grant.Redact(name) != name {
			return sdk.Invalid(path, "names of secrets in lower case, such as api_key")
		}
		ref := e.Secrets[name]
		if !strings.HasPrefix(ref, "env:") && !strings.HasPrefix(ref, "file:") {
			return sdk.Invalid(path+"."+name, "a reference, env:NAME or file:PATH, never the secret itself")
		}
	}
	return nil
}

func (m Mapping) validate(path string) error {
	for _, f := range sortedKeys(m.Features) {
		if !meter.ValidFeature(f) {
			return sdk.Invalid(path+".features", "names of features: "+meter.FeatureRule)
		}
	}
	for i, f := range m.Ignore {
		at := fmt.Sprintf("%s.ignore[%d]", path, i)
		if !meter.ValidFeature(f) {
			return sdk.Invalid(at, "the name of a feature: "+meter.FeatureRule)
		}
		if _, both := m.Features[f]; both {
			return sdk.Invalid(at, "no feature that has a mapping")
		}
	}
	return nil
}

func unsupported(field, rule string) *sdk.Error {
	return &sdk.Error{Tag: sdk.TagUnsupported, Field: field, Rule: rule}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
