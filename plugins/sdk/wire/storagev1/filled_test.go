package storagev1_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// codec is one pair of functions, with its type hidden.
type codec struct {
	name    string
	message string
	typ     reflect.Type
	encode  func(pointer any) ([]byte, error)
	decode  func(data []byte) (any, error)
}

func codecOf[T any](name, message string, encode func(*T) ([]byte, error), decode func([]byte) (T, error)) codec {
	return codec{
		name: name, message: message, typ: reflect.TypeFor[T](),
		encode: func(p any) ([]byte, error) {
			v, ok := p.(*T)
			if !ok {
				return nil, fmt.Errorf("a %T", p)
			}
			return encode(v)
		},
		decode: func(data []byte) (any, error) { return decode(data) },
	}
}

// same compares values; no rows and none are the same where a list stands in an
// answer.
func same(a, b any) string {
	return cmp.Diff(a, b, cmp.Comparer(func(a, b decimal.Decimal) bool { return a.Equal(b) }), cmpopts.EquateEmpty())
}

// filler makes values of which no field is zero, each another one.
type filler struct{ n int }

var enumerations = map[reflect.Type]string{
	reflect.TypeFor[storage.Kind]():              string(storage.Correction),
	reflect.TypeFor[storage.PeriodSource]():      string(storage.FromCalendar),
	reflect.TypeFor[storage.RecordMode]():        string(storage.Each),
	reflect.TypeFor[storage.Outcome]():           string(storage.Duplicate),
	reflect.TypeFor[storage.Interval]():          string(storage.Month),
	reflect.TypeFor[storage.ItemState]():         string(storage.Leased),
	reflect.TypeFor[storage.SubjectKind]():       string(storage.SubjectWindow),
	reflect.TypeFor[storage.RouteDisposition]():  string(storage.RouteIgnore),
	reflect.TypeFor[storage.ActionKind]():        string(storage.ActionAdopt),
	reflect.TypeFor[storage.PruneKind]():         string(storage.PruneReceipts),
	reflect.TypeFor[storage.WindowDisposition](): string(storage.WindowRestage),
	reflect.TypeFor[storage.CreditKind]():        string(storage.CreditReset),
	reflect.TypeFor[storage.Capability]():        string(storage.Buckets),
}

func (f *filler) fill(t *testing.T, v reflect.Value) {
	t.Helper()
	f.n++
	switch x := v.Addr().Interface().(type) {
	case *time.Time:
		*x = time.UnixMicro(1_700_000_000_000_000 + int64(f.n)).UTC()
		return
	case *time.Duration:
		*x = time.Duration(f.n) * time.Microsecond
		return
	case *decimal.Decimal:
		*x = decimal.MustParse(fmt.Sprintf("-%d.000000000001", f.n))
		return
	case *json.RawMessage:
		*x = json.RawMessage(fmt.Sprintf(`{"n":%d}`, f.n))
		return
	case *storage.Hash:
		x[0], x[31] = byte(f.n), 1
		return
	}
	f.fillKind(t, v)
}

func (f *filler) fillKind(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		value, ok := enumerations[v.Type()]
		if !ok && v.Type().Name() != "string" {
			t.Fatalf("no value for %s: add it to enumerations", v.Type())
		}
		if !ok {
			value = fmt.Sprintf("text ü %d", f.n)
		}
		v.SetString(value)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(f.n) + 200)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			f.fill(t, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(t, key)
			f.fill(t, value)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			f.fill(t, field)
		}
	default:
		t.Fatalf("no way to fill a %s", v.Type())
	}
	if v.IsZero() {
		t.Fatalf("a %s is still zero", v.Type())
	}
}

// filled is a pointer to a value of the codec's type without a zero field.
func (c codec) filled(t *testing.T) reflect.Value {
	t.Helper()
	p := reflect.New(c.typ)
	(&filler{}).fill(t, p.Elem())
	return p
}
