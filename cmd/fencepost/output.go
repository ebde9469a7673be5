package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
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
		enc := json.NewEncoder(a.out)
		enc.SetEscapeHTML(false)
		for _, item := range l.items {
			if err := enc.Encode(item); err != nil {
				return fmt.Errorf("write line: %w", err)
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

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write json: %w", err)
	}
	return nil
}

func writeTable(w io.Writer, columns []string, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(cells []string) {
		clean := make([]string, len(cells))
		for i, c := range cells {
			clean[i] = visible(c)
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

// visible makes a cell safe for a terminal: no control character, so no escape
// sequence hidden in an event id can move the cursor or recolour the screen.
func visible(s string) string {
	if s == "" {
		return "-"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || (r >= 0x7f && r < 0xa0) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// csvCell keeps a spreadsheet from taking a cell for a formula. A number is
// left alone.
func csvCell(s string) string {
	if s == "" {
		return s
	}
	switch s[0] {
	case '=', '@', '\t', '\r':
		return "'" + s
	case '+', '-':
		if strings.Trim(s[1:], "0123456789.") == "" && len(s) > 1 {
			return s
		}
		return "'" + s
	}
	return s
}
