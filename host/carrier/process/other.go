//go:build !linux

package process

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
)

// What bounds a process and ends it with its host are means of Linux. Without
// them a native plugin would run unbounded, so it does not run.
var errNotHere = errors.New("plugins run as processes on Linux only; use wasm: with isolation: inproc here")

// Image cannot be made on this system.
type Image struct{}

// NewImage fails on this system.
func NewImage(string, []byte) (*Image, error) { return nil, errNotHere }

// Self fails on this system.
func Self() (*Image, error) { return nil, errNotHere }

// SHA256 is empty.
func (*Image) SHA256() string { return "" }

// Close does nothing.
func (*Image) Close() error { return nil }

type plainly struct{}

type sockets struct{ dir string }

func newSockets() (*sockets, error) { return nil, errNotHere }

func (*sockets) close() error { return nil }

func peer(net.Conn) (int, error) { return 0, errNotHere }

type runner struct {
	cfg       *Config
	plain     *plainly
	cmd       *exec.Cmd
	killed    context.Context
	dir       string
	uid       uint32
	pid       int
	lines     *lineLog
	stderr    *output
	isolation Isolation
	exited    chan struct{}
	state     *os.ProcessState
}

func (*runner) Start(context.Context) error     { return errNotHere }
func (*runner) Wait(context.Context) error      { return errNotHere }
func (*runner) Kill(context.Context) error      { return nil }
func (*runner) Stdout() io.ReadCloser           { return nil }
func (*runner) Stderr() io.ReadCloser           { return nil }
func (*runner) Name() string                    { return "" }
func (*runner) ID() string                      { return "" }
func (*runner) Diagnose(context.Context) string { return "" }
func (*runner) killGroup()                      {}
func (*runner) byItself() bool                  { return true }

func (*runner) PluginToHost(string, string) (string, string, error) { return "", "", errNotHere }
func (*runner) HostToPlugin(string, string) (string, string, error) { return "", "", errNotHere }
