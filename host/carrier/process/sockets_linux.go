package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// socketsPrefix begins the names of our folders of sockets.
const socketsPrefix = "fencepost-plugins-"

// sockets is the folder in which the processes of one plugin listen. A killed
// process leaves its socket behind, and a killed host its folder: the next host
// to start removes it.
type sockets struct {
	dir  string
	lock *os.File
}

// socketsBase is where folders of sockets are made: the system's temporary
// folder. The kernel takes 107 bytes as the address of a socket, so where that
// folder's name is long it is /tmp.
func socketsBase() string {
	const longest = 40 // what is left is for our folder, the plugin's and the socket
	if base := os.TempDir(); len(base) <= longest {
		return base
	}
	return "/tmp"
}

func newSockets() (*sockets, error) {
	base := socketsBase()
	sweep(base)
	for range 10 {
		dir, err := os.MkdirTemp(base, socketsPrefix)
		if err != nil {
			return nil, fmt.Errorf("make a folder for sockets: %w", err)
		}
		s := &sockets{dir: dir}
		if s.lock, err = lockFolder(dir); err != nil {
			return nil, fmt.Errorf("lock a folder for sockets: %w", err)
		}
		if s.lock == nil || !exists(dir) {
			continue // somebody swept it before it was locked
		}
		if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // a plugin that is nobody must pass through; each has a folder of its own below
			return nil, fmt.Errorf("make a folder for sockets: %w", err)
		}
		return s, nil
	}
	return nil, errors.New("make a folder for sockets: removed again and again")
}

func exists(dir string) bool { _, err := os.Lstat(dir); return err == nil }

// lockFolder returns nil if somebody else holds it.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, err
	}
	return f, nil
}

// sweep removes folders of hosts that are gone.
func sweep(base string) {
	dirs, _ := filepath.Glob(filepath.Join(base, socketsPrefix+"*"))
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
			continue
		}
		lock, err := lockFolder(dir)
		if err != nil || lock == nil {
			continue
		}
		_ = os.RemoveAll(dir)
		_ = lock.Close()
	}
}

func (s *sockets) close() error {
	return errors.Join(os.RemoveAll(s.dir), s.lock.Close())
}
