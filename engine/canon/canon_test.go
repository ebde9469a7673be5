package canon_test

import (
	"encoding/json"
	"errors"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// A-T2: Join is injective, because Split undoes it.
func TestJoinIsInjective(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		fields := rapid.SliceOfN(rapid.StringOf(rapid.RuneFrom([]rune("a:|0123é"))), 1, 5).Draw(t, "fields")
		got, err := canon.Split(canon.Join(fields...))
		if err != nil || !slices.Equal(got, fields) {
			t.Fatalf("Split(Join(%q)) = %q, %v", fields, got, err)
		}
	})
}

func TestSplitRefuses(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"a", "1", "1:", "2:a", "01:a", "+1:a", "-1:", ":", "1:ab", " 1:a", "99999999999999999999:a", "1:a2"} {
		if got, err := canon.Split(key); err == nil {
			t.Errorf("Split(%q) = %q, want an error", key, got)
		}
	}
}

// Q1: ids that come from CloudEvents.
func TestIDs(t *testing.T) {
	t.Parallel()
	if got, want := canon.ReceiptID("/api", "a-1"), "4:/api3:a-1"; got != want {
		t.Errorf("ReceiptID = %q, want %q", got, want)
	}
	if got, want := canon.EventID("/api", "a-1", "tokens"), "ce:4:/api3:a-16:tokens"; got != want {
		t.Errorf("EventID = %q, want %q", got, want)
	}
	if canon.EventID("a", "bc", "f") == canon.EventID("ab", "c", "f") {
		t.Error("two CloudEvents share an event id")
	}
}

