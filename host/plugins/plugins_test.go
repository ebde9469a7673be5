package plugins

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"aead.dev/minisign"

	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// bench is a folder, and a module that describes itself as "meterline" of
// version 1.2.0 and imports http.
type bench struct {
	*testing.T

	Folder

	wasm []byte
	from string // where files come from
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dir := t.TempDir()
	from := filepath.Join(dir, "from")
	if err := os.Mkdir(from, 0o755); err != nil {
		t.Fatal(err)
	}
	return &bench{t, Folder{Dir: filepath.Join(dir, "plugins"), Lock: filepath.Join(dir, "plugins.lock")}, describing(exporter.Manifest{
		Name: "meterline", Version: version, Capabilities: []capability.Name{capability.HTTPName}, Hosts: []string{"api.example.com"},
		Secrets: []exporter.Secret{{Name: "api_key", Header: "Authorization"}}, Webhook: &exporter.WebhookSignature{Secret: "webhook_secret"},
	}), from}
}

const version = "1.2.0"

// describing builds a module that answers every call with this manifest: the
// smallest that an exporter can be.
func describing(m exporter.Manifest) []byte {
	uleb := func(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }
	text := func(s string) []byte { return append(uleb(len(s)), s...) }
	list := func(items ...[]byte) []byte { return append(uleb(len(items)), slices.Concat(items...)...) }
	section := func(id byte, content []byte) []byte { return slices.Concat([]byte{id}, uleb(len(content)), content) }
	number := func(n int) []byte { // i32.const, of at most 27 bits
		return []byte{0x41, byte(n) | 0x80, byte(n>>7) | 0x80, byte(n>>14) | 0x80, byte(n >> 21 & 0x3f)}
	}
	answer := wirev1.EncodeManifest(m)
	body := slices.Concat([]byte{0}, number(0), number(len(answer)), []byte{0x10, 1}, number(0), []byte{0x0b})
	return slices.Concat([]byte("\x00asm\x01\x00\x00\x00"),
		section(1, list([]byte{0x60, 2, 0x7f, 0x7f, 1, 0x7f}, []byte{0x60, 2, 0x7f, 0x7f, 0}, []byte{0x60, 0, 0})),
		section(2, list(slices.Concat(text(wirev1.ImportHTTP), text("send"), []byte{0, 0}), slices.Concat(text(wirev1.ImportIO), text("output_write"), []byte{0, 1}))),
		section(3, list([]byte{0}, []byte{2})),
		section(5, list([]byte{0, 1})),
		section(7, list(append(text("memory"), 2, 0), append(text(wirev1.ExportCall), 0, 2), append(text(wirev1.ExportVersion), 0, 3))),
		section(10, list(slices.Concat(uleb(len(body)), body), []byte{2, 0, 0x0b})),
		section(11, list(slices.Concat([]byte{0}, number(0), []byte{0x0b}, uleb(len(answer)), answer))),
	)
}

// manifest is what the module has to declare.
func manifest() grant.Manifest {
	return grant.Manifest{
		Name: "meterline", Version: version, Kind: grant.KindExporter, Capabilities: []capability.Name{capability.HTTPName},
		Hosts: []string{"api.example.com"}, Secrets: []string{"api_key", "webhook_secret"},
	}
}

// file writes a module with a manifest and returns its path.
func (b *bench) file(m grant.Manifest) string {
	b.Helper()
	content, err := grant.EmbedManifest(b.wasm, m)
	if err != nil {
		b.Fatal(err)
	}
	path := filepath.Join(b.from, "plugin.wasm")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		b.Fatal(err)
	}
	return path
}

func (b *bench) examine(m grant.Manifest) *Candidate {
	b.Helper()
	c, err := b.Examine(b.Context(), b.file(m))
	if err != nil {
		b.Fatal(err)
	}
	return c
}

func code(err error) string {
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		return e.Code
	}
	return ""
}

// Points 3 and 4: a grant is of one content and of what it wanted; more wants a
// new grant, and the version before stays at hand.
func TestInstall(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.examine(manifest())
	if c.Exporter == nil || c.Exporter.Name != "meterline" {
		t.Fatalf("described as %+v", c.Exporter)
	}
	if _, err := b.Install(c, Terms{}); !errors.Is(err, ErrWants) || code(err) != "not_granted" {
		t.Fatalf("without a grant: %v", err)
	}
	if _, err := os.Stat(b.Dir); !os.IsNotExist(err) {
		t.Error("a refused installation left files")
	}
	first, err := b.Install(c, Terms{Accept: true})
	if err != nil || first.Isolation != grant.Worker {
		t.Fatalf("%+v, %v", first, err)
	}
	if again, err := b.Install(c, Terms{}); err != nil || again.Previous != nil {
		t.Errorf("the same once more: %+v, %v", again, err)
	}

	wider := manifest()
	wider.Capabilities = append(wider.Capabilities, capability.RandomName)
	w := b.examine(wider)
	if more, _, err := b.Wants(w); err != nil || !slices.Equal(more, []string{"capability random"}) {
		t.Errorf("wants %v, %v", more, err)
	}
	if _, err := b.Install(w, Terms{}); !errors.Is(err, ErrWants) {
		t.Errorf("a wider version: %v", err)
	}
	if _, err := b.Install(w, Terms{Accept: true}); code(err) != "version_reused" {
		t.Errorf("another content under the same version: %v", err)
	}
	lock, err := grant.LoadLock(b.Lock)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := lock.Open(b.Dir, "meterline"); err != nil || got.SHA256 != first.SHA256 {
		t.Errorf("what was refused replaced something: %+v, %v", got.Locked, err)
	}
}

