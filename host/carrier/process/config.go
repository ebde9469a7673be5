// Package process carries calls to a plugin that runs as a process of its own.
// hashicorp/go-plugin makes the handshake; the process, its limits, its output,
// its deadlines and its end are this package's. No other host package knows
// go-plugin.
//
// A process serves one call at a time and is killed, with everything that it
// started, when a call breaks off or passes its deadline: what one call did
// wrong, no other call pays for.
package process

import (
	"errors"
	"log/slog"
	"time"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
)

// Config says what to run and what it may do. Zero fields take the defaults
// that their comments name.
type Config struct {
	// Name and Version name the plugin in errors, logs and faults. Name is
	// required.
	Name, Version string
	// Image is what is executed. Required. Close does not close it.
	Image *Image
	// Args are the arguments, without the program's name.
	Args []string
	// Granted are the capabilities that the plugin may ask for.
	Granted []capability.Name
	// Host acts for the plugin.
	Host carrier.Host
	// Setup are calls that every new process answers before its first call,
	// of any size.
	Setup []carrier.SetupCall
	// Sandbox says what the process keeps of the host's rights.
	Sandbox Sandbox
	// Limits bound what the plugin uses.
	Limits Limits
	// Fault reads the payload of status 2, with which a process of ours says
	// that what runs inside it broke off while it is well itself. Nil: the
	// status breaks the protocol.
	Fault func(payload []byte) *carrier.Fault
	// Started is told of every process that was started.
	Started func()
	// Logger gets what the plugin writes to stdout and stderr, at most a few
	// lines a second, and what happens to processes. Default: discarded.
	Logger *slog.Logger
}

// Sandbox says what a process keeps of the host's rights. In no case does it
// get the host's environment, descriptors, standard input or group.
type Sandbox struct {
	// Network lets it use the host's network. Without, it has a network of its
	// own that leads nowhere, where the kernel allows that; see
	// [Process.Isolation].
	Network bool
	// Files lets it write files, and lets it keep a host's user root. Without,
	// it cannot write to a file, and under a root host it is nobody.
	Files bool
	// Dir is where it starts; empty: the root of the file system. What may
	// write files starts where the host does, so that a relative name is the
	// same file to both.
	Dir string
}

// Limits bound one plugin. Zero fields take the default; a negative limit of
// the process is none.
type Limits struct {
	// MaxInstances is how many processes may run at once, and so how many
	// calls; others wait. Default 2.
	MaxInstances int
	// MaxRequest and MaxOutput bound request and answer in bytes. Defaults
	// 4 MiB and 1 MiB.
	MaxRequest, MaxOutput int
	// Asks bound what one call asks of the host.
	Asks carrier.AskLimits
	// CallTimeout bounds a call whose context has no earlier deadline.
	// Default 2 minutes.
	CallTimeout time.Duration
	// StartTimeout bounds start, handshake and setup. Default 15 seconds.
	StartTimeout time.Duration
	// Memory is what a process may have for data, in bytes. Default 2 GiB.
	Memory int64
	// HighWater: a process that has more in memory after a call is replaced.
	// Default three quarters of Memory.
	HighWater int64
	// OpenFiles is how many descriptors it may have. Default 256.
	OpenFiles int64
	// Tasks is how many processes and threads its user may have beyond those
	// that it has when the plugin starts. Default 256.
	Tasks int64
}

// maxAsks bounds the questions of one call, most of which cost the host next to
// nothing.
const maxAsks = 10_000

func (c Config) withDefaults() (Config, error) {
	if c.Name == "" || c.Image == nil {
		return c, errors.New("name and image are required")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Logger = c.Logger.With("plugin", c.Name, "version", c.Version)
	if c.Host.Now == nil {
		c.Host.Now = time.Now
	}
	if c.Started == nil {
		c.Started = func() {}
	}
	orDefault(&c.Limits.MaxInstances, 2)
	orDefault(&c.Limits.MaxRequest, 4<<20)
	orDefault(&c.Limits.MaxOutput, 1<<20)
	orDefault(&c.Limits.Asks.MaxHTTPBatch, 4<<20)
	orDefault(&c.Limits.CallTimeout, 2*time.Minute)
	orDefault(&c.Limits.StartTimeout, 15*time.Second)
	unlessSet(&c.Limits.Memory, 2<<30)
	unlessSet(&c.Limits.HighWater, max(c.Limits.Memory, 0)/4*3)
	unlessSet(&c.Limits.OpenFiles, 256)
	unlessSet(&c.Limits.Tasks, 256)
	return c, nil
}

func orDefault[T int | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

func unlessSet(v *int64, def int64) {
	if *v == 0 {
		*v = def
	}
}

// Isolation says what a started process is kept from.
type Isolation struct {
	// Tree: everything that it starts ends with it, whatever it does.
	Tree bool
	// Network: it has no network.
	Network bool
}

// nobody runs the plugins of a host that runs as root.
const nobody = 65534
