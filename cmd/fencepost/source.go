package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// line is one event on its way: a JSON object, or why there is none.
type line struct {
	number int // from 1, as an editor counts
	id     string
	cloud  bool
	body   []byte
	err    error
}

// source yields events. It ends with io.EOF; any other error ends it too.
type source interface {
	next() (line, error)
}

// lineMax bounds one line; a single event is far below it.
const lineMax = 1 << 20

func newSource(path string, in io.Reader, f recordFlags) (source, error) {
	format := f.format
	if format == "" && strings.HasSuffix(strings.ToLower(path), ".csv") {
		format = "csv"
	}
	if format != "csv" && (f.tenant != "" || f.idFrom != "" || f.idPrefix != "" || f.timeFrom != "" || len(f.mapping) > 0 || f.shiftTo != "") {
		return nil, usageError{errors.New("--tenant, --id-from, --id-prefix, --time-from, --map and --shift-to go with --format csv")}
	}
	switch format {
	case "csv":
		return newCSVSource(in, f)
	case "cloudevents", "ndjson", "":
		return newJSONSource(bufio.NewReaderSize(in, 64<<10), format)
	}
	return nil, usageError{errors.New("--format: cloudevents, ndjson or csv")}
}

// jsonSource reads JSON events, one per line or in one document.
type jsonSource struct {
	in     *bufio.Reader
	format string
	array  *json.Decoder // reads a JSON array
	number int
}

func newJSONSource(in *bufio.Reader, format string) (source, error) {
	s := &jsonSource{in: in, format: format}
	first, err := peekByte(in)
	if errors.Is(err, io.EOF) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read input: %w", err)
	}
	if first == '[' {
		s.array = json.NewDecoder(in)
		if _, err := s.array.Token(); err != nil {
			return nil, sdk.Invalid("FILE", "a JSON array of events")
		}
	}
	return s, nil
}

// peekByte skips white space and a byte order mark and returns what follows.
func peekByte(in *bufio.Reader) (byte, error) {
	if bom, err := in.Peek(3); err == nil && bytes.Equal(bom, []byte("\xef\xbb\xbf")) {
		_, _ = in.Discard(3)
	}
	for {
		b, err := in.Peek(1)
		if err != nil {
			return 0, err
		}
		if b[0] != ' ' && b[0] != '\t' && b[0] != '\r' && b[0] != '\n' {
			return b[0], nil
		}
		_, _ = in.Discard(1)
	}
}

func (s *jsonSource) next() (line, error) {
	if s.array != nil {
		return s.element()
	}
	for {
		text, err := readLine(s.in)
		s.number++
		if errors.Is(err, errLongLine) {
			return line{number: s.number, err: sdk.Invalid("line", "at most 1 MiB")}, nil
		}
		text = bytes.TrimSpace(text)
		if len(text) == 0 {
			if err != nil {
				return line{}, err
			}
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return line{}, fmt.Errorf("read input: %w", err)
		}
		if s.number == 1 && !json.Valid(text) {
			return s.document(text)
		}
		return s.event(text), nil
	}
}

// document tries the whole input as one JSON object spread over several lines.
func (s *jsonSource) document(head []byte) (line, error) {
	rest, err := s.in.Peek(s.in.Size())
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
		return line{}, fmt.Errorf("read input: %w", err)
	}
	whole := append(append(bytes.Clone(head), '\n'), rest...)
	if json.Valid(whole) {
		_, _ = s.in.Discard(len(rest))
		return s.event(bytes.TrimSpace(whole)), nil
	}
	return s.event(head), nil
}

// element reads the next value of a JSON array. A broken one ends the input:
// nobody can say where the next begins.
func (s *jsonSource) element() (line, error) {
	s.number++
	if !s.array.More() {
		if _, err := s.array.Token(); err != nil {
			return line{}, sdk.Invalid("FILE", "a JSON array that ends")
		}
		return line{}, io.EOF
	}
	var raw json.RawMessage
	if err := s.array.Decode(&raw); err != nil {
		return line{}, sdk.Invalid(fmt.Sprintf("FILE[%d]", s.number-1), "valid JSON")
	}
	if len(raw) > lineMax {
		return line{number: s.number, err: sdk.Invalid("event", "at most 1 MiB")}, nil
	}
	return s.event(raw), nil
}

func (s *jsonSource) event(text []byte) line {
	l := line{number: s.number, body: text, cloud: s.format == "cloudevents"}
	if !json.Valid(text) {
		l.err = sdk.Invalid("line", "one JSON object (NaN, Infinity and unquoted text are not JSON)")
		return l
	}
	if s.format == "" {
		var keys map[string]json.RawMessage
		if json.Unmarshal(text, &keys) == nil {
			_, l.cloud = keys["specversion"]
		}
	}
	return l
}

var errLongLine = errors.New("line too long")

// readLine reads up to a line end. A longer line is consumed whole and answered
// with errLongLine, so that the next one is read right.
func readLine(in *bufio.Reader) ([]byte, error) {
	var text []byte
	long := false
	for {
		part, err := in.ReadSlice('\n')
		if len(text)+len(part) > lineMax {
			long = true
		}
		if !long {
			text = append(text, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if long {
			return nil, errLongLine
		}
		return text, err
	}
}
