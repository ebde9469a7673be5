// Package plugins installs plugins: it looks at a file before it is trusted,
// puts it beside the others, and keeps plugins.lock. Nothing here runs in a
// server, and no server's API reaches it.
package plugins

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/host/carrier/wasm"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// Folder is where installed plugins are. Two programs may change it at once: one
// waits for the other, on systems that have flock(2). It is for an operator's
// commands.
type Folder struct {
	Dir   string // of the files
	Lock  string // path of plugins.lock
	Cache string // of compiled modules; empty: none
	// Logger gets what a module writes while it is looked at. Default: nothing.
	Logger *slog.Logger
}

// Candidate is a file that was looked at.
type Candidate struct {
	Manifest grant.Manifest
	SHA256   string
	Size     int
	// Native says that it is a program and no module: what it does cannot be
	// limited, only granted or not.
	Native bool
	// Signed says that a signature lies beside the file; it is not checked.
	Signed bool
	// Exporter is what a module that is an exporter says of itself when asked.
	Exporter *exporter.Manifest

	content, sidecar, signature []byte
}

// Examine reads a plugin's file. A module is compiled, its imports are compared
// with its manifest, and an exporter is asked to describe itself, without any
// capability. A native program is not run. Errors have tag invalid.
func (f Folder) Examine(ctx context.Context, path string) (*Candidate, error) {
	content, err := grant.ReadFile(path)
	if err != nil {
		return nil, sdk.Invalid("file", err.Error())
	}
	c := &Candidate{Size: len(content), Native: !grant.IsModule(content), content: content}
	sum := sha256.Sum256(content)
	c.SHA256 = hex.EncodeToString(sum[:])
	if c.sidecar, err = beside(path, grant.ManifestSuffix); err != nil {
		return nil, err
	}
	if c.signature, err = beside(path, grant.SignatureSuffix); err != nil {
		return nil, err
	}
	c.Signed = c.signature != nil
	if c.Manifest, err = grant.ReadManifest(content, c.sidecar); err != nil {
		return nil, err
	}
	if c.Native {
		return c, nil
	}
	return c, f.try(ctx, c)
}

// beside reads a file that may be absent.
func beside(path, suffix string) ([]byte, error) {
	content, err := grant.ReadFile(path + suffix)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, sdk.Invalid("file", err.Error())
	}
	return content, nil
}

// try compiles a module and asks an exporter for its description.
func (f Folder) try(ctx context.Context, c *Candidate) error {
	wants := c.Manifest.Capabilities
	m, err := wasm.Open(ctx, wasm.Config{
		Name: c.Manifest.Name, Version: c.Manifest.Version, Module: c.content,
		Declared: wants, Granted: wants, InertFiles: true, CacheDir: f.Cache, Logger: f.Logger,
		Host: carrier.Host{HTTPSend: nothing, AppendSend: nothing, SQLDo: nothing},
	})
	if err != nil {
		return err
	}
	defer func() { _ = m.Close(context.WithoutCancel(ctx)) }()
	if c.Manifest.Kind != grant.KindExporter {
		return nil
	}
	field := "plugin " + c.Manifest.Name + " version " + c.Manifest.Version
	answer, err := m.Call(ctx, uint32(wirev1.MethodDescribe), nil)
	if err != nil {
		return sdk.Invalid(field, "answers describe: "+grant.Sanitize(err.Error()))
	}
	d, err := wirev1.DecodeManifest(answer)
	if err != nil {
		return sdk.Invalid(field, "describes itself in this host's version: "+grant.Sanitize(err.Error()))
	}
	if err := Agree(c.Manifest, d); err != nil {
		return err
	}
	c.Exporter = &d
	return nil
}

// nothing is what is done for a plugin that is looked at.
func nothing(context.Context, []byte) ([]byte, error) {
	return nil, errors.New("nothing is done for a plugin that is looked at")
}

// Agree reports what a running exporter says beyond the manifest of its file,
// which is what the operator saw and granted.
func Agree(m grant.Manifest, d exporter.Manifest) error {
	said := grant.Manifest{Capabilities: d.Capabilities, Hosts: d.Hosts}
	for _, s := range d.Secrets {
		said.Secrets = append(said.Secrets, s.Name)
	}
	if d.Webhook != nil {
		said.Secrets = append(said.Secrets, d.Webhook.Secret)
	}
	granted := grant.Locked{Capabilities: m.Capabilities, Hosts: m.Hosts, Secrets: m.Secrets}
	more := granted.Beyond(said)
	if d.Name != m.Name {
		more = append(more, "the name "+grant.Sanitize(d.Name))
	}
	if d.Version != m.Version {
		more = append(more, "the version "+grant.Sanitize(d.Version))
	}
	if len(more) == 0 {
		return nil
	}
	e := sdk.Invalid("plugin "+m.Name+" version "+m.Version, "says of itself what its manifest says; it also says "+grant.Sanitize(strings.Join(more, ", ")))
	e.Code, e.Hint = "not_declared", "its author has to build it with a manifest that names this"
	return e
}

