//go:build unix

package grant

import (
	"io/fs"
	"os"
	"syscall"
)

// foreign reports whether somebody other than root and this process's user owns
// a file, and so may change its mode and then its content.
func foreign(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Uid != 0 && int(st.Uid) != os.Geteuid()
}
