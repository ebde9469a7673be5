package journal

import (
	"os"
	"syscall"
	"testing"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// badDisk fails as told, after some bytes of a write.
type badDisk struct {
	*os.File
	written            int // bytes of the next write that arrive
	write, sync, trunc error
}

func (d *badDisk) Write(p []byte) (int, error) {
	if d.write == nil {
		return d.File.Write(p)
	}
	n, err := d.File.Write(p[:min(d.written, len(p))])
	if err != nil {
		return n, err
	}
	return n, d.write
}

func (d *badDisk) Sync() error {
	if d.sync != nil {
		return d.sync
	}
	return d.File.Sync()
}

func (d *badDisk) Truncate(size int64) error {
	if d.trunc != nil {
		return d.trunc
	}
	return d.File.Truncate(size)
}

// A disk that fails: what was taken back was not written, what could not be is
// unknown, and no line is in the file that was called not written.
func TestBadDisk(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		disk    badDisk
		failure capability.Failure
		reason  string
		class   exporter.HostClass
		after   string // of the next append, on a disk that works again
		lines   int64  // then
	}{
		"full at once":         {badDisk{write: syscall.ENOSPC}, capability.FailureNotSent, ReasonDiskFull, exporter.ClassNotSent, "", 4},
		"full in a line":       {badDisk{write: syscall.ENOSPC, written: 200}, capability.FailureNotSent, ReasonDiskFull, exporter.ClassNotSent, "", 4},
		"over quota":           {badDisk{write: syscall.EDQUOT, written: 3}, capability.FailureNotSent, ReasonDiskFull, exporter.ClassNotSent, "", 4},
		"broken":               {badDisk{write: syscall.EIO, written: 100}, capability.FailureNotSent, ReasonIO, exporter.ClassNotSent, "", 4},
		"cannot be undone":     {badDisk{write: syscall.EIO, written: 200, trunc: syscall.EIO}, capability.FailureUnknown, ReasonIO, exporter.ClassIndefinite, ReasonBroken, -1},
		"never arrives":        {badDisk{sync: syscall.EIO}, capability.FailureUnknown, ReasonIO, exporter.ClassIndefinite, ReasonBroken, 2},
		"nor can be undone":    {badDisk{sync: syscall.EIO, trunc: syscall.EIO}, capability.FailureUnknown, ReasonIO, exporter.ClassIndefinite, ReasonBroken, -1},
		"full when it arrives": {badDisk{sync: syscall.ENOSPC}, capability.FailureUnknown, ReasonIO, exporter.ClassIndefinite, ReasonBroken, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := journalAt(t)
			f := open(t, path)
			appended(t, f, false, "a", "b")
			file, _ := f.disk.(*os.File)
			disk := tt.disk
			disk.File = file
			f.disk = &disk
			out, seen := appendItems(t.Context(), f, false, "c", "d")
			for i, id := range []string{"item-c", "item-d"} {
				if out[i].Failure != tt.failure || out[i].Reason != tt.reason || out[i].Sequence != 0 || seen[id][0].Class != tt.class {
					t.Errorf("%+v %+v", out[i], seen[id])
				}
			}
			f.disk = &badDisk{File: file}
			again, _ := appendItems(t.Context(), f, true, "c", "d")
			if again[0].Reason != tt.after {
				t.Errorf("afterwards: %+v", again)
			}
			verify(t, path, tt.lines)
			// A new process goes on with what is there.
			appended(t, open(t, path), true, "a", "c", "d", "e")
			verify(t, path, 5)
		})
	}
}

// What an earlier process wrote counts only once it has reached the disk.
func TestEarlierLineHasToArriveToo(t *testing.T) {
	t.Parallel()
	path := journalAt(t)
	f := open(t, path)
	appended(t, f, false, "a")
	file, _ := f.disk.(*os.File)
	f.disk = &badDisk{File: file, sync: syscall.EIO}
	if out, seen := appendItems(t.Context(), f, true, "a"); out[0].Earlier || out[0].Failure != capability.FailureUnknown || seen["item-a"][0].Class != exporter.ClassIndefinite {
		t.Errorf("%+v %+v", out, seen)
	}
}
