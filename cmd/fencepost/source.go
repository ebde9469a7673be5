package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// line is one event on its way: a JSON object, or why there is none.
type line struct {
	number int // from 1, as an editor counts; in a JSON array the position
	id     string
	cloud  bool
	body   []byte
	err    error
}

// source yields events. It ends with io.EOF; any other error ends it too.
type source interface {
	next() (line, error)
}

// lineMax bounds one event: it has to fit into a request of 1 MiB, in brackets.
const lineMax = 1<<20 - 2

func newSource(path string, in io.Reader, f recordFlags) (source, error) {
	format := f.format
	if format == "" && strings.HasSuffix(strings.ToLower(path), ".csv") {
		format = "csv"
	}
	if format != "csv" && (f.tenant != "" || f.idFrom != "" || f.idPrefix != "" || f.timeFrom != "" || len(f.mapping) > 0 || f.shiftTo != "") {
		return nil, usageError{errors.New("--tenant, --id-from, --id-prefix, --time-from, --map and --shift-to go with --format csv")}
	}
	switch format {
	case "csv", "cloudevents", "ndjson", "":
	default:
		return nil, usageError{errors.New("--format: cloudevents, ndjson or csv")}
	}
	if format == "csv" {
		if err := f.checkCSV(); err != nil {
			return nil, usageError{err}
		}
	}
	text, err := textInput(in)
	if err != nil {
		return nil, err
	}
	if format == "csv" {
		return newCSVSource(text, f)
	}
	return newJSONSource(text, format)
}

// textInput skips a byte order mark, and refuses one that says that the text is
// no UTF-8: some shells write that when they redirect.
func textInput(in io.Reader) (*bufio.Reader, error) {
	text := bufio.NewReaderSize(in, lineMax+64<<10)
	bom, err := text.Peek(3)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, readError(err)
	}
	switch {
	case bytes.HasPrefix(bom, []byte("\xef\xbb\xbf")):
		_, _ = text.Discard(3)
	case bytes.HasPrefix(bom, []byte("\xff\xfe")), bytes.HasPrefix(bom, []byte("\xfe\xff")):
		return nil, sdk.Invalid("FILE", "text in UTF-8; this is UTF-16")
	}
	return text, nil
}

// readError is what ends an input that cannot be read on.
func readError(err error) error {
	return &sdk.Error{Tag: sdk.TagInvalid, Field: "FILE", Rule: "a file that can be read to its end", Err: err}
}

// jsonSource reads JSON events: one per line, one after the other over several
// lines each, or in an array.
type jsonSource struct {
	in     *bufio.Reader
	format string
	number int // of the last line or element
	array  *arrayReader
	begun  bool
	pretty bool // the first event spans lines
	failed int  // lines that looked like the beginning of such an event
}

// failedMax bounds failed: each makes the source look far ahead.
const failedMax = 64

func newJSONSource(in *bufio.Reader, format string) (source, error) {
	s := &jsonSource{in: in, format: format}
	lines, first, err := skipSpace(in)
	if err != nil {
		return nil, err
	}
	s.number = lines
	if first == '[' {
		_, _ = in.Discard(1)
		s.number, s.array = 0, &arrayReader{in: in}
	}
	return s, nil
}

// skipSpace reads white space and returns the line ends in it and the byte that
// follows, which stays unread; zero at the end of the input.
func skipSpace(in *bufio.Reader) (lines int, next byte, _ error) {
	for {
		b, err := in.Peek(1)
		if errors.Is(err, io.EOF) {
			return lines, 0, nil
		}
		if err != nil {
			return lines, 0, readError(err)
		}
		switch b[0] {
		case '\n':
			lines++
		case ' ', '\t', '\r':
		default:
			return lines, b[0], nil
		}
		_, _ = in.Discard(1)
	}
}

