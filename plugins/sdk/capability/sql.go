package capability

import "context"

// SQL runs statements on a database that the operator named, in transactions
// that the host holds. The plugin brings a dialect; the driver, the pool, the
// credentials and TLS are the host's. A transaction ends with the plugin's
// call at the latest: what was not committed by then is rolled back, and so it
// is if the plugin breaks off or its deadline passes.
type SQL interface {
	// Do performs one piece of work. After any error the transaction is over
	// and nothing of it is stored, with one exception: a commit whose answer
	// was lost fails with code commit_unknown, tagged unavailable, and may
	// have happened.
	//
	// Errors have a tag and a code that is the same for every database:
	// unique_violation and foreign_key (conflict), serialization, deadlock,
	// lock_timeout, connection and timeout (unavailable: nothing is stored,
	// try again), check_violation, not_null, out_of_range, raised (by a
	// trigger), syntax, result_too_large and statement_refused (invalid),
	// missing_table (not_found). Item is the statement's place plus one.
	Do(ctx context.Context, work Work) (Done, error)
}

// Work is statements of one transaction.
type Work struct {
	// Transaction goes on with an open one; 0 begins another.
	Transaction int64
	// ReadOnly and Isolation are of a transaction that begins.
	ReadOnly  bool
	Isolation Isolation
	// Statements run in order; the first that fails ends the transaction.
	Statements []Statement
	// End says what becomes of the transaction after the statements.
	End End
}

// Isolation is how a transaction sees others.
type Isolation string

// Isolations. The zero value is read committed.
const (
	ReadCommitted  Isolation = ""
	RepeatableRead Isolation = "repeatable_read"
	Serializable   Isolation = "serializable"
)

// End is what becomes of a transaction.
type End string

// Ends. The zero value leaves it open.
const (
	LeaveOpen End = ""
	Commit    End = "commit"
	Rollback  End = "rollback"
)

// Statement is one statement with its arguments, which the host binds and
// never formats. Statements that begin, end or mark transactions are refused.
type Statement struct {
	SQL string
	// Args are nil, bool, int64, string, []byte or time.Time, in the places
	// that the database's own placeholders name. A time has microseconds.
	Args []any
	// Rows says that it returns rows.
	Rows bool
}

// Done answers Work.
type Done struct {
	// Transaction names one that is left open; 0 if it has ended.
	Transaction int64
	Results     []Result
}

// Result is what one statement did.
type Result struct {
	// Affected is the number of rows that it changed, LastID the last number
	// that the database made for one of them, 0 if it made none. Both are 0 of
	// a statement that returns rows.
	Affected, LastID int64
	// Columns and Rows are what it returned. A value is nil, bool, int64,
	// string, []byte or time.Time in UTC; decimals are strings.
	Columns []string
	Rows    [][]any
}
