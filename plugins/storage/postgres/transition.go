package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qMove           query = "move"
	qMoveFull       query = "move_full"
	qMoveLock       query = "move_lock"
	qMoveSettled    query = "move_settled"
	qAttemptsInsert query = "attempts_insert"
)

// errSettledLease: a leased item is settled, which the lean statement cannot
// count. Nothing of ours makes one.
var errSettledLease error = sdk.Unavailable("settled_lease", errors.New("a leased item is settled"))

var transitionFaults = faults{commit: "d9", committed: "d10"}

// Transition applies conditional updates in order, in one transaction, and
// answers how many rows each changed. Attempts are appended whatever the
// answer is, actions only where a row changed.
//
// What a deliverer asks for is one lean statement for leased items, and one more that looks in
// an index of few for items that wait for these; all else has statements of its
// own.
func (a *Adapter) Transition(ctx context.Context, moves []storage.Transition) ([]storage.TransitionResult, error) {
	const op = "transition items"
	if err := checkMoves(moves); err != nil {
		return nil, storeError(ctx, op, err)
	}
	if len(moves) == 0 {
		return nil, nil
	}
	var results []storage.TransitionResult
	released := false
	w := writing{pool: deliveryPool, faults: transitionFaults, settings: qOutboxPlanner}
	lean := true
	apply := func(ctx context.Context, t *tx) error {
		results, released = make([]storage.TransitionResult, len(moves)), false
		for start := 0; start < len(moves); {
			end := start + distinct(moves[start:])
			moved := &movement{t: t, moves: moves[start:end], results: results[start:end], lean: lean}
			if err := moved.run(ctx); err != nil {
				return err
			}
			released = released || moved.released
			start = end
		}
		if err := t.appendAttempts(ctx, moves, results); err != nil {
			return err
		}
		return t.appendActions(ctx, actionsOf(moves, results))
	}
	err := a.run.write(ctx, op, w, apply)
	if errors.Is(err, errSettledLease) {
		lean = false
		err = a.run.write(ctx, op, w, apply)
	}
	// Also when the outcome is unknown: to look from the beginning costs time
	// only.
	if released || slices.ContainsFunc(moves, func(m storage.Transition) bool { return m.Set.State == storage.Pending }) {
		a.hints.forget()
	}
	if err != nil {
		return nil, err
	}
	return results, nil
}

func checkMoves(moves []storage.Transition) error {
	for i := range moves {
		m := &moves[i]
		switch {
		case !slices.Contains(storage.ItemStates[:], m.Expect.State):
			return sdk.Invalid("expect.state", "one of the seven states").At(i)
		case !slices.Contains(storage.ItemStates[:], m.Set.State):
			return sdk.Invalid("set.state", "one of the seven states").At(i)
		case m.Set.State == storage.Leased && m.Expect.State != storage.Leased:
			return sdk.Invalid("set.state", "leased comes from Claim only").At(i)
		case m.Waiting != nil && m.Waiting.State != storage.Pending && m.Waiting.State != storage.Quarantined:
			return sdk.Invalid("waiting.state", "pending or quarantined").At(i)
		}
		if m.Action != nil {
			if err := checkAction(*m.Action); err != nil {
				return err
			}
		}
	}
	return nil
}

// distinct answers how many moves from the first on are of different items: a
// statement sees each row as it was before it, so a second move of an item is
// for the next one.
func distinct(moves []storage.Transition) int {
	seen := make(map[int64]struct{}, len(moves))
	for i := range moves {
		if _, again := seen[moves[i].ItemID]; again {
			return i
		}
		seen[moves[i].ItemID] = struct{}{}
	}
	return len(moves)
}

// moveColumns are the parameters of the updating statement: a slice for each
// column.
type moveColumns struct {
	item          []int64
	was           []string
	token         []*int64
	mapping       []*string
	wasUnresolved []*bool

	state                []string
	delay                []*time.Duration
	returned, unresolved []bool
	providerRef          []*string
	accepted, confirmed  []bool
	confirmedBy          []*string
	lastError            []*string
	reason               []*string
	settled              []*bool
}

func (c *moveColumns) add(m *storage.Transition) error {
	e, s := &m.Expect, &m.Set
	c.item = append(c.item, m.ItemID)
	c.was = append(c.was, string(e.State))
	c.token = append(c.token, e.LeaseToken)
	c.mapping = append(c.mapping, e.MappingVersion)
	c.wasUnresolved = append(c.wasUnresolved, e.Unresolved)
	c.state = append(c.state, string(s.State))
	c.delay = append(c.delay, s.NextAttemptAfter)
	c.returned = append(c.returned, s.ReturnAttempt)
	c.unresolved = append(c.unresolved, s.MarkUnresolved)
	c.providerRef = append(c.providerRef, cleanPtr(s.ProviderRef))
	c.accepted = append(c.accepted, s.AcceptedNow)
	c.confirmed = append(c.confirmed, s.ConfirmedNow)
	c.confirmedBy = append(c.confirmedBy, cleanPtr(s.ConfirmedBy))
	c.reason = append(c.reason, cleanPtr(s.QuarantineReason))
	c.settled = append(c.settled, s.Settled)
	var lastError *string
	if s.LastError != nil {
		doc, err := json.Marshal(s.LastError)
		if err != nil {
			return err
		}
		lastError = new(string(doc))
	}
	c.lastError = append(c.lastError, lastError)
	return nil
}

