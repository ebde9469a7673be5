package storagev1_test

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/wire/storagev1"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// Every field of every value that crosses the contract crosses the wire: a
// value without a zero field comes back, and so does one with any single field
// (Q29, S16).
func TestEveryFieldTravels(t *testing.T) {
	t.Parallel()
	for _, c := range codecs {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			full := c.filled(t)
			travels(t, c, full)
			if c.typ.Kind() != reflect.Struct {
				return
			}
			for i := range c.typ.NumField() {
				single := reflect.New(c.typ)
				single.Elem().Field(i).Set(full.Elem().Field(i))
				travels(t, c, single)
			}
		})
	}
}

func travels(t *testing.T, c codec, p reflect.Value) {
	t.Helper()
	data, err := c.encode(p.Interface())
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.decode(data)
	if err != nil {
		t.Fatalf("decode what was encoded: %v", err)
	}
	if d := same(p.Elem().Interface(), got); d != "" {
		t.Fatalf("another value (-sent +received):\n%s", d)
	}
	for range 3 { // the order of maps is another each time
		again, err := c.encode(p.Interface())
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("one value has two encodings: %v", err)
		}
	}
}

// What the contract tells apart arrives apart: nil from zero behind pointers,
// no buckets from buckets without dimensions, no time from 1970, a group that
// lacks a dimension from one with an empty value.
func TestAbsentIsNotZero(t *testing.T) {
	t.Parallel()
	zero, empty, epoch := decimal.Decimal{}, "", time.UnixMicro(0).UTC()
	no, none, nothing := false, 0, time.Duration(0)
	token, since := int64(0), time.Time{}
	expect := storage.Expect{
		LeaseToken: &token, MappingVersion: &empty, Unresolved: &no, Settled: &no, Attempts: &none,
		QuietFor: &nothing, Within: &nothing, TrustedSince: &since,
	}
	change := storage.Change{NextAttemptAfter: &nothing, ProviderRef: &empty, LastError: &storage.ItemError{}, Settled: &no, Disputed: &empty}
	moves := storagev1.TransitionRequest{Moves: []storage.Transition{
		{}, {Expect: expect, Set: change, Attempt: &storage.Attempt{}, Waiting: &storage.Change{}, Action: &storage.Action{}},
	}}
	back, err := storagev1.DecodeTransitionRequest(must(t, storagev1.EncodeTransitionRequest, &moves))
	if err != nil || !reflect.DeepEqual(back, moves) {
		t.Errorf("%v: %+v, want %+v", err, back, moves)
	}

	set := storage.RouteSet{Features: []storage.Feature{{Name: "none"}, {Name: "bare", Buckets: []string{}}, {Name: "kept", Buckets: []string{""}}}}
	routes, err := storagev1.DecodeRouteSet(must(t, storagev1.EncodeRouteSet, &set))
	if err != nil || !reflect.DeepEqual(routes.Features, set.Features) {
		t.Errorf("%v: %#v, want %#v", err, routes.Features, set.Features)
	}

	rows := storage.Aggregates{Rows: []storage.AggregateRow{{Group: []*string{nil, &empty}, Min: &zero}}, PrunedBefore: epoch}
	sums, err := storagev1.DecodeAggregates(must(t, storagev1.EncodeAggregates, &rows))
	if err != nil || !reflect.DeepEqual(sums, rows) {
		t.Errorf("%v: %+v, want %+v", err, sums, rows)
	}
}

// A duration that is not zero does not become zero, and time keeps its
// microseconds.
func TestRounding(t *testing.T) {
	t.Parallel()
	in := storage.ClaimRequest{Lease: 1, Horizon: -1, TrustedSince: time.Unix(1, 1999)}
	out, err := storagev1.DecodeClaimRequest(must(t, storagev1.EncodeClaimRequest, &in))
	if err != nil || out.Lease != time.Microsecond || out.Horizon != -time.Microsecond || !out.TrustedSince.Equal(time.Unix(1, 1000)) {
		t.Errorf("%v: %+v", err, out)
	}
}

