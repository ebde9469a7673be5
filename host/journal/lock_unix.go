//go:build unix

package journal

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// tryLock takes the lock of the whole file, which belongs to the open file and
// ends with the process.
func tryLock(fd uintptr) (bool, error) {
	err := syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
		return false, nil
	}
	return err == nil, err
}

func unlockFile(fd uintptr) { _ = syscall.Flock(int(fd), syscall.LOCK_UN) }

func syncFolder(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return dir.Sync()
}
