package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// timed runs each query outside of a transaction and tells the server, in the
// same round trip, when to give up.
type timed struct {
	*pgxpool.Conn
	timeout string // the statement that sets the timeout
}

func (c timed) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	b := &pgx.Batch{}
	b.Queue(c.timeout, statementTimeout(ctx))
	b.Queue(sql, args...)
	r := c.SendBatch(ctx, b)
	if _, err := r.Exec(); err != nil {
		_ = r.Close() // says the same again
		return nil, err
	}
	rows, err := r.Query()
	if err != nil {
		_ = r.Close()
		return nil, err
	}
	return &timedRows{Rows: rows, batch: r}, nil
}

// timedRows are the rows of the last statement of a batch.
type timedRows struct {
	pgx.Rows
	batch  pgx.BatchResults
	closed bool
	err    error
}

func (r *timedRows) Close() {
	if r.closed {
		return
	}
	r.closed = true
	r.Rows.Close()
	r.err = r.batch.Close()
}

// Next closes the rows after the last one, as the rows of a plain query do.
func (r *timedRows) Next() bool {
	if !r.closed && r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *timedRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.err
}
