package sqlv1

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	lite "github.com/aperturerobotics/protobuf-go-lite"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// Limits of a message. A message beyond them is refused whole.
const (
	MaxWork       = 4 << 20  // bytes
	MaxAnswer     = 16 << 20 // bytes
	MaxStatements = 500
	MaxValues     = 200_000 // arguments of all statements, or values of all rows
)

// EncodeWork encodes what a plugin asks. It fails with tag invalid for an
// argument of another type than [capability.Statement] allows.
func EncodeWork(w capability.Work) ([]byte, error) {
	m := &Work{Transaction: w.Transaction, ReadOnly: w.ReadOnly, Isolation: string(w.Isolation), End: string(w.End)}
	for i, s := range w.Statements {
		out := &Statement{Sql: text(s.SQL), Rows: s.Rows}
		for j, a := range s.Args {
			v, ok := valueMessage(a)
			if !ok {
				e := sdk.Invalid(fmt.Sprintf("statements[%d].args[%d]", i, j), "nil, bool, int64, string, []byte or time.Time")
				return nil, e
			}
			out.Args = append(out.Args, v)
		}
		m.Statements = append(m.Statements, out)
	}
	b, err := m.MarshalVT()
	if err == nil && len(b) > MaxWork {
		err = &sdk.Error{Tag: sdk.TagInvalid, Code: "work_too_large", Field: "statements", Rule: fmt.Sprintf("at most %d bytes", MaxWork)}
	}
	return b, err
}

// DecodeWork decodes what a plugin asks.
func DecodeWork(data []byte) (capability.Work, error) {
	var m Work
	// Each argument is field 2 of field 4.
	if err := decode("Work", data, MaxWork, limit{4, MaxStatements, 2}, &m); err != nil {
		return capability.Work{}, err
	}
	w := capability.Work{
		Transaction: m.GetTransaction(), ReadOnly: m.GetReadOnly(),
		Isolation: capability.Isolation(text(m.GetIsolation())), End: capability.End(text(m.GetEnd())),
	}
	for _, s := range m.GetStatements() {
		w.Statements = append(w.Statements, capability.Statement{SQL: text(s.GetSql()), Args: values(s.GetArgs()), Rows: s.GetRows()})
	}
	return w, nil
}

// EncodeDone encodes what was done; if err is not nil, that alone.
func EncodeDone(d capability.Done, err error) ([]byte, error) {
	if err != nil {
		return (&Answer{Error: wirev1.EncodeError(err)}).MarshalVT()
	}
	m := &Answer{Transaction: d.Transaction}
	for _, r := range d.Results {
		out := &Result{Affected: r.Affected, LastId: r.LastID}
		for _, c := range r.Columns {
			out.Columns = append(out.Columns, text(c))
		}
		for _, row := range r.Rows {
			line := &Row{}
			for _, v := range row {
				value, ok := valueMessage(v)
				if !ok {
					return nil, fmt.Errorf("encode Answer: a value of type %T", v)
				}
				line.Values = append(line.Values, value)
			}
			out.Rows = append(out.Rows, line)
		}
		m.Results = append(m.Results, out)
	}
	return m.MarshalVT()
}

// DecodeDone decodes what was done for n statements. The host's error comes
// back as a *sdk.Error. Another number of results than n is malformed.
func DecodeDone(data []byte, n int) (capability.Done, error) {
	var m Answer
	// Each row is field 4 of field 2.
	if err := decode("Answer", data, MaxAnswer, limit{2, MaxStatements, 4}, &m); err != nil {
		return capability.Done{}, err
	}
	if len(m.GetError()) > 0 {
		e, err := wirev1.DecodeError(m.GetError())
		if err != nil {
			return capability.Done{}, err
		}
		return capability.Done{}, e
	}
	if len(m.GetResults()) != n {
		return capability.Done{}, fmt.Errorf("decode Answer: %w: %d results of %d statements", wirev1.ErrMalformed, len(m.GetResults()), n)
	}
	d := capability.Done{Transaction: m.GetTransaction()}
	for _, r := range m.GetResults() {
		out := capability.Result{Affected: r.GetAffected(), LastID: r.GetLastId()}
		for _, c := range r.GetColumns() {
			out.Columns = append(out.Columns, text(c))
		}
		for _, row := range r.GetRows() {
			out.Rows = append(out.Rows, values(row.GetValues()))
		}
		d.Results = append(d.Results, out)
	}
	return d, nil
}

func valueMessage(v any) (*Value, bool) {
	switch v := v.(type) {
	case nil:
		return &Value{}, true
	case bool:
		return &Value{Kind: &Value_Boolean{v}}, true
	case int64:
		return &Value{Kind: &Value_Integer{v}}, true
	case string:
		return &Value{Kind: &Value_Text{text(v)}}, true
	case []byte:
		return &Value{Kind: &Value_Blob{append([]byte{}, v...)}}, true
	case time.Time:
		return &Value{Kind: &Value_Time{v.UnixMicro()}}, true
	}
	return nil, false
}

func values(in []*Value) []any {
	out := make([]any, len(in))
	for i, v := range in {
		switch k := v.GetKind().(type) {
		case *Value_Boolean:
			out[i] = k.Boolean
		case *Value_Integer:
			out[i] = k.Integer
		case *Value_Text:
			out[i] = text(k.Text)
		case *Value_Blob:
			out[i] = k.Blob
		case *Value_Time:
			out[i] = time.UnixMicro(k.Time).UTC()
		}
	}
	return out
}

// text makes s valid UTF-8, as protobuf demands of strings; the generated code
// does not look.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// limit bounds how often outer may occur, and inner in all of them together:
// two bytes of input would cost the reader a hundred.
type limit struct{ outer, most, inner int }

func decode(name string, data []byte, size int, l limit, m interface{ UnmarshalVT([]byte) error }) error {
	if len(data) > size {
		return fmt.Errorf("decode %s: %w: more than %d bytes", name, wirev1.ErrTooLarge, size)
	}
	outer, inner := 0, 0
	err := each(data, l.outer, func(body []byte) error {
		if outer++; outer > l.most {
			return fmt.Errorf("%w: more than %d statements", wirev1.ErrTooLarge, l.most)
		}
		return each(body, l.inner, func(row []byte) error {
			if inner++; inner > MaxValues {
				return fmt.Errorf("%w: more than %d values", wirev1.ErrTooLarge, MaxValues)
			}
			// The values of a row; an argument has none, and no field 1 of bytes.
			return each(row, 1, func([]byte) error {
				if inner++; inner > MaxValues {
					return fmt.Errorf("%w: more than %d values", wirev1.ErrTooLarge, MaxValues)
				}
				return nil
			})
		})
	})
	if err == nil {
		err = m.UnmarshalVT(data)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, wirev1.ErrTooLarge):
		return fmt.Errorf("decode %s: %w", name, err)
	}
	return fmt.Errorf("decode %s: %w: %w", name, wirev1.ErrMalformed, err)
}

// each calls f with every length-delimited field of this number.
func each(data []byte, field int, f func([]byte) error) error {
	for len(data) > 0 {
		tag, start, err := lite.DecodeVarint(data, 0)
		if err != nil {
			return err
		}
		size, err := lite.Skip(data)
		if err != nil {
			return err
		}
		if size > len(data) {
			return io.ErrUnexpectedEOF
		}
		if int(int32(tag>>3)) == field && tag&7 == 2 { // cut to 32 bits, as the generated code does
			_, body, err := lite.DecodeVarint(data, start)
			if err != nil {
				return err
			}
			if err := f(data[body:size]); err != nil {
				return err
			}
		}
		data = data[size:]
	}
	return nil
}
