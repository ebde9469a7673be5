package sql

import (
	"context"
	"errors"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"modernc.org/sqlite"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// meaning is what a database's own code says, for every database alike.
type meaning struct {
	tag  sdk.Tag
	code string
}

var (
	unique     = meaning{sdk.TagConflict, "unique_violation"}
	foreignKey = meaning{sdk.TagConflict, "foreign_key"}
	// What can be tried again: the transaction is gone.
	serialization = meaning{sdk.TagUnavailable, "serialization"}
	deadlock      = meaning{sdk.TagUnavailable, "deadlock"}
	lockTimeout   = meaning{sdk.TagUnavailable, "lock_timeout"}
	connection    = meaning{sdk.TagUnavailable, "connection"}
	timeout       = meaning{sdk.TagUnavailable, "timeout"}
	// What will fail again.
	checkFailed  = meaning{sdk.TagInvalid, "check_violation"}
	notNull      = meaning{sdk.TagInvalid, "not_null"}
	outOfRange   = meaning{sdk.TagInvalid, "out_of_range"}
	raised       = meaning{sdk.TagInvalid, "raised"}
	syntax       = meaning{sdk.TagInvalid, "syntax"}
	missingTable = meaning{sdk.TagNotFound, "missing_table"}
	other        = meaning{sdk.TagUnavailable, "database"}
)

// MySQL and MariaDB, by error number.
var mysqlMeanings = map[uint16]meaning{
	1062: unique, 1586: unique, 1216: foreignKey, 1217: foreignKey, 1451: foreignKey, 1452: foreignKey,
	1020: serialization, 1213: deadlock, 1205: lockTimeout, 3572: lockTimeout,
	3819: checkFailed, 4025: checkFailed, 1048: notNull, 1364: notNull, 1264: outOfRange, 1406: outOfRange, 1690: outOfRange, 1366: outOfRange,
	1644: raised, 1064: syntax, 1054: syntax, 1146: missingTable,
	1317: timeout, 3024: timeout, 1969: timeout, 1040: connection, 1053: connection, 1927: connection,
}

// PostgreSQL, by SQLSTATE.
var postgresMeanings = map[string]meaning{
	"23505": unique, "23503": foreignKey, "40001": serialization, "40P01": deadlock, "55P03": lockTimeout,
	"23514": checkFailed, "23502": notNull, "22003": outOfRange, "22001": outOfRange, "22P02": outOfRange, "P0001": raised,
	"42601": syntax, "42703": syntax, "42P01": missingTable, "57014": timeout, "57P01": connection, "57P03": connection, "53300": connection,
}

// SQLite, by extended result code.
var sqliteMeanings = map[int]meaning{
	2067: unique, 1555: unique, 787: foreignKey, 275: checkFailed, 1299: notNull, 1811: raised, 3091: raised,
	5: lockTimeout, 517: serialization, 261: lockTimeout, 6: lockTimeout, 25: outOfRange,
}

// sqliteTooBig is SQLITE_TOOBIG: a value beyond the limit of its length.
const sqliteTooBig = 18

// classify gives an error its tag and code. Nothing of the transaction is
// stored: the caller rolls it back. What a database says may repeat values of
// the plugin's own statement; it goes to the plugin and nowhere else.
func (d *Database) classify(err error) *sdk.Error {
	if tagged, ok := errors.AsType[*sdk.Error](err); ok {
		return tagged
	}
	if _, ok := errors.AsType[*pgproto3.ExceededMaxBodyLenErr](err); ok {
		return tooLarge()
	}
	if lite, ok := errors.AsType[*sqlite.Error](err); ok && lite.Code() == sqliteTooBig {
		return tooLarge()
	}
	m := connection // whatever is no answer of the database
	if my, ok := errors.AsType[*mysql.MySQLError](err); ok {
		m = known(mysqlMeanings, my.Number)
	} else if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		m = known(postgresMeanings, pg.Code)
	} else if lite, ok := errors.AsType[*sqlite.Error](err); ok {
		m = known(sqliteMeanings, lite.Code())
		if m == other && lite.Code() == 1 {
			m = syntax
			if strings.Contains(lite.Error(), "no such table") {
				m = missingTable
			}
		}
	} else if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		m = timeout
	}
	return &sdk.Error{Tag: m.tag, Code: m.code, Err: err}
}

func known[K comparable](meanings map[K]meaning, code K) meaning {
	if m, ok := meanings[code]; ok {
		return m
	}
	return other
}

// commitError is for a commit that failed. Only a database that says why has
// surely not committed.
func (d *Database) commitError(err error) *sdk.Error {
	e := d.classify(err)
	_, my := errors.AsType[*mysql.MySQLError](err)
	_, pg := errors.AsType[*pgconn.PgError](err)
	_, lite := errors.AsType[*sqlite.Error](err)
	if (my || pg || lite) && e.Code != connection.code && e.Code != timeout.code && e.Code != other.code {
		return e
	}
	return sdk.Unavailable("commit_unknown", err)
}
