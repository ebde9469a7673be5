// Package sdk is the root of the plugin contract: what the engine, the host and
// every plugin share and none of them owns. Its sub-packages hold the contract
// of each kind of plugin; this package holds the error vocabulary.
package sdk

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Tag says what a caller may do about a failure. There are five and no others.
type Tag string

const (
	// TagInvalid: the input breaks a rule. Nothing was written. Repeating the
	// call unchanged fails again.
	TagInvalid Tag = "invalid"
	// TagConflict: the identity exists with other content, or the state that
	// the caller expected has moved. Nothing was written.
	TagConflict Tag = "conflict"
	// TagUnavailable: the call may or may not have happened. Repeat it with
	// the same id; it never counts twice.
	TagUnavailable Tag = "unavailable"
	// TagUnsupported: the plugin does not declare what the call needs.
	// Nothing was written.
	TagUnsupported Tag = "unsupported"
	// TagNotFound: what the call names does not exist.
	TagNotFound Tag = "not_found"
)

// The sentinels that errors.Is answers for a tagged [Error].
var (
	ErrInvalid     = &Error{Tag: TagInvalid}
	ErrConflict    = &Error{Tag: TagConflict}
	ErrUnavailable = &Error{Tag: TagUnavailable}
	ErrUnsupported = &Error{Tag: TagUnsupported}
	ErrNotFound    = &Error{Tag: TagNotFound}
)

// Error is the failure of one call or of one item of a call. It never carries
// the offending value: values may be personal data or secrets.
//
// The zero value is not useful. An Error is immutable once returned and safe
// for concurrent use.
type Error struct {
	// Tag is what a caller branches on.
	Tag Tag
	// Code narrows the tag for programs, in snake_case: "exceeds_original",
	// "conflict_unresolved", "overloaded". Empty when the tag says it all.
	Code string
	// Field names the offending input by its JSON name, "quantity" or
	// "dimensions.model". Empty when no single field is at fault.
	Field string
	// Rule is the rule that was broken, as a phrase: "at most 12 decimals".
	Rule string
	// Hint is what an operator can run or change to mend it.
	Hint string
	// Index is the position of the offending item in the caller's batch plus
	// one; zero when the failure concerns the whole call. See [Error.ItemIndex].
	Index int
	// Err is the cause, reachable by errors.Unwrap. May be nil.
	Err error
}

// Invalid returns an error for a field that breaks a rule.
func Invalid(field, rule string) *Error {
	return &Error{Tag: TagInvalid, Field: field, Rule: rule}
}

// Unavailable wraps a cause after which the outcome is unknown.
func Unavailable(code string, cause error) *Error {
	return &Error{Tag: TagUnavailable, Code: code, Err: cause}
}

// At returns a copy of e that names the item at index i (from zero) of the
// caller's batch.
func (e *Error) At(i int) *Error {
	c := *e
	c.Index = i + 1
	return &c
}

// ItemIndex returns the position (from zero) of the item the error concerns,
// and whether it concerns one.
func (e *Error) ItemIndex() (int, bool) { return e.Index - 1, e.Index > 0 }

// Error renders tag, item, field, rule, code, cause and hint.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(string(e.Tag))
	if i, ok := e.ItemIndex(); ok {
		b.WriteString(" item " + strconv.Itoa(i))
	}
	if e.Field != "" {
		b.WriteString(" " + e.Field)
	}
	sep := ": "
	for _, part := range []string{e.Rule, e.Code} {
		if part != "" {
			b.WriteString(sep + part)
			sep = ", "
		}
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if e.Hint != "" {
		b.WriteString(" (" + e.Hint + ")")
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the sentinel of e's tag, or an Error with the
// same tag and code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	if !ok || t.Tag != e.Tag {
		return false
	}
	return t.Code == "" || t.Code == e.Code
}

// TagOf returns the tag of the first tagged error in err's chain. Any other
// non-nil error is [TagUnavailable]: what nobody classified may have happened.
// TagOf(nil) is the empty tag.
func TagOf(err error) Tag {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Tag
	}
	return TagUnavailable
}
