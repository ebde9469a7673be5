//go:build linux

package pgtest

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/internal/freeport"
)

// BinEnv names the variable with the folder that holds initdb and postgres.
// Without it the newest of Debian's is taken.
const BinEnv = "FENCEPOST_TEST_PGBIN"

// patience bounds every wait for a server. Machines that run this are shared.
const patience = 90 * time.Second

// ClusterConfig says what a cluster is to be. The zero value is a small one
// with durable commits.
type ClusterConfig struct {
	// Options are settings of the server, as name=value.
	Options []string
	// Size puts the data on a file system of that size in memory ("90m"):
	// it can be filled. Needs root.
	Size string
	// Disk and Clock are what the server sees instead of the real ones.
	Disk  *Disk
	Clock *Clock
	// From copies a running cluster with pg_basebackup instead of making a new
	// one; with standby.signal in it, it follows and is read-only.
	From *Cluster
}

// Cluster is a PostgreSQL server of a test's own, which it may stop, kill, fill
// and damage. It is not safe for concurrent use.
type Cluster struct {
	t    testing.TB
	cfg  ClusterConfig
	bin  string
	dir  string
	port int
	who  *syscall.Credential
	cmd  *exec.Cmd
	done chan struct{}
}

// NewCluster makes and starts a server. It ends with the test. Without
// PostgreSQL's programs the test is skipped.
func NewCluster(t testing.TB, cfg ClusterConfig) *Cluster {
	t.Helper()
	c := &Cluster{t: t, cfg: cfg, bin: bin(t), who: unprivileged(t), dir: publicDir(t)}
	if cfg.Size != "" {
		c.mount()
	}
	if c.who != nil {
		if err := os.Chown(c.dir, int(c.who.Uid), int(c.who.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	c.port = freeport.Pick(t)
	c.fill()
	t.Cleanup(func() {
		c.Stop(syscall.SIGQUIT)
		if t.Failed() {
			t.Logf("-- PostgreSQL in %s\n%s", c.dir, c.tail())
		}
	})
	c.Start()
	return c
}

// fill makes the data folder.
func (c *Cluster) fill() {
	c.t.Helper()
	if c.cfg.From == nil {
		c.run("initdb", "-D", c.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
		return
	}
	c.run("pg_basebackup", "-D", c.data(), "-R", "-X", "stream", "-c", "fast", "--no-sync", "-d", c.cfg.From.DSN())
}

func (c *Cluster) run(name string, args ...string) {
	c.t.Helper()
	cmd := c.command(c.t.Context(), name, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

func (c *Cluster) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, name), args...) //nolint:gosec // a test's own program
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.who, Setpgid: true}
	return cmd
}

func (c *Cluster) data() string    { return filepath.Join(c.dir, "data") }
func (c *Cluster) logFile() string { return filepath.Join(c.dir, "log") }

// Addr is the server's host:port, which a restart does not change.
func (c *Cluster) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)) }

// DSN names the database postgres as its superuser.
func (c *Cluster) DSN() string {
	return "postgres://postgres@" + c.Addr() + "/postgres?sslmode=disable"
}

// Start starts the server and waits until it answers. After a kill it may have
// to wait for the last processes of the one before.
func (c *Cluster) Start() {
	c.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		c.launch()
		if c.answers(deadline) {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("the server did not start:\n%s", c.tail())
		}
	}
}

// Launch starts the server and does not wait.
func (c *Cluster) Launch() { c.t.Helper(); c.launch() }

