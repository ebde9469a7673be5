package sql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

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
func check(k kind, w capability.Work) error {
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
		if rule := refused(k, s.SQL); rule != "" {
			e := sdk.Invalid(fmt.Sprintf("statements[%d].sql", i), rule)
			e.Code = "statement_refused"
			return e.At(i)
		}
	}
	return nil
}

// refused says which rule a statement breaks, or nothing.
func refused(k kind, text string) string {
	is := scan(k, text)
	switch {
	case strings.Contains(text, "/*!"), strings.Contains(text, "/*M!"):
		return "no comments that a database executes"
	case k == kindMySQL && reaching.MatchString(text):
		return "without OUTFILE, DUMPFILE, LOAD_FILE, GET_LOCK and TEMPORARY"
	case !allowed[is.first]:
		return "begins with SELECT, INSERT, UPDATE, DELETE, REPLACE, WITH, VALUES, TABLE, MERGE, CREATE, ALTER, DROP, EXPLAIN or SHOW"
	case is.odd:
		return "quotes and comments closed, no NUL, and ? for arguments on SQLite"
	case is.rest:
		return "one statement; values are arguments"
	}
	return ""
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
	res, err := d.exec(ctx, tx, s)
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

// exec never takes PostgreSQL's simple protocol, as pgx does without arguments:
// it would run several statements. One that is prepared the server takes alone.
func (d *Database) exec(ctx context.Context, tx *sql.Tx, s capability.Statement) (sql.Result, error) {
	if d.kind != kindPostgres || len(s.Args) > 0 {
		return tx.ExecContext(ctx, s.SQL, s.Args...)
	}
	p, err := tx.PrepareContext(ctx, s.SQL)
	if err != nil {
		return nil, err
	}
	res, err := p.ExecContext(ctx)
	return res, errors.Join(err, p.Close())
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

// cellBytes is what a value takes beside its bytes: an interface, what it points
// to, and its place in the answer.
const cellBytes = 48

func size(v any) int {
	switch v := v.(type) {
	case string:
		return cellBytes + len(v)
	case []byte:
		return cellBytes + len(v)
	}
	return cellBytes
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
