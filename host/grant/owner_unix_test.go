//go:build unix

package grant

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// Point 3: what somebody else may write, or may replace in a folder above, or
// owns, is neither a plugin nor the lock.
func TestForeignFilesAndFolders(t *testing.T) {
	t.Parallel()
	chmod := func(mode os.FileMode) func(string) error {
		return func(path string) error { return os.Chmod(path, mode) }
	}
	chown := func(path string) error { return os.Chown(path, 65534, -1) }
	for name, c := range map[string]struct {
		path         string // below the test's folder
		change       func(string) error
		plugin, lock bool // refused
		root         bool // only root can do it
	}{
		"folder of both, 777":      {"top", chmod(0o777), true, true, false},
		"plugins.dir, 777":         {"top/plugins", chmod(0o777), true, false, false},
		"plugins.dir, 1777":        {"top/plugins", chmod(0o777 | os.ModeSticky), true, false, false},
		"folder of the lock, 1777": {"top", chmod(0o777 | os.ModeSticky), false, true, false},
		"above, 777":               {".", chmod(0o777), true, true, false},
		"above, 1777":              {".", chmod(0o777 | os.ModeSticky), false, false, false},
		"file of another":          {"top/plugins/meterline.wasm", chown, true, false, true},
		"plugins.dir of another":   {"top/plugins", chown, true, false, true},
		"lock of another":          {"top/plugins.lock", chown, false, true, true},
		"above of another":         {".", chown, true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.root && os.Geteuid() != 0 {
				t.Skip("needs root, to give a file away")
			}
			above := filepath.Join(t.TempDir(), "above")
			mkdir(t, above)
			top := filepath.Join(above, "top")
			mkdir(t, top)
			dir, lock := filepath.Join(top, "plugins"), filepath.Join(top, "plugins.lock")
			mkdir(t, dir)
			p := installed(t, dir, meterline())
			if err := (Lock{Plugins: []Locked{p}}).Save(lock); err != nil {
				t.Fatal(err)
			}
			check := func(plugin, locked bool) {
				t.Helper()
				if _, err := p.Open(dir); errors.Is(err, &sdk.Error{Tag: sdk.TagInvalid, Code: "plugin_file"}) != plugin {
					t.Errorf("the plugin: %v", err)
				}
				if _, err := LoadLock(lock); errors.Is(err, &sdk.Error{Tag: sdk.TagInvalid, Code: "plugin_lock"}) != locked {
					t.Errorf("the lock: %v", err)
				}
			}
			check(false, false)
			if err := c.change(filepath.Join(above, c.path)); err != nil {
				t.Fatal(err)
			}
			check(c.plugin, c.lock)
		})
	}
}
