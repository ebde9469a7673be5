package workbench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/host/carrier/wasm"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/host/plugins"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// ManifestFile is where the source of a plugin has its manifest, if it cannot say
// itself what it is, as an exporter can.
const ManifestFile = "manifest.json"

// Building is how a plugin is built.
type Building struct {
	// Dir holds the source.
	Dir string
	// Native builds a program and not a module.
	Native bool
	// Out is the file; empty: NAME.wasm in Dir, or bin/NAME for a program.
	Out string
}

// Built is a plugin that was built.
type Built struct {
	Artifact

	Language Language
	Compiler string
	// Exporter is what it says of itself; nil if it is none.
	Exporter *exporter.Manifest
}

// DetectLanguage tells the language of a plugin's source by its files.
func DetectLanguage(dir string) (Language, error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", sdk.Invalid("DIR", "a folder with the source of a plugin")
	}
	for _, l := range []struct {
		language Language
		patterns []string
	}{
		{Rust, []string{"Cargo.toml"}}, {AssemblyScript, []string{"package.json", "asconfig.json"}}, {Go, []string{"*.go"}}, {C, []string{"*.c"}},
	} {
		for _, p := range l.patterns {
			if found, err := filepath.Glob(filepath.Join(dir, p)); err == nil && len(found) > 0 {
				return l.language, nil
			}
		}
	}
	e := sdk.Invalid("DIR", "has Cargo.toml, package.json, a .go file or a .c file")
	e.Hint = "fencepost plugin new begins a plugin"
	return "", e
}

// Build compiles a plugin, asks it what it is and writes its file with its
// manifest. Errors have tag invalid, or unsupported with code compiler_missing.
func (m Machine) Build(ctx context.Context, b Building) (*Built, error) {
	language, err := DetectLanguage(b.Dir)
	if err != nil {
		return nil, err
	}
	if b.Native && language != Go {
		return nil, &sdk.Error{Tag: sdk.TagUnsupported, Field: "--native", Rule: "absent: only Go sources are built as programs too; this one is in " + string(language)}
	}
	tmp, err := os.MkdirTemp("", "fencepost-build-")
	if err != nil {
		return nil, fmt.Errorf("temporary folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	dir, err := filepath.Abs(b.Dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.Dir, err)
	}
	c := compilation{dir: dir, tmp: tmp, out: filepath.Join(tmp, "plugin"), native: b.Native, says: m.Compiler}
	compiler, err := c.compile(ctx, language)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(c.out)
	if err != nil {
		return nil, fmt.Errorf("the compiler wrote nothing: %w", err)
	}
	out := &Built{Artifact: Artifact{Content: content, Native: b.Native}, Language: language, Compiler: compiler}
	if err := m.finish(ctx, b, out); err != nil {
		return nil, err
	}
	return out, nil
}

// finish finds the manifest, compares it with what the plugin says, and writes.
func (m Machine) finish(ctx context.Context, b Building, out *Built) error {
	text, err := os.ReadFile(filepath.Join(b.Dir, ManifestFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if out.Exporter, err = m.describe(ctx, out.Artifact); err != nil {
			return err
		}
		out.Manifest = manifestOf(*out.Exporter)
	case err != nil:
		return sdk.Invalid(ManifestFile, err.Error())
	default:
		if out.Manifest, err = grant.ReadManifest(nil, text); err != nil {
			return err
		}
		if out.Manifest.Kind == grant.KindExporter {
			if out.Exporter, err = m.describe(ctx, out.Artifact); err != nil {
				return err
			}
			if err := plugins.Agree(out.Manifest, *out.Exporter); err != nil {
				return err
			}
		}
	}
	out.Path = b.Out
	if out.Native {
		if out.Path == "" {
			out.Path = filepath.Join(b.Dir, "bin", out.Manifest.Name)
		}
		if err := os.MkdirAll(filepath.Dir(out.Path), 0o755); err != nil { //nolint:gosec // an author's own
			return fmt.Errorf("%s: %w", out.Path, err)
		}
		return errors.Join(grant.WriteFile(out.Path, out.Content, 0o755), writeJSON(out.Path+grant.ManifestSuffix, out.Manifest, 0o644))
	}
	if out.Path == "" {
		out.Path = filepath.Join(b.Dir, out.Manifest.Name+".wasm")
	}
	if out.Content, err = grant.EmbedManifest(out.Content, out.Manifest); err != nil {
		return err
	}
	return grant.WriteFile(out.Path, out.Content, 0o644)
}

// manifestOf is the manifest that an exporter's own words come to.
func manifestOf(d exporter.Manifest) grant.Manifest {
	m := grant.Manifest{Name: d.Name, Version: d.Version, Kind: grant.KindExporter, Capabilities: d.Capabilities, Hosts: d.Hosts}
	for _, s := range d.Secrets {
		m.Secrets = append(m.Secrets, s.Name)
	}
	if d.Webhook != nil {
		m.Secrets = append(m.Secrets, d.Webhook.Secret)
	}
	return m
}

// describe asks an exporter that has no manifest yet what it is. It gets nothing
// that it asks for.
func (m Machine) describe(ctx context.Context, a Artifact) (*exporter.Manifest, error) {
	a.Manifest = grant.Manifest{Name: "plugin", Version: "0", Kind: grant.KindExporter, Capabilities: capability.Names()}
	s := seat{isolation: grant.InProcess, limits: wasm.Limits{MaxInstances: 1}, acts: carrier.Host{
		HTTPSend: func(context.Context, []byte) ([]byte, error) {
			return nil, errors.New("nothing is sent for a plugin that is built")
		},
		AppendSend: noAppend, SQLDo: noSQL,
	}}
	if a.Native {
		s.isolation = grant.Process
	}
	caller, err := m.open(ctx, a, s)
	if err != nil {
		return nil, err
	}
	defer func() { _ = caller.Close(context.WithoutCancel(ctx)) }()
	answer, err := caller.Call(ctx, uint32(wirev1.MethodDescribe), nil)
	if err != nil {
		e := callError("describe", a, err)
		if tagged, ok := errors.AsType[*sdk.Error](e); ok && tagged.Code == "unknown_method" {
			return nil, sdk.Invalid(ManifestFile, "present for a plugin that is no exporter")
		}
		return nil, e
	}
	d, err := wirev1.DecodeManifest(answer)
	if err != nil {
		return nil, sdk.Invalid("describe", "a manifest of this host's version: "+grant.Sanitize(err.Error()))
	}
	return &d, nil
}

// command is one call of a compiler.
type command struct {
	dir  string
	env  []string
	args []string
}

// String is the command as a person would type it.
func (c command) String() string {
	words := append([]string{}, c.env...)
	for _, a := range c.args {
		if strings.ContainsAny(a, " '\"") {
			a = "'" + a + "'"
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}
