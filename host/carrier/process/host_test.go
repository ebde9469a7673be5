package process

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// alive waits for processes to end and returns those that do not.
func alive(pids []int) []int {
	var left []int
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		left = nil
		for _, pid := range pids {
			if !ended(pid) {
				left = append(left, pid)
			}
		}
		if len(left) == 0 {
			break
		}
	}
	return left
}

func ended(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err != nil || strings.Contains(string(status), "State:\tZ")
}

// playHost is a host whose plugin has started others. It tells their numbers
// and waits to be killed.
func playHost(args []string) {
	image, err := Self()
	if err != nil {
		panic(err)
	}
	cfg := Config{Name: "evil", Image: image, Args: []string{"plugin"}, Limits: Limits{Memory: memoryLimit}}
	p, err := Open(cfg)
	if err != nil {
		panic(err)
	}
	if args[0] == "plain" {
		p.plain.set()
	}
	if _, err := p.Call(context.Background(), grandchild, nil); err != nil {
		panic(err)
	}
	fmt.Println(p.idle[0].runner.pid, p.sockets.dir)
	time.Sleep(time.Hour)
}

// D7, F46: no plugin outlives a host that was killed with -9, and the next host
// sweeps its folder.
func TestHostDies(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"namespaces", "plain"} {
		cmd := exec.Command("/proc/self/exe", "host", mode)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		text, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		pid, _ := strconv.Atoi(text)
		tree := append(children(pid), pid)
		if len(tree) < 2 {
			t.Errorf("%s: the plugin %v has no children", mode, tree)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if left := alive([]int{pid}); len(left) != 0 {
			t.Errorf("%s: the plugin %v outlives its host", mode, left)
		}
		left := alive(tree)
		for _, pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if mode == "namespaces" && len(left) != 0 {
			t.Errorf("%v outlive the host", left)
		}
		sweep(socketsBase())
		if exists(dir) {
			t.Errorf("%s: %s is not swept", mode, dir)
		}
	}
}

// children are the processes whose parent is pid.
func children(pid int) []int {
	var pids []int
	files, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, name := range files {
		status, _ := os.ReadFile(name)
		if strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", pid)) {
			n, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			pids = append(pids, n)
		}
	}
	return pids
}

// The kernel takes 107 bytes as the address of a socket: a plugin starts where
// the system's temporary folder has a longer name than that leaves room for.
func TestSocketsFitIntoAnAddress(t *testing.T) { //nolint:paralleltest // it changes the environment
	for _, dir := range []string{"/tmp", "/var/tmp/" + strings.Repeat("a", 31), "/tmp/" + strings.Repeat("a", 90)} {
		t.Setenv("TMPDIR", dir)
		if n := len(socketsBase() + "/fencepost-plugins-1234567890/plugin-dir1234567890/plugin1234567890"); n > 107 {
			t.Errorf("%s: %d bytes", dir, n)
		}
	}
}
