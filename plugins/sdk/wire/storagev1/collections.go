package storagev1

import (
	"fmt"
	"slices"
	"time"
	"unsafe"

	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// integers reads a list of numbers, packed into one field or one by one.
func (r *reader) integers(list *[]int64, most int) {
	packed(r, list, most, func(n uint64) int64 { return int64(n) })
}

func (r *reader) times(list *[]time.Time, most int) {
	packed(r, list, most, func(n uint64) time.Time { return r.instant(int64(n)) })
}

func packed[T any](r *reader, list *[]T, most int, value func(uint64) T) {
	if r.wire == 0 {
		more(r, list, most, value(r.varint()))
		return
	}
	end, outer := r.body(), r.end
	n := 0
	for i := r.pos; i < end; i++ { // each number ends with the one byte below 0x80
		if r.s[i] < 0x80 {
			n++
		}
	}
	var size T
	switch {
	case n > most-len(*list):
		r.fail(wirev1.ErrTooLarge, fmt.Sprintf("field %d has more than %d elements", r.field, most))
	case r.err == nil && r.take(n, int(unsafe.Sizeof(size))):
		*list = slices.Grow(*list, n)
	}
	for r.end = end; r.err == nil && r.pos < end; {
		if v := value(r.varint()); r.err == nil {
			*list = append(*list, v)
		}
	}
	r.end = outer
}

// texts reads a TextList. Its presence makes the list, without elements too.
func (r *reader) texts(list *[]string, most int) {
	if *list == nil {
		*list = []string{}
	}
	within(r, list, func(r *reader, list *[]string) {
		for r.next() {
			if r.field == 1 {
				more(r, list, most, r.text())
			} else {
				r.skip()
			}
		}
	})
}

func (r *reader) optionalTexts(list *[]*string, most int) {
	var text *string
	within(r, &text, func(r *reader, text **string) {
		for r.next() {
			if r.field == 1 {
				some(r, text, r.text())
			} else {
				r.skip()
			}
		}
	})
	more(r, list, most, text)
}

// entrySize is about what an entry of a map takes.
const entrySize = 64

// entry makes room for one more entry of a map.
func (r *reader) entry(have, most int) bool {
	if have >= most {
		r.fail(wirev1.ErrTooLarge, fmt.Sprintf("field %d occurs more than %d times", r.field, most))
	}
	return r.err == nil && r.take(1, entrySize)
}

func (r *reader) dict(m *map[string]string, most int) { //nolint:unparam // the table of numbers decides
	var e struct{ key, value string }
	within(r, &e, func(r *reader, e *struct{ key, value string }) {
		for r.next() {
			switch r.field {
			case 1:
				e.key = r.text()
			case 2:
				e.value = r.text()
			default:
				r.skip()
			}
		}
	})
	if !r.entry(len(*m), most) {
		return
	}
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[e.key] = e.value
}

func (r *reader) lists(m *map[string][]string, most int) {
	var e struct {
		key    string
		values []string
	}
	within(r, &e.values, func(r *reader, values *[]string) {
		for r.next() {
			switch r.field {
			case 1:
				e.key = r.text()
			case 2:
				r.texts(values, most)
			default:
				r.skip()
			}
		}
	})
	if !r.entry(len(*m), most) {
		return
	}
	if *m == nil {
		*m = map[string][]string{}
	}
	(*m)[e.key] = e.values
}

// present makes the list of an answer without rows an empty one: the wire does
// not tell it from none, and adapters answer it.
func present[T any](list *[]T, err error) {
	if err == nil && *list == nil {
		*list = []T{}
	}
}
