package pgtest

import (
	"regexp"
	"slices"
	"strings"
)

// Exchange is what a client sends before it waits: one simple query, or the
// messages up to a Sync.
type Exchange struct {
	// SQL is the text of each statement that is executed, also of those that
	// were prepared earlier.
	SQL []string
	// InTransaction says that a transaction was open before it.
	InTransaction bool
}

var (
	commit = regexp.MustCompile(`(?i)(^|;)\s*(commit|end)\b`)
	begin  = regexp.MustCompile(`(?i)^\s*(begin|start\s+transaction)\b`)
	write  = regexp.MustCompile(`(?i)\b(insert\s+into|update|delete\s+from|copy|create|alter|drop|truncate)\b`)
)

// Commits says that something is durable once the exchange has been carried
// out: it has a COMMIT, or it writes outside a transaction.
func (e Exchange) Commits() bool {
	if slices.ContainsFunc(e.SQL, commit.MatchString) {
		return true
	}
	return !e.InTransaction && !slices.ContainsFunc(e.SQL, begin.MatchString) && slices.ContainsFunc(e.SQL, write.MatchString)
}

// Contains says that a statement has the text in it.
func (e Exchange) Contains(text string) bool {
	return slices.ContainsFunc(e.SQL, func(sql string) bool { return strings.Contains(sql, text) })
}

// Action is what a proxy does to an exchange.
type Action int

// The ways to lose an exchange.
const (
	forward Action = iota
	// DropAnswer lets the server carry it out, waits until it has, and then
	// closes the connection instead of passing on the answer.
	DropAnswer
	// DropRequest closes the connection instead of passing on the exchange.
	DropRequest
	// HangAnswer lets the server carry it out and passes nothing on: the
	// client waits until it gives up.
	HangAnswer
	// HangRequest passes nothing on, and answers nothing.
	HangRequest
)

// Rule is a fault of a proxy.
type Rule struct {
	// On picks exchanges: Exchange.Commits is one. It is called with the
	// proxy locked.
	On func(Exchange) bool
	Do Action
	// Times limits how often it fires; 0 is always.
	Times int
}
