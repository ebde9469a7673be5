//go:build unix

package stripedouble

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A restart does not find the ledger in use because another goroutine was
// starting a process while the old server was closed: the child holds a copy
// of the file until it executes, here for ever.
func TestCloseUnlocksCopies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j, err := openJournal(dir, false, func(record) {})
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(j.f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	again, err := openJournal(dir, false, func(record) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := again.close(); err != nil {
		t.Error(err)
	}
}
