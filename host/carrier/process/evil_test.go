package process

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/guest/subprocess"
)

// evil is a plugin process that does what it is told.
type evil struct {
	calls int
	ask   subprocess.Ask
	kept  []byte
}

func (e *evil) Call(ctx context.Context, method uint32, request []byte, ask subprocess.Ask) ([]byte, int32) {
	e.calls++
	switch method {
	case echo:
		return request, 0
	case fails:
		return request, 1
	case status7:
		return nil, 7
	case count:
		return []byte(strconv.Itoa(e.calls)), 0
	case asksHTTP:
		answer, refused, err := ask(ctx, capability.HTTPName, request)
		return fmt.Appendf(nil, "%s %v %v", answer, refused, err), 0
	case asksMuch:
		for {
			if _, _, err := ask(ctx, capability.ClockName, nil); err != nil {
				return nil, 0
			}
		}
	case asksAfter:
		if e.ask != nil {
			_, refused, err := e.ask(context.Background(), capability.HTTPName, request)
			return fmt.Appendf(nil, "%v %v", refused, err), 0
		}
		e.ask = ask
	case grows:
		e.kept = make([]byte, 128<<20)
		for i := 0; i < len(e.kept); i += 4096 {
			e.kept[i] = 1
		}
		return []byte(strconv.Itoa(e.calls)), 0
	case bomb:
		return make([]byte, 2<<20), 0
	default:
		return e.misbehave(method), 0
	}
	return nil, 0
}

func (e *evil) misbehave(method uint32) []byte {
	switch method {
	case hangs:
		for {
			time.Sleep(time.Hour)
		}
	case panics:
		panic("a bug of the plugin")
	case exits0:
		os.Exit(0)
	case exits3:
		os.Exit(3)
	case floodsOut:
		flood(os.Stdout, 64<<20)
	case floodsErr:
		flood(os.Stderr, 64<<20)
	case longLine:
		line := strings.Repeat("x", 8<<20)
		_, _ = os.Stdout.WriteString(line)
		_, _ = os.Stdout.WriteString("\n1|1|unix|/tmp/elsewhere|grpc|\n")
	case memory:
		for all := []byte{}; ; {
			all = append(all, make([]byte, 64<<20)...)
			all[len(all)-1] = 1
		}
	case grandchild:
		return grandchildren()
	case forks:
		return []byte(strconv.Itoa(forkBomb()))
	case pids:
		return []byte(strconv.Itoa(os.Getpid()))
	default:
		return e.look(method)
	}
	return nil
}

func flood(f *os.File, n int) {
	chunk := []byte(strings.Repeat("0123456789abcde\n", 4096))
	for ; n > 0; n -= len(chunk) {
		if _, err := f.Write(chunk); err != nil {
			return
		}
	}
}

// look tells what the process finds around it.
func (e *evil) look(method uint32) []byte {
	switch method {
	case ambient:
		fds, _ := os.ReadDir("/proc/self/fd")
		var open []string
		for _, fd := range fds {
			to, _ := os.Readlink("/proc/self/fd/" + fd.Name())
			if kind, _, _ := strings.Cut(to, ":"); kind == "pipe" || kind == "anon_inode" || kind == "socket" {
				to = kind
			}
			open = append(open, fd.Name()+" "+to)
		}
		wd, _ := os.Getwd()
		return mustJSON(map[string]any{
			"env": os.Environ(), "fds": open, "uid": os.Getuid(), "gid": os.Getgid(), "wd": wd, "args": os.Args, "pgid": syscall.Getpgrp() == os.Getpid(),
		})
	case writesFile:
		err := os.WriteFile(filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "file"), []byte("x"), 0o600)
		return fmt.Append(nil, err)
	case dials:
		// An address of nobody: with a network, the packet leaves.
		c, err := net.DialTimeout("udp", "192.0.2.1:9", time.Second)
		if err == nil {
			_ = c.Close()
		}
		return fmt.Append(nil, err)
	}
	return nil
}

// grandchildren starts one in the group, and one that left it twice over.
func grandchildren() []byte {
	exe, _ := os.Readlink("/proc/self/exe")
	var started []string
	for _, leave := range []bool{false, true} {
		cmd := exec.Command("/proc/self/exe", "plugin", "sleep")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: leave}
		if err := cmd.Start(); err != nil {
			return fmt.Appendf(nil, "%s: %v", exe, err)
		}
		started = append(started, strconv.Itoa(cmd.Process.Pid))
	}
	return []byte(strings.Join(started, " "))
}

// forkBomb starts sleeping children until it cannot.
func forkBomb() int {
	for n := range 2_000 {
		cmd := exec.Command("/proc/self/exe", "plugin", "sleep")
		if err := cmd.Start(); err != nil {
			return n
		}
	}
	return 2_000
}

// playStart is what a plugin does before it serves.
func playStart(mode string) {
	say := func(s string) {
		_, _ = os.Stdout.WriteString(s)
		time.Sleep(time.Hour)
	}
	dir := os.Getenv("PLUGIN_UNIX_SOCKET_DIR")
	switch mode {
	case "exits":
		_, _ = os.Stderr.WriteString("no license\n")
		os.Exit(4)
	case "silent":
		time.Sleep(time.Hour)
	case "stopped":
		_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
	case "chatty":
		_, _ = os.Stdout.WriteString("hello, I am a plugin\n")
		time.Sleep(time.Hour)
	case "endless":
		flood(os.Stdout, 1<<30)
		_, _ = os.Stdout.WriteString(strings.Repeat("x", 64<<20))
		time.Sleep(time.Hour)
	case "other-version":
		say("1|99|unix|" + dir + "/s|grpc|\n")
	case "other-core":
		say("7|1|unix|" + dir + "/s|grpc|\n")
	case "netrpc":
		if _, err := net.Listen("unix", dir+"/s"); err != nil {
			panic(err)
		}
		say("1|1|unix|" + dir + "/s|netrpc|\n")
	case "tcp":
		say("1|1|tcp|127.0.0.1:1|grpc|\n")
	case "elsewhere":
		say("1|1|unix|/run/docker.sock|grpc|\n")
	case "up":
		say("1|1|unix|" + dir + "/../../s|grpc|\n")
	case "link":
		_ = os.Symlink("/run/docker.sock", dir+"/s")
		say("1|1|unix|" + dir + "/s|grpc|\n")
	case "no-cert", "garbage":
		l, err := net.Listen("unix", dir+"/s")
		if err != nil {
			panic(err)
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte(strings.Repeat("\xff\x00garbage", 1000)))
			}
		}()
		say("1|1|unix|" + dir + "/s|grpc|\n")
	}
}
