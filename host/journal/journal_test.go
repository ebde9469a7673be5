package journal

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// The file is what docs/exporters.md says: a chain that anybody can check with
// sha256sum, line by line.
func TestLines(t *testing.T) {
	t.Parallel()
	path := journalAt(t)
	f := open(t, path)
	appended(t, f, false, "a", "b")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	if want := `{"sequence":1,"previous":"` + strings.Repeat("0", 64) + `","record":{"identifier":"fencepost_a","value":"1"}}`; lines[0] != want {
		t.Errorf("%s, want %s", lines[0], want)
	}
	// Of sha256sum, over the line above without its end.
	const hash = "c7e320a16b009181dab310033691bf418dd8e826399e030b0d5c2f06a6cec2f5"
	if want := `{"sequence":2,"previous":"` + hash + `","record":{"identifier":"fencepost_b","value":"1"}}`; lines[1] != want || lines[2] != "" {
		t.Errorf("%s, want %s", lines[1], want)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	verify(t, path, 2)
}

// A record that the file has is not written again, whether the plugin or the host
// says that it may be there.
func TestAgain(t *testing.T) {
	t.Parallel()
	path := journalAt(t)
	f := open(t, path)
	appended(t, f, false, numbers(0, 50)...)
	for name, again := range map[string]struct{ plugin, host bool }{"the plugin says": {true, false}, "the host says": {false, true}} {
		ctx, call := f.Begin(t.Context(), []Item{{ID: "item-7", Identifier: "fencepost_7", Again: again.host}})
		out, err := f.Append(ctx, []capability.Record{record("7", again.plugin)})
		if err != nil || !out[0].Earlier || out[0].Sequence != 8 {
			t.Errorf("%s: %+v %v", name, out, err)
		}
		if x := call.Exchanges()["item-7"]; len(x) != 1 || x[0].Class != exporter.ClassDuplicateOwn {
			t.Errorf("%s: %+v", name, x)
		}
	}
	// Twice in one call: the second finds the first.
	ctx, call := f.Begin(t.Context(), []Item{{ID: "item-x", Identifier: "fencepost_x"}})
	for range 2 {
		if _, err := f.Append(ctx, []capability.Record{record("x", false)}); err != nil {
			t.Fatal(err)
		}
	}
	if x := call.Exchanges()["item-x"]; len(x) != 2 || x[0].Class != exporter.ClassSuccess || x[1].Class != exporter.ClassDuplicateOwn {
		t.Errorf("%+v", x)
	}
	// A part of an identifier is another one.
	if out := appended(t, f, true, "4"); !out[0].Earlier {
		t.Errorf("%+v", out)
	}
	if out := appended(t, f, true, "499"); out[0].Earlier {
		t.Errorf("%+v", out)
	}
	verify(t, path, 52)
}

// What a plugin asks for and may not have: nothing is written, and it is known
// that nothing was.
func TestRefusedRecords(t *testing.T) {
	t.Parallel()
	path := journalAt(t)
	f := open(t, path)
	good := record("a", false)
	with := func(change func(*capability.Record)) capability.Record {
		r := good
		change(&r)
		return r
	}
	text := func(s string) capability.Record {
		return with(func(r *capability.Record) { r.JSON = []byte(s) })
	}
	for name, tt := range map[string]struct {
		record capability.Record
		reason string
	}{
		"unknown item":        {with(func(r *capability.Record) { r.Item = "item-b" }), ReasonUnknown},
		"other identifier":    {with(func(r *capability.Record) { r.Identifier = "fencepost_b" }), ReasonInvalid},
		"no JSON":             {text("fencepost_a"), ReasonInvalid},
		"no object":           {text(`["fencepost_a"]`), ReasonInvalid},
		"two objects":         {text(`{"identifier":"fencepost_a"}{"identifier":"fencepost_a"}`), ReasonInvalid},
		"a line of its own":   {text("{\"identifier\":\"fencepost_a\"}\n{\"sequence\":2}"), ReasonInvalid},
		"without identifier":  {text(`{"id":"fencepost_a"}`), ReasonInvalid},
		"of another":          {text(`{"identifier":"fencepost_b"}`), ReasonInvalid},
		"two identifiers":     {text(`{"identifier":"fencepost_b","identifier":"fencepost_a"}`), ReasonInvalid},
		"in two cases":        {text(`{"Identifier":"fencepost_b","identifier":"fencepost_a"}`), ReasonInvalid},
		"identifier inside":   {text(`{"x":{"identifier":"fencepost_a"}}`), ReasonInvalid},
		"too large":           {text(`{"identifier":"fencepost_a","x":"` + strings.Repeat("a", RecordBytesMax) + `"}`), ReasonInvalid},
		"a number":            {text(`{"identifier":1}`), ReasonInvalid},
		"escaped, and so his": {text(`{"identifier":"fencepost_\u0062"}`), ReasonInvalid},
	} {
		ctx, call := f.Begin(t.Context(), []Item{{ID: "item-a", Identifier: "fencepost_a"}})
		out, err := f.Append(ctx, []capability.Record{tt.record})
		if err != nil || out[0].Failure != capability.FailureNotSent || out[0].Reason != tt.reason {
			t.Errorf("%s: %+v %v, want %s", name, out, err, tt.reason)
		}
		for id, list := range call.Exchanges() {
			for _, x := range list {
				if x.Class != exporter.ClassNotSent {
					t.Errorf("%s: item %s: %+v", name, id, x)
				}
			}
		}
	}
	if out, err := f.Append(t.Context(), []capability.Record{good}); err != nil || out[0].Reason != ReasonNoCall {
		t.Errorf("outside of a call: %+v %v", out, err)
	}
	ctx, call := f.Begin(t.Context(), []Item{{ID: "item-a", Identifier: "fencepost_a"}})
	call.Exchanges()
	if out, err := f.Append(ctx, []capability.Record{good}); err != nil || out[0].Reason != ReasonCallEnded {
		t.Errorf("after a call: %+v %v", out, err)
	}
	if _, err := f.Append(ctx, make([]capability.Record, RecordsMax+1)); sdk.TagOf(err) != sdk.TagInvalid {
		t.Errorf("too many: %v", err)
	}
	verify(t, path, 0)
}

// A line that a crash has cut short goes when the file is opened, or when the
// next process finds it; lines before it stay.
func TestTornLine(t *testing.T) {
	t.Parallel()
	path := journalAt(t)
	f := open(t, path)
	appended(t, f, false, "a", "b")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, torn := range []string{`{`, `{"sequence":3,"previous":"00`, strings.Repeat("x", 2*RecordBytesMax)[:RecordBytesMax+200]} {
		if err := os.WriteFile(path, append(slices.Clip(whole), torn...), 0o600); err != nil {
			t.Fatal(err)
		}
		if v := verify(t, path, 2); v.Torn != int64(len(torn)) {
			t.Errorf("%+v", v)
		}
		g := open(t, path)
		if got, err := os.ReadFile(path); err != nil || string(got) != string(whole) {
			t.Fatalf("after opening: %q %v", got, err)
		}
		_ = g.Close()
	}
	// Another process was killed while this one had the file open.
	if err := os.WriteFile(path, append(slices.Clip(whole), `{"seq`...), 0o600); err != nil {
		t.Fatal(err)
	}
	appended(t, f, false, "c")
	verify(t, path, 3)
}

// A file that is no journal is not touched.
func TestForeignFile(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"hello\n", "{}\n", `{"sequence":1}` + "\n", strings.Repeat("x", 3*lineBytesMax), "\n"} {
		path := journalAt(t)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), Config{Path: path}); !errors.Is(err, &sdk.Error{Tag: sdk.TagInvalid, Code: ReasonDamaged}) {
			t.Errorf("%.20q: %v", text, err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%.20q became %.20q", text, got)
		}
	}
	if _, err := Open(t.Context(), Config{Path: t.TempDir()}); sdk.TagOf(err) != sdk.TagInvalid {
		t.Errorf("a folder: %v", err)
	}
}

