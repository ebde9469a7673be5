package main

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk"
)

// rowsMax bounds a CSV file that must be read whole to find its latest time.
const rowsMax = 5_000_000

// csvSource turns rows into events: one for each mapped feature of a row, with
// the id PREFIX/ROW/FEATURE.
type csvSource struct {
	flags    recordFlags
	features []featureColumn
	reader   *csv.Reader
	bound    *rowBound
	width    int // columns
	idCol    int // -1: the row number
	timeCol  int // -1: no time
	row      int // data rows read
	shift    time.Duration
	// shiftedTo is the resolved --shift-to, empty without one.
	shiftedTo string
	rows      []csvRow // read ahead to find the latest time
	queue     []line
}

type featureColumn struct {
	feature string
	column  int
}

type csvRow struct {
	number int // line in the file
	cells  []string
	err    error
}

// newCSVSource reads the head of a file. f has been checked.
func newCSVSource(in io.Reader, f recordFlags) (*csvSource, error) {
	bound := &rowBound{r: in}
	s := &csvSource{flags: f, reader: csv.NewReader(bound), bound: bound, idCol: -1, timeCol: -1}
	s.reader.FieldsPerRecord = -1 // a row of another length is judged here
	head, err := s.reader.Read()
	if err != nil || slices.ContainsFunc(head, func(name string) bool { return !utf8.ValidString(name) }) {
		return nil, &sdk.Error{Tag: sdk.TagInvalid, Field: "FILE", Rule: "a CSV file in UTF-8 whose first row names its columns", Err: cause(err)}
	}
	for i := range head {
		head[i] = strings.TrimSpace(head[i])
	}
	s.width = len(head)
	if f.idFrom != "row" {
		if s.idCol, err = column(head, "--id-from", f.idFrom); err != nil {
			return nil, err
		}
	}
	if f.timeFrom != "" {
		if s.timeCol, err = column(head, "--time-from", f.timeFrom); err != nil {
			return nil, err
		}
	}
	for _, m := range f.mapping {
		feature, name, _ := strings.Cut(m, "=")
		c, err := column(head, "--map", name)
		if err != nil {
			return nil, err
		}
		s.features = append(s.features, featureColumn{feature, c})
	}
	if f.shiftTo != "" {
		return s, s.readAhead()
	}
	return s, nil
}

// cause is what an error adds to a message about a whole file.
func cause(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("it is empty")
	}
	return err
}

// rowMax bounds the text of one row; a quote that is never closed would
// otherwise make the rest of the file one cell.
const rowMax = 1 << 20

// rowBound fails when more than a row's worth, and what a reader reads ahead,
// was read since the last reset.
type rowBound struct {
	r io.Reader
	n int
}

var errLongRow = errors.New("a row of more than 1 MiB")

func (b *rowBound) Read(p []byte) (int, error) {
	if b.n > rowMax {
		return 0, errLongRow
	}
	n, err := b.r.Read(p)
	b.n += n
	return n, err //nolint:wrapcheck // a reader passes io.EOF on as it is
}

func (f recordFlags) checkCSV() error {
	switch {
	case f.tenant == "":
		return errors.New("--tenant: required with --format csv")
	case f.idFrom == "":
		return errors.New("--id-from: row, or the column that holds a row's id")
	case f.idFrom == "row" && f.idPrefix == "":
		return errors.New("--id-prefix: required with --id-from row, or two files would share ids")
	case len(f.mapping) == 0:
		return errors.New("--map: FEATURE=COLUMN for each feature of a row")
	case f.shiftTo != "" && f.timeFrom == "":
		return errors.New("--shift-to: needs --time-from")
	}
	seen := map[string]bool{}
	for _, m := range f.mapping {
		feature, name, ok := strings.Cut(m, "=")
		switch {
		case !ok || feature == "" || name == "":
			return errors.New("--map: FEATURE=COLUMN, separated by commas")
		case seen[feature]:
			return errors.New("--map: each feature once; a row's events would share an id")
		}
		seen[feature] = true
	}
	for flag, v := range map[string]string{"--tenant": f.tenant, "--id-prefix": f.idPrefix} {
		if !utf8.ValidString(v) {
			return errors.New(flag + ": valid UTF-8")
		}
	}
	return nil
}

func column(head []string, flag, name string) (int, error) {
	i := slices.Index(head, name)
	if i < 0 && len(head) == 1 {
		return 0, usageError{fmt.Errorf("%s: no such column; the file has only %s (commas separate columns)", flag, columnNames(head))}
	}
	if i < 0 {
		return 0, usageError{fmt.Errorf("%s: no such column; the file has %s", flag, columnNames(head))}
	}
	if slices.Contains(head[i+1:], name) {
		return 0, usageError{fmt.Errorf("%s: two columns of the file have this name; rename one", flag)}
	}
	return i, nil
}

// columnNames lists columns for a message, as many as one can read.
func columnNames(head []string) string {
	const enough = 400
	text := []rune(strings.Join(head, ", "))
	if len(text) > enough {
		return string(text[:enough]) + "…"
	}
	return string(text)
}

