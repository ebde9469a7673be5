package wasm

import (
	"errors"
	"unicode/utf8"
)

// errTruncated is every way in which a module's bytes end too early or hold a
// number that is too large.
var errTruncated = errors.New("the module is truncated or malformed")

// reader walks a module's bytes. After the first failure every read returns
// zero and the position stays at the end, so that callers check err once per
// item and loops over counts still end.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

func (r *reader) done() bool { return len(r.b) == 0 }

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail(errTruncated)
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

// take returns the next n bytes, which alias the module.
func (r *reader) take(n uint32) []byte {
	if uint64(n) > uint64(len(r.b)) {
		r.fail(errTruncated)
		return nil
	}
	part := r.b[:n]
	r.b = r.b[n:]
	return part
}

// u32 reads an unsigned LEB128 number of at most 32 bits.
func (r *reader) u32() uint32 {
	var v uint64
	for shift := 0; shift < 35; shift += 7 {
		c := r.byte()
		v |= uint64(c&0x7f) << shift
		if c&0x80 == 0 {
			if v > 1<<32-1 {
				break
			}
			return uint32(v)
		}
	}
	r.fail(errTruncated)
	return 0
}

// skipLEB passes a signed or unsigned LEB128 number of at most max bytes whose
// value does not matter here.
func (r *reader) skipLEB(max int) {
	for range max {
		if r.byte()&0x80 == 0 {
			return
		}
	}
	r.fail(errTruncated)
}

// s32 reads a signed LEB128 number of at most 32 bits.
func (r *reader) s32() int32 {
	var v int64
	for shift := 0; shift < 35; shift += 7 {
		c := r.byte()
		v |= int64(c&0x7f) << shift
		if c&0x80 == 0 {
			if c&0x40 != 0 {
				v |= -1 << (shift + 7)
			}
			return int32(v)
		}
	}
	r.fail(errTruncated)
	return 0
}

// count reads the length of a vector whose items take at least one byte each,
// so that a lying length cannot make a loop long.
func (r *reader) count() int {
	n := r.u32()
	if uint64(n) > uint64(len(r.b)) {
		r.fail(errTruncated)
		return 0
	}
	return int(n)
}

func (r *reader) name() string {
	b := r.take(r.u32())
	if !utf8.Valid(b) {
		r.fail(errors.New("a name in the module is not UTF-8"))
		return ""
	}
	return string(b)
}
