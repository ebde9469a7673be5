package sqlite

import (
	"os"

	"golang.org/x/sys/unix"
)

// tryLockInode is tryLock for the database file. Network file systems make
// flock(2) a lock of the bytes, which would stand in SQLite's way; there the
// lock file alone has to do.
func tryLockInode(f *os.File) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return err
	}
	switch uint32(fs.Type) {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC:
		return nil
	}
	return tryLock(f)
}
