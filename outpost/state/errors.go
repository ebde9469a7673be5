package state

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// What a caller of this package branches on. Nothing was written when one of
// them is returned.
var (
	// ErrConflict: the event's id is pending with another bucket or value.
	ErrConflict = &sdk.Error{Tag: sdk.TagConflict, Code: "event_conflict", Rule: "one id, one event"}
	// ErrDefinition: the state was kept under another definition of the
	// reducer. [Store.Reset] it and ask for a snapshot.
	ErrDefinition = &sdk.Error{Tag: sdk.TagConflict, Code: "definition_changed", Rule: "the definition that the state was kept under"}
	// ErrOverflow: more is undelivered than even the aggregate may hold.
	ErrOverflow = &sdk.Error{Tag: sdk.TagUnavailable, Code: "overflow", Rule: "at most a million spilled events in a bucket"}
	// ErrStaleQuestion: the answer's question has run out, was answered
	// already, or belongs to a state that is gone. Ask again.
	ErrStaleQuestion = &sdk.Error{Tag: sdk.TagConflict, Code: "stale_question"}
	// ErrOldVersion: a newer answer was applied before.
	ErrOldVersion = &sdk.Error{Tag: sdk.TagConflict, Code: "old_version"}
	// ErrColdRegressed: the answer's cold_until is below the one that was
	// applied. Ask again with that one as the floor.
	ErrColdRegressed = &sdk.Error{Tag: sdk.TagConflict, Code: "cold_regressed"}
	// ErrEarly: ids of an answer that is not applied.
	ErrEarly = &sdk.Error{Tag: sdk.TagConflict, Code: "not_applied"}
	// ErrMoved: the state is another one by now.
	ErrMoved = &sdk.Error{Tag: sdk.TagConflict, Code: "epoch_moved"}
	// ErrAbsent: there is no state.
	ErrAbsent = &sdk.Error{Tag: sdk.TagNotFound, Code: "state_absent"}
	// ErrBusy: more questions are open than anybody could mean to ask.
	ErrBusy = &sdk.Error{Tag: sdk.TagUnavailable, Code: "questions", Rule: "at most 256 open questions"}
)

var errAnswer = sdk.Unavailable("answer", errors.New("a script answered what it never answers"))

// refusal turns what a script said instead of "ok" into an error.
func refusal(reply []string) error {
	switch reply[0] {
	case "invalid":
		if len(reply) == 2 {
			return sdk.Invalid(reply[1], "what layout v1 holds")
		}
	case "conflict":
		return ErrConflict
	case "definition":
		return ErrDefinition
	case "overflow":
		return ErrOverflow
	case "stale_ask":
		return ErrStaleQuestion
	case "old":
		return ErrOldVersion
	case "regress":
		return ErrColdRegressed
	case "early":
		return ErrEarly
	case "moved":
		return ErrMoved
	case "absent":
		return ErrAbsent
	case "busy":
		return ErrBusy
	}
	return errAnswer
}

// fault tags an error of the client. What a server says of itself is kept, what
// was sent to it is not.
func fault(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		code := "canceled"
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			code = "timeout"
		}
		return sdk.Unavailable(code, ctx.Err())
	}
	if errors.Is(err, redis.ErrClosed) {
		return sdk.Unavailable("closed", err)
	}
	reply := redis.Error(nil)
	if !errors.As(err, &reply) {
		return sdk.Unavailable("connection", err)
	}
	word, _, _ := strings.Cut(strings.TrimPrefix(reply.Error(), "ERR "), " ")
	e := &sdk.Error{Tag: sdk.TagUnavailable, Code: "redis", Rule: "Redis answered " + errorWord(word)}
	switch word {
	case "OOM":
		e.Code, e.Hint = "memory_full", "raise maxmemory"
	case "READONLY":
		e.Code, e.Hint = "read_only", "name the primary, not a replica"
	case "MISCONF":
		e.Code, e.Hint = "disk_full", "Redis cannot write to its disk; see its log"
	case "NOAUTH", "WRONGPASS":
		e.Code, e.Hint = "denied", "the user and password of the Redis"
	case "NOPERM":
		e.Code, e.Hint = "denied", "a user that may run scripts on the keys below the prefix and publish"
	case "WRONGTYPE":
		e.Code, e.Hint = "foreign_key", "something else writes below the prefix"
	}
	return e
}

// errorWord keeps the word that Redis begins its errors with. The text behind
// it may repeat arguments of a script.
func errorWord(word string) string {
	if word != "" && strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" {
		return word
	}
	return "an error"
}
