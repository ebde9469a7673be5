package state

import (
	"crypto/sha256"
	"encoding/hex"
	"hash/crc32"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
)

const (
	// Layout is the version of what the keys hold. Another layout has other
	// keys and never reads these.
	Layout = 1
	// Channels is the number of channels that changes are published on.
	Channels = 16
	// Width is the length of a bucket.
	Width = 5 * time.Minute

	maxIDBytes       = 128
	maxCustomerBytes = 64 << 10
	// lastBucket keeps every instant below 2^53 microseconds, where the numbers
	// of Lua are exact. It is in the year 2255.
	lastBucket = 9_007_199_100_000_000
)

var (
	prefixRule  = regexp.MustCompile(`^[a-z0-9][a-z0-9_.:-]{0,62}$`)
	reducerRule = regexp.MustCompile(`^r_[0-9a-f]{32}$`)
)

// Identity names one state: what one reducer makes of one customer's events.
type Identity struct {
	// Customer is the application's id of it, any bytes.
	Customer string
	// Reducer is "r_" and 32 hexadecimal digits.
	Reducer string
}

// Kind says which ids an event's id is one of. The two never meet.
type Kind byte

// The kinds of ids.
const (
	Plain      Kind = 'e' // the id of an event
	CloudEvent Kind = 'c' // the receipt's id: source and id of a CloudEvent
)

// EventID is the name of an event in the state. Ids longer than 128 bytes are
// hashed, and so is what looks like a hash.
func EventID(kind Kind, id string) string { return string(rune(kind)) + ":" + shorten(id) }

// ParseEventID is the inverse. Ok is false for what [EventID] does not return. A
// hashed id comes back as its hash.
func ParseEventID(name string) (kind Kind, id string, ok bool) {
	if len(name) < 3 || name[1] != ':' || (name[0] != byte(Plain) && name[0] != byte(CloudEvent)) {
		return 0, "", false
	}
	return Kind(name[0]), name[2:], true
}

func shorten(id string) string {
	if len(id) <= maxIDBytes && !strings.HasPrefix(id, "sha256:") {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// BucketOf is the start of the bucket of an instant, in microseconds since 1970:
// rounded down, also before 1970.
func BucketOf(t time.Time) int64 {
	us, width := t.UnixMicro(), Width.Microseconds()
	rest := us % width
	if rest < 0 {
		rest += width
	}
	return us - rest
}

// keys names everything in one Redis. The hash tag is the customer, so one
// script may change all that an event feeds.
type keys struct{ prefix string }

func newKeys(namespace, org string) (keys, error) {
	if namespace == "" {
		namespace = "outpost"
	}
	if !prefixRule.MatchString(namespace) {
		return keys{}, sdk.Invalid("outpost.namespace", "a-z, 0-9 and _.:-, at most 63 characters")
	}
	if !prefixRule.MatchString(org) {
		return keys{}, sdk.Invalid("outpost.org", "a-z, 0-9 and _.:-, at most 63 characters")
	}
	return keys{namespace + ":v" + strconv.Itoa(Layout) + ":" + org}, nil
}

// tag begins with the first brace of the key, so an id with braces cannot move
// one key of a customer to another slot than the rest.
func tag(customer string) string { return "{external:" + shorten(customer) + "}" }

func (k keys) state(id Identity) string { return k.prefix + ":" + tag(id.Customer) + ":" + id.Reducer }

func window(state string) string    { return state + ":q" }
func questions(state string) string { return state + ":k" }
func lock(state string) string      { return state + ":lock" }
func dedupe(state string, bucket int64) string {
	return state + ":d:" + strconv.FormatInt(bucket, 10)
}

func (k keys) configuration() string { return k.prefix + ":cfg" }
func (k keys) instances() string     { return k.prefix + ":instances" }

// channel is where changes of a customer are published.
func (k keys) channel(customer string) string {
	return k.shard(int(crc32.ChecksumIEEE([]byte(tag(customer))) % Channels))
}

func (k keys) shard(n int) string { return k.prefix + ":ch:" + strconv.Itoa(n) }

// checkCustomer and checkReducer say what can be part of a key.
func checkCustomer(customer string) error {
	if customer == "" || len(customer) > maxCustomerBytes {
		return sdk.Invalid("customer", "1 to 65536 bytes")
	}
	return nil
}

func checkReducer(reducer string) error {
	if !reducerRule.MatchString(reducer) {
		return sdk.Invalid("reducer", `"r_" and 32 hexadecimal digits`)
	}
	return nil
}

func (id Identity) check() error {
	if err := checkCustomer(id.Customer); err != nil {
		return err
	}
	return checkReducer(id.Reducer)
}

func checkEvent(id string) error {
	if _, _, ok := ParseEventID(id); !ok || len(id) > maxIDBytes+2 {
		return sdk.Invalid("id", "what EventID returns, with 1 to 128 bytes of id")
	}
	return nil
}

func checkBucket(bucket int64) error {
	if bucket < 0 || bucket > lastBucket || bucket%Width.Microseconds() != 0 {
		return sdk.Invalid("time", "between 1970 and 2255")
	}
	return nil
}
