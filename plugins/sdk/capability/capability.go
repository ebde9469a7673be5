// Package capability holds what a plugin may ask of the host. A plugin asks,
// the host acts: allow-lists, secrets, limits and the evidence of what went
// over the wire stay in one place for every carrier.
//
// In Wasm each capability is one import module ("fencepost.http/v1"), so a
// module's import section declares what it wants.
package capability

import (
	"context"
	"time"
)

// Name names a capability in manifests and grants.
type Name string

// The capabilities of this version.
const (
	HTTPName   Name = "http"
	LogName    Name = "log"
	ClockName  Name = "clock"
	RandomName Name = "random"
	SQLName    Name = "sql"
	AppendName Name = "append"
)

// Names lists the capabilities of this version.
func Names() []Name {
	return []Name{HTTPName, LogName, ClockName, RandomName, SQLName, AppendName}
}

// Host is what a plugin gets at construction. A nil field was not granted.
type Host struct {
	HTTP   HTTP
	Log    Log
	Clock  Clock
	Random Random
	Append Append
	SQL    SQL
}

// HTTP sends requests on the plugin's behalf.
type HTTP interface {
	// Send performs a batch of requests and returns one response for each,
	// in order. The host sets concurrency, rate and order: requests that
	// share a serial key go one after another. It returns an error only if
	// the whole batch was refused before anything was sent; what happened to
	// a single request is in its Response.
	Send(ctx context.Context, requests []Request) ([]Response, error)
}

// Request is one HTTP request, structured so that nothing can be smuggled.
type Request struct {
	Method string
	// URL is absolute and https; the host checks it against the grants.
	URL     string
	Headers []Header
	Body    []byte
	// Items are the ids of the delivery items that this request reports.
	// The host checks that the identifier of each occurs in the request.
	// Empty for requests that report nothing, such as a read.
	Items []string
	// Secrets are the names of manifest secrets that the host adds, each in
	// the header that the manifest says. The plugin never sees a value. A
	// secret that signs does so over the request as it is sent.
	Secrets []string
	// SigningScope is "region/service", of a secret of scheme aws_sigv4.
	SigningScope string
}

// Header is one header field. Repeated names are allowed.
type Header struct{ Name, Value string }

// Failure says why a response carries no answer.
type Failure string

// Failures of a request.
const (
	// FailureNone: Status, Headers and Body are the provider's answer.
	FailureNone Failure = ""
	// FailureNotSent: no byte left this machine (refused by policy, deadline
	// used up before sending, no connection).
	FailureNotSent Failure = "not_sent"
	// FailureUnknown: something was sent and no whole answer came back.
	FailureUnknown Failure = "unknown"
)

// Response answers one request.
type Response struct {
	Failure Failure
	// Reason is a short code for Failure, such as "host_not_granted",
	// "deadline", "reset". Never a secret.
	Reason  string
	Status  int
	Headers []Header
	Body    []byte
}

// Level is the severity of a log line, as in log/slog.
type Level int

// Levels.
const (
	LevelDebug Level = -4
	LevelInfo  Level = 0
	LevelWarn  Level = 4
	LevelError Level = 8
)

// Log writes to the host's log, bounded and redacted there.
type Log interface {
	Write(level Level, message string)
}

// Clock tells the host's time in UTC.
type Clock interface {
	Now() time.Time
}

// Random fills p with random bytes from the host's system source.
type Random interface {
	Read(p []byte) error
}
