package mysql

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
)

// tx is one transaction. What it is told to write is kept until something has
// to be read, or the commit: most calls are two exchanges with the database.
type tx struct {
	ctx   context.Context //nolint:containedctx // of the call: the transaction ends with it
	sql   capability.SQL
	id    int64
	start capability.Work // isolation of the first exchange
	// now is the store's clock, read once the lock was held.
	now   time.Time
	state state
	// moved says that state is to be written.
	moved   bool
	pending []write
	size    int // of pending, roughly
}

// state is the row of fencepost_state.
type state struct {
	store                                         string
	routes, lastEvent, lastItem, claims, restores int64
	lastBeat, through                             time.Time
}

// write is a statement that changes rows, and how many; anyRows: as it comes.
type write struct {
	capability.Statement
	rows int64
	// tuple is the list of places of an insert of one row, which takes further
	// rows: (?, ?, ?).
	tuple string
}

// maxTuples is how many rows are inserted in one statement.
const maxTuples = 200

// text is the statement with as many places as it has rows.
func (w *write) text() string {
	if w.tuple == "" || w.rows == 1 {
		return w.SQL
	}
	return w.SQL + strings.Repeat(", "+w.tuple, int(w.rows)-1)
}

const anyRows = -1

// Bounds of one exchange, well within those of the capability.
const (
	maxPending     = 200
	maxPendingSize = 1 << 20
	// maxPage is how many rows one statement returns: the capability gives
	// 10,000 for all of an exchange.
	maxPage = 4_000
)

// errUndo rolls back while what the call answers stands.
var errUndo = errors.New("undo")

// tries is how often a transaction is made that the database gave up itself,
// with nothing stored.
const tries = 4

// write runs f between the lock and the commit.
func (a *Adapter) write(ctx context.Context, op string, f func(*tx) error) error {
	return a.writeAfter(ctx, op, nil, func(t *tx, _ []result) error { return f(t) })
}

