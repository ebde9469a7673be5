//go:build unix

// Package redistest starts throwaway Redis servers for tests: the real program,
// on a free port of the loopback, in a folder of the test's own.
package redistest

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/freeport"
)

// patience bounds every wait for a server. Machines that run this are shared.
const patience = 60 * time.Second

// Durable are the settings under which Redis keeps what it acknowledged.
func Durable() []string {
	return []string{"--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction", "--save", ""}
}

// Server is a Redis of a test's own, which it may kill. It is not safe for
// concurrent use.
type Server struct {
	t        testing.TB
	program  string
	settings []string
	dir      string
	port     int
	cmd      *exec.Cmd
}

// Start starts a server with settings as its command line takes them; [Durable]
// are some. It ends with the test. Without the program redis-server the test is
// skipped; with FENCEPOST_TEST_STRICT=1 it fails.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil && os.Getenv("FENCEPOST_TEST_STRICT") == "1" {
		t.Fatal("redis-server is not in PATH, and nothing may be skipped")
	}
	if err != nil {
		t.Skip("needs redis-server in PATH: make test brings it")
	}
	s := &Server{t: t, program: program, settings: settings, dir: t.TempDir()}
	t.Cleanup(s.Kill)
	s.port = freeport.Pick(t)
	s.Restart()
	return s
}

// Addr is host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL names database 0.
func (s *Server) URL() string { return "redis://" + s.Addr() + "/0" }

// Restart starts the server on its port and its data, after [Server.Kill].
func (s *Server) Restart() {
	s.t.Helper()
	args := append([]string{"--bind", "127.0.0.1", "--port", strconv.Itoa(s.port), "--dir", s.dir}, s.settings...)
	s.cmd = exec.Command(s.program, args...) //nolint:gosec,noctx // its life is the test's, and it is killed
	var log strings.Builder
	s.cmd.Stdout, s.cmd.Stderr = &log, &log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for limit := time.Now().Add(patience); !s.answers(); {
		if time.Now().After(limit) {
			s.Kill()
			s.t.Fatalf("redis-server does not answer\n%s", log.String())
		}
	}
}

// answers asks once. A server that loads its data says so, and is not ready.
func (s *Server) answers() bool {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(s.t.Context(), "tcp", s.Addr())
	if err != nil {
		return false
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	var b [7]byte
	n, err := c.Read(b[:])
	return err == nil && string(b[:n]) == "+PONG\r\n"
}

// Kill ends the server as a crash does.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGKILL)
	_ = s.cmd.Wait()
	s.cmd = nil
}
