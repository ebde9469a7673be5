//go:build !linux

package sqlite

// childRole: the tests that need a second process mount file systems and
// change users in ways of Linux.
func childRole() func() int { return nil }
