// Package journal is the append capability: a file that the operator named, to
// which plugins add lines and nothing else. The lines form a chain, each with
// the hash of the one before, so that a line that was changed, removed or put in
// between is found out ([Verify]).
//
// What Append calls appended has reached the disk. Any number of processes of
// one machine may append to one file: each takes the lock of the file, looks at
// the clock and at the file again, and only then writes. So a process that was
// stopped before its write finds its lease over, and one that was stopped during
// it is waited for and then found in the file.
package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// Limits of what one Append takes.
const (
	RecordsMax     = 500
	RecordBytesMax = 64 << 10
)

// Reasons: short codes for why a record was not appended. Scripts read them.
const (
	ReasonInvalid   = "record_invalid"   // not one JSON object with the item's identifier in it
	ReasonNoCall    = "no_call"          // outside of a delivery
	ReasonCallEnded = "call_ended"       // the delivery had ended
	ReasonUnknown   = "item_unknown"     // an item that the plugin was not given
	ReasonTwice     = "identifier_twice" // twice in one call
	ReasonDeadline  = "deadline"         // no time was left, or the file was locked until then
	ReasonMoved     = "file_moved"       // another file is at the path now
	ReasonShrunk    = "file_shrunk"      // somebody has cut the file
	ReasonDamaged   = "journal_damaged"  // its last line is not one of a chain
	ReasonDiskFull  = "disk_full"
	ReasonIO        = "io_error"
	ReasonBroken    = "journal_broken" // an earlier failure could not be undone
	ReasonClosed    = "closed"
)

// Config says where the file is.
type Config struct {
	// Path of the file. It is created with mode 0600 if there is none; its
	// folder must exist.
	Path string
	// Left returns how much time is left for sending in a context, and false
	// if it bounds nothing. nil: the deadline alone counts.
	Left func(context.Context) (time.Duration, bool)
	// Now stamps the evidence; nil: time.Now.
	Now func() time.Time
	// Observe is told the class of every record, once; nil: nobody. It is
	// called from several goroutines.
	Observe func(exporter.HostClass)
}

// File is an open journal. It is safe for concurrent use. Its zero value is not
// useful: see [Open].
type File struct {
	cfg  Config
	info fs.FileInfo // of the file that was opened

	mu     sync.Mutex // held while the file is looked at or written
	disk   disk
	tail   tail
	broken bool
	closed bool
}

var _ capability.Append = (*File)(nil)

// disk is what is used of the file.
type disk interface {
	ReadAt(p []byte, off int64) (int, error)
	Write(p []byte) (int, error)
	Sync() error
	Truncate(size int64) error
	Stat() (fs.FileInfo, error)
}

// Open opens the journal, or begins one. A last line that a crash cut short is
// taken away. It fails with tag invalid if the file is no regular file or its
// last line is not one of a journal, and with unavailable, code locked, if another
// process holds the file longer than ctx.
func Open(ctx context.Context, cfg Config) (*File, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Left == nil {
		cfg.Left = func(context.Context) (time.Duration, bool) { return 0, false }
	}
	if cfg.Observe == nil {
		cfg.Observe = func(exporter.HostClass) {}
	}
	_, missing := os.Stat(cfg.Path)
	f, err := os.OpenFile(cfg.Path, os.O_RDWR|os.O_APPEND|os.O_CREATE|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, &sdk.Error{Tag: sdk.TagInvalid, Field: "file", Rule: "a file that can be read and appended to, in a folder that exists", Err: err}
	}
	j := &File{cfg: cfg, disk: f}
	if err := j.begin(ctx, f, errors.Is(missing, fs.ErrNotExist)); err != nil {
		_ = f.Close()
		return nil, err
	}
	return j, nil
}

func (f *File) begin(ctx context.Context, file *os.File, created bool) (err error) {
	if f.info, err = file.Stat(); err != nil {
		return fmt.Errorf("open journal: %w", err)
	}
	if !f.info.Mode().IsRegular() {
		return sdk.Invalid("file", "a regular file")
	}
	if created {
		// The name of a new file has to survive a crash as its lines do.
		if err := syncFolder(f.cfg.Path); err != nil {
			return fmt.Errorf("open journal: %w", err)
		}
	}
	unlock, err := f.lock(ctx)
	if err != nil {
		return sdk.Unavailable("locked", err)
	}
	defer unlock()
	switch reason := f.refresh(); reason {
	case "":
		return nil
	case ReasonDamaged:
		return &sdk.Error{
			Tag: sdk.TagInvalid, Code: ReasonDamaged, Field: "file", Rule: "a journal, whose last line has a sequence, a previous and a record",
			Hint: "run: fencepost journal verify FILE",
		}
	default:
		return sdk.Unavailable(reason, errors.New("the journal could not be read or repaired"))
	}
}

// Close closes the file. What is being appended ends first.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	if c, ok := f.disk.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// lockPoll is how often a file that another process holds is tried again.
const lockPoll = 5 * time.Millisecond

// lock takes the file's lock within ctx.
func (f *File) lock(ctx context.Context) (unlock func(), err error) {
	file, ok := f.disk.(fdHolder)
	if !ok {
		return func() {}, nil
	}
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		taken, err := tryLock(file.Fd())
		if err != nil {
			return nil, fmt.Errorf("lock journal: %w", err)
		}
		if taken {
			return func() { unlockFile(file.Fd()) }, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

type fdHolder interface{ Fd() uintptr }

// refresh reads the end of the file anew if another process has written, and
// takes away a line that was cut short. It returns a reason, or "".
func (f *File) refresh() string {
	info, err := f.disk.Stat()
	switch {
	case err != nil:
		return ReasonIO
	case f.closed:
		return ReasonClosed
	case f.broken:
		return ReasonBroken
	case info.Size() < f.tail.size:
		return ReasonShrunk
	case info.Size() == f.tail.size:
		return ""
	}
	t, err := readTail(f.disk, info.Size())
	switch {
	case errors.Is(err, errNoLine):
		return ReasonDamaged
	case err != nil:
		return ReasonIO
	case t.size < info.Size():
		// The lock is ours, so nobody is writing that line any more.
		if f.disk.Truncate(t.size) != nil || f.disk.Sync() != nil {
			return ReasonIO
		}
	}
	f.tail = t
	return ""
}

// moved reports whether the path leads to another file, or to none.
func (f *File) moved() bool {
	now, err := os.Stat(f.cfg.Path)
	return err != nil || !os.SameFile(now, f.info)
}
