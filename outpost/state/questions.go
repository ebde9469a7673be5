package state

import (
	"context"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// Question is an open question to the engine.
type Question struct {
	Token, Epoch string
	// Created: there was no state, and now there is one. Ask for a bootstrap
	// snapshot: what was tracked before may be unknown here.
	Created bool
	// Snapshot tells whether one was applied before; then ColdUntil is the
	// floor of the next one's, and Version what it must exceed.
	Snapshot           bool
	ColdUntil, Version int64
}

// Ask opens a question, and makes the state if there is none. Collect the
// pending ids only afterwards. An answer is taken for [QuestionLife].
// Errors: [ErrDefinition], [ErrBusy].
func (s *Store) Ask(ctx context.Context, id Identity, def string) (Question, error) {
	var q Question
	if err := id.check(); err != nil {
		return q, err
	}
	d, err := definition(def)
	if err != nil {
		return q, err
	}
	nonce, err := s.mark()
	if err != nil {
		return q, err
	}
	if q.Token, err = s.mark(); err != nil {
		return q, err
	}
	key := s.keys.state(id)
	reply, err := s.write(ctx, s.scripts.ask, []string{key, window(key), questions(key)},
		s.keys.channel(id.Customer), nonce, s.now(), q.Token, d, QuestionLife.Milliseconds())
	if err != nil {
		return q, err
	}
	if len(reply) != 5 {
		return q, errAnswer
	}
	q.Created, q.Epoch, q.Snapshot = reply[1] == "1", reply[2], reply[3] != ""
	if q.Snapshot {
		var errs [2]error
		q.ColdUntil, errs[0] = strconv.ParseInt(reply[3], 10, 64)
		q.Version, errs[1] = strconv.ParseInt(reply[4], 10, 64)
		if errs[0] != nil || errs[1] != nil {
			return q, errAnswer
		}
	}
	return q, nil
}

// PendingIDs returns up to limit names of events that are pending in buckets
// before an instant: what a question asks about. It is not a moment's picture and
// need not be, as long as the question was opened before. More tells that there
// are others.
func (s *Store) PendingIDs(ctx context.Context, id Identity, before int64, limit int) (ids []string, more bool, err error) {
	if err := id.check(); err != nil {
		return nil, false, err
	}
	seen := make(map[string]bool)
	var cursor uint64
	for {
		page, next, err := s.client.HScan(ctx, s.keys.state(id), cursor, "p:*", MaxIDs).Result()
		if err != nil {
			return nil, false, fault(ctx, err)
		}
		for i := 0; i+1 < len(page); i += 2 {
			name := strings.TrimPrefix(page[i], "p:")
			p, err := parsePending(page[i+1])
			if err != nil {
				return nil, false, errAnswer
			}
			if p.Bucket >= before || seen[name] {
				continue
			}
			if len(ids) == limit {
				return ids, true, nil
			}
			seen[name] = true
			ids = append(ids, name)
		}
		if cursor = next; cursor == 0 {
			return ids, false, nil
		}
	}
}

// Answer is the engine's, to one question.
type Answer struct {
	Token                           string
	Version, ColdUntil, WindowStart int64
	Totals                          Aggregate
	// Credits per meter; those of meters that are not named are removed.
	Credits map[string]decimal.Decimal
	// Confirmed are the first MaxIDs of the ids that the engine has decided
	// about; the rest goes to [Store.Settle] after this.
	Confirmed []string
}

// Replacement is what applying an answer did.
type Replacement struct {
	Message Message
	// Settled were pending and are counted by the engine now; Returned were
	// acknowledged after the question and are pending again.
	Settled, Returned int
	// Before and ColdUntil are of the snapshot that was replaced, if there was
	// one.
	Before    Aggregate
	ColdUntil int64
}

// Apply replaces the engine's totals and everything local that they cover.
// Errors: [ErrStaleQuestion], [ErrOldVersion], [ErrColdRegressed]; after each of
// them the question is closed, and the state as it was.
func (s *Store) Apply(ctx context.Context, id Identity, a Answer) (Replacement, error) {
	var r Replacement
	if err := id.check(); err != nil {
		return r, err
	}
	args, err := s.answerArgs(id, a)
	if err != nil {
		return r, err
	}
	key := s.keys.state(id)
	reply, err := s.write(ctx, s.scripts.apply, []string{key, window(key), questions(key)}, args...)
	if err != nil {
		return r, err
	}
	if len(reply) != 9 {
		return r, errAnswer
	}
	var errs [5]error
	r.Message, errs[0] = parseMessage(reply[1])
	r.Settled, errs[1] = strconv.Atoi(reply[2])
	r.Returned, errs[2] = strconv.Atoi(reply[3])
	r.Before, errs[3] = aggregate(reply[4:8])
	if reply[8] != "" {
		r.ColdUntil, errs[4] = strconv.ParseInt(reply[8], 10, 64)
	}
	for _, err := range errs {
		if err != nil {
			return r, errAnswer
		}
	}
	return r, nil
}

func (s *Store) answerArgs(id Identity, a Answer) ([]any, error) {
	nonce, err := s.mark()
	if err != nil {
		return nil, err
	}
	if len(a.Confirmed) > 0 {
		if err := checkIDs(a.Confirmed); err != nil {
			return nil, err
		}
	}
	sum, err := scaled(a.Totals.Sum, totalDigits)
	if err != nil {
		return nil, sdk.Invalid("sum", err.Error())
	}
	low, high, start := "", "", ""
	if a.Totals.Extremes {
		var more error
		low, err = scaled(a.Totals.Min, valueDigits)
		if high, more = scaled(a.Totals.Max, valueDigits); err != nil || more != nil {
			return nil, sdk.Invalid("extremes", "at most 26 integer digits")
		}
	}
	if a.WindowStart != 0 {
		start = strconv.FormatInt(a.WindowStart, 10)
	}
	args := []any{
		s.keys.channel(id.Customer), nonce, s.now(), a.Token, a.Version, a.ColdUntil,
		a.Totals.Count, sum, low, high, start, len(a.Credits),
	}
	for meter, credit := range a.Credits {
		amount, err := scaled(credit, totalDigits)
		if err != nil {
			return nil, sdk.Invalid("credits", err.Error())
		}
		args = append(args, meter, amount)
	}
	return appendIDs(args, a.Confirmed), nil
}

// Settle takes further confirmed ids of an answer, at most MaxIDs, after it was
// applied. Errors: [ErrEarly], [ErrAbsent].
func (s *Store) Settle(ctx context.Context, id Identity, version int64, ids []string) ([]Message, error) {
	if err := id.check(); err != nil {
		return nil, err
	}
	if err := checkIDs(ids); err != nil {
		return nil, err
	}
	nonce, err := s.mark()
	if err != nil {
		return nil, err
	}
	return s.changed(ctx, s.scripts.settle, []string{s.keys.state(id)},
		appendIDs([]any{s.keys.channel(id.Customer), nonce, s.now(), version}, ids))
}

// Claim lets one of several instances ask, for two seconds. It is a courtesy to
// the engine and nothing depends on it.
func (s *Store) Claim(ctx context.Context, id Identity) (bool, error) {
	if err := id.check(); err != nil {
		return false, err
	}
	err := s.client.Do(ctx, "set", lock(s.keys.state(id)), "1", "nx", "px", claimLife.Milliseconds()).Err()
	if err == nil {
		return true, nil
	}
	if err == redis.Nil { //nolint:errorlint // the client returns it as it is
		return false, nil
	}
	return false, fault(ctx, err)
}
