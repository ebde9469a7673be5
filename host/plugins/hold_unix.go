//go:build unix && !solaris && !aix

package plugins

import (
	"os"

	"golang.org/x/sys/unix"
)

// lockFolder waits until no other program holds the folder. Closing d lets it
// go, and so does the end of the program.
func lockFolder(d *os.File) error {
	for {
		if err := unix.Flock(int(d.Fd()), unix.LOCK_EX); err != unix.EINTR {
			return err
		}
	}
}
