package sqlite

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// A new database, and what SQLite puts beside it, is for its owner alone; the
// mode of one that exists stays as its owner set it.
func TestFileMode(t *testing.T) {
	t.Parallel()
	old := filepath.Join(t.TempDir(), "old.db")
	if err := os.WriteFile(old, nil, 0o640); err != nil { //nolint:gosec // the mode is what is tested
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
