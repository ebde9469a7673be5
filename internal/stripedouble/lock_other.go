//go:build !unix

package stripedouble

import "os"

// lockFile does nothing where there is no flock: two servers on one directory
// are then not noticed.
func lockFile(*os.File) error { return nil }

func unlockFile(*os.File) error { return nil }