func TestRefusedFiles(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	less := manifest()
	less.Capabilities = []capability.Name{capability.LogName}
	if _, err := b.Examine(t.Context(), b.file(less)); code(err) != "capability_not_declared" {
		t.Errorf("imports what it does not declare: %v", err)
	}
	host := manifest()
	host.Hosts = nil
	if _, err := b.Examine(t.Context(), b.file(host)); code(err) != "not_declared" {
		t.Errorf("describes a host that its manifest lacks: %v", err)
	}
	other := manifest()
	other.Version = "1.3.0"
	if _, err := b.Examine(t.Context(), b.file(other)); code(err) != "not_declared" {
		t.Errorf("describes another version than its manifest: %v", err)
	}
	bare := filepath.Join(b.from, "bare.wasm")
	if err := os.WriteFile(bare, b.wasm, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Examine(t.Context(), bare); code(err) != "no_manifest" {
		t.Errorf("without a manifest: %v", err)
	}
	c := b.examine(manifest())
	if _, err := b.Install(c, Terms{Accept: true, Isolation: grant.Process}); !errors.Is(err, sdk.ErrInvalid) {
		t.Errorf("a module as a process: %v", err)
	}
}

// A key that was asked for once is asked for in every version after.
func TestSignedVersions(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	public, private, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	path := b.file(manifest())
	if c := b.examine(manifest()); c.Signed {
		t.Fatal("signed before it was")
	} else if _, err := b.Install(c, Terms{Accept: true, PublicKey: public.String()}); code(err) != "signature" {
		t.Errorf("unsigned: %v", err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+grant.SignatureSuffix, minisign.Sign(private, content), 0o600); err != nil {
		t.Fatal(err)
	}
	signed, err := b.Examine(t.Context(), path)
	if err != nil || !signed.Signed {
		t.Fatal(err)
	}
	if _, err := b.Install(signed, Terms{Accept: true, PublicKey: public.String()}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path + grant.SignatureSuffix); err != nil {
		t.Fatal(err)
	}
	unsigned, err := b.Examine(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Install(unsigned, Terms{Accept: true}); code(err) != "signature" {
		t.Errorf("a later version without a signature: %v", err)
	}
}

// Programs are not run; their manifest lies beside them. Switching, going back
// and removing change the lock and the folder together.
func TestProgramVersions(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	program := func(version, content string) *Candidate {
		path := filepath.Join(b.from, "meterline")
		text := `{"name":"meterline","version":"` + version + `","kind":"storage","network":true}`
		for name, text := range map[string]string{path: content, path + grant.ManifestSuffix: text} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c, err := b.Examine(t.Context(), path)
		if err != nil || !c.Native {
			t.Fatalf("%+v, %v", c, err)
		}
		return c
	}
	one, two := program("1", "#!/bin/one"), program("2", "#!/bin/two")
	if more, _, err := b.Wants(one); err != nil || !slices.Equal(more, []string{"network"}) {
		t.Errorf("wants %v, %v", more, err)
	}
	first, err := b.Install(one, Terms{Accept: true})
	if err != nil || first.Isolation != grant.Process {
		t.Fatalf("%+v, %v", first, err)
	}
	if _, err := b.Install(two, Terms{}); err != nil { // wants nothing more
		t.Fatal(err)
	}
	open := func() (grant.Plugin, error) {
		lock, err := grant.LoadLock(b.Lock)
		if err != nil {
			t.Fatal(err)
		}
		return lock.Open(b.Dir, "meterline")
	}
	if p, err := open(); err != nil || string(p.Bytes) != "#!/bin/two" || p.Previous.Version != "1" {
		t.Errorf("after the second: %+v, %v", p.Locked, err)
	}
	if back, err := b.Rollback("meterline"); err != nil || back.Version != "1" || back.Previous.Version != "2" {
		t.Errorf("back: %+v, %v", back, err)
	}
	if p, err := open(); err != nil || string(p.Bytes) != "#!/bin/one" {
		t.Errorf("after going back: %+v, %v", p.Locked, err)
	}
	for _, disabled := range []bool{true, false} {
		if err := b.SetDisabled("meterline", disabled); err != nil {
			t.Fatal(err)
		}
		if _, err := open(); (code(err) == "plugin_disabled") != disabled {
			t.Errorf("disabled %v: %v", disabled, err)
		}
	}
	if err := b.Remove("meterline"); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(b.Dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	for name, err := range map[string]error{"remove": b.Remove("meterline"), "disable": b.SetDisabled("meterline", true)} {
		if !errors.Is(err, sdk.ErrNotFound) {
			t.Errorf("%s of what is not there: %v", name, err)
		}
	}
	if _, err := b.Rollback("meterline"); !errors.Is(err, sdk.ErrNotFound) {
		t.Errorf("back without any: %v", err)
	}
}
