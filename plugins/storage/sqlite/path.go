package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// checkPath refuses, before anything is created, a path at which no store can
// be, and answers the path with links resolved: two names of one file are one
// lock.
func checkPath(path string) (string, error) {
	switch {
	case path == "":
		return "", pathError("", "the path of a file", "set storage.dsn, for instance to ./fencepost.db", nil)
	case strings.ContainsRune(path, 0):
		return "", pathError("", "a path without NUL", "", nil)
	case path == ":memory:" || strings.HasPrefix(path, "file:"):
		return "", pathError("", "the path of a file, not a URI and not :memory:", "name a file, for instance ./fencepost.db", nil)
	case strings.HasSuffix(path, string(filepath.Separator)):
		return "", pathError(path, "a file, not a directory", "name a file inside it", nil)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", pathError(path, "a path that can be resolved", "", err)
	}
	resolved, err := filepath.EvalSymlinks(abs)
	switch {
	case err == nil:
		return resolved, checkFile(resolved)
	case !errors.Is(err, fs.ErrNotExist):
		return "", pathError(path, "a path that can be read", "check the permissions of its folders", err)
	}
	if _, err := os.Lstat(abs); err == nil {
		return "", pathError(path, "a file, not a dangling link", "remove the link or create its target's folder", nil)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if err != nil {
		return "", pathError(path, "a file in a folder that exists", "create the folder first", err)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", pathError(path, "a file in a folder", "name another folder", err)
	}
	return filepath.Join(dir, filepath.Base(abs)), nil
}

// checkFile looks at a path that exists.
func checkFile(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return pathError(path, "a file that can be read", "check its permissions", err)
	}
	if info.IsDir() {
		return pathError(path, "a file, not a directory", "name a file inside it", nil)
	}
	if !info.Mode().IsRegular() {
		return pathError(path, "a regular file", "name another file", nil)
	}
	if err := checkAccess(path); err != nil {
		return pathError(path, "a file that can be written", "make the database file and its folder writable", err)
	}
	return nil
}

func pathError(path, rule, hint string, cause error) error {
	e := sdk.Invalid(dsnField, rule)
	e.Hint, e.Err = hint, cause
	if path == "" {
		return fmt.Errorf("open store: %w", e)
	}
	return fmt.Errorf("open %s: %w", path, e)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// removeDatabase removes what a failed creation left. The lock file stays: to
// unlink a lock that somebody waits for would let two hold it.
func removeDatabase(path string) {
	for _, suffix := range []string{"-wal", "-shm", "-journal", ""} {
		_ = os.Remove(path + suffix) // mostly not there
	}
}