// F59, F60, B-T11: what no canonical form exists for. The errors name the rule
// and hold nothing of the input.
func TestJSONRefuses(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	if err := canon.Check([]byte(deep(32))); err != nil {
		t.Errorf("32 levels: %v", err)
	}
	siblings := "[" + strings.Repeat(`[],{"a":{}},`, 40) + "0]"
	if err := canon.Check([]byte(siblings)); err != nil {
		t.Errorf("siblings count as levels: %v", err)
	}
	for name, tc := range map[string]struct{ in, rule string }{
		"nothing":               {"", "well-formed"},
		"space":                 {" ", "well-formed"},
		"two values":            {"1 secret", "nothing after it"},
		"byte order mark":       {"\ufeff{}", "well-formed"},
		"repeated key":          {`{"secret":1,"b":2,"secret":1}`, "no key twice"},
		"repeated nested key":   {`[{"a":{"secret":1,"secret":2}}]`, "no key twice"},
		"repeated escaped key":  {`{"secret":1,"s\u0065cret":1}`, "no key twice"},
		"lone high surrogate":   {`"secret\ud800"`, "surrogate"},
		"lone low surrogate":    {`"secret\udc00"`, "surrogate"},
		"high then high":        {`"\ud800\ud800"`, "surrogate"},
		"high then letter":      {`"\ud800a"`, "surrogate"},
		"surrogate in a key":    {`{"\ud800":1}`, "surrogate"},
		"NUL":                   {`"secret\u0000"`, "NUL"},
		"raw NUL":               {"\"\x00\"", "well-formed"},
		"raw newline":           {"\"secret\n\"", "well-formed"},
		"invalid UTF-8":         {"\"secret\xff\"", "UTF-8"},
		"encoded surrogate":     {"\"\xed\xa0\x80\"", "UTF-8"},
		"overlong":              {"\"\xc0\xaf\"", "UTF-8"},
		"UTF-8 after an escape": {"\"\\n\xff\"", "UTF-8"},
		"33 levels":             {deep(33), "32 levels"},
		"33 objects":            {strings.Repeat(`{"a":`, 33) + "1" + strings.Repeat("}", 33), "32 levels"},
		"a million levels":      {strings.Repeat("[", 1<<20), "32 levels"},
		"NaN":                   {"NaN", "well-formed"},
		"Infinity":              {"-Infinity", "well-formed"},
		"plus":                  {"+1", "well-formed"},
		"leading zero":          {"01", "well-formed"},
		"no integer part":       {".5", "well-formed"},
		"no fraction":           {"5.", "well-formed"},
		"no exponent":           {"1e", "well-formed"},
		"hexadecimal":           {"0x10", "nothing after it"},
		"huge exponent":         {"1e100000000000000000", "exponent"},
		"two points":            {"1.2.3", "well-formed"},
		"open array":            {"[1", "well-formed"},
		"trailing comma":        {"[1,]", "well-formed"},
		"open object":           {`{"a":1`, "well-formed"},
		"comma in an object":    {`{"a":1,}`, "well-formed"},
		"key without quotes":    {`{a:1}`, "well-formed"},
		"no colon":              {`{"a" 1}`, "well-formed"},
		"open string":           {`"secret`, "well-formed"},
		"open escape":           {`"\`, "well-formed"},
		"unknown escape":        {`"\x41"`, "well-formed"},
		"short unicode escape":  {`"\u12"`, "well-formed"},
		"bad hexadecimal digit": {`"\u12g4"`, "well-formed"},
		"misspelt word":         {"nul", "well-formed"},
		"capital word":          {"True", "well-formed"},
		"comment":               {"1 /* secret */", "nothing after it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := canon.JSON([]byte(tc.in))
			var e *sdk.Error
			if !errors.As(err, &e) || e.Tag != sdk.TagInvalid || !strings.Contains(e.Rule, tc.rule) {
				t.Fatalf("got %v, want invalid %q", err, tc.rule)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error holds input: %v", err)
			}
			if err := canon.Check([]byte(tc.in)); err == nil {
				t.Error("Check accepts it")
			}
		})
	}
}

// F59: a number with a huge exponent costs nothing.
func TestHugeExponentsDoNotExpand(t *testing.T) {
	t.Parallel()
	got, err := canon.JSON([]byte("[1e99999999999999999,-1e-99999999999999999,0e99999999999999999]"))
	if want := "[1e99999999999999999,-1e-99999999999999999,0]"; err != nil || string(got) != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
}

// Equal numbers have equal text and different numbers different text, against
// rational arithmetic.
func TestNumberAgreesWithRationals(t *testing.T) {
	t.Parallel()
	literal := rapid.StringMatching(`-?(0|[1-9][0-9]{0,45})(\.[0-9]{1,45})?([eE][+-]?[0-9]{1,2})?`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := literal.Draw(t, "a"), literal.Draw(t, "b")
		ra, _ := new(big.Rat).SetString(a)
		rb, _ := new(big.Rat).SetString(b)
		ca, okA := canon.Number(a)
		cb, okB := canon.Number(b)
		if !okA || !okB {
			t.Fatalf("refused: %q %v, %q %v", a, okA, b, okB)
		}
		back, ok := new(big.Rat).SetString(ca)
		if !ok || back.Cmp(ra) != 0 {
			t.Fatalf("Number(%s) = %s, another value", a, ca)
		}
		if (ra.Cmp(rb) == 0) != (ca == cb) {
			t.Fatalf("%s → %s, %s → %s", a, ca, b, cb)
		}
	})
}

// S3: two ways to write one event have one hash; any change has another.
func TestEventHash(t *testing.T) {
	t.Parallel()
	base := func() storage.Event {
		return storage.Event{
			Feature: "tokens", Quantity: decimal.MustParse("1"), Kind: storage.Usage,
			OccurredAt: time.Date(2026, 11, 30, 12, 0, 0, 1000, time.UTC),
			Dimensions: map[string]string{"model": "é"}, Metadata: json.RawMessage(`{"a":1,"b":{"c":10}}`),
		}
	}
	want, err := canon.EventHash(base())
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*storage.Event){
		"quantity 1.0":       func(e *storage.Event) { e.Quantity = decimal.MustParse("1.0") },
		"another zone":       func(e *storage.Event) { e.OccurredAt = e.OccurredAt.In(time.FixedZone("x", 3600)) },
		"nanoseconds":        func(e *storage.Event) { e.OccurredAt = e.OccurredAt.Add(999) },
		"keys in order":      func(e *storage.Event) { e.Metadata = json.RawMessage(`{ "b": {"c": 1e1}, "a": 1.0 }`) },
		"what is not hashed": func(e *storage.Event) { e.Tenant, e.EventID, e.Seq, e.RecordedAt = "t", "i", 9, time.Now() },
		"no kind":            func(e *storage.Event) { e.Kind = "" },
	} {
		e := base()
		change(&e)
		if got, err := canon.EventHash(e); err != nil || got != want {
			t.Errorf("%s: another hash (%v)", name, err)
		}
	}
	seen := map[storage.Hash]string{want: "base"}
	for name, change := range map[string]func(*storage.Event){
		"feature":          func(e *storage.Event) { e.Feature = "token" },
		"quantity":         func(e *storage.Event) { e.Quantity = decimal.MustParse("1.000000000001") },
		"sign":             func(e *storage.Event) { e.Quantity = decimal.MustParse("-1") },
		"time":             func(e *storage.Event) { e.OccurredAt = e.OccurredAt.Add(time.Microsecond) },
		"no time":          func(e *storage.Event) { e.OccurredAt = time.Time{} },
		"kind":             func(e *storage.Event) { e.Kind = storage.Correction },
		"original":         func(e *storage.Event) { e.OriginalEventID = "x" },
		"dimension value":  func(e *storage.Event) { e.Dimensions = map[string]string{"model": "e"} },
		"other unicode":    func(e *storage.Event) { e.Dimensions = map[string]string{"model": "e\u0301"} },
		"dimension name":   func(e *storage.Event) { e.Dimensions = map[string]string{"models": "é"} },
		"no dimensions":    func(e *storage.Event) { e.Dimensions = nil },
		"metadata":         func(e *storage.Event) { e.Metadata = json.RawMessage(`{"a":1,"b":{"c":11}}`) },
		"metadata as text": func(e *storage.Event) { e.Metadata = json.RawMessage(`{"a":"1","b":{"c":10}}`) },
		"no metadata":      func(e *storage.Event) { e.Metadata = nil },
	} {
		e := base()
		change(&e)
		got, err := canon.EventHash(e)
		if twin, twice := seen[got]; twice || err != nil {
			t.Errorf("%s: the hash of %s (%v)", name, twin, err)
		}
		seen[got] = name
	}
}

func TestEventHashRefuses(t *testing.T) {
	t.Parallel()
	for field, e := range map[string]storage.Event{
		"feature":           {Feature: "\xff"},
		"original_event_id": {OriginalEventID: "\xff"},
		"dimensions":        {Dimensions: map[string]string{"\xff": ""}},
		"metadata":          {Metadata: json.RawMessage(`{"a":1,"a":1}`)},
	} {
		_, err := canon.EventHash(e)
		var tagged *sdk.Error
		if !errors.As(err, &tagged) || tagged.Field != field {
			t.Errorf("got %v, want invalid %s", err, field)
		}
	}
	if _, err := canon.EventHash(storage.Event{Metadata: json.RawMessage(`[1]`)}); err == nil {
		t.Error("metadata that is an array is hashed")
	}
	if _, err := canon.CloudEventHash(canon.CloudEvent{Data: json.RawMessage(`"\ud800"`)}); err == nil {
		t.Error("data with a lone surrogate is hashed")
	}
}

// One element's faults are not its neighbours' (the trap of all-or-nothing
// ingest), but a broken structure is the batch's.
func TestElements(t *testing.T) {
	t.Parallel()
	got, err := canon.Elements([]byte(`[ {"a":1,"a":2}, "\ud800\u0000", 1.2.3 , [[]],"\xff"]`), 5)
	want := []json.RawMessage{
		json.RawMessage(`{"a":1,"a":2}`), json.RawMessage(`"\ud800\u0000"`), json.RawMessage(`1.2.3`),
		json.RawMessage(`[[]]`), json.RawMessage(`"\xff"`),
	}
	if err == nil {
		t.Errorf("unknown escape accepted: %q", got)
	}
	got, err = canon.Elements([]byte("[ {\"a\":1,\"a\":2}, \"\\ud800\\u0000\", 1.2.3 , [[]],\"\xff\"]"), 5)
	want[4] = json.RawMessage("\"\xff\"")
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Elements: %v\n%s", err, diff)
	}
	for _, in := range []string{"", "{}", "1", "[1", "[1,]", "[1]x", "[" + strings.Repeat("[", 1<<20)} {
		if _, err := canon.Elements([]byte(in), 5); err == nil {
			t.Errorf("Elements(%.20s) is accepted", in)
		}
	}
	if _, err := canon.Elements([]byte("[1,2,3]"), 2); !errors.Is(err, canon.ErrTooMany) {
		t.Errorf("three of two: %v", err)
	}
	if got, err := canon.Elements([]byte(" [] "), 2); err != nil || len(got) != 0 {
		t.Errorf("empty: %v, %v", got, err)
	}
}

func TestMembersNamesTheMember(t *testing.T) {
	t.Parallel()
	for in, field := range map[string]string{
		`{"data":{"a":1,"a":1}}`:    "data",
		`{"a b<script>":"\ud800"}`:  "",
		`{"data":1,"data":1}`:       "",
		`[]`:                        "",
		manyMembers + `"k0":1}`:     "",
		manyMembers + `"k39":1}`:    "",
		`{"data":1}{"other":"one"}`: "",
	} {
		_, err := canon.Members([]byte(in))
		var e *sdk.Error
		if !errors.As(err, &e) || e.Field != field {
			t.Errorf("Members(%s): %v, want field %q", in, err, field)
		}
	}
}

// manyMembers is an object of 40 members, left open.
var manyMembers = func() string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range 40 {
		b.WriteString(`"k` + strconv.Itoa(i) + `":0,`)
	}
	return b.String()
}()

func TestFind(t *testing.T) {
	t.Parallel()
	data := []byte(` {"a": {"b": [10, {"c d": "x"}]}, "": 7, "n": null, "e\u0301": true}`)
	key := func(k string) canon.Step { return canon.Step{Key: k} }
	index := func(i int) canon.Step { return canon.Step{Index: i, IsIndex: true} }
	for name, tc := range map[string]struct {
		path []canon.Step
		want string // empty: not found
	}{
		"number":           {[]canon.Step{key("a"), key("b"), index(0)}, "10"},
		"nested":           {[]canon.Step{key("a"), key("b"), index(1), key("c d")}, `"x"`},
		"object":           {[]canon.Step{key("a"), key("b"), index(1)}, `{"c d": "x"}`},
		"empty key":        {[]canon.Step{key("")}, "7"},
		"null":             {[]canon.Step{key("n")}, "null"},
		"escaped key":      {[]canon.Step{key("e\u0301")}, "true"},
		"not normalised":   {[]canon.Step{key("é")}, ""},
		"no such key":      {[]canon.Step{key("z")}, ""},
		"no such element":  {[]canon.Step{key("a"), key("b"), index(2)}, ""},
		"key of an array":  {[]canon.Step{key("a"), key("b"), key("0")}, ""},
		"index of object":  {[]canon.Step{key("a"), index(0)}, ""},
		"step into number": {[]canon.Step{key(""), key("x")}, ""},
	} {
		got, found, err := canon.Find(data, tc.path)
		if err != nil || found != (tc.want != "") || string(got) != tc.want {
			t.Errorf("%s: %s, %v, %v; want %s", name, got, found, err, tc.want)
		}
	}
	if _, _, err := canon.Find([]byte(`{"a":[1,"\ud800",3]}`), []canon.Step{key("a"), index(2)}); err == nil {
		t.Error("a lone surrogate on the way is accepted")
	}
}