func (s *jsonSource) next() (line, error) {
	if s.array != nil {
		text, err := s.array.next()
		if errors.Is(err, io.EOF) {
			return line{}, io.EOF
		}
		s.number++
		return s.event(s.number, text, err)
	}
	for {
		text, err := readLine(s.in)
		if errors.Is(err, io.EOF) && len(text) == 0 {
			return line{}, io.EOF
		}
		s.number++
		text = bytes.TrimSpace(text)
		if len(text) == 0 && err == nil {
			continue
		}
		first := !s.begun
		s.begun = true
		if err == nil && text[0] == '{' && (first || s.pretty) && s.failed < failedMax && !json.Valid(text) {
			return s.document(text)
		}
		return s.event(s.number, text, err)
	}
}

// document tries head and the lines that follow as one JSON object. If they are
// none, head is a line of its own and broken.
func (s *jsonSource) document(head []byte) (line, error) {
	start := s.number
	var text []byte
	for n := 4 << 10; ; n *= 4 {
		rest, err := s.in.Peek(min(n, s.in.Size()))
		if err != nil && !errors.Is(err, io.EOF) {
			return line{}, readError(err)
		}
		whole := append(append(bytes.Clone(head), '\n'), rest...)
		if end := valueEnd(whole); end > 0 {
			text = whole[:end]
			break
		}
		if err != nil || n >= s.in.Size() {
			break
		}
	}
	if len(text) <= len(head) || len(text) > lineMax || !json.Valid(text) {
		s.failed++
		return s.event(start, head, nil)
	}
	s.pretty = true
	s.number += bytes.Count(text, []byte("\n"))
	_, _ = s.in.Discard(len(text) - len(head) - 1)
	s.endLine()
	return s.event(start, text, nil)
}

// endLine reads the line end behind a document. Whatever else stands there is
// read as the rest of that line.
func (s *jsonSource) endLine() {
	for _, end := range []string{"\n", "\r\n"} {
		if next, err := s.in.Peek(len(end)); err == nil && string(next) == end {
			_, _ = s.in.Discard(len(end))
			return
		}
	}
	s.number--
}

// valueEnd returns the length of the JSON object that text begins with, or zero
// if it does not end.
func valueEnd(text []byte) int {
	var n nesting
	for i, b := range text {
		if n.step(b); n.depth == 0 {
			return i + 1
		}
	}
	return 0
}

// event makes a line of the text of one event. An error that concerns only this
// line is its outcome; any other ends the input.
func (s *jsonSource) event(number int, text []byte, err error) (line, error) {
	l := line{number: number, body: text, cloud: s.format == "cloudevents"}
	var rule *sdk.Error
	switch {
	case errors.As(err, &rule) && rule.Field != "FILE":
		l.body, l.err = nil, err
		return l, nil
	case err != nil:
		return line{}, err
	case !json.Valid(text):
		l.err = sdk.Invalid("event", "one JSON object (NaN, Infinity and unquoted text are not JSON)")
		return l, nil
	}
	if s.format == "" {
		l.cloud = looksCloud(text)
	}
	return l, nil
}

// looksCloud tells the two forms of an event apart by fields that only one has,
// so that a CloudEvent without specversion is told so and not that its source
// is unknown.
func looksCloud(text []byte) bool {
	var keys map[string]json.RawMessage
	if json.Unmarshal(text, &keys) != nil {
		return false
	}
	has := func(names ...string) bool {
		for _, name := range names {
			if _, ok := keys[name]; ok {
				return true
			}
		}
		return false
	}
	return has("specversion") || (has("source", "type") && !has("tenant", "feature", "quantity"))
}

// readLine reads up to a line end. A longer line is consumed whole and answered
// with an error of its own, so that the next one is read right. The last line
// may lack its end; after it the error is io.EOF.
func readLine(in *bufio.Reader) ([]byte, error) {
	var text []byte
	long := false
	for {
		part, err := in.ReadSlice('\n')
		long = long || len(text)+len(bytes.TrimRight(part, "\r\n")) > lineMax
		if !long {
			text = append(text, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return nil, readError(err)
		case long:
			return nil, sdk.Invalid("event", "at most 1 MiB")
		case len(text) == 0 && err != nil:
			return nil, io.EOF
		}
		return text, nil
	}
}
