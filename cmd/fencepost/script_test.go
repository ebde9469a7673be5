package main

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// generate writes a file that is too large or too strange for a script:
// "gen FILE PART...", where a part is text:T, repeat:N:T, esc:T (with Go's
// escapes, for bytes that no text file holds), dims:N (N members of an object)
// or lines:N:FORMAT (N lines, %d is the number).
func generate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: gen FILE PART...")
	}
	var b strings.Builder
	for _, part := range args[1:] {
		kind, rest, _ := strings.Cut(part, ":")
		switch kind {
		case "text":
			b.WriteString(rest)
		case "esc":
			s, err := strconv.Unquote(`"` + strings.ReplaceAll(rest, `"`, `\"`) + `"`)
			ts.Check(err)
			b.WriteString(s)
		case "repeat":
			n, text := count(ts, rest)
			b.WriteString(strings.Repeat(text, n))
		case "dims":
			n, _ := count(ts, rest)
			for i := range n {
				if i > 0 {
					b.WriteByte(',')
				}
				b.WriteString(`"k` + strconv.Itoa(i) + `":"v"`)
			}
		case "lines":
			n, format := count(ts, rest)
			for i := range n {
				b.WriteString(strings.ReplaceAll(format, "%d", strconv.Itoa(i)) + "\n")
			}
		default:
			ts.Fatalf("gen: unknown part %s", kind)
		}
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(b.String()), 0o600))
}

func count(ts *testscript.TestScript, rest string) (int, string) {
	number, text, _ := strings.Cut(rest, ":")
	n, err := strconv.Atoi(number)
	ts.Check(err)
	return n, text
}

// fetch gets what a server of this machine answers, whoever signed for it:
// "fetch FILE URL".
func fetch(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: fetch FILE URL")
	}
	c := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer c.CloseIdleConnections()
	res, err := c.Get(args[1])
	ts.Check(err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	ts.Check(err)
	if res.StatusCode != http.StatusOK {
		ts.Fatalf("%s: %s", res.Status, body)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), body, 0o600))
}

// expand puts variables of the script into files: "expand FILE...".
func expand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: expand FILE...")
	}
	for _, name := range args {
		text := os.Expand(ts.ReadFile(name), ts.Getenv)
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(text), 0o600))
	}
}

// jsonValid checks that a file, or each of its lines, is one JSON value.
func jsonValid(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: jsonvalid [-lines] FILE")
	}
	text := ts.ReadFile(args[len(args)-1])
	values := []string{text}
	if args[0] == "-lines" {
		values = strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	}
	for i, v := range values {
		if !json.Valid([]byte(v)) {
			ts.Fatalf("value %d is not JSON: %q", i+1, v)
		}
	}
}

// noBytes checks that a file holds no character on which a terminal acts, line
// ends and tabs excepted.
func noBytes(ts *testscript.TestScript, neg bool, args []string) {
	if !neg || len(args) != 1 {
		ts.Fatalf("usage: ! bytes FILE")
	}
	for _, r := range ts.ReadFile(args[0]) {
		switch {
		case r == '\n' || r == '\t':
		case r < 0x20, r >= 0x7f && r < 0xa0, r == 0x202e, r == 0x2066:
			ts.Fatalf("%s holds %U", args[0], r)
		}
	}
}
