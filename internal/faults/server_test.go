//go:build faults && unix

package faults

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// server is one run of "fencepost serve".
type server struct {
	r        *rig
	cmd      *exec.Cmd
	log      string
	faultLog string
	rules    string
	base     string
	ended    chan struct{}
	err      error // of Wait, once ended is closed
}

// launch starts a server with fault rules, and does not wait for it.
func (r *rig) launch(rules string) *server {
	r.t.Helper()
	return r.launchAs(rules, r.program, "serve", "--config", r.config(), "--log-level", "debug")
}

// launchSecond starts the second of two hosts, see rig.separate.
func (r *rig) launchSecond(rules string) *server {
	r.t.Helper()
	return r.launchAs(rules, r.program, "serve", "--config", r.secondConfig(), "--log-level", "debug")
}

func (r *rig) launchAs(rules, program string, args ...string) *server {
	r.t.Helper()
	r.starts++
	s := &server{
		r: r, rules: rules, ended: make(chan struct{}),
		log:      filepath.Join(r.dir, fmt.Sprintf("server-%d.log", r.starts)),
		faultLog: filepath.Join(r.dir, fmt.Sprintf("faults-%d.log", r.starts)),
	}
	out, err := os.Create(s.log)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	s.cmd = exec.Command(program, args...)
	s.cmd.Env = append(r.env(), "FENCEPOST_FAULTS="+rules, "FENCEPOST_FAULTS_LOG="+s.faultLog)
	if args[0] == pairVar {
		s.cmd.Env = append(s.cmd.Env, pairVar+"="+args[1])
	}
	s.cmd.Stdout, s.cmd.Stderr = out, out
	if err := s.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() {
		s.err = s.cmd.Wait()
		close(s.ended)
	}()
	r.t.Cleanup(func() {
		if !s.hasEnded() {
			_ = s.cmd.Process.Kill()
			<-s.ended
		}
		if r.t.Failed() {
			r.t.Logf("rules %q\n%s%s", rules, tail(s.faultLog), tail(s.log))
		}
	})
	return s
}

func (r *rig) env() []string {
	return append(os.Environ(), keyVar+"="+r.key, hookVar+"="+hookSecret, skewVar+"="+r.skew.String())
}

// tail is the end of a file, for a failing test's output.
func tail(path string) string {
	b, _ := os.ReadFile(path)
	const most = 6000
	if len(b) > most {
		b = b[len(b)-most:]
	}
	return fmt.Sprintf("-- %s\n%s", filepath.Base(path), b)
}

// start launches a server and waits until it serves.
func (r *rig) start(rules string) *server {
	r.t.Helper()
	s := r.launch(rules)
	if !s.serving() {
		r.t.Fatalf("the server ended before it served: %v", s.err)
	}
	r.server = s
	return s
}

func (s *server) hasEnded() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// serving waits until the server tells its address. It reports false if the
// process ends first.
func (s *server) serving() bool {
	s.r.t.Helper()
	eventually(s.r.t, "the server serves or ends", func() bool {
		for _, line := range s.logged("serving") {
			s.base, _ = line["address"].(string)
		}
		return s.base != "" || s.hasEnded()
	})
	return s.base != "" && !s.hasEnded()
}

// logged returns the log lines with that message.
func (s *server) logged(msg string) []map[string]any {
	b, _ := os.ReadFile(s.log)
	var found []map[string]any
	for line := range bytes.Lines(b) {
		var fields map[string]any
		if json.Unmarshal(line, &fields) == nil && fields["msg"] == msg {
			found = append(found, fields)
		}
	}
	return found
}

// wait waits for the end of the process.
func (s *server) wait(limit time.Duration) {
	s.r.t.Helper()
	select {
	case <-s.ended:
	case <-time.After(limit):
		s.r.t.Fatalf("the server did not end in %v", limit)
	}
}

// signalled reports which signal ended the process, 0 if none did.
func (s *server) signalled() syscall.Signal {
	var exit *exec.ExitError
	if !errors.As(s.err, &exit) {
		return 0
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return status.Signal()
	}
	return 0
}

// died waits until a fault has killed the process, and fails unless the fault
// log says that it was the fault at label.
func (s *server) died(label string) {
	s.r.t.Helper()
	s.wait(patience)
	if sig := s.signalled(); sig != syscall.SIGKILL {
		s.r.t.Fatalf("ended with %v, not by SIGKILL", s.err)
	}
	s.faulted(label, "kill")
}

// faulted fails unless the fault log has a firing of that action at label.
func (s *server) faulted(label, action string) {
	s.r.t.Helper()
	if s.firings(label, action) == 0 {
		s.r.t.Fatalf("the fault at %s never fired (rules %q)", label, s.rules)
	}
}

func (s *server) firings(label, action string) int {
	f, err := os.Open(s.faultLog)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	n := 0
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if strings.HasPrefix(sc.Text(), "fault label="+label+" action="+action) {
			n++
		}
	}
	return n
}

// kill ends the server with SIGKILL.
func (s *server) kill() {
	s.r.t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		s.r.t.Fatal(err)
	}
	<-s.ended
}

// stop ends the server with SIGTERM and returns how long that took.
func (s *server) stop() time.Duration {
	s.r.t.Helper()
	began := time.Now()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.r.t.Fatal(err)
	}
	s.wait(patience)
	if s.err != nil {
		s.r.t.Errorf("ended with %v after SIGTERM", s.err)
	}
	return time.Since(began)
}

// run runs another command of the binary and returns its output.
func (r *rig) run(args ...string) (stdout, stderr string, err error) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), r.program, append(args, "--config", r.config())...)
	cmd.Env = r.env()
	var out, diag bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diag
	err = cmd.Run()
	if bytes.Contains(append(out.Bytes(), diag.Bytes()...), []byte(canary)) {
		r.t.Errorf("the output of %q holds the API key", args[0])
	}
	return out.String(), diag.String(), err
}
