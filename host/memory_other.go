//go:build !unix

package host

// lockFolder does nothing here: two hosts do not share a state_dir.
func lockFolder(string) (unlock func(), err error) { return func() {}, nil }
