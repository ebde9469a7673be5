//go:build faults && unix && !linux

package faults

import "testing"

// stores are the stores that this machine can run the suite on.
func stores() map[string]func(*testing.T, settings) *rig {
	return map[string]func(*testing.T, settings) *rig{
		"sqlite": func(t *testing.T, s settings) *rig { t.Helper(); return newRig(t, s) },
	}
}
