package workbench

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/examples"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest/conformance"
	sources "github.com/fencepost/fencepost/sdk"
)

// root is the folder of this project.
const root = "../../.."

func begin(t *testing.T, l Language, name string) Beginning {
	t.Helper()
	b := Beginning{
		Language: l, Kind: grant.KindExporter, Name: name, Dir: filepath.Join(t.TempDir(), name), Checkout: root,
		Examples: examples.Sources, SDKs: sources.SDKs,
	}
	files, err := b.Files()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Write(files); err != nil {
		t.Fatal(err)
	}
	return b
}

// Issue 5, point 5: what is begun is the sample under another name, and nothing
// of the sample's name is left in it.
func TestBegin(t *testing.T) {
	t.Parallel()
	for l, wants := range map[Language][]string{
		Go:             {"main.go", "go.mod", "go.sum", "mymeter/mymeter.go", "mymeter/answer.go", "mymeter/mymeter_test.go"},
		C:              {"my-meter.c", "fencepost.h"},
		Rust:           {"Cargo.toml", "src/lib.rs", "fencepost/Cargo.toml", "fencepost/src/lib.rs"},
		AssemblyScript: {"my-meter.ts", "package.json", "fencepost/assembly/index.ts"},
	} {
		t.Run(string(l), func(t *testing.T) {
			t.Parallel()
			b := begin(t, l, "my-meter")
			for _, want := range append(wants, "provider.json", "README.md", ".gitignore", "testdata/accepted/conversation.json") {
				text, err := os.ReadFile(filepath.Join(b.Dir, want))
				if err != nil {
					t.Error(err)
				}
				if bytes.Contains(bytes.ToLower(text), []byte(exporterSample)) && want != "fencepost.h" {
					t.Errorf("%s still has the sample's name", want)
				}
			}
			if found, err := DetectLanguage(b.Dir); err != nil || found != l {
				t.Errorf("detected as %s, %v", found, err)
			}
			files, err := b.Files()
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Write(files); !errors.Is(err, sdk.ErrInvalid) {
				t.Errorf("written over: %v", err)
			}
		})
	}
	storage := Beginning{Language: Go, Kind: grant.KindStorage, Name: "my-store", Checkout: root, Examples: examples.Sources, SDKs: sources.SDKs}
	files, err := storage.Files()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if strings.Contains(name+string(text), storageSample) {
			t.Errorf("%s still has the sample's name", name)
		}
	}
	for _, want := range []string{"main.go", "manifest.json", "mystore/mystore.go", "mystore/mystore_test.go", "go.mod"} {
		if files[want] == nil {
			t.Errorf("no %s", want)
		}
	}
	for name, change := range map[string]func(*Beginning){
		"NAME":     func(b *Beginning) { b.Name = "Meter" },
		"--kind":   func(b *Beginning) { b.Kind = "console" },
		"--lang":   func(b *Beginning) { b.Language = "perl" },
		"--module": func(b *Beginning) { b.Module = "a b" },
		"--sdk":    func(b *Beginning) { b.Checkout = t.TempDir() },
	} {
		b := Beginning{Language: Go, Kind: grant.KindExporter, Name: "m", Checkout: root, Examples: examples.Sources, SDKs: sources.SDKs}
		change(&b)
		_, err := b.Files()
		if tagged, ok := errors.AsType[*sdk.Error](err); !ok || tagged.Tag != sdk.TagInvalid || tagged.Field != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	released := Beginning{Language: Go, Kind: grant.KindExporter, Name: "m", Version: "v1.2.3", Module: "example.org/x/m", Examples: examples.Sources}
	if files, err = released.Files(); err != nil {
		t.Fatal(err)
	}
	want := "module example.org/x/m\n\ngo 1.26.0\n\nrequire github.com/fencepost/fencepost v1.2.3\n"
	if got := string(files["go.mod"]); got != want || !strings.Contains(string(files["main.go"]), `"example.org/x/m/m"`) {
		t.Errorf("against a released version: %s\n%s", got, files["main.go"])
	}
	for _, l := range []Language{C, Rust, AssemblyScript} {
		b := Beginning{Language: l, Kind: grant.KindStorage, Name: "m"}
		if _, err := b.Files(); !errors.Is(err, sdk.ErrUnsupported) {
			t.Errorf("storage in %s: %v", l, err)
		}
	}
}

