package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// serverError is what the server answered, without its words: they quote
// values, which may be personal or secret.
type serverError struct{ pg *pgconn.PgError }

func (e serverError) Error() string {
	s := "postgres: SQLSTATE " + e.pg.Code
	if e.pg.ConstraintName != "" {
		s += ", constraint " + e.pg.ConstraintName
	}
	return s
}

func (e serverError) Unwrap() error { return e.pg }

// sqlState answers the SQLSTATE of a failure, or nothing.
func sqlState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// SQLSTATEs that decide something.
const (
	stateDivisionByZero  = "22012"
	stateUniqueViolation = "23505"
	stateReadOnly        = "25006"
	stateStatementGone   = "26000"
	stateSerialization   = "40001"
	stateDeadlock        = "40P01"
	statePlanChanged     = "0A000"
	stateLockTimeout     = "55P03"
	stateCanceled        = "57014"
)

// repeatable reports whether the transaction that met err is certain to have
// left nothing and may pass when it is run again.
func repeatable(err error) bool {
	if _, ok := errors.AsType[unknown](err); ok {
		return false
	}
	switch sqlState(err) {
	case stateSerialization, stateDeadlock, stateReadOnly, stateStatementGone, statePlanChanged:
		return true
	}
	return false
}

// storeError tags a failure of a call. A context that ended says more than
// what the driver made of it.
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

// commitError is always unavailable: a COMMIT whose answer is an error, or
// that has no answer, may be found done.
func commitError(ctx context.Context, op string, err error) error {
	e := classify(err)
	if ctxErr := ctx.Err(); ctxErr != nil {
		e = contextError(ctxErr)
	}
	c := *e
	c.Tag = sdk.TagUnavailable
	return fmt.Errorf("%s: commit: %w", op, &c)
}

func contextError(err error) *sdk.Error {
	if errors.Is(err, context.DeadlineExceeded) {
		return sdk.Unavailable("timeout", err)
	}
	return sdk.Unavailable("canceled", err)
}

// classify tags what the server or the connection made of a call. Nearly all of
// it is unavailable: the write may or may not have happened.
func classify(err error) *sdk.Error {
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		return e
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return sdk.Unavailable("connection", connectionError(err))
	}
	cause := serverError{pg}
	if e := classifyState(pg.Code, cause); e != nil {
		return e
	}
	switch pg.Code[:min(2, len(pg.Code))] {
	case "22", "23":
		return &sdk.Error{Tag: sdk.TagInvalid, Code: "constraint", Err: cause}
	case "28":
		return &sdk.Error{
			Tag: sdk.TagInvalid, Code: "authentication", Field: dsnField,
			Rule: "credentials that the server accepts", Err: cause,
		}
	case "08":
		return sdk.Unavailable("connection", cause)
	case "53":
		return sdk.Unavailable("resources", cause)
	case "57":
		return sdk.Unavailable("shutting_down", cause)
	case "58":
		return sdk.Unavailable("io", cause)
	case "XX":
		return sdk.Unavailable("corrupt", cause)
	}
	return sdk.Unavailable("store", cause)
}

// classifyState tags the SQLSTATEs that say more than their class.
func classifyState(code string, cause error) *sdk.Error {
	hinted := func(code, hint string) *sdk.Error {
		e := sdk.Unavailable(code, cause)
		e.Hint = hint
		return e
	}
	switch code {
	case stateReadOnly:
		return hinted("read_only", "the server takes no writes: point storage.dsn at the primary")
	case stateSerialization, stateDeadlock:
		return sdk.Unavailable("contention", cause)
	case stateLockTimeout:
		return sdk.Unavailable("lock_timeout", cause)
	case stateCanceled:
		return sdk.Unavailable("timeout", cause)
	case stateStatementGone:
		return hinted("statement_gone", "a pooler stands before the server: add pgbouncer=true to storage.dsn")
	case "53100":
		return hinted("disk_full", "free space on the disk of the database")
	case "53300":
		return hinted("too_many_connections", "raise max_connections, or put fewer hosts on the server")
	case "3D000":
		return &sdk.Error{
			Tag: sdk.TagInvalid, Code: "no_database", Field: dsnField,
			Rule: "a database that exists", Hint: "create the database", Err: cause,
		}
	case "42501":
		return &sdk.Error{
			Tag: sdk.TagInvalid, Code: "no_privilege", Field: dsnField,
			Rule: "a role that may use the schema", Hint: "grant the role what docs/storage-postgres.md lists", Err: cause,
		}
	case "42P01", "42703", "3F000":
		return &sdk.Error{
			Tag: sdk.TagInvalid, Code: "schema_missing", Field: dsnField,
			Rule: "a database with the fencepost schema", Hint: migrateHint, Err: cause,
		}
	}
	return nil
}

// connectionError keeps what says where the trouble is. The driver's own text
// for a failed connect names the user and the database too.
func connectionError(err error) error {
	if c, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		if inner := c.Unwrap(); inner != nil {
			return inner
		}
	}
	return err
}

// openError names the operation. What Open meets is a fault of the DSN or of
// what it leads to.
func openError(err error) error {
	e := *classify(err)
	if e.Field == "" {
		e.Field = dsnField
	}
	return fmt.Errorf("open store: %w", &e)
}
