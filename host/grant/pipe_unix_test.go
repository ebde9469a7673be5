//go:build unix

package grant

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// Point 3: a pipe under a file's name is refused at once. Nobody ever opens its
// other end, so that waiting for it would be for ever.
func TestPipesAreRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "plugins")
	mkdir(t, dir)
	p := installed(t, dir, meterline())
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	p.File = "pipe"
	if _, err := p.Open(dir); !errors.Is(err, &sdk.Error{Tag: sdk.TagInvalid, Code: "plugin_file"}) {
		t.Errorf("as a plugin: %v", err)
	}
	if _, err := LoadLock(pipe); !errors.Is(err, &sdk.Error{Tag: sdk.TagInvalid, Code: "plugin_lock"}) {
		t.Errorf("as the lock: %v", err)
	}
	// A device, which never ends, and what is looked at before it is trusted.
	for _, path := range []string{pipe, "/dev/zero", dir} {
		if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), "regular") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
