package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// csvFlags are valid flags for a file with the columns id, at, n and m.
func csvFlags() recordFlags {
	return recordFlags{format: "csv", tenant: "t", idFrom: "id", timeFrom: "at", mapping: []string{"tokens=n", "calls=m"}}
}

// TestCSVSource: item 9, "CSV with a column mapping and --shift-to".
func TestCSVSource(t *testing.T) {
	t.Parallel()
	const head = "id,at,n,m\n"
	at := func(id, feature, quantity, time string) outcome {
		return outcome{Body: fmt.Sprintf(`{"id":"%s/%s","tenant":"t","feature":"%s","quantity":"%s","time":"%s"}`, id, feature, feature, quantity, time)}
	}
	line := func(n int, o outcome) outcome { o.Number = n; return o }
	tests := map[string]struct {
		in     string
		change func(*recordFlags)
		want   []outcome
	}{
		"row": {head + "a,2026-11-30 10:00:00.1234567,1,2\n", nil, []outcome{
			line(2, at("a", "tokens", "1", "2026-11-30T10:00:00.123456Z")), line(2, at("a", "calls", "2", "2026-11-30T10:00:00.123456Z")),
		}},
		// The latest of all times moves to the target, the others with it, and a
		// microsecond is the precision of all of them.
		"shift": {head + "a,2023-01-01T00:00:00Z,1,2\nb,2023-01-01T00:00:10Z,1,2\nc,never,1,2\n", func(f *recordFlags) { f.shiftTo = "2026-11-30T12:00:00.1234569+01:00" }, []outcome{
			line(2, at("a", "tokens", "1", "2026-11-30T10:59:50.123456Z")), line(2, at("a", "calls", "2", "2026-11-30T10:59:50.123456Z")),
			line(3, at("b", "tokens", "1", "2026-11-30T11:00:00.123456Z")), line(3, at("b", "calls", "2", "2026-11-30T11:00:00.123456Z")),
			{Number: 4, Field: "at"},
		}},
		// Row numbers count refused rows too: mending one does not rename the rest.
		"row ids": {head + "a,2026-11-30T10:00:00Z,1\nb,2026-11-30T10:00:00Z,1,2\n", func(f *recordFlags) { f.idFrom, f.idPrefix = "row", "p" }, []outcome{
			{Number: 2, Field: "row"},
			line(3, at("p/2", "tokens", "1", "2026-11-30T10:00:00.000000Z")), line(3, at("p/2", "calls", "2", "2026-11-30T10:00:00.000000Z")),
		}},
		"no end": {head + "a,2026-11-30T10:00:00Z,1,\"2\"", func(f *recordFlags) { f.mapping = []string{"calls=m"} }, []outcome{
			line(2, at("a", "calls", "2", "2026-11-30T10:00:00.000000Z")),
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := csvFlags()
			if tt.change != nil {
				tt.change(&f)
			}
			s, err := newSource("-", strings.NewReader(tt.in), f)
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

// FuzzCSVSource: any bytes end, panic nowhere, and yield only events whose text
// is JSON and whose id and tenant are those of the row; no cell becomes another.
func FuzzCSVSource(f *testing.F) {
	for _, seed := range []string{
		"", "id,n\n", "id,n\na,1\n", "\xef\xbb\xbfid,n\r\na,1\r\n", "id,n\n\"a\n\",1\n", "id,n\na,1,2\n", "id,n\n\xff,1\n", "n,id\n\"1,a", "id,id,n\n", "id,n\n\"\"\"\",1e9\n", ",\n,\n",
	} {
		f.Add([]byte(seed), "id", "", "")
		f.Add([]byte(seed), "row", "n", "2026-11-30T12:00:00Z")
	}
	f.Fuzz(func(t *testing.T, in []byte, idFrom, timeFrom, shiftTo string) {
		flags := recordFlags{format: "csv", tenant: "t", idFrom: idFrom, idPrefix: "p", timeFrom: timeFrom, mapping: []string{"tokens=n"}, shiftTo: shiftTo}
		s, err := newSource("-", strings.NewReader(string(in)), flags)
		if err != nil {
			return
		}
		got, err := drain(t, s, len(in)+2)
		if err != nil {
			t.Fatalf("an input without faults ended with %v", err)
		}
		for _, o := range got {
			if o.Field != "" {
				continue
			}
			var e plainJSON
			if err := json.Unmarshal([]byte(o.Body), &e); err != nil {
				t.Fatal(err)
			}
			if e.Tenant != "t" || e.Feature != "tokens" || !strings.HasPrefix(e.ID, "p/") || !strings.HasSuffix(e.ID, "/tokens") {
				t.Fatalf("event %+v is not of this file", e)
			}
			if !strings.ContainsRune(string(in), '\uFFFD') && strings.ContainsRune(e.ID, '\uFFFD') {
				t.Fatalf("id %q holds a character that the file does not", e.ID)
			}
		}
	})
}