// args are the parameters of the full statement, as far as they are here.
func (c *moveColumns) args() []any {
	return []any{
		c.item, c.was, c.token, c.mapping, c.wasUnresolved, c.state, c.delay, c.returned, c.unresolved,
		c.providerRef, c.accepted, c.confirmed, c.confirmedBy, c.lastError, c.reason, c.settled,
	}
}

// leanArgs are the parameters of the lean statement.
func (c *moveColumns) leanArgs() []any {
	state, stateOfAll := common(c.state)
	accepted, acceptedOfAll := common(c.accepted)
	confirmed, confirmedOfAll := common(c.confirmed)
	settledEach, settledOfAll := commonOpt(c.settled)
	return []any{
		c.item, column(c.token), column(c.wasUnresolved), state, column(c.delay), column(c.returned),
		column(c.unresolved), column(c.providerRef), accepted, confirmed,
		column(c.confirmedBy), column(c.lastError), column(c.reason), column(settledEach),
		stateOfAll, acceptedOfAll, confirmedOfAll, settledOfAll,
	}
}

// common takes a column in which all is the same out: the value goes once, and
// not for each row.
func common[T comparable](values []T) (each []T, all *T) {
	if len(values) == 0 || slices.ContainsFunc(values, func(v T) bool { return v != values[0] }) {
		return values, nil
	}
	return nil, &values[0]
}

// commonOpt is common for a column of what may be absent.
func commonOpt[T comparable](values []*T) (each []*T, all *T) {
	if len(values) == 0 || slices.ContainsFunc(values, func(v *T) bool {
		return (v == nil) != (values[0] == nil) || v != nil && *v != *values[0]
	}) {
		return values, nil
	}
	return nil, values[0]
}

// column is nil for a column in which nothing is set: to send and to unpack it
// would cost as much as one in which all is.
func column[T comparable](values []T) []T {
	var zero T
	if slices.ContainsFunc(values, func(v T) bool { return v != zero }) {
		return values
	}
	return nil
}

// appendAttempts writes the lines of the log, in order. The item is the
// transition's.
func (t *tx) appendAttempts(ctx context.Context, moves []storage.Transition, results []storage.TransitionResult) error {
	var c attemptColumns
	for i := range moves {
		if moves[i].Attempt != nil {
			c.add(moves[i].ItemID, moves[i].Attempt, results[i].Rows == 0)
		}
	}
	if len(c.item) == 0 {
		return nil
	}
	_, err := t.exec(ctx, qAttemptsInsert, c.args()...)
	return err
}

// attemptColumns are the parameters of the inserting statement.
type attemptColumns struct {
	item, token                       []int64
	owner                             []string
	started, finished                 []*time.Time
	hostClass, outcome, evidence      []string
	status                            []int
	requestID, code, message, decided []string
	fenced                            []bool
}

func (c *attemptColumns) add(item int64, at *storage.Attempt, fenced bool) {
	c.item = append(c.item, item)
	c.token = append(c.token, at.LeaseToken)
	c.owner = append(c.owner, clean(at.Owner))
	c.started = append(c.started, optTime(at.StartedAt))
	c.finished = append(c.finished, optTime(at.FinishedAt))
	c.hostClass = append(c.hostClass, clean(at.HostClass))
	c.outcome = append(c.outcome, clean(at.Outcome))
	c.evidence = append(c.evidence, clean(at.Evidence))
	c.status = append(c.status, at.Status)
	c.requestID = append(c.requestID, clean(at.RequestID))
	c.code = append(c.code, clean(at.Code))
	c.message = append(c.message, clean(at.Message))
	c.decided = append(c.decided, string(at.Decided))
	c.fenced = append(c.fenced, fenced)
}

func (c *attemptColumns) args() []any {
	owner, ownerOfAll := common(c.owner)
	host, hostOfAll := common(c.hostClass)
	outcome, outcomeOfAll := common(c.outcome)
	evidence, evidenceOfAll := common(c.evidence)
	status, statusOfAll := common(c.status)
	code, codeOfAll := common(c.code)
	message, messageOfAll := common(c.message)
	decided, decidedOfAll := common(c.decided)
	return []any{
		c.item, c.token, owner, column(c.started), column(c.finished), host, outcome, evidence, status,
		column(c.requestID), code, message, decided, column(c.fenced),
		ownerOfAll, hostOfAll, outcomeOfAll, evidenceOfAll, statusOfAll, codeOfAll, messageOfAll, decidedOfAll,
	}
}

// clean makes text of what a provider or a plugin sent. A zero byte, or bytes
// that are not UTF-8, would make the server refuse the outcome of a send.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

func cleanPtr(s *string) *string {
	if s == nil {
		return nil
	}
	return new(clean(*s))
}
