package wasm

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

const (
	// captureSize is how much of an instance's stderr is kept.
	captureSize = 64 << 10
	// captureLine bounds a line in the log.
	captureLine = 1 << 10
	// Lines of a plugin in the log: some at once, then a few a second.
	linesAtOnce    = 50
	linesPerSecond = 10
)

// capture keeps the last bytes that a guest wrote and passes whole lines to
// the log. One instance owns it, and an instance runs one call at a time, so
// it needs no lock.
type capture struct {
	in     *instance
	stream string
	log    *lineLog
	ring   []byte
	line   []byte
}

// lineLog is what the captures of a module share.
type lineLog struct {
	logger  *slog.Logger
	limiter *rate.Limiter
	now     func() time.Time
	dropped atomic.Uint64
}

func (c *Config) newLineLog() *lineLog {
	return &lineLog{logger: c.Logger, now: c.Host.Now, limiter: rate.NewLimiter(linesPerSecond, linesAtOnce)}
}

// Write keeps the tail of p. It costs no more than captureSize bytes of work
// whatever p is, and fails once the call's context is done: one fd_write of a
// guest can ask for millions of writes.
func (c *capture) Write(p []byte) (int, error) {
	if err := c.in.context().Err(); err != nil {
		return 0, err
	}
	n := len(p)
	if len(p) > captureSize {
		p = p[len(p)-captureSize:]
	}
	if over := len(c.ring) + len(p) - captureSize; over > 0 {
		c.ring = append(c.ring[:0], c.ring[over:]...)
	}
	c.ring = append(c.ring, p...)
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		part := p
		if end >= 0 {
			part = p[:end]
			p = p[end+1:]
		} else {
			p = nil
		}
		if room := captureLine - len(c.line); room > 0 {
			c.line = append(c.line, part[:min(room, len(part))]...)
		}
		if end >= 0 {
			c.log.emit(c.in.context(), c.stream, c.line)
			c.line = c.line[:0]
		}
	}
	return n, nil
}

func (l *lineLog) emit(ctx context.Context, stream string, line []byte) {
	if len(line) == 0 {
		return
	}
	if !l.limiter.AllowN(l.now(), 1) {
		l.dropped.Add(1)
		return
	}
	l.logger.LogAttrs(ctx, slog.LevelInfo, "plugin output",
		slog.String("stream", stream), slog.String("line", strings.ToValidUTF8(string(line), "\uFFFD")),
		slog.Uint64("dropped_so_far", l.dropped.Load()))
}

// excerpt returns at most n bytes for people: from the line with which a Go
// guest says why it dies, which long traces follow, or else the last ones.
func (c *capture) excerpt(n int) string {
	b := c.ring
	if at := max(bytes.LastIndex(b, []byte("panic: ")), bytes.LastIndex(b, []byte("fatal error: "))); at >= 0 {
		b = b[at:]
		b = b[:min(n, len(b))]
	} else if len(b) > n {
		b = b[len(b)-n:]
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(b), "\uFFFD"))
}
