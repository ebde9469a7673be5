//go:build !linux

package evil

import (
	"context"

	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// NativeModes are those of a program, beside Modes.
var NativeModes []string

func (e *evil) native(ctx context.Context, d exporter.Delivery) ([]exporter.ItemOutcome, error) {
	return e.honest(ctx, d)
}
