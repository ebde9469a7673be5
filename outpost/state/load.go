package state

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// claimLife is how long the others leave a question to the one that claimed it.
const claimLife = 2 * time.Second

// Key names an identity's state in messages.
func (s *Store) Key(id Identity) string { return s.keys.state(id) }

// Load reads the whole state, at one moment. An identity without one has an
// empty Epoch.
func (s *Store) Load(ctx context.Context, id Identity) (*State, error) {
	if err := id.check(); err != nil {
		return nil, err
	}
	reply, err := s.run(ctx, s.scripts.load, []string{s.keys.state(id)}, s.now())
	if err != nil {
		return nil, err
	}
	if len(reply) != 2 {
		return nil, errAnswer
	}
	clock, ok := reply[0].(string)
	list, isList := reply[1].([]any)
	if !ok || !isList {
		return nil, errAnswer
	}
	ms, err := strconv.ParseInt(clock, 10, 64)
	if err != nil {
		return nil, errAnswer
	}
	flat := texts(list)
	if flat == nil {
		return nil, errAnswer
	}
	st, err := decode(time.UnixMilli(ms), flat)
	if err != nil {
		return nil, &sdk.Error{Tag: sdk.TagUnavailable, Code: "foreign_key", Err: err, Hint: "something else writes below the prefix"}
	}
	return st, nil
}

// Tip is what a copy is compared by: equal tips, equal states (I7).
type Tip struct{ Epoch, Tip string }

// Tips reads the tips of many identities in one round trip per server. Those
// without a state have empty tips.
func (s *Store) Tips(ctx context.Context, ids []Identity) ([]Tip, error) {
	pipe := s.client.Pipeline()
	found := make([]*redis.SliceCmd, len(ids))
	for i, id := range ids {
		if err := id.check(); err != nil {
			return nil, err
		}
		found[i] = pipe.HMGet(ctx, s.keys.state(id), "ep", "tp")
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fault(ctx, err)
	}
	tips := make([]Tip, len(ids))
	for i := range found {
		values := found[i].Val()
		if len(values) != 2 {
			return nil, errAnswer
		}
		tips[i].Epoch, _ = values[0].(string)
		tips[i].Tip, _ = values[1].(string)
	}
	return tips, nil
}

// Touch keeps a state alive that is only read. Once in five minutes is plenty.
func (s *Store) Touch(ctx context.Context, id Identity) error {
	if err := id.check(); err != nil {
		return err
	}
	if err := s.client.PExpire(ctx, s.keys.state(id), StateLife).Err(); err != nil {
		return fault(ctx, err)
	}
	return nil
}

// Sweep removes what is undelivered for more than an hour from one page of a
// state, about a thousand fields. Begin with cursor "0"; it is done when that
// comes back. Readers ignore such events anyhow. Errors: [ErrAbsent].
func (s *Store) Sweep(ctx context.Context, id Identity, cursor string) (next string, removed int, err error) {
	if err := id.check(); err != nil {
		return "", 0, err
	}
	nonce, err := s.mark()
	if err != nil {
		return "", 0, err
	}
	reply, err := s.write(ctx, s.scripts.gc, []string{s.keys.state(id)}, s.keys.channel(id.Customer), nonce, s.now(), cursor, MaxIDs)
	if err != nil {
		return "", 0, err
	}
	if len(reply) != 4 {
		return "", 0, errAnswer
	}
	if removed, err = strconv.Atoi(reply[2]); err != nil {
		return "", 0, errAnswer
	}
	return reply[1], removed, nil
}

// Reset removes a state, its window and its questions, if it still has that
// epoch. Errors: [ErrMoved], [ErrAbsent].
func (s *Store) Reset(ctx context.Context, id Identity, epoch string) error {
	if err := id.check(); err != nil {
		return err
	}
	nonce, err := s.mark()
	if err != nil {
		return err
	}
	key := s.keys.state(id)
	_, err = s.write(ctx, s.scripts.reset, []string{key, window(key), questions(key)}, s.keys.channel(id.Customer), nonce, s.now(), epoch)
	return err
}

// Subscribe listens to every change of the organisation's states. Wait for the
// confirmations (Receive) before the first [Store.Load], or a change between the
// two is missed. The caller closes it.
func (s *Store) Subscribe(ctx context.Context) *redis.PubSub {
	names := make([]string, Channels)
	for i := range names {
		names[i] = s.keys.shard(i)
	}
	return s.client.Subscribe(ctx, names...)
}
