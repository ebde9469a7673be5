package stripedouble

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// ledgerFile is the name of the ledger in [Config.Dir].
const ledgerFile = "ledger.jsonl"

// maxLineBytes is more than a record can take: what a request may send is less
// than half of it, even if every byte is escaped.
const maxLineBytes = 16 << 20

// The kinds of a journal record.
const (
	opCharge = "charge" // the identifier was charged
	opRepeat = "repeat" // the identifier was refused as a repeat
	opAnswer = "answer" // an execution that concerned no identifier's charge
	opClock  = "clock"  // the clock was moved
	opCancel = "cancel" // a charge was cancelled
	opReject = "reject" // a charge was not counted after all
	opReport = "report" // an error report, Body, of the name Identifier
	opSent   = "sent"   // a report was delivered
)

// record is one line of the ledger: one execution and what it answered, so
// that a charge and the answer stored for it are written together or not at
// all.
type record struct {
	Op string `json:"op"`
	At int64  `json:"at"` // microseconds since the epoch, by the double's clock

	Account    string `json:"account,omitempty"`
	Live       bool   `json:"live,omitempty"`
	Identifier string `json:"identifier,omitempty"`
	EventName  string `json:"event_name,omitempty"`
	Customer   string `json:"customer,omitempty"`
	Value      string `json:"value,omitempty"`
	Timestamp  int64  `json:"timestamp,omitempty"`

	// Key is the Idempotency-Key under which Status and Body are stored.
	Key         string `json:"key,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	Status      int    `json:"status,omitempty"`
	Body        string `json:"body,omitempty"`
	NoRetry     bool   `json:"no_retry,omitempty"`
	RequestID   string `json:"request_id,omitempty"`

	Advance int64 `json:"advance,omitempty"` // nanoseconds, of opClock

	// Of a charge: why and when (microseconds) it will not be counted, and
	// that no summary has it. Code is also that of opReject.
	Code   string `json:"code,omitempty"`
	LateAt int64  `json:"late_at,omitempty"`
	Omit   bool   `json:"omit,omitempty"`
}

// decodeRecord reads one line without its newline.
func decodeRecord(line []byte) (record, error) {
	var r record
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return record{}, fmt.Errorf("decode record: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return record{}, errors.New("decode record: more than one value on a line")
	}
	return r, r.check()
}

func (r record) check() error {
	switch r.Op {
	case opCharge:
		if r.Identifier == "" || r.EventName == "" {
			return errors.New("decode record: a charge needs identifier and event_name")
		}
		if _, err := parseValue(r.Value); err != nil {
			return fmt.Errorf("decode record: value: %w", err)
		}
	case opRepeat, opCancel, opReject, opReport, opSent:
		if r.Identifier == "" {
			return fmt.Errorf("decode record: a %s needs an identifier", r.Op)
		}
	case opAnswer, opClock:
	default:
		return errors.New("decode record: unknown op")
	}
	if r.Key != "" && (r.Status < 200 || r.Status > 599) {
		return errors.New("decode record: a stored answer needs a status")
	}
	return nil
}

// journal appends lines to the ledger file. Writers hand over lines and wait;
// whoever finds no write going on writes everything handed over so far, so
// concurrent requests share one write and one sync.
type journal struct {
	f    *os.File
	sync bool

	mu       sync.Mutex
	written  *sync.Cond
	pending  []byte
	spare    []byte
	appended int64 // bytes handed over since the file began
	durable  int64 // bytes written (and synced)
	writing  bool
	err      error // sticky: after a failed write nobody knows what is in the file
}

// openJournal reads the ledger in dir, calls replay for each record, cuts off
// an unfinished last line and opens the file for appending.
func openJournal(dir string, syncWrites bool, replay func(record)) (*journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make ledger directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, ledgerFile), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	if err := lockFile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("ledger is in use by another stripe double: %w", err), f.Close())
	}
	size, err := load(f, replay)
	if err == nil {
		err = f.Truncate(size)
	}
	if err == nil && syncWrites {
		err = errors.Join(f.Sync(), syncDir(dir))
	}
	if err != nil {
		return nil, errors.Join(err, unlockFile(f), f.Close())
	}
	j := &journal{f: f, sync: syncWrites, appended: size, durable: size}
	j.written = sync.NewCond(&j.mu)
	return j, nil
}

// load returns the length of the file without an unfinished last line.
func load(f *os.File, replay func(record)) (int64, error) {
	// The reader's size bounds a line, so that a file that is no ledger does
	// not fill the memory.
	r := bufio.NewReaderSize(f, maxLineBytes)
	var size int64
	for n := 1; ; n++ {
		line, err := r.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return size, nil
		}
		if err != nil {
			return 0, fmt.Errorf("read ledger line %d: %w", n, err)
		}
		rec, err := decodeRecord(line[:len(line)-1])
		if err != nil {
			return 0, fmt.Errorf("ledger line %d: %w", n, err)
		}
		replay(rec)
		size += int64(len(line))
	}
}

// append hands over a record and returns what to wait for. Records reach the
// file in the order of the calls.
func (j *journal) append(r record) int64 {
	line, err := json.Marshal(r)
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		j.fail(fmt.Errorf("encode record: %w", err))
		return j.appended
	}
	j.pending = append(append(j.pending, line...), '\n')
	j.appended += int64(len(line)) + 1
	return j.appended
}

// wait returns once everything up to the mark is in the file.
func (j *journal) wait(mark int64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for j.durable < mark && j.err == nil {
		if j.writing {
			j.written.Wait()
			continue
		}
		j.write()
	}
	return j.err
}

// write is called with the lock held and lets go of it while it writes.
func (j *journal) write() {
	batch := j.pending
	j.pending, j.writing = j.spare[:0], true
	j.mu.Unlock()
	_, err := j.f.Write(batch)
	if err == nil && j.sync {
		err = j.f.Sync()
	}
	j.mu.Lock()
	j.spare, j.writing = batch, false
	if err != nil {
		j.fail(fmt.Errorf("write ledger: %w", err))
	} else {
		j.durable += int64(len(batch))
	}
	j.written.Broadcast()
}

func (j *journal) fail(err error) {
	if j.err == nil {
		j.err = err
	}
	j.written.Broadcast()
}

// reset empties the file. The caller makes sure that nobody appends meanwhile.
func (j *journal) reset() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for j.writing {
		j.written.Wait()
	}
	j.pending = j.pending[:0]
	// What was handed over so far is gone, hence waited for by nobody.
	j.durable = j.appended
	if err := j.f.Truncate(0); err != nil {
		j.fail(fmt.Errorf("reset ledger: %w", err))
	}
	j.written.Broadcast()
	return j.err
}

func (j *journal) close() error {
	j.mu.Lock()
	mark := j.appended
	j.mu.Unlock()
	return errors.Join(j.wait(mark), unlockFile(j.f), j.f.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open ledger directory: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}
