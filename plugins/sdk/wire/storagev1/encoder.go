package storagev1

import (
	"encoding/binary"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// encoder appends fields to a message. What it cannot write is its error, and
// the message is then of no use. A tag is a field's number and wire type.
type encoder struct {
	b   []byte
	err error
}

// encode writes a whole message.
func encode[T any](v *T, fields func(*encoder, *T)) ([]byte, error) {
	var e encoder
	fields(&e, v)
	if e.err != nil {
		return nil, e.err
	}
	return e.b, nil
}

// EncodeNothing encodes the request of an operation without parameters, or the
// answer of one without a result: no bytes.
func EncodeNothing(*struct{}) ([]byte, error) { return nil, nil }

func (e *encoder) refuse(field, rule string) {
	if e.err == nil {
		e.err = sdk.Invalid(field, rule)
	}
}

func (e *encoder) varint(n uint64) { e.b = binary.AppendUvarint(e.b, n) }

func (e *encoder) text(tag uint64, name, s string) {
	if s != "" {
		e.someText(tag, name, s)
	}
}

func (e *encoder) someText(tag uint64, name, s string) {
	if !utf8.ValidString(s) {
		e.refuse(name, "text in UTF-8")
	}
	e.varint(tag)
	e.varint(uint64(len(s)))
	e.b = append(e.b, s...)
}

func (e *encoder) blob(tag uint64, b []byte) {
	if len(b) > 0 {
		e.varint(tag)
		e.varint(uint64(len(b)))
		e.b = append(e.b, b...)
	}
}

func (e *encoder) hash(tag uint64, h *storage.Hash) {
	if *h != (storage.Hash{}) {
		e.blob(tag, h[:])
	}
}

func (e *encoder) someHash(tag uint64, h storage.Hash) { e.blob(tag, h[:]) }

func (e *encoder) decimal(tag uint64, d decimal.Decimal) {
	if !d.IsZero() {
		e.someDecimal(tag, d)
	}
}

func (e *encoder) someDecimal(tag uint64, d decimal.Decimal) { e.someText(tag, "", d.String()) }

func (e *encoder) boolean(tag uint64, v bool) {
	if v {
		e.someBoolean(tag, true)
	}
}

func (e *encoder) someBoolean(tag uint64, v bool) {
	e.varint(tag)
	if v {
		e.varint(1)
	} else {
		e.varint(0)
	}
}

func (e *encoder) integer(tag uint64, n int64) {
	if n != 0 {
		e.someInteger(tag, n)
	}
}

func (e *encoder) someInteger(tag uint64, n int64) {
	e.varint(tag)
	e.varint(uint64(n))
}

// The first and the last second that a time may have.
const (
	firstSecond = -62135596800 // of the year 1, the zero time
	lastSecond  = 253402300799 // of the year 9999
)

func (e *encoder) micros(name string, t time.Time) int64 {
	if s := t.Unix(); s < firstSecond || s > lastSecond {
		e.refuse(name, "a time in the years 1 to 9999")
		return 0
	}
	return t.UnixMicro()
}

func (e *encoder) time(tag uint64, name string, t time.Time) {
	if !t.IsZero() {
		e.someTime(tag, name, t)
	}
}

func (e *encoder) someTime(tag uint64, name string, t time.Time) {
	e.someInteger(tag, e.micros(name, t))
}

// micros rounds away from zero.
func micros(d time.Duration) int64 {
	us := int64(d / time.Microsecond)
	switch rest := d % time.Microsecond; {
	case rest > 0:
		us++
	case rest < 0:
		us--
	}
	return us
}

// nested writes what body appends as one field. Its length is written first and
// known last, so the body moves by what the length needs beyond one byte.
func (e *encoder) nested(tag uint64, body func()) {
	e.varint(tag)
	start := len(e.b)
	e.b = append(e.b, 0)
	body()
	e.close(start)
}

func (e *encoder) close(start int) {
	size := len(e.b) - start - 1
	if size < 0x80 {
		e.b[start] = byte(size)
		return
	}
	var head [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(head[:], uint64(size))
	e.b = append(e.b, head[1:n]...)
	copy(e.b[start+n:], e.b[start+1:start+1+size])
	copy(e.b[start:], head[:n])
}

func (e *encoder) integers(tag uint64, list []int64) {
	if len(list) > 0 {
		e.nested(tag, func() {
			for _, n := range list {
				e.varint(uint64(n))
			}
		})
	}
}

func (e *encoder) times(tag uint64, name string, list []time.Time) {
	if len(list) > 0 {
		e.nested(tag, func() {
			for _, t := range list {
				e.varint(uint64(e.micros(name, t)))
			}
		})
	}
}

// texts writes a TextList, present even without elements.
func (e *encoder) texts(tag uint64, name string, list []string) {
	e.nested(tag, func() {
		for _, s := range list {
			e.someText(1<<3|2, name, s)
		}
	})
}

func (e *encoder) optionalTexts(tag uint64, name string, list []*string) {
	for _, s := range list {
		e.nested(tag, func() {
			if s != nil {
				e.someText(1<<3|2, name, *s)
			}
		})
	}
}

func (e *encoder) dict(tag uint64, name string, m map[string]string) {
	if len(m) == 0 {
		return
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		e.nested(tag, func() {
			e.someText(1<<3|2, name, k)
			e.someText(2<<3|2, name, m[k])
		})
	}
}

func (e *encoder) lists(tag uint64, name string, m map[string][]string) {
	if len(m) == 0 {
		return
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		e.nested(tag, func() {
			e.someText(1<<3|2, name, k)
			e.texts(2<<3|2, name, m[k])
		})
	}
}

// encodeField writes a message unless it is empty.
func encodeField[T any](e *encoder, tag uint64, v *T, fields func(*encoder, *T)) {
	before := len(e.b)
	e.varint(tag)
	start := len(e.b)
	e.b = append(e.b, 0)
	fields(e, v)
	if len(e.b) == start+1 {
		e.b = e.b[:before]
		return
	}
	e.close(start)
}

// encodePointer writes a message, present even if it is empty, unless v is nil.
func encodePointer[T any](e *encoder, tag uint64, v *T, fields func(*encoder, *T)) {
	if v == nil {
		return
	}
	e.varint(tag)
	start := len(e.b)
	e.b = append(e.b, 0)
	fields(e, v)
	e.close(start)
}

func encodeList[T any](e *encoder, tag uint64, list []T, fields func(*encoder, *T)) {
	for i := range list {
		encodePointer(e, tag, &list[i], fields)
	}
}
