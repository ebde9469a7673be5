package carrier

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
)

// AskLimits bound what one call may ask of the host. Zero fields take the
// default.
type AskLimits struct {
	// MaxHTTPBatch bounds one encoded HttpBatch, AppendBatch or Work of sqlv1 in
	// bytes. Default 4 MiB.
	MaxHTTPBatch int
	// MaxHTTPSends bounds the batches of one call. Default 1,000.
	MaxHTTPSends int
	// MaxLogLines bounds the log lines of one call; more are dropped.
	// Default 100.
	MaxLogLines int
}

// Asks answers what a plugin asks by name, where a carrier has no import
// modules: payloads are those of the Wasm imports.
//
//	http    an HttpBatch -> an HttpAnswers
//	append  an AppendBatch -> an AppendAnswers
//	sql     a Work of sqlv1 -> an Answer
//	log     a signed byte of severity and the line -> nothing
//	clock   nothing -> microseconds since 1970, 8 bytes, little-endian
//	random  the number of bytes, 4 bytes, little-endian -> as many
//
// The zero value is not usable; see [NewAsks]. It is safe for concurrent use.
type Asks struct {
	host    Host
	granted []capability.Name
	limits  AskLimits
}

// NewAsks fills the defaults of host in. It fails if http is granted and the
// host cannot send.
func NewAsks(host Host, granted []capability.Name, limits AskLimits, logger *slog.Logger) (*Asks, error) {
	if host.HTTPSend == nil && slices.Contains(granted, capability.HTTPName) {
		return nil, errors.New("http is granted and Host.HTTPSend is missing")
	}
	if host.AppendSend == nil && slices.Contains(granted, capability.AppendName) {
		return nil, errors.New("append is granted and Host.AppendSend is missing")
	}
	if host.SQLDo == nil && slices.Contains(granted, capability.SQLName) {
		return nil, errors.New("sql is granted and Host.SQLDo is missing")
	}
	if host.Now == nil {
		host.Now = time.Now
	}
	if host.Random == nil {
		host.Random = rand.Reader
	}
	if host.Log == nil {
		host.Log = func(ctx context.Context, level capability.Level, line string) {
			logger.Log(ctx, slog.Level(level), "plugin says", "line", line)
		}
	}
	set(&limits.MaxHTTPBatch, 4<<20)
	set(&limits.MaxHTTPSends, 1_000)
	set(&limits.MaxLogLines, 100)
	return &Asks{host: host, granted: granted, limits: limits}, nil
}

func set(v *int, def int) {
	if *v <= 0 {
		*v = def
	}
}

// ErrRefused says that the host did not do what a plugin asked: nothing was
// sent, written or read.
var ErrRefused = errors.New("the host refused what the plugin asked")

func refusef(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrRefused}, args...)...)
}

// Asked counts what one call asked. The zero value is a new call. It is safe
// for concurrent use.
type Asked struct {
	mu           sync.Mutex
	sends, lines int
}

const (
	// maxLogLine bounds one line of the log capability.
	maxLogLine = 4 << 10
	// maxRandom bounds the bytes of one question.
	maxRandom = 64 << 10
)

// Answer performs what one call asks, under its context. An error that is
// ErrRefused means that nothing was done.
func (a *Asks) Answer(ctx context.Context, call *Asked, name capability.Name, payload []byte) ([]byte, error) {
	if !slices.Contains(a.granted, name) {
		return nil, refusef("the capability is not granted")
	}
	switch name {
	case capability.HTTPName:
		return a.send(ctx, call, payload, a.host.HTTPSend)
	case capability.AppendName:
		return a.send(ctx, call, payload, a.host.AppendSend)
	case capability.SQLName:
		return a.send(ctx, call, payload, a.host.SQLDo)
	case capability.LogName:
		return nil, a.log(ctx, call, payload)
	case capability.ClockName:
		return binary.LittleEndian.AppendUint64(nil, uint64(a.host.Now().UnixMicro())), nil
	case capability.RandomName:
		return a.random(payload)
	default:
		return nil, refusef("this version does not have the capability")
	}
}

// send hands a batch to a handler. Batches of all kinds are counted together.
func (a *Asks) send(ctx context.Context, call *Asked, batch []byte, handle func(context.Context, []byte) ([]byte, error)) ([]byte, error) {
	if len(batch) > a.limits.MaxHTTPBatch {
		return nil, refusef("the batch has %d bytes, more than %d", len(batch), a.limits.MaxHTTPBatch)
	}
	call.mu.Lock()
	call.sends++
	many := call.sends > a.limits.MaxHTTPSends
	call.mu.Unlock()
	if many {
		return nil, refusef("more than %d batches in one call", a.limits.MaxHTTPSends)
	}
	answers, err := handle(ctx, batch)
	if err != nil {
		return nil, refusef("%w", err)
	}
	return answers, nil
}

func (a *Asks) log(ctx context.Context, call *Asked, payload []byte) error {
	if len(payload) == 0 {
		return refusef("no severity")
	}
	call.mu.Lock()
	call.lines++
	many := call.lines > a.limits.MaxLogLines
	call.mu.Unlock()
	if many {
		return nil
	}
	line := payload[1:min(len(payload), 1+maxLogLine)]
	a.host.Log(ctx, capability.Level(int8(payload[0])), strings.ToValidUTF8(string(line), "\uFFFD"))
	return nil
}

func (a *Asks) random(payload []byte) ([]byte, error) {
	if len(payload) != 4 {
		return nil, refusef("the number of bytes takes 4")
	}
	n := binary.LittleEndian.Uint32(payload)
	if n > maxRandom {
		return nil, refusef("more than %d random bytes at once", maxRandom)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(a.host.Random, b); err != nil {
		return nil, refusef("read random bytes: %w", err)
	}
	return b, nil
}
