package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/storagetest"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// S16: the suite that every adapter has to pass.
func TestConformance(t *testing.T) {
	t.Parallel()
	storagetest.Run(t, func(t *testing.T) storage.Adapter {
		t.Helper()
		a, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "f.db"), Migrate: true})
		if err != nil {
			t.Fatal(err)
		}
		return a
	})
}
