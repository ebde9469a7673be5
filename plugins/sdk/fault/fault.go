//go:build !faults

// Package fault names the points at which a test may kill, stop or fail the
// program. Without the build tag "faults" every point is an empty function that
// the compiler removes.
//
// Labels: r1 to r9 are the steps of recording, d1 to d10 those of a delivery;
// docs/testing.md lists what each stands for.
package fault

import "context"

// Enabled reports whether this build can inject faults.
const Enabled = false

// Point does nothing in this build.
func Point(context.Context, string) error { return nil }
