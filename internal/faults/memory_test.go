//go:build faults && linux

package faults

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/internal/pgtest"
)

// F08: a host runs out of memory under calls that are big and slow, while it
// delivers, on PostgreSQL beside another host. By a control group the kernel ends
// it; by a resource limit the system refuses it more, and it ends itself. Either is
// a kill like any other: nothing that was acknowledged is lost, nothing is charged
// twice, and the other host goes on.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	for store, open := range pairs() {
		for limit, out := range map[string]func(*testing.T, *server){"group": ranOutInGroup, "rlimit": ranOutByLimit} {
			t.Run(store+"/"+limit, func(t *testing.T) {
				t.Parallel()
				r := open(t, shortLease())
				outOfMemory(t, r, out)
			})
		}
	}
}

func outOfMemory(t *testing.T, r *rig, out func(*testing.T, *server)) {
	t.Helper()
	r.subscribeCrowd()
	victim := r.start("")
	r.record(crowd("before", 500))
	if mib := peakMemory(t, victim.cmd.Process.Pid) >> 20; mib > 400 {
		t.Errorf("a call of 500 events needs %d MiB", mib)
	}
	if r.separate {
		if r.second = r.launchSecond(""); !r.second.serving() {
			t.Fatalf("the other host ended: %v", r.second.err)
		}
	}
	stop := r.crowding(victim)
	out(t, victim)
	calls := stop()
	if r.separate {
		r.server, r.second = r.second, nil
	} else {
		r.start("")
	}
	for _, call := range calls {
		r.record(call)
	}
	if n := r.healed().accepted(r); n != 500+50*len(calls) {
		t.Errorf("%d items of %d calls", n, len(calls))
	}
}

// crowding records at a host until stopped, and returns what it sent.
func (r *rig) crowding(victim *server) (stop func() [][]event) {
	quit, done := make(chan struct{}), make(chan struct{})
	var calls [][]event
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			select {
			case <-quit:
				return
			case <-victim.ended:
				return
			default:
			}
			if call := crowd(fmt.Sprint("e", n), 50); n < 20 { // then they are only repeated
				calls = append(calls, call)
			}
			_, _ = r.post(calls[n%len(calls)])
		}
	}()
	return func() [][]event { close(quit); <-done; return calls }
}

// big opens connections on which a body of a megabyte comes and does not end,
// until the process ends or there are enough of them.
func (s *server) big(enough int) {
	s.r.t.Helper()
	body := append([]byte("POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1048576\r\n\r\n"), bytes.Repeat([]byte(" "), 1<<20-1)...)
	for range enough {
		if s.hasEnded() {
			return
		}
		c, err := net.DialTimeout("tcp", strings.TrimPrefix(s.base, "http://"), patience)
		if err != nil {
			continue // it is ending
		}
		s.r.t.Cleanup(func() { _ = c.Close() })
		_ = c.SetWriteDeadline(time.Now().Add(patience))
		_, _ = c.Write(body)
	}
	s.wait(patience)
}

// ranOutInGroup moves a process into a control group, which bounds what it takes
// from then on, and waits until the kernel ends it.
func ranOutInGroup(t *testing.T, s *server) {
	t.Helper()
	group, err := memoryGroup(t, 12<<20)
	if err != nil {
		if os.Getenv(pgtest.Strict) != "" {
			t.Fatalf("no control group may be made here: %v", err)
		}
		t.Skipf("no control group may be made here: %v", err)
	}
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(s.cmd.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	s.big(600)
	if sig := s.signalled(); sig != syscall.SIGKILL {
		t.Fatalf("ended with %v", s.err)
	}
}

// memoryGroup makes a control group, of version 1 or 2, whichever has the memory
// controller.
func memoryGroup(t *testing.T, limit int) (string, error) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", err
	}
	return groupIn(t, mounts, limit)
}

