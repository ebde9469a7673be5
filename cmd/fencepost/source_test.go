package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// outcome is what a test compares of a line.
type outcome struct {
	Number int
	Cloud  bool
	Body   string
	Field  string // of the error
}

func drain(t testing.TB, s source, limit int) ([]outcome, error) {
	t.Helper()
	var all []outcome
	for range limit {
		l, err := s.next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		o := outcome{Number: l.number, Cloud: l.cloud, Body: string(l.body)}
		if l.err != nil {
			o.Body = ""
			if rule, ok := errors.AsType[*sdk.Error](l.err); ok {
				o.Field = rule.Field
			}
		} else if !json.Valid(l.body) {
			t.Fatalf("line %d is not JSON: %q", l.number, l.body)
		}
		all = append(all, o)
	}
	t.Fatalf("no end after %d lines", limit)
	return nil, nil
}

// TestJSONSource: issue 2, item 9 and "Bad input": nothing of the input is left
// out in silence, and lines are counted as an editor counts.
func TestJSONSource(t *testing.T) {
	t.Parallel()
	const a, b = `{"id":"a"}`, `{"id":"b"}`
	cloud := `{"specversion":"1.0"}`
	tests := map[string]struct {
		in   string
		want []outcome
	}{
		"empty":             {"", nil},
		"white space":       {" \n\t\r\n", nil},
		"one without end":   {a, []outcome{{1, false, a, ""}}},
		"lines":             {a + "\n" + b + "\n", []outcome{{1, false, a, ""}, {2, false, b, ""}}},
		"blank lines":       {"\n\n" + a + "\n \n" + b, []outcome{{3, false, a, ""}, {5, false, b, ""}}},
		"windows":           {a + "\r\n" + b + "\r\n", []outcome{{1, false, a, ""}, {2, false, b, ""}}},
		"bom":               {"\xef\xbb\xbf" + a, []outcome{{1, false, a, ""}}},
		"cloud":             {cloud + "\n" + `{"source":"s","id":"1"}`, []outcome{{1, true, cloud, ""}, {2, true, `{"source":"s","id":"1"}`, ""}}},
		"plain with source": {`{"source":"s","tenant":"t"}`, []outcome{{1, false, `{"source":"s","tenant":"t"}`, ""}}},
		"broken first":      {"{\n" + b + "\n", []outcome{{1, false, "", "event"}, {2, false, b, ""}}},
		"broken middle":     {a + "\n{\n" + b + "\n", []outcome{{1, false, a, ""}, {2, false, "", "event"}, {3, false, b, ""}}},
		"pretty":            {"{\n\"id\": \"}\"\n}\n", []outcome{{1, false, "{\n\"id\": \"}\"\n}", ""}}},
		"pretty, then line": {"{\n}\n" + b, []outcome{{1, false, "{\n}", ""}, {3, false, b, ""}}},
		"pretty, same line": {"{\n} " + b + "\n" + a, []outcome{{1, false, "{\n}", ""}, {2, false, b, ""}, {3, false, a, ""}}},
		"pretty, mac":       {"{\n}\r" + b, []outcome{{1, false, "{\n}", ""}, {2, false, b, ""}}},
		"pretty, crlf":      {"{\r\n}\r\n" + b, []outcome{{1, false, "{\n}", ""}, {3, false, b, ""}}},
		"pretty, broken":    {"{\n}\n{\nx\n" + b, []outcome{{1, false, "{\n}", ""}, {3, false, "", "event"}, {4, false, "", "event"}, {5, false, b, ""}}},
		"two on a line":     {a + b, []outcome{{1, false, "", "event"}}},
		"array":             {"[" + a + ",\n" + b + "]\n", []outcome{{1, false, a, ""}, {2, false, b, ""}}},
		"array empty":       {" [ ] ", nil},
		"array in element":  {`[{"a":[1,"]"]},"x,y"]`, []outcome{{1, false, `{"a":[1,"]"]}`, ""}, {2, false, `"x,y"`, ""}}},
		"array broken":      {"[" + a + ",NaN," + b + "]", []outcome{{1, false, a, ""}, {2, false, "", "event"}, {3, false, b, ""}}},
		"array holes":       {"[," + a + ",]", []outcome{{1, false, "", "event"}, {2, false, a, ""}, {3, false, "", "event"}}},
		"array open":        {"[" + a, []outcome{{1, false, a, ""}, {2, false, "", "array"}}},
		"array cut":         {"[" + a + `,{"id`, []outcome{{1, false, a, ""}, {2, false, "", "event"}, {3, false, "", "array"}}},
		"array comma":       {"[" + a + ",", []outcome{{1, false, a, ""}, {2, false, "", "array"}}},
		"array alone":       {"[", []outcome{{1, false, "", "array"}}},
		"array, then more":  {"[" + a + "]\n" + b, []outcome{{1, false, a, ""}, {2, false, "", "array"}}},
		"array twice":       {"[][]", []outcome{{1, false, "", "array"}}},
	}
	for name, tt := range tests {
		for how, in := range map[string]io.Reader{
			"at once": strings.NewReader(tt.in), "byte by byte": iotest.OneByteReader(strings.NewReader(tt.in)),
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				s, err := newSource("-", in, recordFlags{})
				if err != nil {
					t.Fatal(err)
				}
				got, err := drain(t, s, 100)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("-want +got\n%s", diff)
				}
			})
		}
	}
}

