// Package workbench holds the tools of a plugin's author: it begins a plugin,
// builds it, tries it without sending anything, records and repeats
// conversations with a provider, and runs the conformance suites. Nothing here
// runs in a server.
package workbench

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/host/carrier/process"
	"github.com/fencepost/fencepost/host/carrier/wasm"
	"github.com/fencepost/fencepost/host/carrier/worker"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk"
)

// Artifact is a plugin's file: a module or a program.
type Artifact struct {
	Path     string
	Content  []byte
	Native   bool
	Manifest grant.Manifest
}

// SHA256 is the digest of the file in lower-case hex.
func (a Artifact) SHA256() string {
	sum := sha256.Sum256(a.Content)
	return hex.EncodeToString(sum[:])
}

// Load reads a plugin's file and its manifest, in the module or beside the file.
// A folder stands for the one module in it. Errors have tag invalid.
func Load(path string) (Artifact, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		if path, err = moduleIn(path); err != nil {
			return Artifact{}, err
		}
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return Artifact{}, sdk.Invalid("file", err.Error())
	}
	sidecar, err := os.ReadFile(path + grant.ManifestSuffix)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return Artifact{}, sdk.Invalid("file", err.Error())
	}
	m, err := grant.ReadManifest(content, sidecar)
	if errors.Is(err, grant.ErrNoManifest) {
		return Artifact{}, &sdk.Error{
			Tag: sdk.TagInvalid, Code: "no_manifest", Field: "file", Rule: path + " says what it is: it has no manifest",
			Hint: "fencepost plugin build writes one, and fencepost plugin embed puts one into a module of another tool", Err: err,
		}
	}
	if err != nil {
		return Artifact{}, err
	}
	return Artifact{Path: path, Content: content, Native: !grant.IsModule(content), Manifest: m}, nil
}

func moduleIn(dir string) (string, error) {
	found, err := filepath.Glob(filepath.Join(dir, "*.wasm"))
	if err != nil || len(found) == 0 {
		e := sdk.Invalid("file", "a plugin's file, or a folder that holds one; there is no module in "+dir)
		e.Hint = "fencepost plugin build " + dir
		return "", e
	}
	if len(found) > 1 {
		return "", sdk.Invalid("file", "one module in a folder; name the file, as there are "+strings.Join(found, " and "))
	}
	return found[0], nil
}

// Machine is where plugins are tried.
type Machine struct {
	// CacheDir holds compiled modules; empty: none.
	CacheDir string
	// Worker are the arguments at which this program calls worker.Serve.
	Worker []string
	// Logger gets what plugins write; nil: nobody.
	Logger *slog.Logger
	// Compiler gets what a compiler says when it fails; nil: nobody.
	Compiler func(text string)
	// Now is the clock with which a recording of real sending begins; nil:
	// time.Now.
	Now func() time.Time
}

func (m Machine) now() time.Time {
	if m.Now == nil {
		m.Now = time.Now
	}
	return m.Now()
}

// isolations lists where an artifact can run, the one that it gets by itself
// first.
func (m Machine) isolations(a Artifact) []grant.Isolation {
	if a.Native {
		return []grant.Isolation{grant.Process}
	}
	if len(m.Worker) == 0 {
		return []grant.Isolation{grant.InProcess}
	}
	return []grant.Isolation{grant.Worker, grant.InProcess}
}

// seat is where one plugin runs, and what it may ask.
type seat struct {
	isolation grant.Isolation
	acts      carrier.Host
	setup     []carrier.SetupCall
	limits    wasm.Limits
	network   bool
}

// open starts a plugin. With everything that its manifest names it cannot do
// more than acts does.
func (m Machine) open(ctx context.Context, a Artifact, s seat) (carrier.Caller, error) {
	name, version, wants := a.Manifest.Name, a.Manifest.Version, a.Manifest.Capabilities
	switch {
	case s.isolation == grant.InProcess && !a.Native:
		return wasm.Open(ctx, wasm.Config{
			Name: name, Version: version, Module: a.Content, Declared: wants, Granted: wants, InertFiles: true,
			Host: s.acts, Setup: s.setup, Limits: s.limits, CacheDir: m.CacheDir, Logger: m.Logger,
		})
	case s.isolation == grant.Worker && !a.Native:
		image, err := process.Self()
		if err != nil {
			return nil, err
		}
		c, err := worker.Open(worker.Config{
			Name: name, Version: version, Image: image, Args: m.Worker, Module: a.Content, Declared: wants, Granted: wants,
			InertFiles: true, Host: s.acts, Setup: s.setup, Limits: s.limits, CacheDir: m.CacheDir, Logger: m.Logger,
		})
		return withImage(c, image, err)
	case s.isolation == grant.Process && a.Native:
		image, err := process.NewImage(name, a.Content)
		if err != nil {
			return nil, &sdk.Error{Tag: sdk.TagInvalid, Field: "file", Rule: "a program that runs on this machine", Err: err}
		}
		c, err := process.Open(process.Config{
			Name: name, Version: version, Image: image, Granted: wants, Host: s.acts, Setup: s.setup,
			Sandbox: process.Sandbox{Network: s.network}, Limits: process.Limits{MaxInstances: s.limits.MaxInstances}, Logger: m.Logger,
		})
		return withImage(c, image, err)
	}
	return nil, sdk.Invalid("isolation", "inproc or worker for a module, process for a program")
}

// imaged closes with a process what it was made of.
type imaged struct {
	carrier.Caller
	image *process.Image
}

func withImage(c carrier.Caller, image *process.Image, err error) (carrier.Caller, error) {
	if err != nil {
		return nil, errors.Join(err, image.Close())
	}
	return imaged{c, image}, nil
}

// Close implements [carrier.Caller].
func (i imaged) Close(ctx context.Context) error {
	return errors.Join(i.Caller.Close(ctx), i.image.Close())
}
