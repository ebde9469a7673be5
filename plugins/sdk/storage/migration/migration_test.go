package migration_test

import (
	"errors"
	"testing"
	"testing/fstest"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/storage/migration"
)

var files = fstest.MapFS{
	"x/0002_second.sql":  {Data: []byte("two")},
	"x/0010_tenth.sql":   {Data: []byte("ten")},
	"x/0001_initial.sql": {Data: []byte("one")},
	"y/0001_initial.sql": {Data: []byte("another dialect")},
}

// Only what is missing is applied, in the order of the numbers; a store that
// somebody else wrote is refused and says why (S10).
func TestCompare(t *testing.T) {
	t.Parallel()
	known, err := migration.Known(files, "x")
	if err != nil {
		t.Fatal(err)
	}
	stored := func(n int) []storage.Migration {
		var all []storage.Migration
		for _, m := range known[:n] {
			all = append(all, m.Migration)
		}
		return all
	}
	changed := stored(2)
	changed[1].Checksum = "other"
	for name, c := range map[string]struct {
		applied []storage.Migration
		missing []int
		code    string
		tag     error
	}{
		"empty":   {missing: []int{1, 2, 10}},
		"some":    {applied: stored(1), missing: []int{2, 10}},
		"all":     {applied: stored(3)},
		"changed": {applied: changed, code: "schema_changed", tag: sdk.ErrInvalid},
		"newer":   {applied: append(stored(3), storage.Migration{Version: 11}), code: "schema_newer", tag: sdk.ErrUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			missing, problem := migration.Compare(known, c.applied)
			if c.code != "" {
				if problem == nil || problem.Code != c.code || !errors.Is(problem, c.tag) || problem.Field != migration.Field {
					t.Fatalf("got %+v, want %s", problem, c.code)
				}
				return
			}
			if problem != nil {
				t.Fatal(problem)
			}
			if len(missing) != len(c.missing) {
				t.Fatalf("%d missing, want %v", len(missing), c.missing)
			}
			for i, m := range missing {
				if m.Version != c.missing[i] || m.SQL == "" {
					t.Errorf("missing %d is version %d", i, m.Version)
				}
			}
		})
	}
}

// A file without a number is a mistake of whoever built the program.
func TestKnownRefusesAName(t *testing.T) {
	t.Parallel()
	if _, err := migration.Known(fstest.MapFS{"x/first.sql": {}}, "x"); err == nil {
		t.Error("no error")
	}
}
