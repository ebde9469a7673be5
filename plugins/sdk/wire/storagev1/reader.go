package storagev1

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// MaxDecoded is what the parts of one message may take in memory, beside their
// text. Without it two bytes of input, "one more empty item", would cost the
// reader hundreds.
const MaxDecoded = 64 << 20

// side says who wrote a message: the reader of a request is an adapter, which
// judges values itself.
type side bool

const (
	asked    side = false
	answered side = true
)

// reader walks one message, field by field. After an error it has no more
// fields.
type reader struct {
	s        string // the message; text points into it
	pos, end int
	field    int
	wire     int
	side     side
	left     int // of MaxDecoded
	err      error
}

// decode reads a whole message.
func decode[T any](name string, data []byte, s side, fields func(*reader, *T)) (T, error) {
	var v, none T
	if len(data) > wirev1.MaxMessage {
		return none, fmt.Errorf("decode %s: %w: more than %d bytes", name, wirev1.ErrTooLarge, wirev1.MaxMessage)
	}
	r := reader{s: string(data), end: len(data), side: s, left: MaxDecoded}
	fields(&r, &v)
	if r.err != nil {
		return none, fmt.Errorf("decode %s: %w", name, r.err)
	}
	return v, nil
}

// DecodeNothing decodes what [EncodeNothing] encodes: a message without fields
// that this version knows.
func DecodeNothing(data []byte) (struct{}, error) {
	return decode("Nothing", data, asked, func(r *reader, _ *struct{}) {
		for r.next() {
			r.skip()
		}
	})
}

func (r *reader) fail(kind error, rule string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", kind, rule)
	}
	r.pos = r.end
}

func (r *reader) malformed(rule string) { r.fail(wirev1.ErrMalformed, rule) }

// unknown refuses a value of an enumeration.
func (r *reader) unknown() {
	if r.side == answered {
		r.malformed(fmt.Sprintf("field %d has a value that the contract does not list", r.field))
	}
}

// next moves to the next field and reports whether there is one.
func (r *reader) next() bool {
	if r.err != nil || r.pos >= r.end {
		return false
	}
	tag := r.varint()
	r.field, r.wire = int(tag>>3), int(tag&7)
	if r.err == nil && (tag>>3 == 0 || tag>>3 > 1<<29-1) {
		r.malformed("a field number out of range")
	}
	return r.err == nil
}

