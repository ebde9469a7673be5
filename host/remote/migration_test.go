package remote_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/storage/migration"
	"github.com/fencepost/fencepost/plugins/sdk/storagetest/conformance"
)

// migrating is an adapter with migrations and what is wrong with them.
type migrating struct {
	*conformance.Reference
	list []storage.Migration
	err  error
}

func (m migrating) MigrationStatus(context.Context) ([]storage.Migration, error) {
	return m.list, m.err
}

func (m migrating) Migrate(context.Context) ([]storage.Migration, error) { return nil, m.err }

// Who asks why a store is refused gets the list beside the reason, as from an
// adapter that is linked in.
func TestMigrationStatusBesideItsError(t *testing.T) {
	t.Parallel()
	list := []storage.Migration{{Version: 1, Name: "initial", Checksum: "00", AppliedAt: noon}, {Version: 2, Name: "later", Checksum: "11"}}
	_, problem := migration.Compare(nil, list)
	a := open(t, carryAdapter(migrating{conformance.NewReference(nil), list, problem}))
	got, err := a.MigrationStatus(t.Context())
	if e, ok := errors.AsType[*sdk.Error](err); !ok || *e != *problem {
		t.Errorf("%v, want %v", err, problem)
	}
	if diff := cmp.Diff(list, got); diff != "" {
		t.Error(diff)
	}
	if _, err := a.Migrate(t.Context()); !errors.Is(err, sdk.ErrUnsupported) {
		t.Errorf("migrate: %v", err)
	}
	a = open(t, carryAdapter(migrating{conformance.NewReference(nil), list, nil}))
	if got, err := a.MigrationStatus(t.Context()); err != nil || len(got) != 2 {
		t.Errorf("without an error: %v, %v", got, err)
	}
	a = open(t, carryAdapter(migrating{conformance.NewReference(nil), nil, errors.New("no tag")}))
	if got, err := a.MigrationStatus(t.Context()); !errors.Is(err, sdk.ErrUnavailable) || len(got) != 0 {
		t.Errorf("without a list: %v, %v", got, err)
	}
}
