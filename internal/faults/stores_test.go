//go:build faults && linux

package faults

import (
	"testing"

	"github.com/fencepost/fencepost/internal/stripedouble"
)

// stores are the stores that this machine can run the suite on.
func stores() map[string]func(*testing.T, settings) *rig {
	return map[string]func(*testing.T, settings) *rig{
		"sqlite":   func(t *testing.T, s settings) *rig { t.Helper(); return newRig(t, s) },
		"postgres": func(t *testing.T, s settings) *rig { t.Helper(); return newBed(t, s).rig },
	}
}

// pairs are the stores for two deliverers that compete.
func pairs() map[string]func(*testing.T, settings, ...func(*stripedouble.Config)) *rig {
	return map[string]func(*testing.T, settings, ...func(*stripedouble.Config)) *rig{
		"sqlite": newRig,
		"postgres": func(t *testing.T, s settings, change ...func(*stripedouble.Config)) *rig {
			t.Helper()
			return newBed(t, s, change...).apart()
		},
	}
}
