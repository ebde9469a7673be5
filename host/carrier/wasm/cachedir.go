package wasm

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// cacheDir returns the directory for this module's compiled code, made and
// checked. Each module has its own, so that a damaged one can be removed
// without touching others. wazero's own key inside covers its version, the
// processor's features, the deadline flag and which functions have listeners.
func (c *Config) cacheDir() (string, error) {
	refuse := func(err error) error {
		e := c.refuse(CodeCache, "cannot use its compile cache",
			"use a directory of this user that nobody else may write (chmod go-w), or leave the setting empty")
		e.Field, e.Err = "plugins.cache", err
		return e
	}
	sum := sha256.Sum256(c.Module)
	dir := filepath.Join(c.CacheDir, hex.EncodeToString(sum[:]))
	if err := os.MkdirAll(c.CacheDir, 0o700); err != nil {
		return "", refuse(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", refuse(err)
	}
	for _, d := range []string{c.CacheDir, dir} {
		if err := CheckPrivate(d); err != nil {
			return "", refuse(err)
		}
	}
	// What others could have placed deeper before the check is refused too.
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		return checkOwned(path)
	})
	if err != nil {
		return "", refuse(err)
	}
	return dir, nil
}

// CheckPrivate refuses a directory that somebody else could write to.
func CheckPrivate(dir string) error {
	if err := checkOwned(dir); err != nil {
		return err
	}
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	return nil
}

func checkOwned(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("%s is a symbolic link", path)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is writable by others (mode %o)", path, info.Mode().Perm())
	}
	if !ownedByUs(info) {
		return fmt.Errorf("%s belongs to another user", path)
	}
	return nil
}
