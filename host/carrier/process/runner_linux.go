package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// runner owns one process: go-plugin asks it for the line of the handshake and
// nothing else. It implements go-plugin's runner.Runner.
type runner struct {
	cfg    *Config
	plain  *plainly
	cmd    *exec.Cmd
	dir    string
	uid    uint32
	first  *io.PipeReader
	stderr *output
	lines  *lineLog

	// killed kills the process when it is done.
	killed    context.Context
	isolation Isolation

	mu  sync.Mutex
	pid int
	// reaped: the number may be somebody else's by now.
	reaped bool
	// ended is set when we ended it.
	ended bool
	// exited is closed when the process is gone and its output read.
	exited chan struct{}
	state  *os.ProcessState
}

// plainly remembers that the kernel does not allow namespaces here.
type plainly struct {
	mu sync.Mutex
	is bool
}

func (p *plainly) get() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.is }
func (p *plainly) set()      { p.mu.Lock(); defer p.mu.Unlock(); p.is = true }

// Start implements runner.Runner. The context is not for the process.
func (r *runner) Start(context.Context) error {
	started := make(chan error, 1)
	go r.run(started)
	return <-started
}

// run starts the process and stays with it. It keeps its thread: the kernel
// sends the parent-death signal when the thread that forked ends, and only the
// thread that traces may let the traced go.
func (r *runner) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out, err := newStreams()
	if err != nil {
		started <- err
		return
	}
	if err := r.start(out); err != nil {
		out.close()
		started <- err
		return
	}
	out.started()
	firstLine, toPlugin := io.Pipe()
	r.first = firstLine
	var drains sync.WaitGroup
	shake := &handshake{to: toPlugin}
	stdout := &output{stream: "stdout", log: r.lines}
	drains.Go(func() {
		stdout.drain(out.outR, shake.take)
		_ = toPlugin.Close()
	})
	drains.Go(func() { r.stderr.drain(out.errR, nil) })
	stop := context.AfterFunc(r.killed, r.killGroup)
	started <- nil
	r.awaitEnd()
	stop()
	r.mu.Lock()
	_ = unix.Kill(-r.pid, unix.SIGKILL) // what it left behind, while the number is still its own
	r.reaped = true
	_ = r.cmd.Wait() // it has ended; the state says how
	r.mu.Unlock()
	r.state = r.cmd.ProcessState
	// Something that got away may hold the pipes open.
	out.expire()
	drains.Wait()
	out.close()
	close(r.exited)
}

// start forks, with namespaces of its own if the kernel allows them, and sets
// the limits before the first instruction of the program runs.
func (r *runner) start(out *streams) error {
	// What leaked into the host without close-on-exec does not leak further.
	if err := unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil && !errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("close descriptors: %w", err)
	}
	if !r.plain.get() {
		err := r.fork(out, r.namespaces())
		if err == nil {
			r.isolation = Isolation{Tree: true, Network: !r.cfg.Sandbox.Network}
			return nil
		}
		if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EACCES) {
			return err
		}
		if err := r.fork(out, 0); err != nil {
			return err
		}
		r.plain.set()
		r.cfg.Logger.Warn("this system gives plugins no namespaces: a plugin can reach the network and outlive its own end by leaving its group")
		return nil
	}
	return r.fork(out, 0)
}

func (r *runner) namespaces() uintptr {
	flags := uintptr(unix.CLONE_NEWUSER | unix.CLONE_NEWPID)
	if !r.cfg.Sandbox.Network {
		flags |= unix.CLONE_NEWNET
	}
	return flags
}

func (r *runner) fork(out *streams, namespaces uintptr) error {
	cmd := &exec.Cmd{
		Path: r.cfg.Image.path(), Args: append([]string{r.cfg.Name}, r.cfg.Args...), Env: r.cmd.Env, Dir: cmp.Or(r.cfg.Sandbox.Dir, "/"),
		Stdout: out.outW, Stderr: out.errW, // no stdin: the null device
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Ptrace: true, Cloneflags: namespaces},
	}
	a := cmd.SysProcAttr
	r.identity(a)
	if r.uid != uint32(os.Geteuid()) {
		if err := os.Chown(r.dir, int(r.uid), int(r.uid)); err != nil {
			return fmt.Errorf("give the plugin its folder: %w", err)
		}
	}
	err := cmd.Start()
	if errors.Is(err, unix.EPERM) && namespaces == 0 && a.Ptrace {
		// No tracing here: the limits come a moment late.
		a.Ptrace = false
		cmd = &exec.Cmd{Path: cmd.Path, Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir, Stdout: cmd.Stdout, Stderr: cmd.Stderr, SysProcAttr: a}
		err = cmd.Start()
	}
	runtime.KeepAlive(r.cfg.Image)
	if err != nil {
		return fmt.Errorf("start the process: %w", err)
	}
	r.cmd, r.pid = cmd, cmd.Process.Pid
	if a.Ptrace {
		var status unix.WaitStatus
		for {
			_, err = unix.Wait4(r.pid, &status, unix.WALL, nil)
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
	}
	err = r.cfg.limit(r.pid, r.uid)
	if errors.Is(err, unix.EPERM) && a.Credential != nil {
		// A root without CAP_SYS_RESOURCE may not limit another user's
		// process. Another user is worth more than limits.
		r.cfg.Logger.Warn("this system lets the host not limit its plugins: run it as a user that is not root")
		err = nil
	}
	if a.Ptrace {
		if e := unix.PtraceDetach(r.pid); e != nil && !errors.Is(e, unix.ESRCH) {
			err = errors.Join(err, fmt.Errorf("let the process go: %w", e))
		}
	}
	if err != nil {
		r.killGroup()
		_ = cmd.Wait()
		r.pid = 0
		return err
	}
	return nil
}