// TestJSONSourceSizes: one byte too many is refused alone, wherever it stands,
// and white space between events has no limit.
func TestJSONSourceSizes(t *testing.T) {
	t.Parallel()
	event := func(n int) string { return `{"s":"` + strings.Repeat("x", n-len(`{"s":""}`)) + `"}` }
	fits, over, small := event(lineMax), event(lineMax+1), `{}`
	space := strings.Repeat(" ", lineMax) + "\n" + strings.Repeat("\n", lineMax)
	for name, tt := range map[string]struct {
		in   string
		want string // the lengths, -1 for too long
	}{
		"lines":       {fits + "\n" + over + "\n" + small, fmt.Sprint([]int{lineMax, -1, 2})},
		"last over":   {small + "\n" + over, fmt.Sprint([]int{2, -1})},
		"windows":     {fits + "\r\n" + small, fmt.Sprint([]int{lineMax, 2})},
		"far over":    {strings.Repeat(over, 5) + "\n" + small, fmt.Sprint([]int{-1, 2})},
		"array":       {"[" + fits + "," + over + "," + small + "]", fmt.Sprint([]int{lineMax, -1, 2})},
		"array space": {"[" + space + small + space + "," + space + small + "]", fmt.Sprint([]int{2, 2})},
		"array last":  {"[" + over + "]", fmt.Sprint([]int{-1})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := newSource("-", strings.NewReader(tt.in), recordFlags{})
			if err != nil {
				t.Fatal(err)
			}
			var got []int
			for {
				l, err := s.next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				n := len(l.body)
				if l.err != nil {
					n = -1
				}
				got = append(got, n)
			}
			if fmt.Sprint(got) != tt.want {
				t.Errorf("got %v, want %s", got, tt.want)
			}
		})
	}
}

// TestSourceReadError: an input that breaks off ends the run with an error that
// is about the file; what was read before it stands.
func TestSourceReadError(t *testing.T) {
	t.Parallel()
	broken := errors.New("the disk is gone")
	csv := recordFlags{format: "csv", tenant: "t", idFrom: "id", mapping: []string{"tokens=n"}}
	for name, tt := range map[string]struct {
		in    string
		flags recordFlags
		lines int
	}{
		"lines":  {"{}\n{}\n{", recordFlags{}, 2},
		"array":  {"[{},{},{", recordFlags{}, 2},
		"pretty": {"{\n\"a\":", recordFlags{}, 0},
		"csv":    {"id,n\na,1\nb,1\nc", csv, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := newSource("-", io.MultiReader(strings.NewReader(tt.in), iotest.ErrReader(broken)), tt.flags)
			if err != nil {
				t.Fatal(err)
			}
			got, err := drain(t, s, 10)
			if !errors.Is(err, broken) || exitCode(err) != exitRefused || len(got) != tt.lines {
				t.Errorf("%d lines, then %v; want %d, then the error of the input", len(got), err, tt.lines)
			}
		})
	}
}

// FuzzJSONSource: any bytes end, panic nowhere, and yield only lines that are
// JSON or have an error; a file that is JSON lines is never refused.
func FuzzJSONSource(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "{}\n{}", "[{},{}]", "[", "[,]", "[]x", "{\n}\n{\n}", "\xef\xbb\xbf{}", "\xff\xfe{\x00", "{\"a\":\"\\\"}\"}", "[\"", "{\n\"a\":[\n", "}", "]",
		"{\"specversion\":\"1.0\"}", "null", "\x00", "{}\r{}", "[1,2", "{\n}{\n}",
	} {
		f.Add([]byte(seed), "")
		f.Add([]byte(seed), "cloudevents")
	}
	f.Fuzz(func(t *testing.T, in []byte, format string) {
		s, err := newSource("-", strings.NewReader(string(in)), recordFlags{format: format})
		if err != nil {
			return
		}
		if _, csv := s.(*csvSource); csv {
			return
		}
		got, err := drain(t, s, len(in)+2)
		if err != nil {
			t.Fatalf("an input without faults ended with %v", err)
		}
		valid := true
		for l := range strings.Lines(string(in)) {
			l = strings.TrimSpace(l)
			valid = valid && strings.HasPrefix(l, "{") && json.Valid([]byte(l))
		}
		if valid && len(in) > 0 && !strings.HasPrefix(string(in), "\xef\xbb\xbf") {
			for _, o := range got {
				if o.Body == "" {
					t.Fatalf("line %d of JSON lines was refused", o.Number)
				}
			}
		}
	})
}
