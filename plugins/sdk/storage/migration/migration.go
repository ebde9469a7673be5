// Package migration compares the numbered schema changes that an adapter brings
// with those that a store has. It does no I/O beyond reading files: applying
// them is the adapter's.
package migration

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Field is the configuration key that names a store, which errors carry.
const Field = "storage.dsn"

// Migration is a numbered file.
type Migration struct {
	storage.Migration
	// File is its path under the folder of migrations.
	File string
	SQL  string
}

// Failed is the error of a migration that could not be applied: the cause, with
// the number and the file before what caused it. final says that the store refused
// what the file asks for: it would again, so it is invalid, code
// schema_failed. Anything else keeps tag, code and hint of the cause.
func (m *Migration) Failed(cause *sdk.Error, final bool) *sdk.Error {
	e := *cause
	inner := e.Err
	if inner == nil {
		inner = cause
	}
	e.Err = fmt.Errorf("migration %d (%s): %w", m.Version, m.File, inner)
	if final {
		e.Tag, e.Code, e.Field = sdk.TagInvalid, "schema_failed", Field
		e.Rule = "a store as the migrations before this one left it"
		e.Hint = "nothing of it was applied; undo what was changed by hand, then run fencepost migrate up"
	}
	return &e
}

// Known reads <dialect>/<NNNN>_<name>.sql, in the order of the numbers.
func Known(fsys fs.FS, dialect string) ([]Migration, error) {
	files, err := fs.Glob(fsys, dialect+"/*.sql")
	if err != nil {
		return nil, err
	}
	all := make([]Migration, 0, len(files))
	for _, file := range files {
		base := strings.TrimSuffix(strings.TrimPrefix(file, dialect+"/"), ".sql")
		number, name, _ := strings.Cut(base, "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("migration %s: %w", file, err)
		}
		text, err := fs.ReadFile(fsys, file)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(text)
		all = append(all, Migration{
			Migration: storage.Migration{Version: version, Name: name, Checksum: hex.EncodeToString(sum[:])},
			File:      file,
			SQL:       string(text),
		})
	}
	slices.SortFunc(all, func(a, b Migration) int { return cmp.Compare(a.Version, b.Version) })
	return all, nil
}

// Compare says what is missing, and refuses what this version of the adapter
// did not write: a changed migration (code schema_changed) and a newer one
// (schema_newer).
func Compare(known []Migration, applied []storage.Migration) (missing []Migration, _ *sdk.Error) {
	byVersion := make(map[int]storage.Migration, len(applied))
	for _, m := range applied {
		byVersion[m.Version] = m
	}
	for _, m := range known {
		got, ok := byVersion[m.Version]
		delete(byVersion, m.Version)
		switch {
		case !ok:
			missing = append(missing, m)
		case got.Checksum != m.Checksum:
			return nil, &sdk.Error{
				Tag: sdk.TagInvalid, Code: "schema_changed", Field: Field,
				Rule: fmt.Sprintf("a store whose migration %d (%s) is the released one", m.Version, m.Name),
				Hint: "the store was migrated by a build that was never released; restore a backup",
			}
		}
	}
	for version := range byVersion {
		return nil, &sdk.Error{
			Tag: sdk.TagUnsupported, Code: "schema_newer", Field: Field,
			Rule: fmt.Sprintf("a store of at most schema version %d, not %d", len(known), version),
			Hint: "a newer fencepost has migrated this store; run that version",
		}
	}
	return missing, nil
}
