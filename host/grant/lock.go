package grant

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
)

// Isolation is where a plugin's code runs. See docs/plugins/carriers.md.
type Isolation string

// Isolations.
const (
	// InProcess: a module inside this process.
	InProcess Isolation = "inproc"
	// Worker: a module inside a child of ours, which can be killed.
	Worker Isolation = "worker"
	// Process: a native program.
	Process Isolation = "process"
)

// Lock is plugins.lock: every plugin that may be loaded, with the digest of its
// file and what it is allowed. It is written by an operator's command and read
// at every load. The zero value allows no plugin.
type Lock struct {
	Plugins []Locked `json:"plugins"`
}

// Locked is a plugin that an operator let in.
type Locked struct {
	Name      string    `json:"name"`
	Version   string    `json:"version"`
	Kind      Kind      `json:"kind"`
	File      string    `json:"file"` // in the directory of plugins
	SHA256    string    `json:"sha256"`
	Isolation Isolation `json:"isolation"`
	// Capabilities, Hosts, Secrets and Network are what is granted.
	Capabilities []capability.Name `json:"capabilities"`
	Hosts        []string          `json:"hosts"`
	Secrets      []string          `json:"secrets"`
	Network      bool              `json:"network,omitempty"`
	// PublicKey is the minisign key with which this plugin's files are
	// signed; empty: a signature is not asked for.
	PublicKey string `json:"public_key,omitempty"`
	// Disabled plugins are not loaded.
	Disabled bool `json:"disabled,omitempty"`
	// Previous is the version that this one took the place of, to go back to.
	Previous *Locked `json:"previous,omitempty"`
}

// Bounds of files: of a plugin, and of a lock.
const (
	fileMax = 256 << 20
	lockMax = 1 << 20
)

// Plugin is a plugin whose file was checked: the bytes are those that were
// hashed, and what is run has to be made of them, not of the file.
type Plugin struct {
	Locked
	Bytes []byte
}

// LoadLock reads a lock. A file that does not exist is an empty lock. A lock
// that others may write is refused: it decides what code runs.
func LoadLock(path string) (Lock, error) {
	var l Lock
	f, err := open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return l, fmt.Errorf("plugins.lock: %w", err)
	}
	defer func() { _ = f.Close() }()
	err = checkUnshared(f)
	if err == nil {
		err = checkDir(filepath.Dir(path))
	}
	if err != nil {
		return l, lockError("plugins.lock", err.Error(), "chown and chmod go-w "+path+" and the folders that it is in")
	}
	text, err := io.ReadAll(io.LimitReader(f, lockMax+1))
	if err != nil {
		return l, fmt.Errorf("plugins.lock: %w", err)
	}
	if err := decodeStrict(text, &l); err != nil || len(text) > lockMax {
		return Lock{}, lockError("plugins.lock", "JSON of the documented shape: "+Sanitize(fmt.Sprint(err)), "a newer version may have written it; else restore it from your repository, or install the plugins again")
	}
	seen := map[string]bool{}
	for _, p := range l.Plugins {
		if err := p.check(); err != nil {
			return Lock{}, err
		}
		if seen[p.Name] {
			return Lock{}, lockError("plugins.lock "+quote(p.Name), "one entry for each name", "remove one")
		}
		seen[p.Name] = true
	}
	return l, nil
}

func (p Locked) check() error {
	field := "plugins.lock " + quote(p.Name)
	m := Manifest{Name: p.Name, Version: p.Version, Kind: p.Kind, Capabilities: p.Capabilities, Hosts: p.Hosts, Secrets: p.Secrets}
	if err := m.check(); err != nil {
		return lockError(field, err.Error(), "")
	}
	switch {
	case filepath.Base(p.File) != p.File || p.File == "." || p.File == "..":
		return lockError(field, "file is a name without a directory", "")
	case len(p.SHA256) != 2*sha256.Size || strings.Trim(p.SHA256, "0123456789abcdef") != "":
		return lockError(field, "sha256 has 64 digits of lower-case hex", "")
	case p.Isolation != InProcess && p.Isolation != Worker && p.Isolation != Process:
		return lockError(field, "isolation is inproc, worker or process", "")
	}
	return nil
}

func lockError(field, rule, hint string) error {
	return &sdk.Error{Tag: sdk.TagInvalid, Code: "plugin_lock", Field: field, Rule: rule, Hint: hint}
}

// Save writes the lock whole or not at all, readable by all and writable by
// its owner.
func (l Lock) Save(path string) error {
	slices.SortFunc(l.Plugins, func(a, b Locked) int { return strings.Compare(a.Name, b.Name) })
	text, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	return WriteFile(path, append(text, '\n'), 0o644)
}

// WriteFile puts a file in place whole or not at all, and on the disk.
func WriteFile(path string, content []byte, mode fs.FileMode) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Find returns the entry of a name.
func (l Lock) Find(name string) (Locked, bool) {
	i := slices.IndexFunc(l.Plugins, func(p Locked) bool { return p.Name == name })
	if i < 0 {
		return Locked{}, false
	}
	return l.Plugins[i], true
}

// Put replaces the entry of the name, or adds one.
func (l *Lock) Put(p Locked) {
	l.Remove(p.Name)
	l.Plugins = append(l.Plugins, p)
}

