//go:build faults && linux

package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/fencepost/fencepost/internal/pgtest"
)

// F08: the kernel ends the process for want of memory, under big calls and while it
// delivers. That is a kill like any other. (A control group bounds what is taken
// from then on.)
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	for name, open := range stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			group := memoryGroup(t, 12<<20)
			r := open(t, defaults())
			r.subscribe()
			s := r.start("")
			r.record(events("before", 500))
			if mib := peakMemory(t, s.cmd.Process.Pid) >> 20; mib > 400 {
				t.Errorf("a call of 500 events needs %d MiB", mib)
			}
			if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(s.cmd.Process.Pid)), 0o600); err != nil {
				t.Fatal(err)
			}
			var calls [][]event
			eventually(t, "the kernel ends the process", func() bool {
				call := events(fmt.Sprint("e", len(calls)), 500)
				calls = append(calls, call)
				_, err := r.post(call)
				return err != nil && s.hasEnded()
			})
			if sig := s.signalled(); sig != syscall.SIGKILL {
				t.Fatalf("ended with %v", s.err)
			}
			r.start("")
			for _, call := range calls {
				r.record(call)
			}
			r.drain()
			if n := r.audit().accepted(r); n != 500*(1+len(calls)) {
				t.Errorf("%d items", n)
			}
		})
	}
}

// memoryGroup makes a control group of version 1, where that may be done.
func memoryGroup(t *testing.T, limit int) string {
	t.Helper()
	dir, err := os.MkdirTemp("/sys/fs/cgroup/memory", "fencepost-") //nolint:usetesting // a control group is made there
	if err == nil {
		t.Cleanup(func() { _ = os.Remove(dir) })
		err = os.WriteFile(filepath.Join(dir, "memory.limit_in_bytes"), []byte(strconv.Itoa(limit)), 0o600)
	}
	if err != nil {
		if os.Getenv(pgtest.Strict) != "" {
			t.Logf("strict, and no control group of version 1 may be made here")
		}
		t.Skipf("no control group of version 1 may be made here: %v", err)
	}
	return dir
}
