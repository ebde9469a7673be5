package pgtest

import (
	"os"
	"testing"
)

// Strict names the variable that turns a test that cannot run here into one
// that fails. CI sets it.
const Strict = "FENCEPOST_TEST_STRICT"

// missing skips a test for which this machine lacks something.
func missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv(Strict) != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// publicDir is a folder that other users can reach, unlike those of T.TempDir:
// servers run as another user where the test is root.
func publicDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "fencepost-pg-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove %s: %v", dir, err)
		}
	})
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // only to be passed through
		t.Fatal(err)
	}
	return dir
}
