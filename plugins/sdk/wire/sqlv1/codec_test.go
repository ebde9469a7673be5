package sqlv1

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

var at = time.Date(2026, 11, 30, 12, 0, 0, 123456000, time.UTC)

func work() capability.Work {
	return capability.Work{
		Transaction: 7, ReadOnly: true, Isolation: capability.Serializable, End: capability.Commit,
		Statements: []capability.Statement{
			{SQL: "INSERT é", Args: []any{nil, false, true, int64(-1 << 63), "", "x", []byte{}, []byte{0, 255}, at}},
			{SQL: "SELECT 1", Args: []any{}, Rows: true},
		},
	}
}

func done() capability.Done {
	return capability.Done{Transaction: 3, Results: []capability.Result{
		{Affected: 2, LastID: -5},
		{Columns: []string{"a", "b"}, Rows: [][]any{{nil, int64(0)}, {"12.50", at}, {false, []byte("b")}}},
	}}
}

// Every kind of value comes back as it was, empty ones and NULL apart.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	b, err := EncodeWork(work())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeWork(b); err != nil || cmp.Diff(work(), got) != "" {
		t.Errorf("%v %s", err, cmp.Diff(work(), got))
	}
	if b, err = EncodeDone(done(), nil); err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeDone(b, 2); err != nil || cmp.Diff(done(), got) != "" {
		t.Errorf("%v %s", err, cmp.Diff(done(), got))
	}
	if _, err := DecodeDone(b, 3); !errors.Is(err, wirev1.ErrMalformed) {
		t.Errorf("a result too few: %v", err)
	}
	want := &sdk.Error{Tag: sdk.TagConflict, Code: "unique_violation", Field: "statements[0]", Rule: "a row of its own"}
	if b, err = EncodeDone(capability.Done{}, want); err != nil {
		t.Fatal(err)
	}
	_, err = DecodeDone(b, 1)
	if got, ok := errors.AsType[*sdk.Error](err); !ok || cmp.Diff(want.Error(), got.Error()) != "" || got.Code != want.Code {
		t.Errorf("the host's error: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]any{"float": 1.5, "int": 1, "struct": struct{}{}} {
		if _, err := EncodeWork(capability.Work{Statements: []capability.Statement{{Args: []any{a}}}}); !errors.Is(err, sdk.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := EncodeWork(capability.Work{Statements: []capability.Statement{{SQL: string(bytes.Repeat([]byte("x"), MaxWork))}}}); !errors.Is(err, sdk.ErrInvalid) {
		t.Errorf("too large: %v", err)
	}
	// Two bytes for a statement, an argument, a row or a value.
	many := bytes.Repeat([]byte{4<<3 | 2, 0}, MaxStatements+1)
	if _, err := DecodeWork(many); !errors.Is(err, wirev1.ErrTooLarge) {
		t.Errorf("many statements: %v", err)
	}
	args := wrap(4, bytes.Repeat([]byte{2<<3 | 2, 0}, MaxValues+1))
	if _, err := DecodeWork(args); !errors.Is(err, wirev1.ErrTooLarge) {
		t.Errorf("many arguments: %v", err)
	}
	cells := wrap(2, wrap(4, bytes.Repeat([]byte{1<<3 | 2, 0}, MaxValues+1)))
	if _, err := DecodeDone(cells, 1); !errors.Is(err, wirev1.ErrTooLarge) {
		t.Errorf("many values: %v", err)
	}
}

func wrap(field byte, body []byte) []byte {
	n := len(body)
	return append([]byte{field<<3 | 2, byte(n) | 0x80, byte(n>>7) | 0x80, byte(n >> 14)}, body...)
}

func FuzzCodec(f *testing.F) {
	w, err := EncodeWork(work())
	if err != nil {
		f.Fatal(err)
	}
	d, err := EncodeDone(done(), nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(w)
	f.Add(d)
	f.Fuzz(func(t *testing.T, data []byte) {
		if w, err := DecodeWork(data); err == nil {
			b, err := EncodeWork(w)
			if err != nil {
				return // it grew over the limit
			}
			if again, err := DecodeWork(b); err != nil || !cmp.Equal(w, again) {
				t.Fatalf("%v %s", err, cmp.Diff(w, again))
			}
		}
		for n := range 3 {
			if d, err := DecodeDone(data, n); err == nil {
				b, err := EncodeDone(d, nil)
				if err != nil {
					t.Fatal(err)
				}
				if again, err := DecodeDone(b, n); err != nil || !cmp.Equal(d, again) {
					t.Fatalf("%v %s", err, cmp.Diff(d, again))
				}
			}
		}
	})
}
