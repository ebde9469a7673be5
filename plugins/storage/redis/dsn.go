package redis

import (
	"context"
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost/fencepost/plugins/sdk"
)

const (
	dsnField = "storage.dsn"

	always      = "always"
	everySecond = "everysec"
	unchecked   = "unchecked"
)

type dsn struct {
	options            *redis.Options
	prefix, durability string
}

var prefixRule = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,62}$`)

// parseDSN never repeats what it was given: there may be a password in it.
func parseDSN(text string) (dsn, error) {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "redis" && u.Scheme != "rediss") || u.Host == "" {
		return dsn{}, sdk.Invalid(dsnField, "redis://[user:password@]host:port[/db], or rediss://")
	}
	query := u.Query()
	take := func(parameter, or string) string {
		defer query.Del(parameter)
		if query.Has(parameter) {
			return query.Get(parameter)
		}
		return or
	}
	d := dsn{prefix: take("fencepost_prefix", "fencepost"), durability: take("fencepost_durability", always)}
	if !prefixRule.MatchString(d.prefix) {
		return dsn{}, sdk.Invalid(dsnField, "fencepost_prefix: a-z, 0-9, _ . and -, at most 63 characters")
	}
	if !contains([]string{always, everySecond, unchecked}, d.durability) {
		return dsn{}, sdk.Invalid(dsnField, "fencepost_durability: always, everysec or unchecked")
	}
	u.RawQuery = query.Encode()
	if d.options, err = redis.ParseURL(u.String()); err != nil {
		return dsn{}, sdk.Invalid(dsnField, "a database number, and only parameters that are known")
	}
	// Whether a write whose answer was lost is repeated is the caller's
	// decision: adding twice counts twice.
	d.options.MaxRetries = -1
	d.options.ContextTimeoutEnabled = true
	return d, nil
}

func contains(all []string, s string) bool { return slices.Contains(all, s) }

var errClosed = sdk.Unavailable("closed", errors.New("the store is closed"))

// isRefused: the server does not let this user do it, or does not know it.
func isRefused(err redis.Error) bool {
	text := err.Error()
	return strings.HasPrefix(text, "NOPERM") || strings.HasPrefix(text, "ERR unknown command")
}

// fault tags an error of the client. What a server says of itself is kept, what
// was sent to it is not.
func (a *Adapter) fault(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		code := "canceled"
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			code = "timeout"
		}
		return sdk.Unavailable(code, ctx.Err())
	}
	if errors.Is(err, redis.ErrClosed) {
		return errClosed
	}
	reply := redis.Error(nil)
	if !errors.As(err, &reply) {
		return sdk.Unavailable("connection", err)
	}
	word, _, _ := strings.Cut(strings.TrimPrefix(reply.Error(), "ERR "), " ")
	e := sdk.Unavailable("store", err)
	switch word {
	case "LAYOUT":
		return &sdk.Error{
			Tag: sdk.TagUnavailable, Code: "schema_missing", Rule: "a Redis whose layout is " + layout,
			Hint: "open it with Migrate once, as fencepost serve does", Err: errors.New("the layout is another one, or missing"),
		}
	case "OOM":
		e.Code, e.Hint = "memory_full", "raise maxmemory"
	case "READONLY":
		e.Code, e.Hint = "read_only", "name the primary, not a replica"
	case "MISCONF":
		e.Code, e.Hint = "disk_full", "Redis cannot write to its disk; see its log"
	case "NOAUTH", "WRONGPASS":
		e.Code, e.Field, e.Hint = "denied", dsnField, "the user and password of the data source"
	case "NOPERM":
		e.Code, e.Field, e.Hint = "denied", dsnField, "a user that may run scripts (EVALSHA, EVAL) on the keys of fencepost_prefix"
	}
	return e
}