// Remove takes an entry out, and reports whether there was one.
func (l *Lock) Remove(name string) bool {
	n := len(l.Plugins)
	l.Plugins = slices.DeleteFunc(l.Plugins, func(p Locked) bool { return p.Name == name })
	return len(l.Plugins) < n
}

// Open reads the plugin of a name from dir and checks it against the lock: the
// digest, the signature if one is asked for, and that its manifest wants no
// more than is granted. Nothing of the plugin has run. Every error has tag
// invalid and says which command mends it.
func (l Lock) Open(dir, name string) (Plugin, error) {
	p, ok := l.Find(name)
	field := "plugin " + quote(name)
	switch {
	case !ok:
		return Plugin{}, &sdk.Error{
			Tag: sdk.TagInvalid, Code: "plugin_not_installed", Field: field,
			Rule: "installed: plugins.lock names it", Hint: "fencepost plugin install FILE",
		}
	case p.Disabled:
		return Plugin{}, &sdk.Error{
			Tag: sdk.TagInvalid, Code: "plugin_disabled", Field: field,
			Rule: "enabled in plugins.lock", Hint: "fencepost plugin enable " + p.Name,
		}
	}
	return p.Open(dir)
}

// Open is [Lock.Open] of one entry, whether it is disabled or not.
func (p Locked) Open(dir string) (Plugin, error) {
	field := "plugin " + quote(p.Name) + " version " + quote(p.Version)
	path := filepath.Join(dir, p.File)
	content, err := []byte(nil), checkDir(dir)
	if err == nil {
		content, err = readUnshared(path)
	}
	if err != nil {
		e := &sdk.Error{Tag: sdk.TagInvalid, Code: "plugin_file", Field: field, Rule: "a file that can be read and that nobody else may write", Hint: "fencepost plugin install FILE", Err: err}
		return Plugin{}, e
	}
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != p.SHA256 {
		return Plugin{}, &sdk.Error{
			Tag: sdk.TagInvalid, Code: "checksum_mismatch", Field: field,
			Rule: "has the digest " + p.SHA256 + " of plugins.lock; the file has " + hex.EncodeToString(sum[:]),
			Hint: "restore the file, or, if you know where this one comes from, fencepost plugin install FILE",
		}
	}
	if p.PublicKey != "" {
		signature, err := readUnshared(path + SignatureSuffix)
		if err == nil {
			err = VerifySignature(p.PublicKey, content, signature)
		}
		if err != nil {
			return Plugin{}, &sdk.Error{
				Tag: sdk.TagInvalid, Code: "signature", Field: field, Rule: "signed with the key " + p.PublicKey,
				Hint: "get the signature " + p.File + SignatureSuffix + " from the author of the plugin", Err: err,
			}
		}
	}
	m, err := readManifestOf(path, content)
	if err != nil {
		return Plugin{}, fmt.Errorf("%s: %w", field, err)
	}
	if more := p.Beyond(m); len(more) > 0 || m.Name != p.Name || m.Version != p.Version || m.Kind != p.Kind {
		return Plugin{}, &sdk.Error{
			Tag: sdk.TagInvalid, Code: "not_granted", Field: field,
			Rule: "its manifest is the one that was granted; beyond that it wants " + strings.Join(append(more, "nothing"), ", "),
			Hint: "fencepost plugin install " + path,
		}
	}
	return Plugin{Locked: p, Bytes: content}, nil
}

// Beyond lists what a manifest wants and the entry does not grant.
func (p Locked) Beyond(m Manifest) []string {
	var more []string
	for _, c := range m.Capabilities {
		if !slices.Contains(p.Capabilities, c) {
			more = append(more, "capability "+string(c))
		}
	}
	for _, h := range m.Hosts {
		if !slices.ContainsFunc(p.Hosts, func(have string) bool { return strings.EqualFold(have, h) }) {
			more = append(more, "host "+h)
		}
	}
	for _, s := range m.Secrets {
		if !slices.Contains(p.Secrets, s) {
			more = append(more, "secret "+s)
		}
	}
	if m.Network && !p.Network {
		more = append(more, "network")
	}
	return more
}

// readManifestOf reads the manifest inside content, or beside path.
func readManifestOf(path string, content []byte) (Manifest, error) {
	var sidecar []byte
	if !IsModule(content) {
		var err error
		if sidecar, err = readUnshared(path + ManifestSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Manifest{}, sdk.Invalid("manifest", err.Error())
		}
	}
	return ReadManifest(content, sidecar)
}

// readUnshared reads a file that nobody but its owner may write.
func readUnshared(path string) ([]byte, error) {
	return readFile(path, checkUnshared)
}

// ReadFile reads a file that somebody else may have put there, whole and before
// it is trusted: it must be a regular one, and no larger than a plugin may be.
// It does not wait for the other end of a pipe.
func ReadFile(path string) ([]byte, error) { return readFile(path, checkRegular) }

func readFile(path string, check func(*os.File) error) ([]byte, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if err := check(f); err != nil {
		return nil, fmt.Errorf("%s %w", path, err)
	}
	content, err := io.ReadAll(io.LimitReader(f, fileMax+1))
	if err == nil && len(content) > fileMax {
		err = fmt.Errorf("%s has more than %d bytes", path, fileMax)
	}
	return content, err
}

// open does not wait, which opening a pipe does until somebody writes.
func open(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// checkRegular refuses what is no regular file.
func checkRegular(f *os.File) error {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("is not a regular file")
	}
	return err
}
