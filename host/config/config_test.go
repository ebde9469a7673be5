package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/plugins/sdk"
)

// pasted is a secret where none belongs; no error may repeat any of it.
const pasted = "sk_live_51Hpastedbymistake00000"

// Each bad configuration is refused with the path of the key and a rule, and
// never with the value.
func TestBadConfigurations(t *testing.T) {
	t.Parallel()
	exporter := func(rest string) string {
		return "exporters:\n  - name: stripe\n    plugin: builtin:stripe\n    " + rest + "\n"
	}
	for name, tc := range map[string]struct {
		text  string
		field string
		rule  string // a part of it
	}{
		"unknown key":                    {"storge: {}", "storge", "unknown"},
		"unknown key, storage":           {"storage: {dns: x}", "storage.dns", "unknown"},
		"unknown key, meter":             {"meters: [{feature: f, valu: x}]", "meters[0].valu", "unknown"},
		"unknown key, feature":           {"features: {tokens: {sign: true}}", "features.tokens.sign", "unknown"},
		"unknown key, exporter":          {exporter("acount: x"), "exporters[0].acount", "unknown"},
		"unknown key, mapping":           {exporter("mapping: {number: 1}"), "exporters[0].mapping.number", "unknown"},
		"unknown key, outbox":            {"outbox: {tock: 1s}", "outbox.tock", "unknown"},
		"unknown key, limits":            {"limits: {events: 1}", "limits.events", "unknown"},
		"unknown key, console":           {"console: {node: x}", "console.node", "unknown"},
		"unknown key, plugins":           {"plugins: {cash: x}", "plugins.cash", "unknown"},
		"a key in capitals":              {"Listen: 127.0.0.1:1", "Listen", "unknown"},
		"a key twice":                    {"outbox: {tick: 1s, tick: 2s}", "config", "twice"},
		"a key twice, top":               {"listen: 127.0.0.1:1\nlisten: 127.0.0.1:2", "config", "twice"},
		"text for a number":              {"outbox:\n  page: many\n", "outbox.page", "whole number"},
		"a fraction for a number":        {"outbox: {page: 1.5}", "outbox.page", "no fraction"},
		"a number that is too wide":      {exporter("rate: 99999999999999999999"), "exporters[0].rate", "whole number"},
		"text for a flag":                {"features: {tokens: {signed: maybe}}", "features.tokens.signed", "true or false"},
		"a mapping for a list":           {"exporters: {name: a}", "exporters", "list"},
		"a list for a mapping":           {"features: [tokens]", "features", "mapping"},
		"a number for a mapping":         {"storage: 5", "storage", "mapping"},
		"a list for text":                {"listen: [1]", "listen", "text"},
		"a list for a document":          {"- a\n- b", "config", "mapping"},
		"text for a document":            {"hello", "config", "mapping"},
		"no YAML":                        {"a: b: c", "config", "YAML"},
		"an open bracket":                {"outbox: {tick: 1s", "config", "YAML"},
		"a tab":                          {"outbox:\n\ttick: 1s", "config", "YAML"},
		"an unknown alias":               {"listen: *nowhere", "listen", "YAML"},
		"a tag that upsets the parser":   {"meters: !x 0", "config", "YAML"},
		"two documents":                  {"listen: 127.0.0.1:1\n---\nlisten: 127.0.0.1:2", "config", "one YAML document"},
		"not UTF-8":                      {"listen: \xff", "config", "UTF-8"},
		"nested too deep":                {"features: " + strings.Repeat("[", 10_000), "config", "levels"},
		"a duration without unit":        {"outbox: {tick: 5}", "outbox.tick", "duration"},
		"a negative duration":            {"outbox: {lease: -1s}", "outbox.lease", "duration"},
		"a duration in words":            {"limits: {record_timeout: soon}", "limits.record_timeout", "duration"},
		"a duration that is a list":      {"outbox: {cap: [1s]}", "outbox.cap", "duration"},
		"a duration past all bounds":     {"outbox: {cap: 9999999999h}", "outbox.cap", "duration"},
		"a duration of zero":             {"outbox: {lease: 0s}", "outbox.lease", "at least 1s"},
		"a tick that spins":              {"outbox: {tick: 1us}", "outbox.tick", "at least 10ms"},
		"a base of nothing":              {"outbox: {base: 0s}", "outbox.base", "at least"},
		"a cap of nothing":               {"outbox: {cap: 0s}", "outbox.cap", "at least"},
		"no rate limit delay":            {"outbox: {rate_limit_delay: 0s}", "outbox.rate_limit_delay", "at least"},
		"no horizon":                     {"outbox: {horizon: 0s}", "outbox.horizon", "at least"},
		"no page":                        {"outbox: {page: 0}", "outbox.page", "1 to 1000"},
		"a page too long":                {"outbox: {page: 1001}", "outbox.page", "1 to 1000"},
		"no attempts":                    {"outbox: {attempts: 0}", "outbox.attempts", "1 to 1000"},
		"a size in other units":          {"limits: {batch_bytes: 1MB}", "limits.batch_bytes", "size"},
		"a negative size":                {"limits: {batch_bytes: -1}", "limits.batch_bytes", "size"},
		"a size too small":               {"limits: {batch_bytes: 1023}", "limits.batch_bytes", "1KiB"},
		"a size too large":               {"limits: {batch_bytes: 1025KiB}", "limits.batch_bytes", "1KiB to 1MiB"},
		"a size that overflows":          {"limits: {batch_bytes: 2147483647MiB}", "limits.batch_bytes", ""},
		"no events":                      {"limits: {batch_events: 0}", "limits.batch_events", "1 to 500"},
		"too many events":                {"limits: {batch_events: 501}", "limits.batch_events", "1 to 500"},
		"no concurrency":                 {"limits: {record_concurrency: 0}", "limits.record_concurrency", "at least 1"},
		"no timeout":                     {"limits: {record_timeout: 0s}", "limits.record_timeout", "at least"},
		"listening to all":               {"listen: 0.0.0.0:8787", "listen", "loopback"},
		"listening to all, v6":           {"listen: '[::]:8787'", "listen", "loopback"},
		"listening outside":              {"listen: 192.0.2.1:8787", "listen", "loopback"},
		"listening to a name":            {"listen: localhost:8787", "listen", "IP address"},
		"listening without port":         {"listen: 127.0.0.1", "listen", "port"},
		"listening to nothing":           {"listen: ''", "listen", "port"},
		"keys":                           {"keys: [abc]", "keys", "not part of this version"},
		"a writing console":              {"console: {mode: read-write}", "console.mode", "read-only"},
		"a meter without feature":        {"meters: [{event_type: t, aggregation: count}]", "meters[0].feature", "lower-case"},
		"a meter without type":           {"meters: [{feature: f, aggregation: count}]", "meters[0].event_type", "required"},
		"a meter that adds nothing":      {"meters: [{feature: f, event_type: t, aggregation: sum}]", "meters[0].value", ""},
		"an unknown aggregation":         {"meters: [{feature: f, event_type: t, aggregation: mean, value: $.x}]", "meters[0].aggregation", "one of sum, count, max"},
		"two aggregations of a feature":  {"meters: [{feature: f, event_type: t, aggregation: max, value: $.x}, {feature: f, event_type: u, aggregation: count}]", "meters[1].aggregation", "one aggregation"},
		"a maximum that is mapped":       {"meters: [{feature: tokens, event_type: t, aggregation: max, value: $.x}]\n" + exporter("mapping: {features: {tokens: {event_name: x}}}"), "exporters[0].mapping.features.tokens", "adds up"}, // Q8
		"a buffered feature measured":    {"features: {f: {source: buffered}}\nmeters: [{feature: f, event_type: t, aggregation: count}]", "meters[0].feature", "source events"},
		"buckets of a buffered feature":  {"features: {f: {source: buffered, buckets: true}}", "features.f.buckets", "absent"},
		"buckets in words":               {"features: {tokens: {buckets: yes please}}", "features.tokens.buckets", "true, false"},
		"buckets in a list":              {"features: {tokens: {buckets: [model]}}", "features.tokens.buckets", "true, false"},
		"unknown key, buckets":           {"features: {tokens: {buckets: {dimension: [model]}}}", "features.tokens.buckets", "unknown keys"},
		"one dimension for a list":       {"features: {tokens: {buckets: {dimensions: model}}}", "features.tokens.buckets.dimensions", "list"},
		"a dimension twice":              {"features: {tokens: {buckets: {dimensions: [model, model]}}}", "features.tokens.buckets.dimensions[1]", "twice"},
		"a dimension that is a number":   {"features: {tokens: {buckets: {dimensions: [1]}}}", "features.tokens.buckets.dimensions[0]", "name of a dimension"},
		"a dimension without a name":     {"features: {tokens: {buckets: {dimensions: ['']}}}", "features.tokens.buckets.dimensions[0]", "name of a dimension"},
		"nine dimensions":                {"features: {tokens: {buckets: {dimensions: [a, b, c, d, e, f, g, h, i]}}}", "features.tokens.buckets.dimensions", "at most 8"},
		"one meter twice":                {"meters: [{feature: f, event_type: t, aggregation: count}, {feature: f, event_type: t, aggregation: count}]", "meters[1]", "one meter"}, // Q1
		"a feature in capitals":          {"features: {Tokens: {source: events}}", "features", "lower-case"},
		"a source nobody knows":          {"features: {tokens: {source: kafka}}", "features.tokens.source", "events or buffered"},
		"a cutover while buffered":       {"features: {tokens: {source: buffered, cutover: '2027-01-01T00:00:00Z'}}", "features.tokens.cutover", "absent"},
		"a cutover without a time":       {"features: {tokens: {cutover: '2027-01-01'}}", "features.tokens.cutover", "a time such as"},
		"reports all the time":           {"counters: {report: 10ms}", "counters.report", "at least"},
		"no bound on steps back":         {"outbox: {backward_step: 1ms}", "outbox.backward_step", "at least"},
		"an exporter without name":       {"exporters: [{plugin: builtin:stripe}]", "exporters[0].name", "lower-case"},
		"an exporter with a space":       {"exporters: [{name: a b, plugin: builtin:stripe}]", "exporters[0].name", "lower-case"},
		"an exporter without plugin":     {"exporters: [{name: a}]", "exporters[0].plugin", "reference"},
		"two exporters of one name":      {"exporters: [{name: a, plugin: builtin:stripe}, {name: a, plugin: builtin:stripe}]", "exporters[1].name", "share a name"},
		"a mode nobody knows":            {exporter("mode: prod"), "exporters[0].mode", "test or live"},
		"trust in nothing":               {exporter("trust: all"), "exporters[0].trust", "outcomes"},
		"a negative rate":                {exporter("rate: -1"), "exporters[0].rate", "not negative"},
		"a negative concurrency":         {exporter("concurrency: -1"), "exporters[0].concurrency", "not negative"},
		"a prefix that is an address":    {exporter("allow_private: [127.0.0.1]"), "exporters[0].allow_private", "CIDR"},
		"plain http":                     {exporter("base_url: http://127.0.0.1:1"), "exporters[0].base_url", "https"},
		"no URL":                         {exporter("base_url: '://'"), "exporters[0].base_url", "https"},
		"a secret itself":                {exporter("secrets: {api_key: " + pasted + "}"), "exporters[0].secrets.api_key", "reference"},
		"a secret as the name":           {exporter("secrets: {" + pasted + ": x}"), "exporters[0].secrets", "names of secrets"},
		"a secret as a key":              {exporter("secrets: {" + pasted + "}"), "exporters[0].secrets", "names of secrets"},
		"a secret for the secrets":       {exporter("secrets: " + pasted), "exporters[0].secrets", "mapping"},
		"a secret as an unknown key":     {exporter(pasted + ": x"), "", "unknown"},
		"a secret in the wrong place":    {exporter("rate: " + pasted), "exporters[0].rate", "whole number"},
		"a secret beside broken YAML":    {exporter("secrets: {api_key: " + pasted + "\n  x: ]"), "config", "YAML"},
		"a feature mapped and ignored":   {exporter("mapping: {features: {tokens: {event_name: x}}, ignore: [tokens]}"), "exporters[0].mapping.ignore[0]", "mapping"},
		"a mapping of no feature":        {exporter("mapping: {features: {'': {event_name: x}}}"), "exporters[0].mapping.features", "names of features"},
		"a list of ignored non-features": {exporter("mapping: {ignore: ['*']}"), "exporters[0].mapping.ignore[0]", "name of a feature"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := config.Parse([]byte(tc.text))
			var e *sdk.Error
			if !errors.As(err, &e) || (e.Tag != sdk.TagInvalid && e.Tag != sdk.TagUnsupported) {
				t.Fatalf("%v, want a tagged error", err)
			}
			if (tc.field != "" && e.Field != tc.field) || !strings.Contains(e.Rule, tc.rule) || e.Rule == "" {
				t.Errorf("field %q, rule %q; want %q, …%q…", e.Field, e.Rule, tc.field, tc.rule)
			}
			if strings.Contains(err.Error(), pasted[8:]) {
				t.Errorf("the error repeats what was pasted: %v", err)
			}
		})
	}
}