// writeAfter is write with statements that are read with the lock, in the same
// exchange.
func (a *Adapter) writeAfter(ctx context.Context, op string, first []capability.Statement, f func(*tx, []result) error) error {
	done, err := a.use(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	defer done()
	for try := 1; ; try++ {
		t := &tx{ctx: ctx, sql: a.sql}
		err := t.locked(first, f)
		if err == nil || errors.Is(err, errUndo) {
			return nil
		}
		if try < tries && again(err) && ctx.Err() == nil {
			continue
		}
		return fmt.Errorf("%s: %w", op, tagged(ctx, err))
	}
}

const (
	lockState = "SELECT store, routes_revision, last_event, last_item, claims, restores, last_beat, restored_through FROM fencepost_state WHERE scope = 1 FOR UPDATE"
	putState  = "UPDATE fencepost_state SET routes_revision = ?, last_event = ?, last_item = ?, claims = ?, restores = ?, last_beat = ?, restored_through = ? WHERE scope = 1"
)

func (t *tx) locked(first []capability.Statement, f func(*tx, []result) error) (err error) {
	defer func() {
		if err != nil {
			t.rollback()
		}
	}()
	// A statement's clock is that of its start: it is read after the lock.
	results, err := t.do(append([]capability.Statement{read(lockState), read("SELECT UTC_TIMESTAMP(6)")}, first...), capability.LeaveOpen)
	if err != nil {
		return err
	}
	if err := results[0].each(t.readState); err != nil {
		return err
	}
	if err := results[1].each(func(r *row) { t.now = r.time() }); err != nil {
		return err
	}
	if t.state.store == "" {
		return &sdk.Error{Tag: sdk.TagUnavailable, Code: "schema_missing", Rule: "a store with the fencepost schema", Hint: migrateHint}
	}
	if err := f(t, results[2:]); err != nil {
		return err
	}
	return t.commit()
}

func (t *tx) readState(r *row) {
	s := &t.state
	s.store, s.routes, s.lastEvent, s.lastItem, s.claims, s.restores, s.lastBeat, s.through = r.text(), r.int(), r.int(), r.int(), r.int(), r.int(), r.time(), r.time()
}

// commit writes what is kept and ends the transaction.
func (t *tx) commit() error {
	if s := &t.state; t.moved {
		t.exec(1, putState, s.routes, s.lastEvent, s.lastItem, s.claims, s.restores, s.lastBeat, s.through)
	}
	return t.flush(capability.Commit)
}

// rollback is for a transaction that may have ended already.
func (t *tx) rollback() {
	if t.id != 0 {
		_, _ = t.sql.Do(t.ctx, capability.Work{Transaction: t.id, End: capability.Rollback}) // the host rolls back anyway when the call ends
		t.id = 0
	}
}

// exec keeps a statement that changes so many rows. Rows that are inserted one
// after another go in together.
func (t *tx) exec(rows int64, text string, args ...any) {
	w := write{Statement: capability.Statement{SQL: text, Args: values(args)}, rows: rows}
	t.size += sizeOf(w.Statement)
	if at := strings.LastIndex(text, " VALUES ("); rows == 1 && inserts(text) && at > 0 && !strings.Contains(text, " ON ") {
		w.tuple = text[at+len(" VALUES "):]
		if n := len(t.pending); n > 0 && t.pending[n-1].SQL == text && t.pending[n-1].tuple != "" && t.pending[n-1].rows < maxTuples {
			last := &t.pending[n-1]
			last.Args = append(last.Args, w.Args...)
			last.rows++
			return
		}
	}
	t.pending = append(t.pending, w)
}

// room sends what is kept if it is much.
func (t *tx) room() error {
	if len(t.pending) < maxPending && t.size < maxPendingSize {
		return nil
	}
	return t.flush(capability.LeaveOpen)
}

// flush sends what is kept, and checks what it changed.
func (t *tx) flush(end capability.End) error {
	for len(t.pending) > maxPending {
		if err := t.send(t.pending[:maxPending], capability.LeaveOpen); err != nil {
			return err
		}
		t.pending = t.pending[maxPending:]
	}
	if len(t.pending) == 0 && end == capability.LeaveOpen {
		return nil
	}
	err := t.send(t.pending, end)
	t.pending, t.size = nil, 0
	return err
}

func (t *tx) send(list []write, end capability.End) error {
	statements := make([]capability.Statement, len(list))
	for i := range list {
		statements[i] = capability.Statement{SQL: list[i].text(), Args: list[i].Args}
	}
	if end == capability.Commit && !t.sure(list) {
		// What was changed is checked before it is committed.
		if err := t.send(list, capability.LeaveOpen); err != nil {
			return err
		}
		list, statements = nil, nil
	}
	results, err := t.do(statements, end)
	if err != nil {
		return err
	}
	for i := range list {
		if got := results[i].affected; list[i].rows != anyRows && got != list[i].rows {
			return sdk.Unavailable("store_changed", fmt.Errorf("a statement changed %d rows, not %d", got, list[i].rows))
		}
	}
	return nil
}

// sure reports whether nothing has to be checked between the statements and the
// commit: an insert that does not fail has inserted.
func (t *tx) sure(list []write) bool {
	for i := range list {
		if list[i].rows != anyRows && !inserts(list[i].SQL) && list[i].SQL != putState {
			return false
		}
	}
	return true
}

func inserts(text string) bool { return len(text) > 6 && text[:6] == "INSERT" }

// do performs statements in the transaction, which begins with the first.
func (t *tx) do(list []capability.Statement, end capability.End) ([]result, error) {
	if err := t.ctx.Err(); err != nil {
		return nil, err
	}
	w := t.start
	w.Transaction, w.Statements, w.End = t.id, list, end
	done, err := t.sql.Do(t.ctx, w)
	if err != nil {
		t.id = 0 // it is over
		return nil, err
	}
	t.id = done.Transaction
	results := make([]result, len(done.Results))
	for i, r := range done.Results {
		results[i] = result{rows: r.Rows, affected: r.Affected}
	}
	return results, nil
}

// query sends what is kept, reads, and calls f for every row.
func (t *tx) query(f func(*row), text string, args ...any) error {
	results, err := t.queries(read(text, args...))
	if err != nil {
		return err
	}
	return results[0].each(f)
}

// queries sends what is kept and reads.
func (t *tx) queries(list ...capability.Statement) ([]result, error) {
	if err := t.flush(capability.LeaveOpen); err != nil {
		return nil, err
	}
	return t.do(list, capability.LeaveOpen)
}

// read is one snapshot without a lock, for statements that are known before.
func (a *Adapter) read(ctx context.Context, op string, f func([]result) error, list ...capability.Statement) error {
	done, err := a.use(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	defer done()
	t := &tx{ctx: ctx, sql: a.sql, start: capability.Work{ReadOnly: true, Isolation: capability.RepeatableRead}}
	results, err := t.do(list, capability.Commit)
	if err == nil {
		err = f(results)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", op, tagged(ctx, err))
	}
	return nil
}

// scan is one snapshot without a lock, for what is read in pages.
func (a *Adapter) scan(ctx context.Context, op string, f func(*tx) error) error {
	done, err := a.use(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	defer done()
	t := &tx{ctx: ctx, sql: a.sql, start: capability.Work{ReadOnly: true, Isolation: capability.RepeatableRead}}
	defer t.rollback()
	if err := f(t); err != nil {
		return fmt.Errorf("%s: %w", op, tagged(ctx, err))
	}
	return nil
}