// Several processes and goroutines append at once: one chain, each identifier
// once.
func TestConcurrentWriters(t *testing.T) {
	t.Parallel()
	path := journalAt(t)
	var wg sync.WaitGroup
	for w := range 4 {
		f := open(t, path) // an open file of its own, and so a lock of its own
		wg.Go(func() {
			for i := range 10 {
				for _, a := range must(appendItems(t.Context(), f, true, numbers(1000*(w%2)+10*i, 10)...)) {
					if a.Failure != "" {
						t.Errorf("%+v", a)
					}
				}
			}
		})
	}
	wg.Wait()
	verify(t, path, 200)
}

func must(out []capability.Appended, _ map[string][]exporter.Exchange) []capability.Appended {
	return out
}

// Time is looked at when the lock is held: a process that was stopped while it
// waited writes nothing once its lease is over.
func TestNothingIsWrittenAfterTheLease(t *testing.T) {
	t.Parallel()
	path := journalAt(t)
	holder := open(t, path)
	f := expired(t, path)
	out, seen := appendItems(t.Context(), f, false, "a")
	if out[0].Failure != capability.FailureNotSent || out[0].Reason != ReasonDeadline || seen["item-a"][0].Class != exporter.ClassNotSent {
		t.Errorf("%+v %+v", out, seen)
	}
	// And who cannot get the lock in time gives up without having written.
	late := open(t, path)
	unlock, err := holder.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if out, _ := appendItems(soon(t), late, false, "b"); out[0].Reason != ReasonDeadline {
		t.Errorf("%+v", out)
	}
	verify(t, path, 0)
}

