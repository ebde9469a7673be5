package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// heldFile is the database file itself, held open beside SQLite's own
// connections. Where the system can, it carries a lock of the inode: a hard
// link or a bind mount is another path, with another lock file, to one store.
//
// It must be released after the last connection: to close any descriptor of a
// file drops every POSIX lock that the process, and so SQLite, has on it.
type heldFile struct {
	f    *os.File
	info fs.FileInfo // the number of an inode is not given again while f is open
}

// holdFile opens the file, creating it for its owner alone if there is none
// (SQLite gives the files beside it the same mode), and waits up to wait for
// its lock. A process that opens a store which it already has open, by the name
// of a hard link, is refused too, but its first adapter loses SQLite's locks.
func holdFile(ctx context.Context, path string, wait time.Duration) (*heldFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	h := &heldFile{f: f}
	h.info, err = f.Stat()
	if err == nil {
		err = waitLock(ctx, func() error { return tryLockInode(f) }, wait)
	}
	if errors.Is(err, errLocked) {
		err = heldError(path, nil)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return h, nil
}

// check answers an error when path no longer leads to the file: what is
// written to a deleted file is gone with the process.
func (h *heldFile) check(path string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && os.SameFile(h.info, info):
		return nil
	case err == nil:
		err = errors.New("another file is at its path")
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
		return sdk.Unavailable("io", fmt.Errorf("look at the database file: %w", err))
	}
	e := sdk.Unavailable("store_replaced", err)
	e.Field, e.Rule = dsnField, "the database file is still the one that was opened"
	e.Hint = "restart the server"
	return e
}

func (h *heldFile) release() error {
	if h == nil || h.f == nil {
		return nil
	}
	f := h.f
	h.f = nil
	return errors.Join(unlock(f), f.Close())
}
