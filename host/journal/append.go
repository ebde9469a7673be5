package journal

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"strconv"
	"syscall"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// entry is one record on its way.
type entry struct {
	capability.Record
	text    []byte // compact
	started bool   // of the call
	search  bool
	out     capability.Appended
}

func (e *entry) open() bool { return e.out.Reason == "" && !e.out.Earlier }

// fail ends what is still open of the entries.
func fail(entries []*entry, failure capability.Failure, reason string) {
	for _, e := range entries {
		if e.open() {
			e.out.Failure, e.out.Reason = failure, reason
		}
	}
}

// Append appends records; see [capability.Append]. ctx comes from [File.Begin].
// The error has tag invalid if the batch is too long; then nothing was written.
func (f *File) Append(ctx context.Context, records []capability.Record) ([]capability.Appended, error) {
	if len(records) > RecordsMax {
		return nil, sdk.Invalid("records", "at most "+strconv.Itoa(RecordsMax)+" in one batch")
	}
	call, _ := ctx.Value(callKey{f}).(*Call)
	began := f.cfg.Now().UTC()
	entries := make([]*entry, len(records))
	for i, r := range records {
		e := &entry{Record: r}
		entries[i] = e
		text, ok := compact(r.JSON, r.Identifier)
		again, reason := call.start(r.Item, r.Identifier, began)
		e.text, e.search, e.started = text, again || r.Again, reason == ""
		if reason == "" && !ok {
			reason = ReasonInvalid
		}
		if reason != "" {
			e.out.Failure, e.out.Reason = capability.FailureNotSent, reason
		}
	}
	f.write(ctx, entries)
	out := make([]capability.Appended, len(entries))
	for i, e := range entries {
		out[i] = e.out
		x := exporter.Exchange{
			Class: classOf(e.out), Code: e.out.Reason, StartedAt: began, FinishedAt: f.cfg.Now().UTC(), Breaker: concernsFile(e.out.Reason),
		}
		if e.out.Sequence > 0 {
			x.RequestID = strconv.FormatInt(e.out.Sequence, 10)
		}
		f.cfg.Observe(x.Class)
		if e.started {
			call.finish(e.Item, x)
		}
	}
	return out, nil
}

// concernsFile reports whether a reason is the file's and would be the same for
// any other record.
func concernsFile(reason string) bool {
	switch reason {
	case ReasonMoved, ReasonShrunk, ReasonDamaged, ReasonDiskFull, ReasonIO, ReasonBroken:
		return true
	}
	return false
}

func classOf(a capability.Appended) exporter.HostClass {
	switch {
	case a.Failure == capability.FailureNotSent:
		return exporter.ClassNotSent
	case a.Failure != capability.FailureNone:
		return exporter.ClassIndefinite
	case a.Earlier:
		return exporter.ClassDuplicateOwn
	}
	return exporter.ClassSuccess
}

// write holds the file while it looks, searches and writes.
func (f *File) write(ctx context.Context, entries []*entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	unlock, err := f.lock(ctx)
	if err != nil {
		reason := ReasonDeadline
		if ctx.Err() == nil {
			reason = ReasonIO
		}
		fail(entries, capability.FailureNotSent, reason)
		return
	}
	defer unlock()
	var reason string
	switch {
	case f.closed:
		reason = ReasonClosed
	case f.late(ctx):
		reason = ReasonDeadline
	case f.moved():
		reason = ReasonMoved
	default:
		reason = f.refresh()
	}
	if reason == "" {
		reason = f.find(entries)
	}
	if reason != "" {
		fail(entries, capability.FailureNotSent, reason)
		return
	}
	f.put(ctx, entries)
}

// late reports whether nothing may be written any more. It is asked under the
// lock, after every wait.
func (f *File) late(ctx context.Context) bool {
	if left, ok := f.cfg.Left(ctx); ok && left <= 0 {
		return true
	}
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(deadline) <= 0 //nolint:forbidigo // a context's deadline is on the system's clock
}

