package grant

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// checkDir refuses a directory in which others could replace files, itself or by
// a directory that it is in. In a sticky one, as /tmp is, others cannot replace
// what is not theirs; but they can put files there, so that it may only be above.
func checkDir(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	for path := dir; ; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return err
		case !info.IsDir():
			return fmt.Errorf("%s is not a directory", path)
		case info.Mode().Perm()&0o022 != 0 && (info.Mode()&fs.ModeSticky == 0 || path == dir):
			return fmt.Errorf("%s is writable by others (mode %o)", path, info.Mode().Perm())
		case foreign(info):
			return fmt.Errorf("%s belongs to another user", path)
		case path == filepath.Dir(path):
			return nil
		}
	}
}

// checkUnshared refuses a file that is not regular, or that others may write.
func checkUnshared(f *os.File) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errors.New("is not a regular file")
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("is writable by others (mode %o)", info.Mode().Perm())
	case foreign(info):
		return errors.New("belongs to another user")
	}
	return nil
}
