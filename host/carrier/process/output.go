package process

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

const (
	// kept is how much of a stream's end is kept for faults.
	kept = 16 << 10
	// maxLine bounds a line in the log.
	maxLine = 1 << 10
	// Lines of a plugin in the log: some at once, then a few a second.
	linesAtOnce    = 50
	linesPerSecond = 10
)

// lineLog is what the streams of a plugin share.
type lineLog struct {
	logger  *slog.Logger
	now     func() time.Time
	limiter *rate.Limiter
	dropped atomic.Uint64
}

func newLineLog(logger *slog.Logger, now func() time.Time) *lineLog {
	return &lineLog{logger: logger, now: now, limiter: rate.NewLimiter(linesPerSecond, linesAtOnce)}
}

func (l *lineLog) emit(stream string, line []byte) {
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return
	}
	if !l.limiter.AllowN(l.now(), 1) {
		l.dropped.Add(1)
		return
	}
	l.logger.LogAttrs(context.Background(), slog.LevelInfo, "plugin output",
		slog.String("stream", stream), slog.String("line", strings.ToValidUTF8(string(line), "\uFFFD")),
		slog.Uint64("dropped_so_far", l.dropped.Load()))
}

// output drains one stream of a process as fast as it comes, whatever comes, so
// that the process never waits for its log. It keeps the end for faults.
type output struct {
	stream string
	log    *lineLog

	mu   sync.Mutex
	ring []byte
	line []byte
	// died holds the lines with which a Go program says why it dies, which
	// long traces follow.
	died []byte
}

// drain reads until the stream ends. What first takes comes before the rest.
func (o *output) drain(r io.Reader, first func([]byte) []byte) {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		b := buf[:n]
		if first != nil {
			b = first(b)
		}
		o.write(b)
		if err != nil {
			return
		}
	}
}

func (o *output) write(p []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	tail := p[max(0, len(p)-kept):]
	if over := len(o.ring) + len(tail) - kept; over > 0 {
		o.ring = append(o.ring[:0], o.ring[over:]...)
	}
	o.ring = append(o.ring, tail...)
	for len(p) > 0 {
		part, rest, ended := bytes.Cut(p, []byte{'\n'})
		p = rest
		o.line = append(o.line, part[:min(len(part), maxLine-len(o.line))]...)
		if ended {
			o.noteDeath()
			o.log.emit(o.stream, o.line)
			o.line = o.line[:0]
		}
	}
}

// maxDied bounds what is kept of a program's last words.
const maxDied = 1 << 10

// noteDeath keeps the line if it is one of a Go program's last words.
func (o *output) noteDeath() {
	begins := func(s string) bool { return bytes.HasPrefix(o.line, []byte(s)) }
	switch {
	case begins("panic: "), begins("fatal error: "), begins("runtime: out of memory"), begins("runtime: cannot allocate"),
		begins("runtime/cgo: pthread_create failed"):
		if len(o.died) > maxDied/2 { // of an older end that was not one
			o.died = nil
		}
		o.died = append(append(o.died, o.line[:min(len(o.line), maxDied-len(o.died))]...), '\n')
	}
}

// excerpt returns at most n bytes for people: why a Go program died, or else
// what it wrote last.
func (o *output) excerpt(n int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := o.ring
	if len(o.died) > 0 {
		b = o.died
		b = b[:min(n, len(b))]
	}
	b = b[max(0, len(b)-n):]
	return strings.TrimSpace(strings.ToValidUTF8(string(b), "\uFFFD"))
}

func (o *output) panicked() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.died) > 0
}

func (o *output) outOfMemory() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Contains(o.died, []byte("out of memory")) || bytes.Contains(o.died, []byte("allocate"))
}

// maxHandshake bounds the line of the handshake. It holds a certificate.
const maxHandshake = 8 << 10

// handshake passes the first line of stdout on, once and bounded: what comes
// after it is output, however much it looks like a handshake.
type handshake struct {
	to   *io.PipeWriter
	n    int
	done bool
}

func (h *handshake) take(p []byte) []byte {
	if h.done {
		return p
	}
	line, rest, ended := bytes.Cut(p, []byte{'\n'})
	line = line[:min(len(line), maxHandshake-h.n)]
	h.n += len(line)
	_, _ = h.to.Write(line) // fails once nobody waits for it
	if ended || h.n == maxHandshake {
		_, _ = h.to.Write([]byte{'\n'})
		_ = h.to.Close()
		h.done = true
	}
	return rest
}
