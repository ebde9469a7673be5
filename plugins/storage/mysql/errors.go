package mysql

import (
	"context"
	"errors"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// refusal is an error of the contract, and not of the database: it reaches the
// caller as it is.
type refusal struct{ e *sdk.Error }

func (r refusal) Error() string { return r.e.Error() }
func (r refusal) Unwrap() error { return r.e }

func conflict(code string) error { return refusal{&sdk.Error{Tag: sdk.TagConflict, Code: code}} }

func notFound(what string) error { return refusal{&sdk.Error{Tag: sdk.TagNotFound, Rule: what}} }

func invalid(field, rule string) error { return refusal{sdk.Invalid(field, rule)} }

func contextError(err error) *sdk.Error {
	if errors.Is(err, context.DeadlineExceeded) {
		return sdk.Unavailable("timeout", err)
	}
	return sdk.Unavailable("canceled", err)
}

// again reports whether the database gave the transaction up: nothing of it is
// stored, and the next try may go through.
func again(err error) bool {
	e, ok := errors.AsType[*sdk.Error](err)
	return ok && (e.Code == "deadlock" || e.Code == "serialization")
}

// tagged makes what went wrong an error of the contract. What the database says
// of its own rows means something else there: a row that exists twice is no
// conflict of the caller's.
func tagged(ctx context.Context, err error) error {
	if own, ok := errors.AsType[refusal](err); ok {
		return own.e
	}
	if ctxErr := ctx.Err(); ctxErr != nil {
		return contextError(ctxErr)
	}
	e, ok := errors.AsType[*sdk.Error](err)
	if !ok {
		return sdk.Unavailable("store", err)
	}
	switch e.Code {
	case "check_violation", "out_of_range", "not_null":
		return &sdk.Error{Tag: sdk.TagInvalid, Code: "constraint", Err: err}
	case "missing_table":
		return &sdk.Error{Tag: sdk.TagUnavailable, Code: "schema_missing", Rule: "a store with the fencepost schema", Hint: migrateHint, Err: err}
	}
	if e.Tag == sdk.TagUnavailable {
		return e
	}
	return sdk.Unavailable(e.Code, err)
}
