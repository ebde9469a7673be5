package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// TestCSVCell: a spreadsheet takes no cell for a formula, and keeps numbers.
func TestCSVCell(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "", "plain": "plain", "12.5": "12.5", "-12.5": "-12.5", "+12": "+12", "-.5": "-.5",
		"=1+1": "'=1+1", "@SUM(A1)": "'@SUM(A1)", "+1-1": "'+1-1", "-2+3": "'-2+3", "-": "'-", "+": "'+", "-.": "'-.",
		"-1.2.3": "'-1.2.3", "-1e5": "'-1e5", "--1": "'--1", "-cmd|'/c calc'!A0": "'-cmd|'/c calc'!A0",
		"\uff1d1": "'\uff1d1", "\uff201": "'\uff201", "\uff0b1": "'\uff0b1", "\uff0d1": "'\uff0d1",
		"\t=1": "\uFFFD=1", "\r=1": "\uFFFD=1", "a\nb": "a\uFFFDb", "'=1": "'=1",
	} {
		if got := csvCell(in); got != want {
			t.Errorf("csvCell(%q) = %q, want %q", in, got, want)
		}
	}
}

// TestTableCell: what is not there and the sign for it differ.
func TestTableCell(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"": "-", "-": `"-"`, "--": "--", "-1": "-1", "a": "a"} {
		if got := tableCell(in); got != want {
			t.Errorf("tableCell(%q) = %q, want %q", in, got, want)
		}
	}
}

// TestVisible: nothing that a terminal acts upon is left, all else is.
func TestVisible(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "", "plain": "plain", "ü 日本 😀": "ü 日本 😀", "e\u0301": "e\u0301",
		"\x1b[2J": "\uFFFD[2J", "\u009b1m": "\uFFFD1m", "\a\b\t\n\r\x00\x7f": strings.Repeat("\uFFFD", 7),
		"a\u202egpj": "a\uFFFDgpj", "\u2066x\u2069": "\uFFFDx\uFFFD", "\u2028": "\uFFFD", "\xff\xfe": "\uFFFD\uFFFD",
		"\x9b1m": "\uFFFD1m", // C1 of an eight-bit terminal
	} {
		if got := visible(in); got != want {
			t.Errorf("visible(%q) = %q, want %q", in, got, want)
		}
	}
	for r := range rune(0x3000) {
		if out := visible(string(r)); strings.ContainsFunc(out, unicode.IsControl) {
			t.Errorf("%U is passed on", r)
		}
	}
}

// TestEncodeJSON: what is printed is the same value, without a character on
// which a terminal acts.
func TestEncodeJSON(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for r := range rune(0x2100) {
		all.WriteRune(r)
	}
	in := map[string]any{"k\u009b": all.String(), "raw": json.RawMessage("\"\u009b\u202e\"")}
	var b bytes.Buffer
	if err := encodeJSON(&b, in, "  "); err != nil {
		t.Fatal(err)
	}
	for _, r := range b.String() {
		if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
			t.Errorf("%U is printed", r)
		}
	}
	var out map[string]string
	if err := json.Unmarshal(b.Bytes(), &out); err != nil {
		t.Fatal(err)
	}
	if out["k\u009b"] != all.String() || out["raw"] != "\u009b\u202e" {
		t.Error("the value is another")
	}
	if strings.Contains(b.String(), `\u003c`) {
		t.Error("angle brackets are escaped")
	}
}

// TestExitCode: the codes of "fencepost help exit-codes", by kind of error.
func TestExitCode(t *testing.T) {
	t.Parallel()
	wrap := func(err error) error { return fmt.Errorf("a: %w", fmt.Errorf("b: %w", err)) }
	for _, tt := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("anything"), 1},
		{usageError{errors.New("x")}, 2},
		{wrap(usageError{sdk.Invalid("f", "r")}), 2},
		{&sdk.Error{Tag: sdk.TagNotFound}, 3},
		{&sdk.Error{Tag: sdk.TagConflict}, 4},
		{sdk.Invalid("f", "r"), 5},
		{wrap(sdk.Invalid("f", "r")), 5},
		{refusedError{sdk.Invalid("f", "r")}, 5},
		{&sdk.Error{Tag: sdk.TagUnsupported}, 5},
		{sdk.Unavailable("c", errors.New("x")), 6},
		{codeError{7, sdk.Invalid("f", "r")}, 7},
		{wrap(codeError{9, errors.New("x")}), 9},
		{&sdk.Error{Tag: sdk.TagUnsupported, Code: "schema_newer"}, 10},
		{&sdk.Error{Tag: sdk.TagInvalid, Code: "schema_changed"}, 10},
		{wrap(context.Canceled), 130},
		// What came first decides: the batch is in doubt, whatever is wrong with
		// the rest of the input.
		{errors.Join(sdk.Unavailable("c", errors.New("x")), sdk.Invalid("f", "r")), 6},
	} {
		if got := exitCode(tt.err); got != tt.want {
			t.Errorf("exitCode(%v) = %d, want %d", tt.err, got, tt.want)
		}
	}
}

// TestPathEscape: no id is taken for more or fewer parts of a path.
func TestPathEscape(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a": "a", "a/b": "a%2Fb", ".": "%2E", "..": "%2E%2E", "...": "...", "%2F": "%252F", "a?b#c": "a%3Fb%23c", "ü": "%C3%BC",
	} {
		if got := pathEscape(in); got != want {
			t.Errorf("pathEscape(%q) = %q, want %q", in, got, want)
		}
	}
}
