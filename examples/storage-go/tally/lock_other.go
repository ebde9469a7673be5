//go:build !unix

package tally

import "os"

// lock does nothing where there is no flock: open the file once.
func lock(*os.File) error { return nil }
