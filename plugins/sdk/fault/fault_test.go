//go:build !faults || !unix

package fault_test

import (
	"testing"

	"github.com/fencepost/fencepost/plugins/sdk/fault"
)

// A build without the tag ignores the environment, broken or not.
func TestPointsAreEmptyWithoutTheTag(t *testing.T) {
	t.Setenv("FENCEPOST_FAULTS", "r1=error; not a rule")
	if fault.Enabled {
		t.Error("Enabled is true")
	}
	if err := fault.Check(); err != nil {
		t.Errorf("Check: %v", err)
	}
	if err := fault.Point(t.Context(), "r1"); err != nil {
		t.Errorf("Point: %v", err)
	}
}