// expired is a file in a process whose lease is over.
func expired(t *testing.T, path string) *File {
	t.Helper()
	f, err := Open(t.Context(), Config{Path: path, Left: func(context.Context) (time.Duration, bool) { return 0, true }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// A file that was moved away or cut is not written: the identifiers of what is
// gone could not be found again.
func TestMovedAndCut(t *testing.T) {
	t.Parallel()
	path := journalAt(t)
	f := open(t, path)
	appended(t, f, false, "a", "b")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if out, _ := appendItems(t.Context(), f, false, "c"); out[0].Reason != ReasonMoved {
		t.Errorf("%+v", out)
	}
	if err := os.Rename(path+".1", path); err != nil {
		t.Fatal(err)
	}
	appended(t, f, false, "c")
	if err := os.Truncate(path, 10); err != nil {
		t.Fatal(err)
	}
	if out, _ := appendItems(t.Context(), f, false, "d"); out[0].Reason != ReasonShrunk {
		t.Errorf("%+v", out)
	}
}

// Every kind of tampering is found, at its line.
func TestVerifyFindsTampering(t *testing.T) {
	t.Parallel()
	path := journalAt(t)
	appended(t, open(t, path), false, "a", "b", "c", "d")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
	lines[3] += "\n"
	for name, tt := range map[string]struct {
		text string
		line int64
	}{
		"changed":       {strings.Replace(string(text), `_b","value":"1"`, `_b","value":"2"`, 1), 2},
		"first changed": {strings.Replace(string(text), `_a","value":"1"`, `_a","value":"2"`, 1), 1},
		"removed":       {lines[0] + lines[2] + lines[3], 2},
		"first gone":    {lines[1] + lines[2] + lines[3], 1},
		"exchanged":     {lines[0] + lines[2] + lines[1] + lines[3], 2},
		"put between":   {lines[0] + lines[1] + lines[1] + lines[2] + lines[3], 3},
		"empty line":    {lines[0] + "\n" + lines[1], 2},
		"white space":   {lines[0] + strings.Replace(lines[1], `,"record"`, `, "record"`, 1) + lines[2], 2},
		"more members":  {strings.Replace(lines[0], `{"sequence"`, `{"x":1,"sequence"`, 1), 1},
	} {
		_, err := Verify(strings.NewReader(tt.text), false)
		var broken *Broken
		if !errors.As(err, &broken) || broken.Line != tt.line {
			t.Errorf("%s: %v, want line %d", name, err, tt.line)
			continue
		}
		for i := range broken.Whole { // what is said to be whole is
			if got := strings.SplitAfter(tt.text, "\n"); got[i] != lines[i] {
				t.Errorf("%s: line %d is said to be as it was written", name, i+1)
			}
		}
	}
	if v, err := Verify(strings.NewReader(string(text)), true); err != nil || v.Lines != 4 || v.Head != hashOf([]byte(strings.TrimSpace(lines[3]))) {
		t.Errorf("%+v %v", v, err)
	}
}
