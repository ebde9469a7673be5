package meter

import (
	"errors"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// Errors is everything that is wrong with an input. It is never empty when it
// is returned as an error. errors.Is and errors.As look into each.
type Errors []*sdk.Error

// Error lists them.
func (e Errors) Error() string {
	texts := make([]string, len(e))
	for i, err := range e {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns each error.
func (e Errors) Unwrap() []error {
	out := make([]error, len(e))
	for i, err := range e {
		out[i] = err
	}
	return out
}

// Err returns e as an error, nil if there is none.
func (e Errors) Err() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

// At returns a copy of e that concerns item i (from zero) of a batch: the
// index is set and fields read "events[3].quantity".
func (e Errors) At(i int) Errors { return e.Of("events", i) }

// add notes that field breaks rule, once for each field.
func (e *Errors) add(field, rule string) {
	if !e.has(field) {
		*e = append(*e, sdk.Invalid(field, rule))
	}
}

// note adds err, about field unless it names one.
func (e *Errors) note(field string, err error) {
	if err == nil {
		return
	}
	var tagged *sdk.Error
	if !errors.As(err, &tagged) {
		tagged = sdk.Invalid(field, err.Error())
	}
	named := *tagged
	if named.Field == "" {
		named.Field = field
	}
	*e = append(*e, &named)
}

func (e Errors) has(field string) bool {
	return slices.ContainsFunc(e, func(err *sdk.Error) bool { return err.Field == field })
}

// AsErrors returns the tagged errors of err: itself if it is [Errors], the one
// in its chain otherwise; nil if there is none.
func AsErrors(err error) Errors {
	if all, ok := errors.AsType[Errors](err); ok {
		return all
	}
	if one, ok := errors.AsType[*sdk.Error](err); ok {
		return Errors{one}
	}
	return nil
}
