package main

import (
	"os"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
)

// mount puts a small file system of its own at a folder: "mount DIR SIZE", or
// "mount DIR ro" to make it read-only afterwards. It is gone when the script
// ends.
func mount(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: mount DIR SIZE|ro")
	}
	dir := ts.MkAbs(args[0])
	if args[1] == "ro" {
		ts.Check(syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
		return
	}
	ts.Check(os.MkdirAll(dir, 0o700))
	ts.Check(syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+args[1]+",mode=0700"))
	ts.Defer(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
}

// condition answers [mounts]: whether this process may mount.
func condition(name string) (bool, error) {
	if name != "mounts" {
		return false, nil
	}
	dir, err := os.MkdirTemp("", "fencepost-mount-")
	if err != nil {
		return false, err
	}
	defer os.Remove(dir)
	if syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4k") != nil {
		return false, nil
	}
	return true, syscall.Unmount(dir, syscall.MNT_DETACH)
}
