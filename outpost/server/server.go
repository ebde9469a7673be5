// Package server is the engine's side of outposts: snapshots on request and hints
// when one would be another now, over a WebSocket. See package protocol.
package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/outpost/protocol"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Engine is what is asked.
type Engine interface {
	Reducers() []engine.Reducer
	Snapshot(ctx context.Context, q engine.SnapshotQuery) (storage.Snapshot, error)
}

// Config is what a server is made of. Engine is required.
type Config struct {
	Engine Engine
	// Meters are those that measure CloudEvents.
	Meters []meter.Meter
	// Connections bounds those that are open: 1000.
	Connections int
	// Heartbeat is the time between two pings, 15 s; a client that does not
	// answer for two of them is gone.
	Heartbeat time.Duration
	// Questions bounds what one connection may ask in a second: 200.
	Questions int
	// Authorize refuses a request; nil: everybody is served that reaches it.
	Authorize func(*http.Request) error
	Logger    *slog.Logger
	Now       func() time.Time
}

func (c Config) withDefaults() Config {
	if c.Connections == 0 {
		c.Connections = 1000
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = 15 * time.Second
	}
	if c.Questions == 0 {
		c.Questions = 200
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Server serves outposts. It is safe for concurrent use.
type Server struct {
	cfg      Config
	conf     protocol.Configuration
	reducers map[string]protocol.Reducer
	stop     context.CancelFunc
	loops    sync.WaitGroup

	mu     sync.Mutex
	closed bool
	open   map[*connection]bool
}

// New makes a server. [Server.Close] ends it.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg.withDefaults(), reducers: map[string]protocol.Reducer{}, open: map[*connection]bool{}}
	s.conf = configuration(s.cfg)
	for _, r := range s.conf.Reducers {
		s.reducers[r.ID] = r
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.loops.Go(func() { s.edges(ctx) })
	return s
}

// configuration says what there is to compute, with the definition of each
// reducer: a digest of all that decides what it adds up.
func configuration(cfg Config) protocol.Configuration {
	c := protocol.Configuration{Reducers: []protocol.Reducer{}, Measures: cfg.Meters}
	for _, r := range cfg.Engine.Reducers() {
		var of []meter.Meter
		for _, m := range cfg.Meters {
			if m.Feature == r.Feature {
				of = append(of, m)
			}
		}
		text, err := json.Marshal(of)
		if err != nil {
			text = nil // meters are texts
		}
		sum := canon.Digest("fencepost-reducer-definition-v1", r.ID, string(text))
		c.Reducers = append(c.Reducers, protocol.Reducer{
			ID: r.ID, Definition: hex.EncodeToString(sum[:16]), Feature: r.Feature, Function: string(r.Function), Filter: r.Filter, Meters: r.Meters,
		})
	}
	text, err := json.Marshal(c)
	if err != nil {
		text = nil
	}
	sum := canon.Digest("fencepost-outpost-configuration-v1", string(text))
	c.ETag = hex.EncodeToString(sum[:16])
	return c
}

// ServeHTTP serves one outpost until it goes or the server closes.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Authorize != nil {
		if err := s.cfg.Authorize(r); err != nil {
			http.Error(w, "unauthorized", http.StatusUnauthorized)
			return
		}
	}
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{protocol.Subprotocol}, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return // it has answered
	}
	defer func() { _ = ws.CloseNow() }()
	if ws.Subprotocol() != protocol.Subprotocol {
		_ = ws.Close(websocket.StatusProtocolError, "the subprotocol is "+protocol.Subprotocol)
		return
	}
	ws.SetReadLimit(protocol.MaxFrame)
	c := newConnection(s, ws)
	if !s.enter(c) {
		_ = ws.Close(websocket.StatusTryAgainLater, "too many outposts, or the server ends")
		return
	}
	defer s.leave(c)
	c.serve(r.Context())
}

func (s *Server) enter(c *connection) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.open) >= s.cfg.Connections {
		return false
	}
	s.open[c] = true
	s.loops.Add(1)
	return true
}

func (s *Server) leave(c *connection) {
	s.mu.Lock()
	delete(s.open, c)
	s.mu.Unlock()
	s.loops.Done()
}

// Changed hints that an answer about a tenant's feature would be another now. It
// does not block. // G7.
func (s *Server) Changed(tenant, feature string, cause protocol.Cause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.conf.Reducers {
		if r.Feature != feature {
			continue
		}
		id := protocol.Identity{Customer: tenant, Reducer: r.ID}
		for c := range s.open {
			c.hint(id, cause)
		}
	}
}

// edges hints about everything of interest once for each bucket that closes, in
// steps, so that not all ask at once: whatever a hint of another host has missed
// is seen then. // G7.
func (s *Server) edges(ctx context.Context) {
	last := step(s.cfg.Now())
	for {
		now := s.cfg.Now()
		wait := now.Truncate(stepLength).Add(stepLength).Sub(now)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		next := step(s.cfg.Now())
		s.mu.Lock()
		for _, part := range partsBetween(last, next) {
			for c := range s.open {
				c.hintPart(part, steps)
			}
		}
		s.mu.Unlock()
		last = next
	}
}

// A bucket has that many steps, in each of which a part of what is of interest is
// hinted about.
const (
	steps      = 60
	stepLength = storage.BucketLength / steps
)

func step(t time.Time) int64 { return t.UnixNano() / int64(stepLength) }

// partsBetween lists the parts that are due after step last until next: all that a
// busy machine came late for, each once, and none for a clock that went back.
func partsBetween(last, next int64) []int {
	var parts []int
	for n := max(last, next-steps) + 1; n <= next; n++ {
		parts = append(parts, int(n%steps))
	}
	return parts
}

// Close says goodbye to all and waits until they are gone, or ctx ends.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	for c := range s.open {
		c.goodbye("the server ends", time.Second)
	}
	s.mu.Unlock()
	s.stop()
	done := make(chan struct{})
	go func() {
		s.loops.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.mu.Lock()
		for c := range s.open {
			_ = c.ws.CloseNow()
		}
		s.mu.Unlock()
		<-done
		return errors.Join(errors.New("outposts were cut off"), ctx.Err())
	}
}

func session() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
