package grant

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aead.dev/minisign"
	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
)

// emptyModule is a module with one custom section of somebody else.
var emptyModule = append(bytes.Clone(wasmHeader), 0, 5, 4, 'n', 'a', 'm', 'e')

func meterline() Manifest {
	return Manifest{
		Name: "meterline", Version: "1.0.0", Kind: KindExporter,
		Capabilities: []capability.Name{capability.HTTPName}, Hosts: []string{"api.example.com"}, Secrets: []string{"api_key"},
	}
}

// installed puts a plugin into a directory and returns its entry.
func installed(t *testing.T, dir string, m Manifest) Locked {
	t.Helper()
	module, err := EmbedManifest(emptyModule, m)
	if err != nil {
		t.Fatal(err)
	}
	p := Locked{
		Name: m.Name, Version: m.Version, Kind: m.Kind, File: m.Name + ".wasm", Isolation: Worker,
		Capabilities: m.Capabilities, Hosts: m.Hosts, Secrets: m.Secrets, Network: m.Network, SHA256: digest(module),
	}
	write(t, filepath.Join(dir, p.File), module, 0o644)
	return p
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func write(t *testing.T, path string, content []byte, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, content, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
}

func TestManifestInModule(t *testing.T) {
	t.Parallel()
	want := meterline()
	module, err := EmbedManifest(emptyModule, want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadManifest(module, []byte("not read: the module has its own"))
	if err != nil || cmp.Diff(want, got) != "" {
		t.Fatalf("%v %s", err, cmp.Diff(want, got))
	}
	want.Version = "2.0.0"
	again, err := EmbedManifest(module, want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ReadManifest(again, nil); err != nil || got.Version != "2.0.0" {
		t.Errorf("replaced: %+v, %v", got, err)
	}
	if !bytes.HasPrefix(again, emptyModule) || len(again) != len(module) {
		t.Error("the sections of others were not kept as they are")
	}
}

func TestManifestRefusals(t *testing.T) {
	t.Parallel()
	with := func(change func(*Manifest)) Manifest {
		m := meterline()
		change(&m)
		return m
	}
	for field, m := range map[string]Manifest{
		"manifest.name":            with(func(m *Manifest) { m.Name = "../evil" }),
		"manifest.version":         with(func(m *Manifest) { m.Version = "1 0" }),
		"manifest.kind":            with(func(m *Manifest) { m.Kind = "" }),
		"manifest.capabilities[1]": with(func(m *Manifest) { m.Capabilities = append(m.Capabilities, "shell") }),
		"manifest.hosts[0]":        with(func(m *Manifest) { m.Hosts = []string{"a\nb"} }),
		"manifest.secrets[0]":      with(func(m *Manifest) { m.Secrets = []string{""} }),
	} {
		_, err := EmbedManifest(emptyModule, m)
		if e, ok := errors.AsType[*sdk.Error](err); !ok || e.Field != field || e.Tag != sdk.TagInvalid {
			t.Errorf("%s: %v", field, err)
		}
	}
	for name, text := range map[string]string{
		"unknown field": `{"name":"a","version":"1","kind":"exporter","wants":"all"}`,
		"two objects":   `{"name":"a","version":"1","kind":"exporter"}{}`,
		"no JSON":       `name: a`,
	} {
		if _, err := ReadManifest([]byte("ELF"), []byte(text)); !errors.Is(err, sdk.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ReadManifest(emptyModule, nil); !errors.Is(err, ErrNoManifest) {
		t.Errorf("absent: %v", err)
	}
	one, err := EmbedManifest(emptyModule, meterline())
	if err != nil {
		t.Fatal(err)
	}
	twice := append(bytes.Clone(one), one[len(emptyModule):]...)
	if _, err := ReadManifest(twice, nil); !errors.Is(err, sdk.ErrInvalid) {
		t.Errorf("two manifests: %v", err)
	}
	for n := len(wasmHeader) + 1; n < len(one); n++ {
		if n != len(emptyModule) { // there a whole module without a manifest ends
			if _, err := ReadManifest(one[:n], nil); !errors.Is(err, sdk.ErrInvalid) || errors.Is(err, ErrNoManifest) {
				t.Errorf("cut after %d bytes: %v", n, err)
			}
		}
	}
}

// Point 3 of plugins: what is checked at every load, each with a rule and the
// command that mends it.
func TestOpenChecks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code   string
		change func(t *testing.T, dir string, p *Locked)
	}{
		"not installed": {"plugin_not_installed", func(_ *testing.T, _ string, p *Locked) { p.Name = "other" }},
		"disabled":      {"plugin_disabled", func(_ *testing.T, _ string, p *Locked) { p.Disabled = true }},
		"swapped file": {"checksum_mismatch", func(t *testing.T, dir string, p *Locked) {
			write(t, filepath.Join(dir, p.File), emptyModule, 0o644)
		}},
		"removed file": {"plugin_file", func(t *testing.T, dir string, p *Locked) {
			if err := os.Remove(filepath.Join(dir, p.File)); err != nil {
				t.Fatal(err)
			}
		}},
		"writable file": {"plugin_file", func(t *testing.T, dir string, p *Locked) {
			if err := os.Chmod(filepath.Join(dir, p.File), 0o666); err != nil {
				t.Fatal(err)
			}
		}},
		"writable directory": {"plugin_file", func(t *testing.T, dir string, _ *Locked) {
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
		}},
		"a FIFO":            {"plugin_file", func(t *testing.T, dir string, p *Locked) { p.File = "dir"; mkdir(t, filepath.Join(dir, "dir")) }},
		"more capabilities": {"not_granted", func(_ *testing.T, _ string, p *Locked) { p.Capabilities = nil }},
		"more hosts":        {"not_granted", func(_ *testing.T, _ string, p *Locked) { p.Hosts = []string{"api.example.org"} }},
		"more secrets":      {"not_granted", func(_ *testing.T, _ string, p *Locked) { p.Secrets = nil }},
		"other version":     {"not_granted", func(_ *testing.T, _ string, p *Locked) { p.Version = "0.9.0" }},
		"no signature":      {"signature", func(_ *testing.T, _ string, p *Locked) { p.PublicKey = somebody.String() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "plugins")
			mkdir(t, dir)
			p := installed(t, dir, meterline())
			if _, err := (Lock{Plugins: []Locked{p}}).Open(dir, "meterline"); err != nil {
				t.Fatalf("before: %v", err)
			}
			c.change(t, dir, &p)
			_, err := (Lock{Plugins: []Locked{p}}).Open(dir, "meterline")
			e, ok := errors.AsType[*sdk.Error](err)
			if !ok || e.Code != c.code || e.Tag != sdk.TagInvalid || !strings.Contains(e.Field, "meterline") || !strings.Contains(e.Hint+e.Rule, "plugin") {
				t.Errorf("%v", err)
			}
		})
	}
}

var somebody, _, _ = minisign.GenerateKey(rand.Reader)

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestOpenSigned(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "plugins")
	mkdir(t, dir)
	public, private, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := installed(t, dir, meterline())
	p.PublicKey = public.String()
	module, err := os.ReadFile(filepath.Join(dir, p.File))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, p.File+SignatureSuffix)
	write(t, path, minisign.Sign(private, module), 0o644)
	if got, err := p.Open(dir); err != nil || !bytes.Equal(got.Bytes, module) {
		t.Fatal(err)
	}
	write(t, path, minisign.Sign(private, append(module, 0)), 0o644)
	if _, err := p.Open(dir); !errors.Is(err, sdk.ErrInvalid) {
		t.Errorf("a signature over other bytes: %v", err)
	}
}

