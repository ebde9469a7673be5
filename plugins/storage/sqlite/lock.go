package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// lockPoll is how often a waiting process asks again.
const lockPoll = 20 * time.Millisecond

var errLocked = errors.New("locked")

// fileLock is the advisory lock beside the database, held until release or the
// death of the process, however it dies.
type fileLock struct{ f *os.File }

// acquireLock waits up to wait for "<path>.lock".
func acquireLock(ctx context.Context, path string, wait time.Duration) (*fileLock, error) {
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, lockFileError(path, err)
	}
	err = waitLock(ctx, func() error { return tryLock(f) }, wait)
	switch {
	case err == nil:
		// Who holds it, for the sentence that refuses the next one. The lock
		// does not depend on it.
		if f.Truncate(0) == nil {
			_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
		}
		return &fileLock{f: f}, nil
	case errors.Is(err, errLocked):
		err = heldError(path, f)
	case ctx.Err() != nil:
		err = fmt.Errorf("open %s: %w", path, contextError(ctx.Err()))
	default:
		err = lockFileError(path, err)
	}
	return nil, errors.Join(err, f.Close())
}

// waitLock repeats try for up to wait while it answers errLocked.
func waitLock(ctx context.Context, try func() error, wait time.Duration) error {
	deadline := time.NewTimer(max(wait, 0))
	defer deadline.Stop()
	poll := time.NewTicker(lockPoll)
	defer poll.Stop()
	for {
		err := try()
		if !errors.Is(err, errLocked) || wait < 0 {
			return err
		}
		select {
		case <-poll.C:
		case <-deadline.C:
			return try()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// heldError is the sentence for the second process. f is the lock file, nil
// when another one says who holds the store.
func heldError(path string, f *os.File) error {
	who := "another process holds this store"
	buf := make([]byte, 20)
	if n, _ := f.ReadAt(buf, 0); n > 0 { // a nil file reads nothing
		if pid, err := strconv.Atoi(strings.TrimSpace(string(buf[:n]))); err == nil {
			who = fmt.Sprintf("another process (%d) holds this store", pid)
		}
	}
	e := sdk.Unavailable("store_locked", errors.New(who))
	e.Field, e.Rule = dsnField, "a store that no other process has open"
	e.Hint = "stop the other process, or name another file"
	return fmt.Errorf("open %s: %w", path, e)
}

func lockFileError(path string, err error) error {
	rule, hint := "a file in a folder that can be written", "make the folder writable"
	switch {
	case errors.Is(err, syscall.ENOSPC):
		rule, hint = "a file on a disk with free space", "free space on that disk"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
	default:
		hint = "check the folder of the database file"
	}
	return pathError(path, rule, hint, err)
}

func (l *fileLock) release() error {
	if l == nil || l.f == nil {
		return nil
	}
	return errors.Join(unlock(l.f), l.f.Close())
}
