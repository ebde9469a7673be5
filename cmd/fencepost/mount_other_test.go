//go:build !linux

package main

import "github.com/rogpeppe/go-internal/testscript"

func mount(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Fatalf("mount: only on Linux; guard it with [mounts]")
}

func condition(string) (bool, error) { return false, nil }