func (r *reader) varint() uint64 {
	var v uint64
	for shift := uint(0); r.pos < r.end; shift += 7 {
		b := r.s[r.pos]
		if shift == 63 && b > 1 {
			break
		}
		r.pos++
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
	r.malformed("a broken number")
	return 0
}

// body reads the length of a field with one, and returns where it ends.
func (r *reader) body() int {
	if r.wire != 2 {
		r.malformed(fmt.Sprintf("field %d has wire type %d", r.field, r.wire))
		return r.pos
	}
	n := r.varint()
	if n > uint64(r.end-r.pos) {
		r.malformed("a length beyond the message")
		return r.pos
	}
	return r.pos + int(n)
}

func (r *reader) skip() {
	switch r.wire {
	case 0:
		r.varint()
	case 1:
		r.forward(8)
	case 2:
		r.pos = r.body()
	case 5:
		r.forward(4)
	default:
		r.malformed("a group")
	}
}

func (r *reader) forward(n int) {
	if r.end-r.pos < n {
		r.malformed("a number beyond the message")
		return
	}
	r.pos += n
}

func (r *reader) bytes() string {
	end := r.body()
	if r.err != nil {
		return ""
	}
	s := r.s[r.pos:end]
	r.pos = end
	return s
}

func (r *reader) text() string {
	s := r.bytes()
	if !utf8.ValidString(s) {
		r.malformed("text that is not UTF-8")
	}
	return s
}

func (r *reader) json() json.RawMessage {
	s := r.bytes()
	if s == "" {
		return nil
	}
	b := json.RawMessage(s)
	if r.side == answered && !json.Valid(b) {
		r.malformed(fmt.Sprintf("field %d is not JSON", r.field))
	}
	return b
}

func (r *reader) hash() (h storage.Hash) {
	if s := r.bytes(); len(s) == len(h) {
		copy(h[:], s)
	} else if s != "" {
		r.malformed("a hash that is not 32 bytes long")
	}
	return h
}

func (r *reader) decimal() decimal.Decimal {
	s := r.bytes()
	if s == "" {
		return decimal.Decimal{}
	}
	return r.number(s)
}

func (r *reader) someDecimal() decimal.Decimal { return r.number(r.bytes()) }

func (r *reader) number(s string) decimal.Decimal {
	d, err := decimal.ParseTotal(s)
	if err != nil && r.err == nil {
		r.malformed("a decimal that is not " + err.Error())
	}
	return d
}

func (r *reader) integer() int64 {
	if r.wire != 0 {
		r.malformed(fmt.Sprintf("field %d has wire type %d", r.field, r.wire))
		return 0
	}
	return int64(r.varint())
}

func (r *reader) int() int {
	n := r.integer()
	if int64(int(n)) != n {
		r.malformed("a number beyond this machine's")
	}
	return int(n)
}

func (r *reader) boolean() bool { return r.integer() != 0 }

func (r *reader) time() time.Time { return r.instant(r.integer()) }

func (r *reader) instant(us int64) time.Time {
	if us < firstSecond*1e6 || us >= (lastSecond+1)*1e6 {
		r.malformed("a time outside the years 1 to 9999")
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

func (r *reader) duration() time.Duration {
	us := r.integer()
	const most = math.MaxInt64 / int64(time.Microsecond)
	if us < -most || us > most {
		r.malformed("a duration beyond what can be held")
		return 0
	}
	return time.Duration(us) * time.Microsecond
}

// take counts memory, and reports whether there is enough.
func (r *reader) take(n, size int) bool {
	if r.left -= n * size; r.left < 0 {
		r.fail(wirev1.ErrTooLarge, fmt.Sprintf("parts of more than %d bytes", MaxDecoded))
	}
	return r.err == nil
}

// grow makes room for one more element, and reports whether it may exist. read
// says that the reader is behind the element, and not before it.
func grow[T any](r *reader, list *[]T, most int, read bool) bool {
	if len(*list) >= most {
		r.fail(wirev1.ErrTooLarge, fmt.Sprintf("field %d occurs more than %d times", r.field, most))
	}
	if r.err != nil || len(*list) < cap(*list) {
		return r.err == nil
	}
	var size T
	more := len(*list)
	if more == 0 {
		more = r.run(read, most)
	}
	more = min(more, most-len(*list))
	if !r.take(more, int(unsafe.Sizeof(size))) {
		return false
	}
	// Not append: what it adds beyond is not counted.
	next := make([]T, len(*list), len(*list)+more)
	copy(next, *list)
	*list = next
	return true
}

// run counts the fields like this one that follow each other, itself included:
// most lists stand together.
func (r *reader) run(read bool, most int) int {
	ahead := reader{s: r.s, pos: r.pos, end: r.end, field: r.field, wire: r.wire}
	if !read {
		ahead.skip()
	}
	n := 1
	for n < most && ahead.next() && ahead.field == r.field && ahead.wire == r.wire {
		ahead.skip()
		n++
	}
	return n
}

// more appends an element that was read.
func more[T any](r *reader, list *[]T, most int, v T) {
	if r.err == nil && grow(r, list, most, true) {
		*list = append(*list, v)
	}
}

// some points to a value that was read.
func some[T any](r *reader, to **T, v T) {
	if r.err == nil && r.take(1, int(unsafe.Sizeof(v))) {
		*to = &v
	}
}

// within reads a nested message.
func within[T any](r *reader, v *T, fields func(*reader, *T)) {
	end, outer := r.body(), r.end
	if r.err != nil {
		return
	}
	r.end = end
	fields(r, v)
	if r.err == nil {
		r.pos = end
	}
	r.end = outer
}

func decodeField[T any](r *reader, v *T, fields func(*reader, *T)) { within(r, v, fields) }

func decodePointer[T any](r *reader, to **T, fields func(*reader, *T)) {
	if *to == nil {
		var size T
		if !r.take(1, int(unsafe.Sizeof(size))) {
			return
		}
		*to = new(T)
	}
	within(r, *to, fields)
}

func decodeList[T any](r *reader, list *[]T, most int, fields func(*reader, *T)) {
	if !grow(r, list, most, false) {
		return
	}
	*list = (*list)[:len(*list)+1]
	within(r, &(*list)[len(*list)-1], fields)
}
