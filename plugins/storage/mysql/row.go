package mysql

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// key is the SHA-256 of the parts, each with its length in front: no two lists
// of parts have the same bytes.
func key(parts ...string) storage.Hash {
	h := sha256.New()
	for _, p := range parts {
		var n [4]byte
		binary.BigEndian.PutUint32(n[:], uint32(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	return storage.Hash(h.Sum(nil))
}

func eventKey(k storage.EventKey) storage.Hash { return key(k.Tenant, k.EventID) }

// read is a statement that returns rows.
func read(text string, args ...any) capability.Statement {
	return capability.Statement{SQL: text, Args: values(args), Rows: true}
}

// values makes arguments of what the contract has. Text travels as bytes, as it
// is stored; the zero time, nil decimals and empty documents are NULL.
func values(args []any) []any {
	out := make([]any, len(args))
	for i, v := range args {
		out[i] = value(v)
	}
	return out
}

func value(v any) any {
	switch v := v.(type) {
	case string:
		return []byte(v)
	case int:
		return int64(v)
	case time.Time:
		if v.IsZero() {
			return nil
		}
		return v.UTC()
	case storage.Hash:
		return v[:]
	case decimal.Decimal:
		return v.String()
	case *decimal.Decimal:
		if v == nil {
			return nil
		}
		return v.String()
	case json.RawMessage:
		if len(v) == 0 {
			return nil
		}
		return []byte(v)
	}
	return v
}

func sizeOf(s capability.Statement) int {
	n := len(s.SQL)
	for _, a := range s.Args {
		switch a := a.(type) {
		case []byte:
			n += len(a)
		case string:
			n += len(a)
		}
		n += 12
	}
	return n
}

// places is "(?, ?, ?)" of n.
func places(n int) string { return "(" + strings.TrimSuffix(strings.Repeat("?, ", n), ", ") + ")" }

// result is what one statement answered.
type result struct {
	rows     [][]any
	affected int64
}

// each calls f for every row. What f cannot read is an error.
func (r result) each(f func(*row)) error {
	for _, cells := range r.rows {
		row := &row{cells: cells}
		f(row)
		if row.err != nil {
			return row.err
		}
	}
	return nil
}

// row reads the columns of a row in their order. The first failure sticks.
type row struct {
	cells []any
	n     int
	err   error
}

func (r *row) next() any {
	r.n++
	if r.n > len(r.cells) {
		r.fail("a column more")
		return nil
	}
	return r.cells[r.n-1]
}

func (r *row) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("column %d of a row is not %s", r.n, what)
	}
}

// bytes reads bytes; NULL is nil.
func (r *row) bytes() []byte {
	switch v := r.next().(type) {
	case nil:
		return nil
	case []byte:
		return v
	case string:
		return []byte(v)
	}
	r.fail("bytes")
	return nil
}

func (r *row) text() string { return string(r.bytes()) }

func (r *row) int() int64 {
	switch v := r.next().(type) {
	case nil:
		return 0
	case int64:
		return v
	case bool:
		if v {
			return 1
		}
		return 0
	}
	r.fail("a number")
	return 0
}

func (r *row) bool() bool { return r.int() != 0 }

// time reads an instant; NULL is the zero time.
func (r *row) time() time.Time {
	switch v := r.next().(type) {
	case nil:
		return time.Time{}
	case time.Time:
		return v.UTC()
	}
	r.fail("a time")
	return time.Time{}
}

func (r *row) hash() (h storage.Hash) {
	if copy(h[:], r.bytes()) != len(h) {
		r.fail("a hash")
	}
	return h
}

func (r *row) json() json.RawMessage { return r.bytes() }

// decode reads a document into v; NULL leaves v alone.
func (r *row) decode(v any) {
	if doc := r.bytes(); doc != nil && r.err == nil {
		r.err = json.Unmarshal(doc, v)
	}
}

func (r *row) decimal() decimal.Decimal {
	d, err := decimal.ParseTotal(r.text())
	if err != nil {
		r.fail("a decimal")
	}
	return d
}

// ptrDecimal reads a decimal; NULL is nil.
func (r *row) ptrDecimal() *decimal.Decimal {
	if r.n < len(r.cells) && r.cells[r.n] == nil {
		r.n++
		return nil
	}
	d := r.decimal()
	return &d
}