// identity says as whom the process runs. In a user namespace that belongs to
// the host, the host may limit it, whatever capabilities it has otherwise.
func (r *runner) identity(a *syscall.SysProcAttr) {
	own := uint32(os.Geteuid())
	gid := os.Getegid()
	if r.uid != own {
		gid = int(r.uid)
		a.Credential = &syscall.Credential{Uid: r.uid, Gid: r.uid}
		a.GidMappingsEnableSetgroups = true // so that it can drop the host's
	}
	if a.Cloneflags&unix.CLONE_NEWUSER != 0 {
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: int(r.uid), HostID: int(r.uid), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
	}
}

// awaitEnd waits for the end of the process and leaves it to be reaped.
func (r *runner) awaitEnd() {
	for {
		err := unix.Waitid(unix.P_PID, r.pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// killGroup ends the process and everything in its group, stopped or not.
func (r *runner) killGroup() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pid != 0 && !r.reaped {
		r.ended = true
		_ = unix.Kill(-r.pid, unix.SIGKILL)
	}
}

// byItself reports whether the process, which is gone, ended before we ended it.
func (r *runner) byItself() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	status, ok := r.state.Sys().(syscall.WaitStatus)
	return !r.ended || !ok || !status.Signaled() || status.Signal() != unix.SIGKILL
}

// peer is the process that listens at the other end of a unix socket.
func peer(conn net.Conn) (int, error) {
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, errors.New("not a unix socket")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	if e := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil {
		return 0, e
	}
	if err != nil {
		return 0, err
	}
	return int(cred.Pid), nil
}

// Kill implements runner.AttachedRunner. It does not wait.
func (r *runner) Kill(context.Context) error {
	r.killGroup()
	return nil
}

// Wait implements runner.AttachedRunner.
func (r *runner) Wait(ctx context.Context) error {
	select {
	case <-r.exited:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Stdout implements runner.Runner: the first line only.
func (r *runner) Stdout() io.ReadCloser { return r.first }

// Stderr implements runner.Runner. We read it ourselves.
func (*runner) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Name implements runner.Runner.
func (r *runner) Name() string { return r.cfg.Name }

// ID implements runner.AttachedRunner.
func (r *runner) ID() string { return strconv.Itoa(r.pid) }

// Diagnose implements runner.Runner. The fault shows what there is.
func (*runner) Diagnose(context.Context) string { return "" }

// PluginToHost implements runner.AddrTranslator: a plugin is talked to on a
// socket in its own folder, and nowhere else.
func (r *runner) PluginToHost(network, address string) (string, string, error) {
	if network != "unix" || filepath.Dir(address) != r.dir || strings.ContainsRune(address, 0) {
		return "", "", errors.New("the plugin does not listen on a unix socket in PLUGIN_UNIX_SOCKET_DIR")
	}
	info, err := os.Lstat(address)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return "", "", errors.New("the plugin does not listen on the socket that it names")
	}
	return network, address, nil
}

// HostToPlugin implements runner.AddrTranslator. The plugin never calls us.
func (*runner) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

// streams are the pipes of a process.
type streams struct{ outR, outW, errR, errW *os.File }

func newStreams() (*streams, error) {
	s := &streams{}
	var err error
	if s.outR, s.outW, err = os.Pipe(); err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	if s.errR, s.errW, err = os.Pipe(); err != nil {
		s.close()
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	return s, nil
}

// started closes the process's ends, so that its end is seen.
func (s *streams) started() {
	_ = s.outW.Close()
	_ = s.errW.Close()
	s.outW, s.errW = nil, nil
}

// expire ends reading soon: what was written is in the pipe already.
func (s *streams) expire() {
	soon := time.Now().Add(100 * time.Millisecond) //nolint:forbidigo // a deadline of the runtime's poller, which has its own clock
	_ = s.outR.SetReadDeadline(soon)
	_ = s.errR.SetReadDeadline(soon)
}

func (s *streams) close() {
	for _, f := range []*os.File{s.outR, s.outW, s.errR, s.errW} {
		if f != nil {
			_ = f.Close()
		}
	}
}