func (c *Cluster) launch() {
	c.t.Helper()
	args := []string{"-D", c.data(), "-p", strconv.Itoa(c.port)}
	options := append([]string{
		"listen_addresses=127.0.0.1", "unix_socket_directories=" + c.dir, "shared_buffers=32MB", "max_connections=60",
		"log_min_messages=warning",
	}, c.cfg.Options...)
	for _, o := range options {
		args = append(args, "-c", o)
	}
	c.cmd = c.command(context.Background(), "postgres", args...)
	if c.cfg.Disk != nil {
		c.cmd.Env = append(c.cmd.Env, c.cfg.Disk.env()...)
	}
	if c.cfg.Clock != nil {
		c.cmd.Env = append(c.cmd.Env, c.cfg.Clock.env()...)
	}
	out, err := os.OpenFile(c.logFile(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	c.cmd.Stdout, c.cmd.Stderr = out, out
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	done, cmd := make(chan struct{}), c.cmd
	c.done = done
	go func() { defer close(done); _ = cmd.Wait() }()
}

// answers waits until the server answers; false if it ended first.
func (c *Cluster) answers(deadline time.Time) bool {
	for time.Now().Before(deadline) {
		select {
		case <-c.done:
			return false
		case <-time.After(20 * time.Millisecond):
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		conn, err := pgx.Connect(ctx, c.DSN())
		if err == nil {
			err = errors.Join(conn.Ping(ctx), conn.Close(ctx))
		}
		cancel()
		if err == nil {
			return true
		}
	}
	return false
}

// Stop ends the server and waits: SIGTERM waits for its clients (pg_ctl -m
// smart), SIGINT does not (fast), SIGQUIT leaves the work to recovery
// (immediate), SIGKILL takes the postmaster alone, as kill -9 or a lack of
// memory does. It does nothing if the server has ended.
func (c *Cluster) Stop(sig syscall.Signal) {
	c.t.Helper()
	if c.Ended() {
		return
	}
	_ = c.cmd.Process.Signal(sig)
	select {
	case <-c.done:
	case <-time.After(patience):
		_ = c.cmd.Process.Kill()
		<-c.done
		c.t.Errorf("the server did not end by %v in %v:\n%s", sig, patience, c.tail())
	}
}

// Ended says that the postmaster is gone.
func (c *Cluster) Ended() bool {
	if c.done == nil {
		return true
	}
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Logged says how often the server has logged a text.
func (c *Cluster) Logged(text string) int {
	b, _ := os.ReadFile(c.logFile())
	return strings.Count(string(b), text)
}

// WaitLogged waits until the server has logged a text that often.
func (c *Cluster) WaitLogged(text string, times int) {
	c.t.Helper()
	for deadline := time.Now().Add(patience); c.Logged(text) < times; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("%q was not logged %d times:\n%s", text, times, c.tail())
		}
	}
}

// FillTo leaves about so many bytes free on a file system of Size,
// by a file that Empty removes.
func (c *Cluster) FillTo(free int64) {
	c.t.Helper()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(c.dir, &fs); err != nil {
		c.t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(c.dir, "ballast"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	// The server takes room meanwhile.
	for left := int64(fs.Bavail)*fs.Bsize - free; left > 0; {
		n, err := f.Write(make([]byte, min(left, 1<<16)))
		left -= int64(n)
		if errors.Is(err, syscall.ENOSPC) {
			return
		}
		if err != nil {
			c.t.Fatalf("fill: %v", err)
		}
	}
}

// Empty takes back FillTo.
func (c *Cluster) Empty() {
	c.t.Helper()
	if err := os.Remove(filepath.Join(c.dir, "ballast")); err != nil {
		c.t.Fatal(err)
	}
}

func (c *Cluster) mount() {
	c.t.Helper()
	if err := syscall.Mount("tmpfs", c.dir, "tmpfs", 0, "mode=0711,size="+c.cfg.Size); err != nil {
		missing(c.t, "mount a tmpfs: %v", err)
	}
	c.t.Cleanup(func() {
		if err := syscall.Unmount(c.dir, syscall.MNT_DETACH); err != nil {
			c.t.Errorf("unmount: %v", err)
		}
	})
}

func (c *Cluster) tail() string {
	b, _ := os.ReadFile(c.logFile())
	const most = 6000
	return string(b[max(0, len(b)-most):])
}

// bin finds PostgreSQL's programs.
func bin(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv(BinEnv); dir != "" {
		return dir
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		missing(t, "no initdb below /usr/lib/postgresql, and %s is not set", BinEnv)
	}
	return filepath.Dir(slices.Max(found))
}

// unprivileged is the user that servers run as: PostgreSQL refuses root.
func unprivileged(t testing.TB) *syscall.Credential {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uerr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gerr := strconv.ParseUint(u.Gid, 10, 32)
		if uerr == nil && gerr == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	missing(t, "root, and there is no user postgres or nobody")
	return nil
}