// find marks the entries that the file has already, if an earlier attempt may
// have written them.
func (f *File) find(entries []*entry) string {
	wanted := map[string]*entry{}
	for _, e := range entries {
		if e.open() && e.search {
			wanted[e.Identifier] = e
		}
	}
	if len(wanted) == 0 {
		return ""
	}
	r := bufio.NewReaderSize(io.NewSectionReader(f.disk, 0, f.tail.size), 1<<20)
	for {
		text, err := r.ReadSlice('\n')
		if errors.Is(err, io.EOF) && len(text) == 0 {
			return ""
		}
		if err != nil {
			return ReasonIO
		}
		// Most lines end here: a line is taken apart only if it may be one.
		if !mayHold(text, wanted) {
			continue
		}
		l, err := parse(bytes.TrimSuffix(text, []byte("\n")))
		if err != nil {
			return ReasonDamaged
		}
		id, _ := identifierOf(l.Record)
		if e := wanted[id]; e != nil {
			e.out.Earlier, e.out.Sequence = true, l.Sequence
			delete(wanted, id)
		}
		if len(wanted) == 0 {
			return ""
		}
	}
}

func mayHold(text []byte, wanted map[string]*entry) bool {
	for id := range wanted {
		if bytes.Contains(text, []byte(id)) {
			return true
		}
	}
	return false
}

// put writes what is left in one go and waits for the disk. What fails is taken
// back; only what cannot be is unknown.
func (f *File) put(ctx context.Context, entries []*entry) {
	before, after := f.tail, f.tail
	var text []byte
	for _, e := range entries {
		if !e.open() {
			continue
		}
		var l []byte
		l, after = after.next(e.text)
		text = append(text, l...)
		e.out.Sequence = after.sequence
	}
	if len(text) > 0 && f.late(ctx) { // the search took its time
		forget(entries)
		fail(entries, capability.FailureNotSent, ReasonDeadline)
		text, after = nil, before
	}
	if len(text) > 0 {
		if _, err := f.disk.Write(text); err != nil {
			f.undo(entries, before, err)
			text, after = nil, before
		}
	}
	if len(text) == 0 && !anyEarlier(entries) {
		return
	}
	// What was found may have been written by a process that was killed before
	// its own wait for the disk.
	if f.disk.Sync() != nil {
		f.lost(entries, before)
		return
	}
	f.tail = after
}

// lost gives up the file after a failed wait for the disk. The system has perhaps
// dropped what it could not write and would call it written the next time, so
// what was written is taken away: nobody may find it there and rely on it.
func (f *File) lost(entries []*entry, before tail) {
	f.broken = true
	_ = f.disk.Truncate(before.size)
	for _, e := range entries {
		e.out.Earlier = false
	}
	forget(entries)
	fail(entries, capability.FailureUnknown, ReasonIO)
}

func anyEarlier(entries []*entry) bool {
	for _, e := range entries {
		if e.out.Earlier {
			return true
		}
	}
	return false
}

func forget(entries []*entry) {
	for _, e := range entries {
		if e.open() {
			e.out.Sequence = 0
		}
	}
}

// undo takes back what a failed write has left in the file.
func (f *File) undo(entries []*entry, before tail, cause error) {
	forget(entries)
	failure, reason := capability.FailureNotSent, ReasonIO
	if errors.Is(cause, syscall.ENOSPC) || errors.Is(cause, syscall.EDQUOT) || errors.Is(cause, syscall.EFBIG) {
		reason = ReasonDiskFull
	}
	if f.disk.Truncate(before.size) != nil || f.disk.Sync() != nil {
		// The disk has perhaps some of it, and nobody can say what a read
		// shows: nothing more is done with the file until it is opened anew.
		failure, f.broken = capability.FailureUnknown, true
	}
	fail(entries, failure, reason)
}