// What the schema cannot hold is refused where it is sent and does not become
// something else: a replaced byte would be another identity.
func TestNotSent(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]func() ([]byte, error){
		"event_id": func() ([]byte, error) {
			return storagev1.EncodeEventKey(&storage.EventKey{Tenant: "t", EventID: "a\xffb"})
		},
		"dimensions": func() ([]byte, error) {
			return storagev1.EncodeRecordRequest(&storage.RecordRequest{Units: []storage.Unit{{Entries: []storage.Entry{
				{Event: storage.Event{Dimensions: map[string]string{"a": "\x80"}}},
			}}}})
		},
		"trusted_since": func() ([]byte, error) {
			return storagev1.EncodeClaimRequest(&storage.ClaimRequest{TrustedSince: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)})
		},
	} {
		data, err := send()
		e := (*sdk.Error)(nil)
		if !errors.As(err, &e) || e.Tag != sdk.TagInvalid || e.Field != name || data != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func must[T any](t *testing.T, encode func(*T) ([]byte, error), v *T) []byte {
	t.Helper()
	data, err := encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// field writes a field with a length.
func field(number int, body []byte) []byte {
	b := append([]byte{}, varint(uint64(number)<<3|2)...)
	return append(append(b, varint(uint64(len(body)))...), body...)
}

func varint(n uint64) []byte {
	var b []byte
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// Bytes of a stranger are refused whole, with one of two errors.
func TestRefused(t *testing.T) {
	t.Parallel()
	entry := func(number int, body []byte) []byte { return field(1, field(1, field(number, body))) } // of an event in a page
	event := func(number int, body []byte) []byte { return field(1, field(number, body)) }
	for name, c := range map[string]struct {
		data []byte
		want error
	}{
		"cut off":               {data: []byte{0x0a, 5, 1}, want: wirev1.ErrMalformed},
		"endless number":        {data: bytes.Repeat([]byte{0xff}, 20), want: wirev1.ErrMalformed},
		"field zero":            {data: []byte{2, 0}, want: wirev1.ErrMalformed},
		"group":                 {data: []byte{0xfb, 7}, want: wirev1.ErrMalformed},
		"number as text":        {data: []byte{8, 1}, want: wirev1.ErrMalformed},
		"text as number":        {data: field(2, []byte("7")), want: wirev1.ErrMalformed},
		"not UTF-8":             {data: event(1, []byte{0xff}), want: wirev1.ErrMalformed},
		"no decimal":            {data: event(4, []byte("1,5")), want: wirev1.ErrMalformed},
		"wide decimal":          {data: event(4, []byte(strings.Repeat("9", 39))), want: wirev1.ErrMalformed},
		"unknown kind":          {data: event(5, []byte("gift")), want: wirev1.ErrMalformed},
		"no JSON":               {data: event(16, []byte(`{"a":`)), want: wirev1.ErrMalformed},
		"short hash":            {data: event(17, []byte("short")), want: wirev1.ErrMalformed},
		"year 10000":            {data: field(1, append(varint(9<<3), varint(253402300800000000)...)), want: wirev1.ErrMalformed},
		"length beyond":         {data: entry(1, nil)[:3], want: wirev1.ErrMalformed},
		"too many":              {data: bytes.Repeat(field(1, nil), 1001), want: wirev1.ErrTooLarge},
		"too many dimensions":   {data: field(1, bytes.Repeat(field(15, field(1, []byte("k"))), 1000)), want: nil},
		"more than a message":   {data: make([]byte, wirev1.MaxMessage+1), want: wirev1.ErrTooLarge},
		"unknown fields":        {data: append(field(9000, []byte("x")), 0xf8, 0xff, 3, 1), want: nil},
		"fixed unknown fields":  {data: []byte{0xfd, 7, 1, 2, 3, 4, 0xf9, 7, 1, 2, 3, 4, 5, 6, 7, 8}, want: nil},
		"cut off unknown field": {data: []byte{0xfd, 7, 1, 2}, want: wirev1.ErrMalformed},
	} {
		_, err := storagev1.DecodeEventPage(c.data)
		if c.want == nil && err != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// A request is judged by the adapter, which knows values that this version does
// not.
func TestRequestsAreNotJudged(t *testing.T) {
	t.Parallel()
	q := storage.ItemQuery{State: "paused"}
	got, err := storagev1.DecodeItemQuery(must(t, storagev1.EncodeItemQuery, &q))
	if err != nil || got.State != q.State {
		t.Errorf("%v: %+v", err, got)
	}
}

// Two bytes of input that would cost hundreds in memory are not multiplied
// without end.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	unit := field(2, nil) // an entry of zeros
	data := bytes.Repeat(field(1, bytes.Repeat(unit, 1000)), 400)
	if _, err := storagev1.DecodeRecordRequest(data); !errors.Is(err, wirev1.ErrTooLarge) {
		t.Fatalf("%d bytes of empty entries: %v", len(data), err)
	}
	allocated := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = storagev1.DecodeRecordRequest(data)
		}
	}).AllocedBytesPerOp()
	if limit := int64(2*storagev1.MaxDecoded + 4*len(data)); allocated > limit {
		t.Errorf("%d bytes allocated, at most %d", allocated, limit)
	}
}

// What is repeated where the schema has one value is merged, as protobuf says.
func TestRepeatedSingles(t *testing.T) {
	t.Parallel()
	first, second := field(1, []byte("a")), field(1, []byte("b"))
	got, err := storagev1.DecodeEventKey(append(first, second...))
	if err != nil || got.Tenant != "b" {
		t.Errorf("%v: %+v", err, got)
	}
	// Lists in two messages of one field are one list, within its limit.
	half := bytes.Repeat(field(2, nil), 600)
	if _, err := storagev1.DecodeRecordRequest(append(field(1, half), field(1, half)...)); err != nil {
		t.Errorf("two units: %v", err)
	}
	keys := bytes.Repeat(field(4, []byte("x")), 600)
	if _, err := storagev1.DecodeAggregateQuery(slices.Concat(keys, keys)); !errors.Is(err, wirev1.ErrTooLarge) {
		t.Errorf("1200 names: %v", err)
	}
}

// FuzzDecode feeds every decoder. What one takes must encode to something that
// decodes to the same again; what it refuses, it refuses with one of two errors.
func FuzzDecode(f *testing.F) {
	for i, c := range codecs {
		p := reflect.New(c.typ)
		t := &testing.T{}
		(&filler{}).fill(t, p.Elem())
		data, err := c.encode(p.Interface())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), data)
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		c := codecs[int(which)%len(codecs)]
		first, err := c.decode(data)
		if err != nil {
			if !errors.Is(err, wirev1.ErrMalformed) && !errors.Is(err, wirev1.ErrTooLarge) {
				t.Fatalf("%s: neither malformed nor too large: %v", c.name, err)
			}
			return
		}
		p := reflect.New(c.typ)
		p.Elem().Set(reflect.ValueOf(first))
		once, err := c.encode(p.Interface())
		if err != nil {
			t.Fatalf("%s: encode what was decoded: %v", c.name, err)
		}
		second, err := c.decode(once)
		if err != nil {
			t.Fatalf("%s: decode what was encoded: %v", c.name, err)
		}
		if d := same(first, second); d != "" {
			t.Fatalf("%s: another value:\n%s", c.name, d)
		}
		p.Elem().Set(reflect.ValueOf(second))
		if twice, err := c.encode(p.Interface()); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%s: one value has two encodings: %v", c.name, err)
		}
	})
}

// As many edges as the contract allows, and not one more: packed numbers are
// counted, not their bytes.
func TestMostEdges(t *testing.T) {
	t.Parallel()
	q := storage.AggregateQuery{Edges: make([]time.Time, 100_001)}
	for i := range q.Edges {
		q.Edges[i] = time.UnixMicro(1_700_000_000_000_000 + int64(i)).UTC()
	}
	got, err := storagev1.DecodeAggregateQuery(must(t, storagev1.EncodeAggregateQuery, &q))
	if err != nil || !slices.Equal(got.Edges, q.Edges) {
		t.Errorf("%d edges: %v", len(got.Edges), err)
	}
	q.Edges = append(q.Edges, time.UnixMicro(1))
	if _, err := storagev1.DecodeAggregateQuery(must(t, storagev1.EncodeAggregateQuery, &q)); !errors.Is(err, wirev1.ErrTooLarge) {
		t.Errorf("one more: %v", err)
	}
}
