package sqlite

import (
	"encoding/json"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// binder binds the parameters of a statement in their order and runs it. The
// first failure sticks.
type binder struct {
	c   *conn
	s   *sqlite.Stmt
	n   int
	err error
}

// bind starts a statement. Every parameter must be bound each time: values of
// the last run are not cleared.
func (c *conn) bind(q query) *binder {
	s, err := c.stmt(q)
	return &binder{c: c, s: s, err: err}
}

func (b *binder) next() bool {
	b.n++
	return b.err == nil
}

func (b *binder) text(v string) *binder {
	if b.next() {
		b.s.BindText(b.n, v)
	}
	return b
}

// optText binds NULL for an empty string.
func (b *binder) optText(v string) *binder {
	if v == "" {
		return b.null()
	}
	return b.text(v)
}

// ptrText binds NULL for nil: the statement leaves the column as it is.
func (b *binder) ptrText(v *string) *binder {
	if v == nil {
		return b.null()
	}
	return b.text(*v)
}

// json binds NULL for an empty document.
func (b *binder) json(v json.RawMessage) *binder { return b.optText(string(v)) }

func (b *binder) int(v int64) *binder {
	if b.next() {
		b.s.BindInt64(b.n, v)
	}
	return b
}

// optInt binds NULL for zero.
func (b *binder) optInt(v int64) *binder {
	if v == 0 {
		return b.null()
	}
	return b.int(v)
}

func (b *binder) ptrInt(v *int64) *binder {
	if v == nil {
		return b.null()
	}
	return b.int(*v)
}

func (b *binder) bool(v bool) *binder {
	if b.next() {
		b.s.BindBool(b.n, v)
	}
	return b
}

func (b *binder) ptrBool(v *bool) *binder {
	if v == nil {
		return b.null()
	}
	return b.bool(*v)
}

func (b *binder) time(v time.Time) *binder { return b.int(v.UnixMicro()) }

// optTime binds NULL for the zero time.
func (b *binder) optTime(v time.Time) *binder {
	if v.IsZero() {
		return b.null()
	}
	return b.time(v)
}

// ptrTime binds NULL for nil.
func (b *binder) ptrTime(v *time.Time) *binder {
	if v == nil {
		return b.null()
	}
	return b.time(*v)
}

// before binds the instant that is so long before now, NULL for nil.
func (b *binder) before(now time.Time, age *time.Duration) *binder {
	if age == nil {
		return b.null()
	}
	return b.time(now.Add(-*age))
}

func (b *binder) hash(v *storage.Hash) *binder {
	if b.next() {
		b.s.BindBytes(b.n, v[:])
	}
	return b
}

func (b *binder) decimal(v decimal.Decimal) *binder { return b.text(v.String()) }

// ptrDecimal binds NULL for nil.
func (b *binder) ptrDecimal(v *decimal.Decimal) *binder {
	if v == nil {
		return b.null()
	}
	return b.decimal(*v)
}

func (b *binder) null() *binder {
	if b.next() {
		b.s.BindNull(b.n)
	}
	return b
}

// run executes a statement that answers no row and returns how many rows it
// changed.
func (b *binder) run() (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if _, err := b.s.Step(); err != nil {
		return 0, err
	}
	return b.c.Changes(), nil
}

// each calls f for every row; an error of f ends it.
func (b *binder) each(f func(*row) error) error {
	if b.err != nil {
		return b.err
	}
	r := &row{s: b.s}
	for {
		more, err := b.s.Step()
		if err != nil || !more {
			return err
		}
		r.n = 0
		if err := f(r); err != nil {
			_ = b.s.Reset()
			return err
		}
		if r.err != nil {
			_ = b.s.Reset()
			return r.err
		}
	}
}

// one reads the first row, if there is one.
func (b *binder) one(f func(*row)) (found bool, err error) {
	if b.err != nil {
		return false, b.err
	}
	found, err = b.s.Step()
	if err != nil || !found {
		return false, err
	}
	r := row{s: b.s}
	f(&r)
	_ = b.s.Reset() // a row was read: nothing to repeat
	return true, r.err
}

// row reads the columns of a row in their order.
type row struct {
	s   *sqlite.Stmt
	n   int
	err error
}

func (r *row) col() int {
	r.n++
	return r.n - 1
}

// text reads text; NULL is empty.
func (r *row) text() string { return r.s.ColumnText(r.col()) }

func (r *row) int() int64 { return r.s.ColumnInt64(r.col()) }

func (r *row) bool() bool { return r.s.ColumnInt64(r.col()) != 0 }

// time reads microseconds; NULL is the zero time.
func (r *row) time() time.Time {
	c := r.col()
	if r.s.ColumnIsNull(c) {
		return time.Time{}
	}
	return time.UnixMicro(r.s.ColumnInt64(c)).UTC()
}

func (r *row) hash() (h storage.Hash) {
	r.s.ColumnBytes(r.col(), h[:])
	return h
}

// json reads a document; NULL is nil.
func (r *row) json() json.RawMessage {
	c := r.col()
	if r.s.ColumnIsNull(c) {
		return nil
	}
	return json.RawMessage(r.s.ColumnText(c))
}

// decode reads a document into v; NULL leaves v alone.
func (r *row) decode(v any) {
	if doc := r.json(); doc != nil && r.err == nil {
		r.err = json.Unmarshal(doc, v)
	}
}

// ptrTotal reads a sum; NULL is nil.
func (r *row) ptrTotal() *decimal.Decimal {
	if r.s.ColumnIsNull(r.n) {
		r.n++
		return nil
	}
	d := r.total()
	return &d
}

func (r *row) total() decimal.Decimal {
	d, err := decimal.ParseTotal(r.text())
	if err != nil && r.err == nil {
		r.err = err
	}
	return d
}
