//go:build faults && unix && !linux

package faults

import (
	"testing"

	"github.com/fencepost/fencepost/internal/stripedouble"
)

// stores are the stores that this machine can run the suite on.
func stores() map[string]func(*testing.T, settings) *rig {
	return map[string]func(*testing.T, settings) *rig{
		"sqlite": func(t *testing.T, s settings) *rig { t.Helper(); return newRig(t, s) },
	}
}

// pairs are the stores for two deliverers that compete.
func pairs() map[string]func(*testing.T, settings, ...func(*stripedouble.Config)) *rig {
	return map[string]func(*testing.T, settings, ...func(*stripedouble.Config)) *rig{"sqlite": newRig}
}
