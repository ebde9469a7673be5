package canon_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/engine/canon"
)

// FuzzJSON: no input panics, everything that is accepted is JSON for the
// standard library too, and the canonical form is its own canonical form.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`{"b":[1.0,-0,1e400],"a":"\u00e9\ud83d\ude00"}`, `{"a":1,"a":2}`, `"\ud800"`, "[[[[", "1e99999999999999999999",
		"\"\xff\"", `"\u0000"`, ` null `, `{"":{}}`, "0.00000000000000000000000000000000000000000001",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		out, err := canon.JSON(in)
		if checked := canon.Check(in); (checked == nil) != (err == nil) {
			t.Fatalf("JSON says %v, Check says %v", err, checked)
		}
		if err != nil {
			return
		}
		if !json.Valid(in) || !json.Valid(out) {
			t.Fatalf("%q → %q is not JSON", in, out)
		}
		again, err := canon.JSON(out)
		if err != nil || !bytes.Equal(again, out) {
			t.Fatalf("%q → %q → %q, %v", in, out, again, err)
		}
		if _, err := canon.Elements(in, 1<<20); canon.KindOf(out) == canon.Array && err != nil {
			t.Fatalf("Elements(%q): %v", in, err)
		}
		if _, err := canon.Members(in); canon.KindOf(out) == canon.Object && err != nil {
			t.Fatalf("Members(%q): %v", in, err)
		}
	})
}

// FuzzSplit: what Split accepts is exactly what Join writes.
func FuzzSplit(f *testing.F) {
	for _, seed := range []string{"", "0:", "5:hello3:abc", "01:a", "1:", "3:\xff\x00a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		fields, err := canon.Split(key)
		if err == nil && canon.Join(fields...) != key {
			t.Fatalf("Split(%q) = %q", key, fields)
		}
		if back, err := canon.Split(canon.Join(key, "", key)); err != nil || !slices.Equal(back, []string{key, "", key}) {
			t.Fatalf("%q does not come back: %q, %v", key, back, err)
		}
	})
}
