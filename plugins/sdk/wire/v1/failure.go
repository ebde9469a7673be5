package wirev1

import (
	"errors"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// maxCause bounds the free text of an Error, in bytes.
const maxCause = 512

var tags = map[Tag]sdk.Tag{
	Tag_TAG_INVALID:     sdk.TagInvalid,
	Tag_TAG_CONFLICT:    sdk.TagConflict,
	Tag_TAG_UNAVAILABLE: sdk.TagUnavailable,
	Tag_TAG_UNSUPPORTED: sdk.TagUnsupported,
	Tag_TAG_NOT_FOUND:   sdk.TagNotFound,
}

// EncodeError encodes the first tagged error of err's chain as an Error
// message. An error without a tag, nil included, is tagged unavailable, because
// nobody said that nothing happened.
func EncodeError(err error) []byte { return encode(errorMessage(err)) }

// DecodeError decodes an Error message. A tag that this version does not know
// is unavailable.
func DecodeError(data []byte) (*sdk.Error, error) {
	var m Error
	if err := decode("Error", data, boundsNone, &m); err != nil {
		return nil, err
	}
	return errorValue(&m), nil
}

func errorMessage(err error) *Error {
	var e *sdk.Error
	tagged := errors.As(err, &e)
	if err == nil || (tagged && e == nil) {
		return &Error{Tag: Tag_TAG_UNAVAILABLE}
	}
	if !tagged {
		return &Error{Tag: Tag_TAG_UNAVAILABLE, Cause: cause(err)}
	}
	m := &Error{
		Tag: Tag_TAG_UNAVAILABLE, Code: text(e.Code), Field: text(e.Field),
		Rule: text(e.Rule), Hint: text(e.Hint), Item: int64(e.Index),
	}
	for wire, tag := range tags {
		if tag == e.Tag {
			m.Tag = wire
		}
	}
	if e.Err != nil {
		m.Cause = cause(e.Err)
	}
	return m
}

func cause(err error) string {
	s := err.Error()
	if len(s) > maxCause {
		s = s[:maxCause]
	}
	return text(s)
}

func errorValue(m *Error) *sdk.Error {
	e := &sdk.Error{
		Tag: sdk.TagUnavailable, Code: m.GetCode(), Field: m.GetField(),
		Rule: m.GetRule(), Hint: m.GetHint(), Index: count(m.GetItem()),
	}
	if tag, ok := tags[m.GetTag()]; ok {
		e.Tag = tag
	}
	if m.GetCause() != "" {
		e.Err = errors.New(m.GetCause())
	}
	return e
}
