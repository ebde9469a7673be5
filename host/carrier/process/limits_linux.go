package process

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// limit sets the resource limits of a process that has not run yet.
func (c *Config) limit(pid int, uid uint32) error {
	limits := map[int]int64{
		unix.RLIMIT_DATA:   c.Limits.Memory,
		unix.RLIMIT_NOFILE: c.Limits.OpenFiles,
		unix.RLIMIT_CORE:   0,
		unix.RLIMIT_FSIZE:  0,
		unix.RLIMIT_NPROC:  c.Limits.Tasks,
	}
	if c.Sandbox.Files {
		delete(limits, unix.RLIMIT_FSIZE)
	}
	if c.Limits.Tasks > 0 {
		limits[unix.RLIMIT_NPROC] += tasksOf(uid)
	}
	for resource, value := range limits {
		if value < 0 {
			continue
		}
		var has unix.Rlimit
		if err := unix.Prlimit(pid, resource, nil, &has); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("read the limits of the process: %w", err)
		}
		most := min(uint64(value), has.Max) // the host's own may be smaller
		l := unix.Rlimit{Cur: most, Max: most}
		if err := unix.Prlimit(pid, resource, &l, nil); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("limit the process: %w", err)
		}
	}
	return nil
}

// tasksOf counts the threads of a user, whom the kernel's limit counts too.
func tasksOf(uid uint32) int64 {
	var tasks int64
	files, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, name := range files {
		tasks += threadsIn(name, uid)
	}
	return tasks
}

func threadsIn(name string, uid uint32) int64 {
	f, err := os.Open(name)
	if err != nil {
		return 0 // ended meanwhile
	}
	defer func() { _ = f.Close() }()
	var threads int64
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		switch key {
		case "Uid":
			if fields := strings.Fields(value); len(fields) == 0 || fields[0] != strconv.FormatUint(uint64(uid), 10) {
				return 0
			}
		case "Threads":
			threads, _ = strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return threads
		}
	}
	return threads
}
