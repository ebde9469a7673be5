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
	stateDivisionByZero   = "22012"
	stateUniqueViolation  = "23505"
	stateReadOnly         = "25006"
	stateAborted          = "25P02"
	stateStatementGone    = "26000"
	stateSerialization    = "40001"
	stateDeadlock         = "40P01"
	statePlanChanged      = "0A000"
	stateNoPrivilege      = "42501"
	stateUnknownParameter = "42704"
	stateLockTimeout      = "55P03"
	stateCanceled         = "57014"
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
		return misconfigured("authentication", "credentials that the server accepts", "", cause)
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
		return misconfigured("no_database", "a database that exists", "create the database", cause)
	case stateNoPrivilege:
		return misconfigured("no_privilege", "a role that may use the schema",
			"grant the role what docs/storage-postgres.md lists", cause)
	case stateUnknownParameter:
		return misconfigured("unknown_parameter", "parameters that the server knows",
			"storage.dsn may hold what libpq knows of connections, settings of the server, fencepost_schema and pgbouncer", cause)
	case "42P01", "42703", "3F000":
		return misconfigured("schema_missing", "a database with the fencepost schema", migrateHint, cause)
	case stateAborted:
		return &sdk.Error{
			Tag: sdk.TagUnavailable, Code: "transaction_aborted", Field: "transaction",
			Rule: "a transaction in which no statement failed",
			Hint: "roll back and run the whole transaction again", Err: cause,
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

// misconfigured is trouble of the server's with what the configuration names. A
// call cannot tell a mistake from a moment (a password that is rotated, a role
// that was moved, a failover): its input is as good as before, so it is
// unavailable. See [configError].
func misconfigured(code, rule, hint string, cause error) *sdk.Error {
	e := sdk.Unavailable(code, cause)
	e.Field, e.Rule, e.Hint = dsnField, rule, hint
	return e
}

// configError is for what opens, migrates or looks at the schema: there the
// configuration is the input, and what [misconfigured] answers is invalid.
func configError(op string, err error) error {
	e, ok := errors.AsType[*sdk.Error](err)
	if !ok || e.Tag != sdk.TagUnavailable || e.Field != dsnField {
		return err
	}
	c := *e
	c.Tag = sdk.TagInvalid
	return fmt.Errorf("%s: %w", op, &c)
}

// openError names the operation. What Open meets is a fault of the DSN or of
// what it leads to.
func openError(err error) error {
	e := *classify(err)
	if e.Field == "" {
		e.Field = dsnField
	} else if e.Tag == sdk.TagUnavailable && e.Field == dsnField {
		e.Tag = sdk.TagInvalid
	}
	return fmt.Errorf("open store: %w", &e)
}