// Terms are what an operator grants with an installation.
type Terms struct {
	// Isolation is inproc or worker for a module; a program has its own.
	Isolation grant.Isolation
	// PublicKey has the file's signature checked now and at every load. Empty:
	// as for the version before.
	PublicKey string
	// Accept grants what the candidate wants beyond the version before. False
	// refuses an installation that needs more than was granted.
	Accept bool
}

// ErrWants is wrapped by the error of [Folder.Install] if more is wanted than
// was granted.
var ErrWants = errors.New("more is wanted than was granted")

// Wants lists what the candidate wants that the version before was not granted,
// and whether there was one.
func (f Folder) Wants(c *Candidate) (more []string, before *grant.Locked, err error) {
	lock, err := grant.LoadLock(f.Lock)
	if err != nil {
		return nil, nil, err
	}
	old, ok := lock.Find(c.Manifest.Name)
	if ok {
		before = &old
	}
	return old.Beyond(c.Manifest), before, nil
}

// Install puts the candidate into the folder and locks it. A server goes on
// with what it has loaded until it is reloaded.
func (f Folder) Install(c *Candidate, t Terms) (p grant.Locked, err error) {
	return p, f.hold(func() error {
		p, err = f.install(c, t)
		return err
	})
}

func (f Folder) install(c *Candidate, t Terms) (grant.Locked, error) {
	more, before, err := f.Wants(c)
	if err != nil {
		return grant.Locked{}, err
	}
	if len(more) > 0 && !t.Accept {
		return grant.Locked{}, notGranted(c, more)
	}
	p := c.locked(t, before)
	if err := p.checkIsolation(c.Native); err != nil {
		return grant.Locked{}, err
	}
	if err := p.checkDigest(before); err != nil {
		return grant.Locked{}, err
	}
	if err := p.checkSignature(c); err != nil {
		return grant.Locked{}, err
	}
	if err := f.write(c, p.Locked); err != nil {
		return grant.Locked{}, err
	}
	if _, err := p.Open(f.Dir); err != nil {
		return grant.Locked{}, err // as a server would: before it is locked
	}
	return p.Locked, f.changeHeld(func(l *grant.Lock) error { l.Put(p.Locked); return nil })
}

// notGranted is the error for a candidate that wants more than was granted.
func notGranted(c *Candidate, more []string) error {
	e := sdk.Invalid("plugin "+c.Manifest.Name, "needs no more than is granted; it wants "+strings.Join(more, ", "))
	e.Code, e.Err = "not_granted", ErrWants
	return e
}

// versionReused is the error for a version that is locked with another content.
func versionReused(p, old grant.Locked) error {
	e := sdk.Invalid("plugin "+p.Name+" version "+p.Version, "another content has another version: this version is locked with the digest "+old.SHA256)
	e.Code, e.Hint = "version_reused", "fencepost plugin remove "+p.Name+" first, if the author did publish this version twice"
	return e
}

type entry struct{ grant.Locked }

// checkDigest compares the candidate with what the lock says of its version, now
// or before. The lock alone decides: on another machine there is no file yet.
func (p entry) checkDigest(before *grant.Locked) error {
	for old := before; old != nil; old = old.Previous {
		if old.Version == p.Version && old.SHA256 != p.SHA256 {
			return versionReused(p.Locked, *old)
		}
	}
	return nil
}

// checkSignature compares the candidate with the key that its entry names.
func (p entry) checkSignature(c *Candidate) error {
	if p.PublicKey == "" {
		return nil
	}
	if err := grant.VerifySignature(p.PublicKey, c.content, c.signature); err != nil {
		e := sdk.Invalid("plugin "+p.Name, "signed with the key "+p.PublicKey)
		e.Code, e.Err = "signature", err
		return e
	}
	return nil
}

