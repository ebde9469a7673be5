package plugins

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// hold does something while no other program changes the lock. What is held is
// the folder of the lock: the lock itself is replaced at every change, and a file
// beside it would be one more for others to find.
func (f Folder) hold(do func() error) error {
	dir := filepath.Dir(f.Lock)
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("plugins.lock: %w", err)
	}
	if err := lockFolder(d); err != nil {
		return errors.Join(fmt.Errorf("plugins.lock: %w", err), d.Close())
	}
	sweep(dir, filepath.Base(f.Lock))
	err = do()
	return errors.Join(err, d.Close()) // which lets it go
}

// sweep removes what a killed program left of the file's next content. None is
// being written: the folder is held. What cannot be removed stays.
func sweep(dir, file string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), "."+file+".")
		if ok && e.Type().IsRegular() && number != "" && strings.Trim(number, "0123456789") == "" {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}
