package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"
)

// conn is a connection with its prepared statements. One goroutine at a time.
type conn struct {
	*sqlite.Conn
	stmts [numQueries]*sqlite.Stmt
	// broken is set after a failed COMMIT: the connection is not used again.
	broken bool
	// pruning is set while retention removes rows.
	pruning bool
}

// The pages of a WAL are copied back after a commit that leaves more than
// this many; a larger WAL means fewer syncs, a smaller one less disk.
//
// The caches are small. A page of 4 KiB takes 8 KiB of the allocator below
// SQLite here, which rounds up to powers of two, and the caches of all
// connections are one pool: whoever scans fills the sum of them, and keeps it.
// The system caches the file anyway. The file is not mapped into memory: what
// is mapped counts as ours, and a disk fault would end the process.
var (
	writerPragmas = [...]string{
		"PRAGMA synchronous = FULL",
		"PRAGMA foreign_keys = ON",
		"PRAGMA recursive_triggers = ON", // REPLACE must not slip past the triggers
		"PRAGMA temp_store = MEMORY",
		"PRAGMA cache_size = -8192",
		"PRAGMA wal_autocheckpoint = 4000",
		"PRAGMA journal_size_limit = 67108864",
	}
	readerPragmas = [...]string{
		"PRAGMA query_only = ON",
		"PRAGMA temp_store = MEMORY",
		"PRAGMA cache_size = -1024",
	}
)

// openWriter opens the one connection that writes and puts the file in WAL
// mode. The file must exist: one that is gone is not replaced by an empty one.
// On failure the answer is nil.
func openWriter(path string, busy time.Duration) (*conn, error) {
	sc, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: sc}
	sc.SetBusyTimeout(busy)
	mode, err := c.pragma("PRAGMA journal_mode = WAL")
	if err == nil && mode != "wal" {
		err = errors.New("the file system does not support WAL mode")
	}
	if err == nil {
		err = c.pragmas(writerPragmas[:])
	}
	if err == nil {
		err = registerFunctions(c)
	}
	if err != nil {
		return nil, errors.Join(err, sc.Close())
	}
	return c, nil
}

// openReader opens a connection that cannot write.
func openReader(path string, busy time.Duration) (*conn, error) {
	sc, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		return nil, err
	}
	sc.SetBusyTimeout(busy)
	c := &conn{Conn: sc}
	if err := c.pragmas(readerPragmas[:]); err != nil {
		return nil, errors.Join(err, sc.Close())
	}
	return c, nil
}

func closeConn(c *conn) error {
	if c == nil {
		return nil
	}
	c.SetInterrupt(nil)
	return c.Close()
}

// pragma runs a statement of one row and answers its first column as text.
func (c *conn) pragma(text string) (string, error) {
	s, _, err := c.PrepareTransient(text)
	if err != nil {
		return "", err
	}
	defer func() { _ = s.Finalize() }() // it repeats what Step said
	if _, err := s.Step(); err != nil {
		return "", err
	}
	return s.ColumnText(0), nil
}

func (c *conn) pragmas(texts []string) error {
	for _, text := range texts {
		if _, err := c.pragma(text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return nil
}

// stmt answers the prepared statement, reset.
func (c *conn) stmt(q query) (*sqlite.Stmt, error) {
	if s := c.stmts[q]; s != nil {
		_ = s.Reset() // repeats the error of its last step, reported then
		return s, nil
	}
	text, err := q.text()
	if err != nil {
		return nil, err
	}
	s, err := c.Prepare(text)
	if err != nil {
		return nil, fmt.Errorf("prepare %s: %w", queryFiles[q], err)
	}
	c.stmts[q] = s
	return s, nil
}

// run executes a statement without values or rows.
func (c *conn) run(q query) error {
	_, err := c.bind(q).run()
	return err
}

// acquire takes a connection from a pool, opening it when its slot is empty.
// For the writer, and before it opens one, it checks that the file is still
// the one that is held.
func (a *Adapter) acquire(ctx context.Context, pool chan *conn, open func(string, time.Duration) (*conn, error)) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case <-a.closing:
		return nil, errClosed
	default:
	}
	var c *conn
	select {
	case c = <-pool:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-a.closing:
		return nil, errClosed
	}
	if c == nil || pool == a.writer {
		if err := a.held.check(a.path); err != nil {
			pool <- c
			return nil, err
		}
	}
	if c == nil {
		var err error
		if c, err = open(a.path, a.cfg.BusyTimeout); err != nil {
			pool <- nil
			return nil, err
		}
	}
	c.SetInterrupt(ctx.Done())
	return c, nil
}

// release gives a connection back, or drops it when it is not in the state in
// which it was taken.
func (a *Adapter) release(pool chan *conn, c *conn) {
	c.SetInterrupt(nil)
	if !c.AutocommitEnabled() {
		if err := c.run(qRollback); err != nil || !c.AutocommitEnabled() {
			c.broken = true
		}
	}
	if c.broken {
		a.cfg.Logger.Warn("connection replaced after a fault", "close_error", closeConn(c))
		c = nil
	}
	pool <- c
}

// read runs f on a reader, in one snapshot.
func (a *Adapter) read(ctx context.Context, op string, f func(*conn) error) error {
	if err := a.schemaProblem(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	c, err := a.acquire(ctx, a.readers, openReader)
	if err != nil {
		return storeError(ctx, op, err)
	}
	defer a.release(a.readers, c)
	if err := c.run(qBeginRead); err != nil {
		return storeError(ctx, op, err)
	}
	if err := f(c); err != nil {
		return storeError(ctx, op, err)
	}
	return nil
}
