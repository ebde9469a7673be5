// Package carrier is the one seam between the host and a plugin that is not
// linked in. A carrier moves bytes: it knows no message of the wire schema and
// no meaning of a method. host/carrier/wasm and host/carrier/process implement
// it; swapping a Wasm runtime changes nothing above this package.
package carrier

import (
	"context"
	"fmt"
)

// Caller calls one plugin.
//
// Implementations are safe for concurrent use.
type Caller interface {
	// Call performs one method of the plugin. The request is not kept or
	// changed; the answer belongs to the caller.
	//
	// The error is a *[PluginError] when the plugin answered with an Error
	// message, and a *[Fault] when it did not answer: nothing else. After a
	// Fault with Entered true the plugin may have done anything that the call
	// allowed, so whatever the call covered is unknown.
	//
	// The values of ctx reach the host's handlers unchanged, and so does the
	// earlier of its deadline and the carrier's own.
	Call(ctx context.Context, method uint32, request []byte) ([]byte, error)
	// Close refuses new calls, waits for those that run, and releases
	// everything. When ctx ends first, the running calls are ended too and
	// their callers get a Fault. Closing again does nothing.
	Close(ctx context.Context) error
}

// Usage is what a plugin takes of the machine.
type Usage struct {
	// Instances or processes that exist.
	Instances int
	// MemoryBytes is what they have together, as of their last call where it
	// cannot be asked for at any time. Zero where nobody knows.
	MemoryBytes uint64
}

// Measured is a Caller that knows what its plugin takes. Usage does not block.
type Measured interface{ Usage() Usage }

// PluginError is a plugin's own Error message. The call reached the plugin and
// the plugin decided; it is not a fault of the plugin.
type PluginError struct {
	// Payload is the encoded Error message, as the plugin wrote it: untrusted.
	Payload []byte
}

// Error names neither plugin nor payload, which is untrusted bytes; decode the
// payload for a sentence.
func (e *PluginError) Error() string {
	return fmt.Sprintf("the plugin answered with an error message of %d bytes", len(e.Payload))
}

// Kind says how a call failed.
type Kind string

// The kinds of fault.
const (
	// KindTrap: the plugin's code broke off (a trap, a panic, a killed
	// process). Nothing of it is used again.
	KindTrap Kind = "trap"
	// KindDeadline: the deadline passed or the caller gave up, while waiting
	// for an instance (Entered false) or while the plugin worked.
	KindDeadline Kind = "deadline"
	// KindProtocol: the plugin broke the ABI: an unknown status, too large an
	// answer.
	KindProtocol Kind = "protocol"
	// KindRefused: the carrier refused the call before the plugin saw it, for
	// example because the request is too large.
	KindRefused Kind = "refused"
	// KindClosed: the carrier is closed, or was closed while the call ran.
	KindClosed Kind = "closed"
	// KindMemory: the plugin broke off because it ran into its memory limit.
	KindMemory Kind = "memory"
	// KindExit: the plugin ended itself with an exit code.
	KindExit Kind = "exit"
)

// Fault is a call that got no answer from the plugin.
//
// A Fault is immutable once returned and safe for concurrent use.
type Fault struct { //nolint:errname // the field's word for it, as in the fault suite

	// Kind is what a caller branches on.
	Kind Kind
	// Plugin is the configured name of the plugin.
	Plugin string
	// Detail is for people: bounded, and with the last lines that the plugin
	// wrote to stderr, which are untrusted.
	Detail string
	// Entered reports whether the plugin's code for this call began to run.
	// False means that the plugin cannot have done anything for this call.
	Entered bool
	// Err is the cause, such as context.DeadlineExceeded. May be nil.
	Err error
}

// Error renders plugin, kind, whether the call was entered, and detail.
func (e *Fault) Error() string {
	entered := "before the call reached it"
	if e.Entered {
		entered = "during the call"
	}
	s := fmt.Sprintf("plugin %s: %s %s", e.Plugin, e.Kind, entered)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Unwrap returns the cause.
func (e *Fault) Unwrap() error { return e.Err }
