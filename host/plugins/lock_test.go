package plugins

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
)

// Point 3: an entry is of one content and of what it wanted, also for a file that
// somebody else puts into the folder.
func TestLockFile(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	path := b.file(manifest())
	c := b.examine(manifest())
	if _, err := b.LockFile(c, path, Terms{}, false); !errors.Is(err, ErrWants) {
		t.Errorf("without a grant: %v", err)
	}
	p, err := b.LockFile(c, path, Terms{}, true)
	if err != nil || p.File != "meterline-"+version+".wasm" || p.SHA256 != c.SHA256 || p.Isolation != grant.Worker {
		t.Errorf("shown: %+v, %v", p, err)
	}
	if _, err := os.Stat(b.Lock); !os.IsNotExist(err) {
		t.Error("showing it wrote it")
	}
	if _, err := b.LockFile(c, path, Terms{Accept: true, Isolation: grant.Process}, false); !errors.Is(err, sdk.ErrInvalid) {
		t.Errorf("a module as a process: %v", err)
	}
	if _, err := b.LockFile(c, path, Terms{Accept: true, PublicKey: "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3"}, false); code(err) != "signature" {
		t.Errorf("not signed: %v", err)
	}
	if _, err := b.LockFile(c, path, Terms{Accept: true}, false); err != nil {
		t.Fatal(err)
	}
	// The file comes later, under its own name or the one that install gives.
	lock, err := grant.LoadLock(b.Lock)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Open(b.Dir, "meterline"); err == nil {
		t.Error("opened before the file came")
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	there := filepath.Join(b.Dir, "mine.wasm")
	if err := errors.Join(os.MkdirAll(b.Dir, 0o755), os.WriteFile(there, content, 0o600)); err != nil {
		t.Fatal(err)
	}
	if p, err = b.LockFile(c, there, Terms{}, false); err != nil || p.File != "mine.wasm" || p.Previous != nil {
		t.Errorf("%+v, %v", p, err)
	}
	if lock, err = grant.LoadLock(b.Lock); err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Open(b.Dir, "meterline"); err != nil {
		t.Error(err)
	}
	// Another content under the same version, and one that wants more.
	wider := manifest()
	wider.Capabilities = append(wider.Capabilities, capability.RandomName)
	w := b.examine(wider)
	if _, err := b.LockFile(w, b.file(wider), Terms{}, false); !errors.Is(err, ErrWants) {
		t.Errorf("a wider one: %v", err)
	}
	if _, err := b.LockFile(w, b.file(wider), Terms{Accept: true}, false); code(err) != "version_reused" {
		t.Errorf("the same version: %v", err)
	}
	if err := os.WriteFile(there, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.LockFile(c, there, Terms{}, false); err == nil {
		t.Error("locked a file that is not what was looked at")
	}
}
