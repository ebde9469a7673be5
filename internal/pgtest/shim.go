package pgtest

import (
	_ "embed"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var (
	//go:embed shims/failfs.c
	failfsSource string
	//go:embed shims/steptime.c
	steptimeSource string
)

// shim is a library to preload, and the file by which it is told what to do.
type shim struct {
	t       testing.TB
	name    string // of the variable
	library string
	control string
}

// newShim compiles a shim into a folder that every user can read.
func newShim(t testing.TB, name, source string) shim {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		missing(t, "gcc: %v", err)
	}
	dir := publicDir(t)
	s := shim{t: t, name: name, library: filepath.Join(dir, strings.ToLower(name)+".so"), control: filepath.Join(dir, "control")}
	build := exec.CommandContext(t.Context(), "gcc", "-O2", "-fPIC", "-shared", "-x", "c", "-", "-o", s.library) //nolint:gosec // a path of this test
	build.Stdin = strings.NewReader(source)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	s.write([8]byte{})
	return s
}

func (s shim) env() []string { return []string{"LD_PRELOAD=" + s.library, s.name + "=" + s.control} }

// write changes the file in place: servers have it mapped.
func (s shim) write(b [8]byte) {
	s.t.Helper()
	f, err := os.OpenFile(s.control, os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // another user's server reads it
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := f.Write(b[:]); err != nil {
		s.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		s.t.Fatal(err)
	}
}

// Disk is a disk that fails on command, for ClusterConfig.Disk.
type Disk struct{ shim }

// NewDisk makes one that works. The test is skipped without a C compiler.
func NewDisk(t testing.TB) *Disk { t.Helper(); return &Disk{newShim(t, "FAILFS", failfsSource)} }

// Fail makes fsync fail with EIO, or writes with ENOSPC, or neither.
func (d *Disk) Fail(fsync, write bool) {
	d.t.Helper()
	var b [8]byte
	for i, on := range []bool{fsync, write} {
		if on {
			b[i] = 1
		}
	}
	d.write(b)
}

// Clock is a wall clock that steps on command, for ClusterConfig.Clock.
type Clock struct{ shim }

// NewClock makes one that is right. The test is skipped without a C compiler.
func NewClock(t testing.TB) *Clock { t.Helper(); return &Clock{newShim(t, "STEPTIME", steptimeSource)} }

// Step sets how far the clock is off.
func (c *Clock) Step(offset time.Duration) {
	c.t.Helper()
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], uint64(offset))
	c.write(b)
}
