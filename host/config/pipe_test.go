//go:build unix

package config_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fencepost/fencepost/host/config"
)

// A pipe is refused before anybody waits for its writer.
func TestPipeIsNoConfiguration(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(pipe); err == nil || !strings.Contains(err.Error(), "pipe") {
		t.Error(err)
	}
}
