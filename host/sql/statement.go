package sql

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
)

// Bounds on what one piece of work returns.
const (
	maxRows  = 10_000
	maxBytes = 8 << 20
)

// allowed are the words that a statement may begin with. Others could end the
// transaction, change the connection for those who use it later, or reach files.
var allowed = map[string]bool{
	"SELECT": true, "INSERT": true, "UPDATE": true, "DELETE": true, "REPLACE": true, "WITH": true, "VALUES": true,
	"TABLE": true, "MERGE": true, "CREATE": true, "ALTER": true, "DROP": true, "EXPLAIN": true, "SHOW": true,
}

// check refuses work that is not of the documented shape.
func check(w capability.Work) error {
	switch w.Isolation {
	case capability.ReadCommitted, capability.RepeatableRead, capability.Serializable:
	default:
		return sdk.Invalid("isolation", "repeatable_read, serializable or nothing")
	}
	switch w.End {
	case capability.LeaveOpen, capability.Commit, capability.Rollback:
	default:
		return sdk.Invalid("end", "commit, rollback or nothing")
	}
	for i, s := range w.Statements {
		if rule := refused(s.SQL); rule != "" {
			e := sdk.Invalid(fmt.Sprintf("statements[%d].sql", i), rule)
			e.Code = "statement_refused"
			return e.At(i)
		}
	}
	return nil
}

// refused says which rule a statement breaks, or nothing.
func refused(text string) string {
	first, trigger, end, rest := scan(text)
	switch {
	case strings.Contains(text, "/*!"), strings.Contains(text, "/*M!"):
		return "no comments that a database executes"
	case !allowed[first]:
		return "begins with SELECT, INSERT, UPDATE, DELETE, REPLACE, WITH, VALUES, TABLE, MERGE, CREATE, ALTER, DROP, EXPLAIN or SHOW"
	case rest && !(trigger && end):
		return "one statement; values are arguments"
	}
	return ""
}

// scan returns a statement's first word, whether it creates a trigger, whether
// its last word is END, and whether anything follows a semicolon. Quoted text
// and comments are passed over by the rules that SQLite has, where alone a
// second statement would run; the others refuse it themselves.
func scan(text string) (first string, trigger, end, rest bool) {
	var words []string
	last, after := "", false
	for len(text) > 0 {
		switch c := text[0]; {
		case strings.HasPrefix(text, "--"):
			_, text, _ = strings.Cut(text, "\n")
			continue
		case strings.HasPrefix(text, "/*"):
			_, text, _ = strings.Cut(text[2:], "*/")
			continue
		case c == '\'' || c == '"' || c == '`':
			_, text, _ = strings.Cut(text[1:], string(c)) // a doubled quote begins the next piece
			last, rest = "", rest || after
			continue
		case c == ';':
			after = true
		case c == '_' || c >= 0x80 || unicode.IsLetter(rune(c)):
			n := strings.IndexFunc(text, func(r rune) bool { return r != '_' && r < 0x80 && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
			if n < 0 {
				n = len(text)
			}
			last, rest = strings.ToUpper(text[:n]), rest || after
			if len(words) < 4 {
				words = append(words, last)
			}
			text = text[n:]
			continue
		case c != ' ' && c != '\t' && c != '\n' && c != '\r' && c != '(':
			last, rest = "", rest || after
		}
		text = text[1:]
	}
	if len(words) == 0 {
		return "", false, false, rest
	}
	if words[0] == "CREATE" {
		for _, w := range words[1:] {
			trigger = trigger || w == "TRIGGER"
		}
	}
	return words[0], trigger, last == "END", rest
}

// budget is what one piece of work may still return.
type budget struct{ rows, bytes int }

func tooLarge() *sdk.Error {
	return &sdk.Error{
		Tag: sdk.TagInvalid, Code: "result_too_large", Field: "statements",
		Rule: fmt.Sprintf("at most %d rows and %d bytes for one piece of work", maxRows, maxBytes),
	}
}

// run executes the statements in order until one fails.
func (d *Database) run(ctx context.Context, tx *sql.Tx, list []capability.Statement) ([]capability.Result, error) {
	left := budget{maxRows, maxBytes}
	results := make([]capability.Result, len(list))
	for i, s := range list {
		err := d.one(ctx, tx, s, &results[i], &left)
		if err != nil {
			return nil, d.classify(err).At(i)
		}
	}
	return results, nil
}

func (d *Database) one(ctx context.Context, tx *sql.Tx, s capability.Statement, r *capability.Result, left *budget) error {
	if s.Rows {
		return d.query(ctx, tx, s, r, left)
	}
	res, err := tx.ExecContext(ctx, s.SQL, s.Args...)
	if err != nil {
		return err
	}
	if r.Affected, err = res.RowsAffected(); err != nil {
		return err
	}
	if d.kind != kindPostgres { // which has no such number
		r.LastID, err = res.LastInsertId()
	}
	return err
}

func (d *Database) query(ctx context.Context, tx *sql.Tx, s capability.Statement, r *capability.Result, left *budget) (err error) {
	rows, err := tx.QueryContext(ctx, s.SQL, s.Args...)
	if err != nil {
		return err
	}
	defer func() {
		if closed := rows.Close(); err == nil {
			err = closed
		}
	}()
	types, err := rows.ColumnTypes()
	if err != nil {
		return err
	}
	for _, t := range types {
		r.Columns = append(r.Columns, t.Name())
	}
	for rows.Next() {
		cells := make([]any, len(types))
		into := make([]any, len(types))
		for i := range cells {
			into[i] = &cells[i]
		}
		if err := rows.Scan(into...); err != nil {
			return err
		}
		for i := range cells {
			if cells[i], err = value(cells[i], types[i].DatabaseTypeName()); err != nil {
				return err
			}
			left.bytes -= size(cells[i])
		}
		if left.rows--; left.rows < 0 || left.bytes < 0 {
			return tooLarge()
		}
		r.Rows = append(r.Rows, cells)
	}
	return rows.Err()
}

func size(v any) int {
	switch v := v.(type) {
	case string:
		return len(v)
	case []byte:
		return len(v)
	}
	return 8
}

// value makes what a driver returns one of the capability's types. Binary
// fractions become text, exactly as the database would print them.
func value(v any, typeName string) (any, error) {
	switch v := v.(type) {
	case nil, bool, int64, string:
		return v, nil
	case time.Time:
		return v.UTC(), nil
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64), nil
	case float32:
		return strconv.FormatFloat(float64(v), 'g', -1, 32), nil
	case uint64:
		if v <= 1<<63-1 {
			return int64(v), nil
		}
		return strconv.FormatUint(v, 10), nil
	case []byte:
		return bytesValue(v, typeName), nil
	case fmt.Stringer:
		return v.String(), nil
	}
	return nil, fmt.Errorf("a value of type %T (%s): cast it in the statement", v, typeName)
}

// bytesValue: MySQL returns text of every type as bytes.
func bytesValue(v []byte, typeName string) any {
	name := strings.TrimPrefix(strings.ToUpper(typeName), "UNSIGNED ")
	switch name {
	case "TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "YEAR":
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return n
		}
		return string(v)
	case "BINARY", "VARBINARY", "BLOB", "TINYBLOB", "MEDIUMBLOB", "LONGBLOB", "BIT", "BYTEA", "GEOMETRY", "":
		return append([]byte{}, v...)
	}
	return string(v)
}