func (c *Candidate) locked(t Terms, before *grant.Locked) entry {
	m := c.Manifest
	p := grant.Locked{
		Name: m.Name, Version: m.Version, Kind: m.Kind, SHA256: c.SHA256, Isolation: t.Isolation, PublicKey: t.PublicKey,
		Capabilities: append([]capability.Name{}, m.Capabilities...), Hosts: append([]string{}, m.Hosts...),
		Secrets: append([]string{}, m.Secrets...), Network: m.Network, File: m.Name + "-" + m.Version,
	}
	if !c.Native {
		p.File += ".wasm"
	}
	if before != nil {
		if p.PublicKey == "" {
			p.PublicKey = before.PublicKey
		}
		if p.Isolation == "" {
			p.Isolation = before.Isolation
		}
		p.Disabled = before.Disabled
		if before.SHA256 != p.SHA256 {
			last := *before
			last.Previous = nil
			p.Previous = &last
		} else {
			p.Previous = before.Previous
		}
	}
	if p.Isolation == "" {
		p.Isolation = grant.Worker
		if c.Native {
			p.Isolation = grant.Process
		}
	}
	return entry{p}
}

func (p entry) checkIsolation(native bool) error {
	if native != (p.Isolation == grant.Process) {
		return sdk.Invalid("isolation", "process for a program, inproc or worker for a module")
	}
	return nil
}

// write puts the candidate's files in place.
func (f Folder) write(c *Candidate, p grant.Locked) error {
	if err := os.MkdirAll(f.Dir, 0o755); err != nil { //nolint:gosec // servers of other users read it
		return fmt.Errorf("plugins.dir: %w", err)
	}
	path := filepath.Join(f.Dir, p.File)
	mode := fs.FileMode(0o644)
	if c.Native {
		mode = 0o755
	}
	var err error
	for suffix, content := range map[string][]byte{grant.ManifestSuffix: c.sidecar, grant.SignatureSuffix: c.signature} {
		if content != nil {
			err = errors.Join(err, grant.WriteFile(path+suffix, content, 0o644))
		}
	}
	return errors.Join(err, grant.WriteFile(path, c.content, mode))
}

// change reads the lock, changes it and writes it back, while no other does.
func (f Folder) change(do func(*grant.Lock) error) error {
	return f.hold(func() error { return f.changeHeld(do) })
}

// changeHeld is change for who holds the folder.
func (f Folder) changeHeld(do func(*grant.Lock) error) error {
	lock, err := grant.LoadLock(f.Lock)
	if err != nil {
		return err
	}
	if err := do(&lock); err != nil {
		return err
	}
	return lock.Save(f.Lock)
}

// notInstalled is the error for a name that the lock does not have.
func notInstalled(name string) error {
	return &sdk.Error{Tag: sdk.TagNotFound, Code: "plugin_not_installed", Field: "plugin " + name, Rule: "installed: plugins.lock names it", Hint: "fencepost plugin list"}
}

// SetDisabled switches a plugin off or on, for the next load.
func (f Folder) SetDisabled(name string, disabled bool) error {
	return f.change(func(l *grant.Lock) error {
		p, ok := l.Find(name)
		if !ok {
			return notInstalled(name)
		}
		p.Disabled = disabled
		l.Put(p)
		return nil
	})
}

// Rollback goes back to the version before. Going forward again is rolling back
// once more.
func (f Folder) Rollback(name string) (grant.Locked, error) {
	var back grant.Locked
	return back, f.change(func(l *grant.Lock) error {
		p, ok := l.Find(name)
		if !ok {
			return notInstalled(name)
		}
		if p.Previous == nil {
			return sdk.Invalid("plugin "+name, "has a version before this one")
		}
		back = *p.Previous
		p.Previous = nil
		if _, err := back.Open(f.Dir); err != nil {
			return err
		}
		back.Previous = &p
		l.Put(back)
		return nil
	})
}

// Remove takes a plugin out of the lock and deletes the files of its versions.
func (f Folder) Remove(name string) error {
	var files []string
	err := f.change(func(l *grant.Lock) error {
		p, ok := l.Find(name)
		if !ok {
			return notInstalled(name)
		}
		files = append(files, p.File)
		if p.Previous != nil {
			files = append(files, p.Previous.File)
		}
		l.Remove(name)
		return nil
	})
	if err != nil {
		return err
	}
	for _, file := range files {
		for _, suffix := range []string{"", grant.ManifestSuffix, grant.SignatureSuffix} {
			if gone := os.Remove(filepath.Join(f.Dir, file+suffix)); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
				err = errors.Join(err, gone)
			}
		}
	}
	return err
}
