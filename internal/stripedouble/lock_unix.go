//go:build unix

package stripedouble

import (
	"os"

	"golang.org/x/sys/unix"
)

// lockFile takes the file for this process; the kernel lets go of it however
// the process ends.
func lockFile(f *os.File) error {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

// unlockFile lets go at once. Closing is not enough: a child that another
// goroutine is just starting holds a copy of the file until it executes.
func unlockFile(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }
