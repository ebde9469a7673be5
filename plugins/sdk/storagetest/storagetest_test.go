package storagetest_test

import (
	"testing"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/storagetest"
	"github.com/fencepost/fencepost/plugins/sdk/storagetest/conformance"
)

// S16: how an author of an adapter runs the suite.
func TestRun(t *testing.T) {
	t.Parallel()
	storagetest.Run(t, func(t *testing.T) storage.Adapter {
		t.Helper()
		return conformance.NewReference(nil)
	}, storagetest.Effort(100, 3), storagetest.Seed(7))
}

func TestRunOverASharedStore(t *testing.T) {
	t.Parallel()
	ref := conformance.NewReference(nil)
	storagetest.Run(t, func(t *testing.T) storage.Adapter {
		t.Helper()
		return ref
	}, storagetest.Effort(50, 2), storagetest.Shared(), storagetest.OneStore())
}
