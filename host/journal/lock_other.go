//go:build !unix

package journal

import "errors"

func tryLock(uintptr) (bool, error) {
	return false, errors.New("this system has no lock that ends with its process")
}

func unlockFile(uintptr) {}

func syncFolder(string) error { return nil }
