//go:build !faults || !unix

package fault

import "context"

// Enabled reports whether this build can inject faults.
const Enabled = false

// Point does nothing in this build and returns nil.
func Point(context.Context, string) error { return nil }

// Check does nothing in this build and returns nil: the variables are not read.
func Check() error { return nil }