// The lock is what was written, and a damaged or shared one allows nothing.
func TestLockFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "plugins.lock")
	if l, err := LoadLock(path); err != nil || len(l.Plugins) != 0 {
		t.Fatalf("absent: %+v, %v", l, err)
	}
	var want Lock
	b := installed(t, dir, meterline())
	a := b
	a.Name, a.Previous = "another", &b
	want.Put(b)
	want.Put(a)
	want.Put(b)
	if err := want.Save(path); err != nil {
		t.Fatal(err)
	}
	got, err := LoadLock(path)
	if diff := cmp.Diff(Lock{Plugins: []Locked{a, b}}, got); err != nil || diff != "" {
		t.Fatalf("%v\n%s", err, diff)
	}
	if !got.Remove("another") || got.Remove("another") || len(got.Plugins) != 1 {
		t.Errorf("removed: %+v", got)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"cut":           string(good[:len(good)/2]),
		"empty":         "",
		"unknown field": `{"plugins":[],"all":true}`,
		"key twice":     strings.Replace(string(good), `"sha256": "`, `"sha256": "`+strings.Repeat("0", 64)+`", "sha256": "`, 1),
		"other case":    strings.Replace(string(good), `"hosts"`, `"Hosts"`, 1),
		"folded key":    strings.Replace(string(good), `"hosts"`, `"host\u017f"`, 1),
		"path":          strings.Replace(string(good), `"file": "meterline.wasm"`, `"file": "../meterline.wasm"`, 1),
		"digest":        strings.Replace(string(good), b.SHA256, strings.ToUpper(b.SHA256), 1),
		"isolation":     strings.Replace(string(good), `"isolation": "worker"`, `"isolation": ""`, 1),
		"twice":         strings.Replace(string(good), `"name": "another"`, `"name": "meterline"`, 1),
	} {
		write(t, path, []byte(text), 0o644)
		if l, err := LoadLock(path); !errors.Is(err, sdk.ErrInvalid) || len(l.Plugins) != 0 {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
	}
	write(t, path, good, 0o664)
	if _, err := LoadLock(path); !errors.Is(err, sdk.ErrInvalid) {
		t.Errorf("writable by the group: %v", err)
	}
}

func FuzzReadManifest(f *testing.F) {
	good, err := EmbedManifest(emptyModule, meterline())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, []byte(nil))
	f.Add([]byte("ELF"), []byte(`{"name":"a","version":"1","kind":"storage"}`))
	f.Fuzz(func(t *testing.T, file, sidecar []byte) {
		m, err := ReadManifest(file, sidecar)
		if err != nil {
			if !errors.Is(err, sdk.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		module, err := EmbedManifest(emptyModule, m)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ReadManifest(module, nil); err != nil || cmp.Diff(m, again) != "" {
			t.Fatalf("%v\n%s", err, cmp.Diff(m, again))
		}
	})
}
