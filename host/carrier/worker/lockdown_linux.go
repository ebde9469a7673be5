package worker

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// lockDown gives up what only loading needed: from here on this process opens
// no file and no socket, writes to none, and gains no rights by executing
// another program. A module that got out of its sandbox would find that.
func lockDown() error {
	for _, resource := range []int{unix.RLIMIT_NOFILE, unix.RLIMIT_FSIZE, unix.RLIMIT_CORE} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{}); err != nil {
			return fmt.Errorf("lock the worker down: %w", err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("lock the worker down: %w", err)
	}
	return nil
}
