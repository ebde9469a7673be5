package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// A new database, and what SQLite puts beside it, is for its owner alone; the
// mode of one that exists stays as its owner set it.
func TestFileMode(t *testing.T) {
	t.Parallel()
	old := filepath.Join(t.TempDir(), "old.db")
	if err := os.WriteFile(old, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]fs.FileMode{filepath.Join(t.TempDir(), "new.db"): 0o600, old: 0o640} {
		openAt(t, path, newClock())
		for _, suffix := range []string{"", "-wal", "-shm"} {
			info, err := os.Stat(path + suffix)
			if err != nil || info.Mode().Perm() != want {
				t.Errorf("%s: %v, %v; want %v", path+suffix, info.Mode(), err, want)
			}
		}
	}
}

// S11: a hard link is another path with another lock file, and the same store.
func TestHardLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, link := filepath.Join(dir, "f.db"), filepath.Join(dir, "sub", "other.db")
	a := openAt(t, path, newClock())
	if err := errors.Join(os.Mkdir(filepath.Dir(link), 0o700), os.Link(path, link)); err != nil {
		t.Fatal(err)
	}
	for _, wait := range []time.Duration{-1, 50 * time.Millisecond} {
		_, err := Open(t.Context(), Config{Path: link, Migrate: true, LockWait: wait})
		wantError(t, err, sdk.TagUnavailable, "store_locked", link, "another process")
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	openAt(t, link, newClock())
}

// B2: what would be written to a file that nobody can reach any more is not
// acknowledged, and no empty store takes its place.
func TestStoreReplaced(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(path string) error{
		"deleted": os.Remove,
		"moved":   func(path string) error { return os.Rename(path, path+".old") },
		"folder moved": func(path string) error {
			return os.Rename(filepath.Dir(path), filepath.Dir(path)+".old")
		},
		"replaced": func(path string) error {
			return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "data", "f.db")
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			a := openAt(t, path, newClock())
			record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(event("acme", "e1", "1"))}})
			if err := replace(path); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				_, err := a.RecordEvents(t.Context(), storage.RecordRequest{
					Mode: storage.Each, Units: []storage.Unit{plain(event("acme", "e2", "1"))},
				})
				e := wantError(t, err, sdk.TagUnavailable, "store_replaced", "still the one that was opened")
				if e.Hint != "restart the server" {
					t.Errorf("hint %q", e.Hint)
				}
				wantError(t, a.Ping(t.Context()), sdk.TagUnavailable, "store_replaced")
				if err := closeConn(<-a.writer); err != nil { // as after a fault: it is opened again
					t.Error(err)
				}
				a.writer <- nil
				_, err = a.Routes(t.Context()) // no reader is open yet
				wantError(t, err, sdk.TagUnavailable, "store_replaced")
			}
			if info, err := os.Stat(path); err == nil && info.Size() != 0 {
				t.Error("a new store was made at the path")
			}
		})
	}
}

// A ping on a full disk says so, also when a write that failed has left a
// little room in the WAL, and is well again when there is room.
func TestPingFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("needs to mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	a := openAt(t, filepath.Join(dir, "f.db"), newClock())
	if err := a.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	route, revision := addRoute(t, a)
	ballast := filepath.Join(dir, "ballast")
	fill(t, ballast, 8<<10)
	for range 3 {
		e := event("acme", "e1", "1")
		_, err := a.RecordEvents(t.Context(), storage.RecordRequest{
			Mode: storage.Atomic, RoutesRevision: revision, Units: []storage.Unit{plain(e, item(e, route, "m1"))},
		})
		wantError(t, err, sdk.TagUnavailable, "disk_full")
		wantError(t, a.Ping(t.Context()), sdk.TagUnavailable, "disk_full", "free space")
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := a.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// BenchmarkHeldCheck is what the check adds to a write.
func BenchmarkHeldCheck(b *testing.B) {
	a := open(b, newClock())
	b.ReportAllocs()
	for b.Loop() {
		if err := a.held.check(a.path); err != nil {
			b.Fatal(err)
		}
	}
}