// What formats.md states as defaults, number by number.
func TestDefaults(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"empty": "", "a comment": "# nothing\n", "a marker": "---\n", "empty sections": "outbox:\nlimits:\nstorage:\nplugins:\nconsole:\nmeters:\n",
	} {
		c, err := config.Parse([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		d := func(v time.Duration) config.Duration { return config.Duration(v) }
		wantOutbox := config.Outbox{
			Tick: d(time.Second), Page: 100, Lease: d(120 * time.Second), Base: d(5 * time.Second), Cap: d(900 * time.Second),
			Attempts: 20, RateLimitDelay: d(30 * time.Second), Horizon: d(23 * time.Hour), QuietTime: d(10 * time.Minute), BackwardStep: d(10 * time.Minute),
		}
		wantLimits := config.Limits{BatchEvents: 500, BatchBytes: 1_048_576, RecordConcurrency: 64, RecordTimeout: d(15 * time.Second)}
		if diff := cmp.Diff(wantOutbox, c.Outbox) + cmp.Diff(wantLimits, c.Limits); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		got := []string{c.Storage.Plugin, c.Storage.DSN, c.Listen, c.StateDir, c.Console.Mode, c.Plugins.Dir, c.Plugins.Lock}
		want := []string{"builtin:sqlite", "./fencepost.db", "127.0.0.1:8787", "./state", "read-only", "./plugins", "./plugins.lock"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if len(c.Exporters)+len(c.Meters)+len(c.Keys)+len(c.Features) != 0 {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// The zero value of an embedder is filled in the same way.
func TestZeroValueIsTheDefault(t *testing.T) {
	t.Parallel()
	parsed, err := config.Parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	filled := config.Config{}.WithDefaults()
	if diff := cmp.Diff(parsed, filled); diff != "" {
		t.Error(diff)
	}
	if err := filled.Validate(); err != nil {
		t.Error(err)
	}
}

// The example of design.md and the keys of formats.md, as they stand there.
func TestDocumentedExample(t *testing.T) {
	t.Parallel()
	c, err := config.Parse([]byte(`
storage: {plugin: "builtin:sqlite", dsn: "./fencepost.db"}        # or builtin:postgres, wasm:…, exec:…
listen: 127.0.0.1:8787
meters:                                                            # CloudEvent type -> feature
  - {feature: tokens, event_type: llm.completion, aggregation: sum, value: $.tokens, dimensions: {model: $.model}}
features:
  tokens: {source: events}                                        # or buffered; signed: true allows negatives
exporters:
  - name: stripe
    plugin: builtin:stripe
    account: acct_1
    mode: test                                                     # test | live, part of the identity
    secrets: {api_key: env:STRIPE_API_KEY}
    mapping: {version: 1, features: {tokens: {event_name: llm_tokens}}}
    base_url: "https://127.0.0.1:9999"
    ca_file: ./ca.pem
    allow_private: ["127.0.0.0/8"]
    rate: 25
    concurrency: 16
outbox: {tick: 2s, page: 10, lease: 60s, base: 1s, cap: 90s, attempts: 7, rate_limit_delay: 3s, horizon: 22h, quiet_time: 1m, backward_step: 1m}
limits: {batch_events: 50, batch_bytes: 64KiB, record_concurrency: 6, record_timeout: 1500ms}
state_dir: ./state
keys: []
console: {mode: read-only}
plugins: {dir: ./plugins, cache: ~/.cache/fencepost, lock: ./plugins.lock}
`))
	if err != nil {
		t.Fatal(err)
	}
	x := c.Exporters[0]
	if x.Account != "acct_1" || x.Mode != "test" || x.Secrets["api_key"] != "env:STRIPE_API_KEY" || x.Rate != 25 ||
		x.Mapping.Features["tokens"]["event_name"] != "llm_tokens" || x.CAFile != "./ca.pem" {
		t.Errorf("%+v", x)
	}
	if c.Limits.BatchBytes != 65536 || time.Duration(c.Limits.RecordTimeout) != 1500*time.Millisecond ||
		c.Outbox.Attempts != 7 || time.Duration(c.Outbox.Horizon) != 22*time.Hour || c.Plugins.Cache != "~/.cache/fencepost" {
		t.Errorf("%+v %+v", c.Limits, c.Outbox)
	}
	set, err := c.MeterSet()
	if err != nil || !set.Matches("llm.completion") {
		t.Errorf("%v", err)
	}
	if _, err := config.Parse([]byte("exporters: [{name: a, plugin: builtin:stripe, settings: {x: 0.5}, mapping: {version: 1.5}}]")); err != nil {
		t.Errorf("numbers that are not ours: %v", err)
	}
	if c, err := config.Parse([]byte("exporters: [{name: a, plugin: builtin:stripe}]")); err != nil || c.Exporters[0].Mode != "test" {
		t.Errorf("an exporter without mode: %+v, %v", c.Exporters, err)
	}
}

// A file that is none, or not one we can read, is named.
func TestBadFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	paths := map[string]string{
		"a folder":      dir,
		"missing":       filepath.Join(dir, "nowhere.yaml"),
		"in a file":     filepath.Join(write("plain", "", 0o600), "x.yaml"),
		"too large":     write("large.yaml", strings.Repeat("#", 1<<20)+"\n", 0o600),
		"a broken key":  write("broken.yaml", "outbox: {tock: 1s}", 0o600),
		"an empty name": "",
	}
	if os.Getuid() != 0 {
		paths["unreadable"] = write("secret.yaml", "", 0)
	}
	for name, path := range paths {
		_, err := config.Load(path)
		var e *sdk.Error
		if !errors.As(err, &e) || e.Tag != sdk.TagInvalid || e.Rule == "" || e.Field == "" {
			t.Errorf("%s: %v", name, err)
		}
		if name == "a broken key" && !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v does not name the file", name, err)
		}
	}
	// One byte less is a configuration.
	if _, err := config.Load(write("full.yaml", strings.Repeat("#", 1<<20-1)+"\n", 0o600)); err != nil {
		t.Errorf("exactly 1 MiB: %v", err)
	}
}

// The position of a fault is in the error, so that an editor finds it.
func TestErrorsNameTheLine(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"listen: 127.0.0.1:1\noutbox:\n  tick: banana\n", "listen: 127.0.0.1:1\noutbox:\n  tock: 1s\n", "listen: 127.0.0.1:1\noutbox:\n  tick: : 1\n"} {
		_, err := config.Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), "line 3") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// FuzzParse: any text gives a configuration that passes its own rules, or a
// tagged error with a rule that repeats no secret.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "a: b", "listen: 127.0.0.1:8787\noutbox: {tick: 1s, page: 5}", "exporters:\n- name: a\n  secrets: {api_key: " + pasted + "}\n",
		"limits: {batch_bytes: 64KiB}", "features: {t: {buckets: [[[[]]]]}}", "a: &x [*x]", "? [a]\n: b", "!!binary aGk=", "--- \n...\n", "\ufeffa: b",
		"storage: {<<: {dsn: x}}", "outbox: &o {tick: 1s}\nlimits: *o", pasted + ": 1", "meters: [{feature: f, event_type: t, aggregation: sum, value: $.a}]",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 4<<10 {
			t.Skip("long inputs only slow the parser down")
		}
		c, err := config.Parse(b)
		if err == nil {
			if err := c.Validate(); err != nil {
				t.Errorf("parsed and not valid: %v", err)
			}
			return
		}
		var e *sdk.Error
		if !errors.As(err, &e) || e.Rule == "" || e.Field == "" {
			t.Errorf("%v: not a tagged error with field and rule", err)
		}
		if strings.Contains(string(b), pasted) && strings.Contains(err.Error(), pasted) {
			t.Errorf("the error repeats a secret: %v", err)
		}
	})
}

// A plan is somebody's file: what would take gigabytes is refused before it is
// parsed. Found with 200 kB of brackets, which took 23 GB.
func TestDocumentIsBounded(t *testing.T) {
	t.Parallel()
	type list struct {
		Items []int `yaml:"items"`
	}
	bomb := "a: &a [1,1]\nb: &b [*a,*a]\nitems: *b\n"
	var steps, lists strings.Builder
	for i := range 100_000 {
		steps.WriteString(strings.Repeat(" ", min(i, 400)) + "a:\n")
		lists.WriteString("- ")
	}
	for name, text := range map[string]string{
		"brackets": "items: " + strings.Repeat("[", 100_000), "steps": steps.String(), "lists": lists.String() + "1\n",
		"keys": strings.Repeat("? ", 100_000), "aliases": bomb, "two": "items: [1]\n---\nitems: [2]\n", "unknown": "things: [1]\n", "not text": "\xff",
	} {
		var got list
		if err := config.Document([]byte(text), "FILE", &got); !errors.Is(err, sdk.ErrInvalid) || got.Items != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	var got list
	if err := config.Document([]byte("items: [1, 2]\n"), "FILE", &got); err != nil || len(got.Items) != 2 {
		t.Errorf("%v, %v", got, err)
	}
}
