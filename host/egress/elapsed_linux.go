package egress

import (
	"time"

	"golang.org/x/sys/unix"
)

// Elapsed returns the time since boot on CLOCK_BOOTTIME, which also runs while
// the machine is suspended, as Go's own monotonic clock does not.
func Elapsed() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // no such clock: a constant leaves the context's deadline in charge
	}
	return time.Duration(ts.Nano())
}
