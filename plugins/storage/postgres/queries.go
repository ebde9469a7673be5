package postgres

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

// sqlFS holds one statement per file. Every value is bound; {schema} is the
// only thing that is ever replaced.
//
//go:embed sql/*.sql
var sqlFS embed.FS

// query names a statement: sql/<name>.sql. A test prepares every file, and
// finds the file of every constant.
type query string

// statements are the texts by name, with the schema put in.
type statements map[query]string

// loadStatements reads all of them. schema must have been checked.
func loadStatements(schema string) (statements, error) {
	files, err := fs.Glob(sqlFS, "sql/*.sql")
	if err != nil {
		return nil, err
	}
	all := make(statements, len(files))
	for _, file := range files {
		b, err := sqlFS.ReadFile(file)
		if err != nil {
			return nil, err
		}
		name := query(strings.TrimSuffix(strings.TrimPrefix(file, "sql/"), ".sql"))
		all[name] = withSchema(string(b), schema)
	}
	return all, nil
}

func withSchema(text, schema string) string { return strings.ReplaceAll(text, "{schema}", schema) }

// text answers a statement.
func (s statements) text(q query) (string, error) {
	text, ok := s[q]
	if !ok {
		return "", fmt.Errorf("no statement %s", q)
	}
	return text, nil
}

const (
	qBegin            query = "begin"
	qBeginSnapshot    query = "begin_snapshot"
	qCommit           query = "commit"
	qRollback         query = "rollback"
	qStatementTimeout query = "statement_timeout"
	qLockTimeout      query = "lock_timeout"
	qLockTimeoutNow   query = "lock_timeout_now"
	qLockShared       query = "lock_shared"
	qLockExclusive    query = "lock_exclusive"
	qPing             query = "ping"
)