// groupIn does it where one of these mounts has the controller.
func groupIn(t *testing.T, mounts []byte, limit int) (string, error) {
	t.Helper()
	last := fmt.Errorf("no control groups for memory in %d mounts", bytes.Count(mounts, []byte("\n")))
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 4 || !strings.HasPrefix(f[2], "cgroup") {
			continue
		}
		root, file := f[1], "memory.limit_in_bytes"
		switch {
		case f[2] == "cgroup2":
			file = "memory.max"
			has, _ := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
			if !slices.Contains(strings.Fields(string(has)), "memory") {
				continue
			}
			if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+memory"), 0o600); err != nil {
				last = err
				continue
			}
		case !slices.Contains(strings.Split(f[3], ","), "memory"):
			continue
		}
		dir, err := os.MkdirTemp(root, "fencepost-") //nolint:usetesting // a control group is made there
		if err != nil {
			last = err
			continue
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		if last = os.WriteFile(filepath.Join(dir, file), []byte(strconv.Itoa(limit)), 0o600); last == nil {
			_ = os.WriteFile(filepath.Join(dir, "memory.swap.max"), []byte("0"), 0o600) // version 2 with swap
			return dir, nil
		}
	}
	return "", last
}

// ranOutByLimit lets a process have no more data than it has, and waits until it
// ends for want of more. What its heap has in reserve is less than what is asked of
// it.
func ranOutByLimit(t *testing.T, s *server) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	var kib uint64
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmData:"); ok {
			if kib, err = strconv.ParseUint(strings.Fields(rest)[0], 10, 64); err != nil {
				t.Fatal(err)
			}
		}
	}
	limit := kib << 10
	if err := unix.Prlimit(s.cmd.Process.Pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: limit, Max: limit}, nil); err != nil {
		t.Fatal(err)
	}
	s.big(600)
	var said []string // all but the log
	log, _ := os.ReadFile(s.log)
	for line := range strings.Lines(string(log)) {
		if !strings.HasPrefix(line, "{") {
			said = append(said, line)
		}
	}
	said = said[:min(len(said), 5)]
	// Of the heap, or of a thread's stack.
	if why := strings.Join(said, ""); s.cmd.ProcessState.Success() || !strings.Contains(why, "memory") && !strings.Contains(why, "pthread_create failed") {
		t.Fatalf("ended with %v: %s", s.err, why)
	}
}

// The control group of F08 is made on machines of either version, and of both: this
// one has version 1, so what is done on version 2 is looked at in a folder.
func TestMemoryGroup(t *testing.T) {
	t.Parallel()
	read := func(parts ...string) string {
		text, err := os.ReadFile(filepath.Join(parts...))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	second, first, bare := t.TempDir(), t.TempDir(), t.TempDir()
	for dir, controllers := range map[string]string{second: "cpuset cpu io memory pids\n", bare: "cpu pids\n"} {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte(controllers), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const others = "proc /proc proc rw 0 0\ntmpfs /sys/fs/cgroup tmpfs ro 0 0\n"
	v1 := "cgroup " + bare + "/none cgroup rw,cpu 0 0\ncgroup " + first + " cgroup rw,nosuid,memory 0 0\n"
	v2 := func(dir string) string { return "cgroup2 " + dir + " cgroup2 rw,nsdelegate 0 0\n" }
	for name, tc := range map[string]struct{ mounts, root, file string }{
		"version 2":                          {others + v2(second), second, "memory.max"},
		"version 1":                          {others + v1, first, "memory.limit_in_bytes"},
		"both, memory is of version 1":       {others + v2(bare) + v1, first, "memory.limit_in_bytes"},
		"both, memory is of version 2":       {others + "cgroup " + bare + "/none cgroup rw,cpu 0 0\n" + v2(second), second, "memory.max"},
		"the first cannot be written":        {others + v2(filepath.Join(bare, "gone")) + v2(second), second, "memory.max"},
		"version 2 without memory, and none": {others + v2(bare), "", ""},
		"none":                               {others, "", ""},
	} {
		dir, err := groupIn(t, []byte(tc.mounts), 12<<20)
		if tc.root == "" {
			if err == nil {
				t.Errorf("%s: a group in %s", name, dir)
			}
			continue
		}
		if err != nil || filepath.Dir(dir) != tc.root {
			t.Fatalf("%s: %q, %v", name, dir, err)
		}
		if got := read(dir, tc.file); got != "12582912" {
			t.Errorf("%s: the limit is %s", name, got)
		}
		if tc.root == second {
			if got := read(second, "cgroup.subtree_control"); got != "+memory" {
				t.Errorf("%s: the controller is handed down by %q", name, got)
			}
			if got := read(dir, "memory.swap.max"); got != "0" {
				t.Errorf("%s: it may swap %s", name, got)
			}
		}
	}
}
