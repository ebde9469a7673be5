package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"
)

// listing is what a command prints: rows for people, data for programs.
type listing struct {
	columns []string
	rows    [][]string
	// data is the whole answer for -o json; items its lines for -o jsonl.
	data  any
	items []any
}

// print writes l in the format the user chose.
func (a *app) print(l listing) error {
	switch a.output {
	case "json":
		return writeJSON(a.out, l.data)
	case "jsonl":
		for _, item := range l.items {
			if err := encodeJSON(a.out, item, ""); err != nil {
				return err
			}
		}
		return nil
	case "csv":
		w := csv.NewWriter(a.out)
		if err := w.Write(l.columns); err != nil {
			return fmt.Errorf("write csv: %w", err)
		}
		for _, row := range l.rows {
			safe := make([]string, len(row))
			for i, cell := range row {
				safe[i] = csvCell(cell)
			}
			if err := w.Write(safe); err != nil {
				return fmt.Errorf("write csv: %w", err)
			}
		}
		w.Flush()
		if err := w.Error(); err != nil {
			return fmt.Errorf("write csv: %w", err)
		}
		return nil
	}
	return writeTable(a.out, l.columns, l.rows)
}

func writeJSON(w io.Writer, v any) error { return encodeJSON(w, v, "  ") }

// encodeJSON writes v and a line end. Characters that the encoder passes on and
// a terminal acts upon are written as escapes: the same JSON, and harmless.
func encodeJSON(w io.Writer, v any, indent string) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode json: %w", err)
	}
	if _, err := w.Write(escapeControls(b.Bytes())); err != nil {
		return fmt.Errorf("write json: %w", err)
	}
	return nil
}

// escapeControls escapes what is left of control and direction characters in
// encoded JSON; outside of strings there is none but white space.
func escapeControls(text []byte) []byte {
	acts := func(r rune) bool { return r >= 0x7f && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) }
	if !bytes.ContainsFunc(text, acts) {
		return text
	}
	var b bytes.Buffer
	for _, r := range string(text) {
		if acts(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.Bytes()
}

func writeTable(w io.Writer, columns []string, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(cells []string) {
		clean := make([]string, len(cells))
		for i, c := range cells {
			clean[i] = tableCell(c)
		}
		fmt.Fprintln(tw, strings.Join(clean, "\t"))
	}
	line(columns)
	for _, row := range rows {
		line(row)
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// visible makes text safe for a terminal: no control character and nothing that
// turns the direction of writing, so that no event id can move the cursor,
// recolour the screen or show another order of characters than it has.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// tableCell is visible text with a sign for none, from which a text that is that
// sign is told apart by quotes.
func tableCell(s string) string {
	switch s {
	case "":
		return "-"
	case "-":
		return `"-"`
	}
	return visible(s)
}

// groupCell is the value of a dimension, empty if there is none; an empty value
// is shown by quotes.
func groupCell(value *string) string {
	if value != nil && *value == "" {
		return `""`
	}
	return text(value)
}

// csvCell is visible text that no spreadsheet takes for a formula. A number is
// left alone. Programs that need every byte read JSON.
func csvCell(s string) string {
	s = visible(s)
	if s == "" {
		return s
	}
	switch first, size := utf8.DecodeRuneInString(s); first {
	case '=', '@', '\uff1d', '\uff20', '\uff0b', '\uff0d': // and their wide forms
		return "'" + s
	case '+', '-':
		if !plainNumber(s[size:]) {
			return "'" + s
		}
	}
	return s
}

// plainNumber reports whether s is digits with at most one point among them.
func plainNumber(s string) bool {
	whole, fraction, _ := strings.Cut(s, ".")
	digits := whole + fraction
	return digits != "" && strings.Trim(digits, "0123456789") == ""
}
