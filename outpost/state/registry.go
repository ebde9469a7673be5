package state

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// instanceLife is how long an instance counts as alive after its last sign of
// life, and after it a later layout may stop writing this one.
const instanceLife = 11 * time.Minute

// Instance is a process that uses the state.
type Instance struct {
	Name   string
	Layout int
	Build  string
}

// Announce says that an instance is alive, so that one with another layout
// knows which layouts are in use. Call it once a minute. At is the instance's
// clock.
func (s *Store) Announce(ctx context.Context, name, build string, at time.Time) error {
	if name == "" || len(name)+len(build) > 200 || strings.Contains(name+build, "|") {
		return sdk.Invalid("instance", "1 to 200 bytes without |")
	}
	member := name + "|" + strconv.Itoa(Layout) + "|" + build + "/" + ScriptVersion
	err := s.client.ZAdd(ctx, s.keys.instances(), redis.Z{Score: float64(at.Unix()), Member: member}).Err()
	if err == nil {
		err = s.client.ZRemRangeByScore(ctx, s.keys.instances(), "-inf", strconv.FormatInt(at.Add(-24*time.Hour).Unix(), 10)).Err()
	}
	if err != nil {
		return fault(ctx, err)
	}
	return nil
}

// Instances are those of any layout that showed a sign of life in the eleven
// minutes before at.
func (s *Store) Instances(ctx context.Context, at time.Time) ([]Instance, error) {
	members, err := s.client.ZRangeArgs(ctx, redis.ZRangeArgs{
		Key: s.keys.instances(), ByScore: true, Start: at.Add(-instanceLife).Unix(), Stop: "+inf",
	}).Result()
	if err != nil {
		return nil, fault(ctx, err)
	}
	out := make([]Instance, 0, len(members))
	for _, m := range members {
		f := strings.Split(m, "|")
		if len(f) != 3 {
			continue
		}
		layout, err := strconv.Atoi(f[1])
		if err != nil {
			continue
		}
		out = append(out, Instance{f[0], layout, f[2]})
	}
	return out, nil
}

// SaveConfiguration keeps the engine's last configuration, so that an instance
// can start while it does not reach the engine.
func (s *Store) SaveConfiguration(ctx context.Context, text []byte) error {
	if err := s.client.Set(ctx, s.keys.configuration(), text, 0).Err(); err != nil {
		return fault(ctx, err)
	}
	return nil
}

// Configuration is what was saved last; not_found if nothing was.
func (s *Store) Configuration(ctx context.Context) ([]byte, error) {
	text, err := s.client.Get(ctx, s.keys.configuration()).Bytes()
	if err == redis.Nil { //nolint:errorlint // the client returns it as it is
		return nil, &sdk.Error{Tag: sdk.TagNotFound, Code: "configuration"}
	}
	if err != nil {
		return nil, fault(ctx, err)
	}
	return text, nil
}
