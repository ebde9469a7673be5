package sqlite

import (
	"context"
	"errors"
	"fmt"

	"zombiezen.com/go/sqlite"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// dsnField is the configuration key that names the file.
const dsnField = "storage.dsn"

var errClosed = sdk.Unavailable("closed", errors.New("the store is closed"))

// storeError tags a failure of a call. A context that ended says more than
// what SQLite made of it.
func storeError(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*sdk.Error](err); ok {
		return fmt.Errorf("%s: %w", op, err)
	}
	if ctxErr := ctx.Err(); ctxErr != nil {
		return fmt.Errorf("%s: %w", op, contextError(ctxErr))
	}
	return fmt.Errorf("%s: %w", op, classify(err))
}

func contextError(err error) *sdk.Error {
	if errors.Is(err, context.DeadlineExceeded) {
		return sdk.Unavailable("timeout", err)
	}
	return sdk.Unavailable("canceled", err)
}

// classify tags what SQLite answers while the store is in use. Nearly all of
// it is unavailable: the write may or may not have happened.
func classify(err error) *sdk.Error {
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultBusy, sqlite.ResultLocked:
		e := sdk.Unavailable("busy", err)
		e.Hint = "another program holds a lock on the database file; close it"
		return e
	case sqlite.ResultFull:
		e := sdk.Unavailable("disk_full", err)
		e.Hint = "free space on the disk of the database file"
		return e
	case sqlite.ResultIOErr:
		return sdk.Unavailable("io", err)
	case sqlite.ResultReadOnly, sqlite.ResultPerm, sqlite.ResultAuth:
		e := sdk.Unavailable("read_only", err)
		e.Hint = "make the database file and its folder writable"
		return e
	case sqlite.ResultCantOpen:
		return sdk.Unavailable("cannot_open", err)
	case sqlite.ResultCorrupt, sqlite.ResultNotADB:
		e := sdk.Unavailable("corrupt", err)
		e.Hint = "restore the database file from a backup"
		return e
	case sqlite.ResultConstraint, sqlite.ResultMismatch, sqlite.ResultTooBig, sqlite.ResultRange:
		return &sdk.Error{Tag: sdk.TagInvalid, Code: "constraint", Err: err}
	default:
		return sdk.Unavailable("store", err)
	}
}

// openError tags a failure to open the file. Most are faults of the
// configuration, which repeating does not mend: they become invalid.
func openError(path string, err error) error {
	e := classify(err)
	if tagged := (*sdk.Error)(nil); errors.As(err, &tagged) {
		c := *tagged
		e = &c
	}
	e.Field = dsnField
	switch e.Code {
	case "cannot_open", "read_only":
		e.Tag, e.Rule = sdk.TagInvalid, "a file that can be read and written"
		e.Hint = "make the database file and its folder writable"
	case "corrupt":
		e.Tag, e.Rule = sdk.TagInvalid, "a SQLite database, or a path that does not exist yet"
		e.Hint = "name another file, or restore this one from a backup"
	case "disk_full":
		e.Tag, e.Rule = sdk.TagInvalid, "a file on a disk with free space"
	}
	return fmt.Errorf("open %s: %w", path, e)
}
