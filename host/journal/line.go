package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
)

// line is one line of a journal.
type line struct {
	Sequence int64           `json:"sequence"`
	Previous string          `json:"previous"` // SHA-256 of the line before without its line end
	Record   json.RawMessage `json:"record"`
}

// first is what the first line has for previous.
var first = strings.Repeat("0", 2*sha256.Size)

// tail is the end of a journal.
type tail struct {
	size     int64
	sequence int64
	hash     string // of the last line
}

func newTail() tail { return tail{hash: first} }

// next returns the line of a record, with its end, and the tail after it.
func (t tail) next(record []byte) ([]byte, tail) {
	if t.hash == "" {
		t = newTail()
	}
	t.sequence++
	b := make([]byte, 0, len(record)+128)
	b = append(b, `{"sequence":`...)
	b = strconv.AppendInt(b, t.sequence, 10)
	b = append(b, `,"previous":"`+t.hash+`","record":`...)
	b = append(append(b, record...), '}')
	t.hash = hashOf(b)
	b = append(b, '\n')
	t.size += int64(len(b))
	return b, t
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// errNoLine says that what should be a line of a journal is none.
var errNoLine = errors.New("no line of a journal")

// lineBytesMax bounds a line: a record and what is around it.
const lineBytesMax = RecordBytesMax + 256

// parse reads a line without its end.
func parse(text []byte) (line, error) {
	var l line
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil || l.Sequence < 1 || len(l.Previous) != len(first) || len(l.Record) == 0 || l.Record[0] != '{' {
		return l, errNoLine
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return l, errNoLine
	}
	return l, nil
}

// readTail finds the last whole line of a file of some size. What follows it is
// a line that was cut short.
func readTail(r io.ReaderAt, size int64) (tail, error) {
	// Two lines: the last one, and a piece of the next.
	from := max(0, size-2*lineBytesMax)
	b := make([]byte, size-from)
	if _, err := r.ReadAt(b, from); err != nil && !errors.Is(err, io.EOF) {
		return tail{}, err
	}
	end := bytes.LastIndexByte(b, '\n')
	if end < 0 {
		if from > 0 {
			return tail{}, errNoLine
		}
		return newTail(), nil
	}
	text := b[:end]
	if start := bytes.LastIndexByte(text, '\n'); start >= 0 {
		text = text[start+1:]
	} else if from > 0 {
		return tail{}, errNoLine
	}
	l, err := parse(text)
	if err != nil {
		return tail{}, err
	}
	return tail{size: from + int64(end) + 1, sequence: l.Sequence, hash: hashOf(text)}, nil
}

// compact returns a record as it stands in the file: one JSON object in one
// line, with the identifier as a member of that name, once.
func compact(record []byte, identifier string) ([]byte, bool) {
	if len(record) > RecordBytesMax || identifier == "" {
		return nil, false
	}
	var out bytes.Buffer
	if json.Compact(&out, record) != nil || out.Len() == 0 || out.Bytes()[0] != '{' {
		return nil, false
	}
	got, ok := identifierOf(out.Bytes())
	return out.Bytes(), ok && got == identifier
}

// identifierOf returns the member identifier of a JSON object. It has none if it
// has two: readers differ in which counts.
func identifierOf(object []byte) (string, bool) {
	d := json.NewDecoder(bytes.NewReader(object))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return "", false
	}
	found, identifier := 0, ""
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return "", false
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return "", false
		}
		if text, _ := name.(string); strings.EqualFold(text, "identifier") {
			found++
			if text != "identifier" || json.Unmarshal(value, &identifier) != nil {
				return "", false
			}
		}
	}
	return identifier, found == 1 && identifier != ""
}