// A compiler that is missing is named, with how to get it.
func TestMissingCompiler(t *testing.T) { //nolint:paralleltest // it changes the environment
	if exists("/usr/bin/rustc") {
		t.Log("rustc of this machine is found without a path")
	}
	for l, want := range map[Language]string{Go: "https://go.dev", C: "apt install clang lld", AssemblyScript: "npm install"} {
		b := begin(t, l, "meter")
		t.Setenv("PATH", t.TempDir())
		_, err := Machine{}.Build(t.Context(), Building{Dir: b.Dir})
		tagged, ok := errors.AsType[*sdk.Error](err)
		if !ok || tagged.Tag != sdk.TagUnsupported || tagged.Code != "compiler_missing" || !strings.Contains(tagged.Hint, want) {
			t.Errorf("%s: %v", l, err)
		}
	}
}

func TestCargo(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"[package]\nname = \"a-b\"\n[dependencies]\nfencepost = { path = \"fencepost\" }\n":                                   true,
		"[package]\nname = \"a-b\"\n[dependencies]\nfencepost = { path = \"fencepost\" }\nserde = \"1\"\n":                    false,
		"[package]\nname = \"a-b\"\n[dependencies]\nfencepost = \"0.1\"\n":                                                    false,
		"[package]\nname = \"a-b\"\n[dependencies.fencepost]\npath = \"fencepost\"\n":                                         false,
		"[package]\nname = \"a-b\"\n[build-dependencies]\ncc = \"1\"\n[dependencies]\nfencepost = { path = \"fencepost\" }\n": false,
	} {
		crate, path, alone := cargo(text)
		if crate != "a-b" || alone != want || want && path != "fencepost" {
			t.Errorf("%q: %s %s %v", text, crate, path, alone)
		}
	}
}

