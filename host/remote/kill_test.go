//go:build linux

package remote_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// killHolder kills the process that has a file open, and returns how many did.
func killHolder(t *testing.T, file string) int {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	killed := map[int]bool{}
	for _, link := range links {
		target, err := os.Readlink(link)
		pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
		if err == nil && target == file && pid != os.Getpid() && !killed[pid] {
			killed[pid] = true
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	return len(killed)
}