// readAhead reads all rows to find the latest time and how far to move.
func (s *csvSource) readAhead() error {
	target := time.Now().UTC()
	if s.flags.shiftTo != "now" {
		t, err := time.Parse(time.RFC3339Nano, s.flags.shiftTo)
		if err != nil {
			return usageError{errors.New("--shift-to: now, or an RFC 3339 time")}
		}
		target = t.UTC()
	}
	target = meter.Truncate(target)
	var latest time.Time
	for {
		row, err := s.read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if len(s.rows) == rowsMax {
			return sdk.Invalid("FILE", "at most 5000000 rows with --shift-to")
		}
		s.rows = append(s.rows, row)
		if row.err == nil {
			if t, err := parseTime(row.cells[s.timeCol]); err == nil && t.After(latest) {
				latest = t
			}
		}
	}
	if !latest.IsZero() {
		s.shift = target.Sub(latest)
	}
	s.shiftedTo = target.Format("2006-01-02T15:04:05.000000Z")
	return nil
}

// read returns the next row of the file. A row that is not CSV is a row with an
// error; only the end of the input ends it.
func (s *csvSource) read() (csvRow, error) {
	s.bound.n = 0
	cells, err := s.reader.Read()
	if errors.Is(err, io.EOF) {
		return csvRow{}, io.EOF
	}
	if errors.Is(err, errLongRow) {
		return csvRow{}, &sdk.Error{Tag: sdk.TagInvalid, Field: "row", Rule: "at most 1 MiB", Hint: "is a quote left open?"}
	}
	if bad, ok := errors.AsType[*csv.ParseError](err); ok {
		return csvRow{number: bad.Line, err: sdk.Invalid("row", "well-formed CSV: a quoted cell is quoted whole, and quotes in it are doubled")}, nil
	}
	if err != nil {
		return csvRow{}, readError(err)
	}
	n, _ := s.reader.FieldPos(0)
	row := csvRow{number: n, cells: cells}
	if len(cells) != s.width {
		// One comma too many moves every later cell under another's name.
		row.err = sdk.Invalid("row", fmt.Sprintf("as many cells as the first row, %d", s.width))
	}
	return row, nil
}

func (s *csvSource) next() (line, error) {
	for len(s.queue) == 0 {
		row, err := s.nextRow()
		if err != nil {
			return line{}, err
		}
		s.row++
		s.queue = s.events(row)
	}
	l := s.queue[0]
	s.queue = s.queue[1:]
	return l, nil
}

func (s *csvSource) nextRow() (csvRow, error) {
	if s.shiftedTo == "" {
		return s.read()
	}
	if len(s.rows) == 0 {
		return csvRow{}, io.EOF
	}
	row := s.rows[0]
	s.rows = s.rows[1:]
	return row, nil
}

// plainJSON is the plain form of one event.
type plainJSON struct {
	ID       string `json:"id"`
	Tenant   string `json:"tenant"`
	Feature  string `json:"feature"`
	Quantity string `json:"quantity"`
	Time     string `json:"time,omitempty"`
}

func (s *csvSource) events(row csvRow) []line {
	if row.err != nil {
		return []line{{number: row.number, err: row.err}}
	}
	cell := func(i int) string { return strings.TrimSpace(row.cells[i]) }
	rowID := strconv.Itoa(s.row)
	if s.idCol >= 0 {
		// Encoded as JSON, different broken bytes would become one id.
		if rowID = cell(s.idCol); rowID == "" || !utf8.ValidString(rowID) {
			return []line{{number: row.number, err: sdk.Invalid(s.flags.idFrom, "an id in valid UTF-8 in every row")}}
		}
	}
	if s.flags.idPrefix != "" {
		rowID = s.flags.idPrefix + "/" + rowID
	}
	at := ""
	if s.timeCol >= 0 {
		t, err := parseTime(cell(s.timeCol))
		if err != nil {
			return []line{{number: row.number, id: rowID, err: sdk.Invalid(s.flags.timeFrom, "a time such as 2026-11-30T12:00:00Z or 2026-11-30 12:00:00 (UTC)")}}
		}
		at = meter.Truncate(t.Add(s.shift)).Format("2006-01-02T15:04:05.000000Z")
	}
	var out []line
	for _, f := range s.features {
		e := plainJSON{ID: rowID + "/" + f.feature, Tenant: s.flags.tenant, Feature: f.feature, Quantity: cell(f.column), Time: at}
		body, err := json.Marshal(e)
		if err != nil {
			return []line{{number: row.number, id: rowID, err: err}} // strings always encode
		}
		out = append(out, line{number: row.number, id: e.ID, body: body})
	}
	return out
}

// parseTime reads RFC 3339, or a date and time in UTC as databases print it.
func parseTime(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999", "2006-01-02T15:04:05.999999999"} {
		if t, err := time.ParseInLocation(layout, text, time.UTC); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, errors.New("not a time")
}