// odd builds the exporter of testdata.
func odd(t *testing.T) (Machine, Artifact) {
	t.Helper()
	for _, program := range []string{"clang", "wasm-ld"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s", program)
		}
	}
	dir := t.TempDir()
	for from, to := range map[string]string{"testdata/odd/odd.c": "odd.c", root + "/sdk/c/fencepost.h": "fencepost.h"} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, to), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := Machine{CacheDir: filepath.Join(t.TempDir(), "cache")}
	built, err := m.Build(t.Context(), Building{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	a, err := Load(built.Path)
	if err != nil {
		t.Fatal(err)
	}
	if a.SHA256() != built.SHA256() || a.Manifest.Name != "odd" || !slices.Equal(a.Manifest.Hosts, []string{"api.odd.example"}) {
		t.Errorf("%+v", a.Manifest)
	}
	return m, a
}

func oddInput(t *testing.T, customers ...string) Input {
	t.Helper()
	items := `{"customer":"` + strings.Join(customers, `","value":"1"},{"customer":"`) + `","value":"1"}`
	in, err := parseInput([]byte(`{"configuration":{},"items":[` + items + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	return in
}

var acceptsAll = &conformance.Declared{Provider: mustProvider(`{"identifier":{"header":"Idempotency-Key"},"answers":{"accept":{"status":200,"body":{}},"refuse":{"status":500}}}`)}

func mustProvider(text string) conformance.Provider {
	d, err := conformance.ParseProvider([]byte(text))
	if err != nil {
		panic(err)
	}
	return d.Provider
}

// What the plugin says is put beside what the host saw, and what the host would
// refuse is said.
func TestTryTells(t *testing.T) {
	t.Parallel()
	m, a := odd(t)
	for customer, want := range map[string]struct {
		say      conformance.Answer
		problem  string
		saw      exporter.HostClass
		refused  string
		requests int
	}{
		"honest":    {conformance.Accept, "", exporter.ClassSuccess, "", 1},
		"liar":      {conformance.Refuse, "the host saw none of", exporter.ClassIndefinite, "", 1},
		"modest":    {conformance.Refuse, "", exporter.ClassIndefinite, "", 1},
		"twice":     {conformance.Accept, "2 outcomes", exporter.ClassSuccess, "", 1},
		"silent":    {conformance.Accept, "0 outcomes", "", "", 0},
		"elsewhere": {conformance.Accept, "the host saw none of", exporter.ClassNotSent, "host_not_granted", 1},
	} {
		r, err := m.Try(t.Context(), Trial{Artifact: a, Input: oddInput(t, customer), Provider: acceptsAll, Say: want.say})
		if err != nil {
			t.Fatalf("%s: %v", customer, err)
		}
		problems := strings.Join(r.Problems, "\n")
		if (problems == "") != (want.problem == "") || !strings.Contains(problems, want.problem) {
			t.Errorf("%s: problems %q", customer, problems)
		}
		if len(r.Requests) != want.requests || want.requests > 0 && r.Requests[0].Refused != want.refused {
			t.Errorf("%s: %+v", customer, r.Requests)
		}
		if len(r.Log) != want.requests || want.requests > 0 && r.Log[0] != (LogLine{"WARN", customer}) {
			t.Errorf("%s: log %+v", customer, r.Log)
		}
		if want.saw != "" && (len(r.Outcomes) == 0 || !slices.Equal(r.Outcomes[0].Saw, []exporter.HostClass{want.saw})) {
			t.Errorf("%s: %+v", customer, r.Outcomes)
		}
	}
	if _, err := m.Try(t.Context(), Trial{Artifact: a, Input: oddInput(t, "trap")}); !errors.Is(err, sdk.ErrInvalid) || !strings.Contains(err.Error(), "plugin odd version 1.0.0: answers deliver") {
		t.Errorf("a trap: %v", err)
	}
	in := oddInput(t, "honest")
	in.Configuration.Account = "nobody"
	if _, err := m.Try(t.Context(), Trial{Artifact: a, Input: in}); err == nil || !strings.Contains(err.Error(), "account: somebody") {
		t.Errorf("a configuration that is not taken: %v", err)
	}
}

// Time and chance of a recording are had again: the same conversation comes of
// it, however often; another one is told apart.
func TestReplayIsTheSame(t *testing.T) {
	t.Parallel()
	m, a := odd(t)
	in := oddInput(t, "honest", "modest")
	first, err := m.Try(t.Context(), Trial{Artifact: a, Input: in, Provider: acceptsAll, Say: conformance.Accept, Record: true})
	if err != nil {
		t.Fatal(err)
	}
	second, err := m.Try(t.Context(), Trial{Artifact: a, Input: in, Provider: acceptsAll, Say: conformance.Accept, Record: true})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "c.json")
	if err := first.Conversation.Write(path); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c, err := ReadConversation(path)
		if err != nil {
			t.Fatal(err)
		}
		r, err := m.Try(t.Context(), Trial{Artifact: a, Input: in, Replay: c})
		if err != nil || len(r.Problems) > 0 {
			t.Fatalf("%v %v", err, r)
		}
	}
	// Another chance is another request, so the seed counts.
	r, err := m.Try(t.Context(), Trial{Artifact: a, Input: in, Replay: second.Conversation})
	if err != nil || len(r.Problems) > 0 {
		t.Fatalf("%v %v", err, r)
	}
	second.Conversation.Seed = first.Conversation.Seed
	differ := first.Conversation.Exchanges[0].Request.Headers[1] != second.Conversation.Exchanges[0].Request.Headers[1]
	if r, err := m.Try(t.Context(), Trial{Artifact: a, Input: in, Replay: second.Conversation}); err != nil || differ && len(r.Problems) == 0 {
		t.Errorf("another seed: %v %v", err, r.Problems)
	}
	for name, change := range map[string]func(*Conversation){
		"later":   func(c *Conversation) { c.Started = c.Started.Add(1e9) },
		"fewer":   func(c *Conversation) { c.Exchanges = c.Exchanges[:1] },
		"more":    func(c *Conversation) { c.Exchanges = append(c.Exchanges, c.Exchanges[0]) },
		"another": func(c *Conversation) { c.Exchanges[1].Request.Body = "2" },
		"refused": func(c *Conversation) { c.Exchanges[0].Answer.Status = 500 },
	} {
		c, err := ReadConversation(path)
		if err != nil {
			t.Fatal(err)
		}
		change(c)
		if r, err := m.Try(t.Context(), Trial{Artifact: a, Input: in, Replay: c}); err != nil || len(r.Problems) == 0 {
			t.Errorf("%s: %v %v", name, err, r.Problems)
		}
	}
}

func TestInputRules(t *testing.T) {
	t.Parallel()
	for text, field := range map[string]string{
		`{}`:                         "input.items",
		`{"items":[{"value":"x"}]}`:  "input",
		`{"items":[{"value":"1"}]}x`: "input",
		`{"items":[{}]}`:             "input.items[0].value",
		`{"items":[{"value":1,"kind":"credit"}]}`:                "input.items[0].kind",
		`{"items":[{"value":1,"kind":"correction"}]}`:            "input.items[0].corrects",
		`{"items":[{"value":1,"id":"2"},{"value":1}]}`:           "input.items[1].id",
		`{"items":[{"value":1,"corrects":{"method":"cancel"}}]}`: "input.items[0].corrects",
	} {
		_, err := parseInput([]byte(text))
		if tagged, ok := errors.AsType[*sdk.Error](err); !ok || tagged.Tag != sdk.TagInvalid || tagged.Field != field {
			t.Errorf("%s: %v", text, err)
		}
	}
	in, err := parseInput([]byte(`{"configuration":{"account":"a","mode":"live"},"items":[{"value":1e3},{"value":"0.10","account":""}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := in.Items[0]; got.Value != "1000" || got.Account != "a" || got.Mode != "live" || got.Identifier != "fencepost_1" || got.Attempt != 1 || got.Kind != "event" {
		t.Errorf("%+v", got)
	}
	if in.Items[1].Account != "" || in.Items[1].Value != "0.1" {
		t.Errorf("%+v", in.Items[1])
	}
}

func TestConversationRules(t *testing.T) {
	t.Parallel()
	seed := strings.Repeat("00", 32)
	for text, field := range map[string]string{
		`{"started":"2026-01-01T00:00:00Z","seed":"00","exchanges":[]}`:                                               "conversation.seed",
		`{"started":"2026-01-01T00:00:00Z","seed":"` + seed + `","exchange":[]}`:                                      "conversation",
		`{"seed":"` + seed + `","exchanges":[{"request":{},"answer":{"status":200,"failure":"unknown"}}]}`:            "conversation.exchanges[0].answer",
		`{"seed":"` + seed + `","exchanges":[{"request":{},"answer":{}}]}`:                                            "conversation.exchanges[0].answer",
		`{"seed":"` + seed + `","exchanges":[{"request":{},"answer":{"failure":"late"}}]}`:                            "conversation.exchanges[0].answer.failure",
		`{"seed":"` + seed + `","exchanges":[{"request":{"body_base64":"!"},"answer":{"status":200}}]}`:               "conversation.exchanges[0]",
		`{"seed":"` + seed + `","exchanges":[{"request":{"body":"a","body_base64":"YQ=="},"answer":{"status":200}}]}`: "conversation.exchanges[0]",
	} {
		path := filepath.Join(t.TempDir(), "c.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ReadConversation(path)
		if tagged, ok := errors.AsType[*sdk.Error](err); !ok || tagged.Tag != sdk.TagInvalid || tagged.Field != field {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A body that is no text survives a recording.
func TestContent(t *testing.T) {
	t.Parallel()
	for _, body := range [][]byte{nil, []byte("a\x00b"), {0xff, 0xfe}, []byte("€")} {
		if got := contentOf(body).bytes(); !bytes.Equal(got, body) {
			t.Errorf("%q became %q", body, got)
		}
	}
}

// A manifest beside the source has to agree with what the plugin says.
func TestBuildComparesManifest(t *testing.T) {
	t.Parallel()
	_, a := odd(t)
	dir := filepath.Dir(a.Path)
	for text, want := range map[string]string{
		`{"name":"odd","version":"1.0.0","kind":"exporter","capabilities":["http","clock"],"hosts":["api.odd.example"]}`:                 "random",
		`{"name":"even","version":"1.0.0","kind":"exporter","capabilities":["http","clock","random","log"],"hosts":["api.odd.example"]}`: "the name odd",
		`{"name":"odd","version":"1.0.0"}`: "manifest.kind",
	} {
		if err := os.WriteFile(filepath.Join(dir, ManifestFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := (Machine{}).Build(t.Context(), Building{Dir: dir}); !errors.Is(err, sdk.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "odd.c"), []byte("int x = ;"), 0o600); err != nil {
		t.Fatal(err)
	}
	var said string
	m := Machine{Compiler: func(text string) { said = text }}
	if _, err := m.Build(t.Context(), Building{Dir: dir}); !errors.Is(err, sdk.ErrInvalid) || !strings.Contains(said, "expected expression") {
		t.Errorf("%v; the compiler: %q", err, said)
	}
}
