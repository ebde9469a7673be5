package sqlite

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// checkAccess asks whether this process may read and write the file.
func checkAccess(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// unlock leaves it to the closing of the file, which ends its locks.
func unlock(*os.File) error { return nil }

// tryLock answers errLocked when somebody else has the lock. It locks a byte
// far behind the text, which stays readable.
func tryLock(f *os.File) error {
	at := windows.Overlapped{Offset: 1 << 30}
	err := windows.LockFileEx(windows.Handle(f.Fd()),
		windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return errLocked
	}
	return err
}
