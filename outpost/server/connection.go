package server

import (
	"context"
	"errors"
	"hash/fnv"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/outpost/protocol"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	// outgoing bounds the frames that wait for a slow client; hints are no
	// frames before it takes them. // C-T29.
	outgoing = 64
	// atOnce bounds the questions of one connection that are being answered.
	atOnce = 8
	// answerWithin bounds one answer.
	answerWithin = 10 * time.Second
	// writeWithin bounds the writing of one frame.
	writeWithin = 10 * time.Second
)

// connection is one outpost.
type connection struct {
	s  *Server
	ws *websocket.Conn

	frames chan []byte
	wake   chan struct{}
	places chan struct{}

	mu       sync.Mutex
	interest map[protocol.Identity]bool
	hints    map[protocol.Identity]protocol.Cause // the latest wins
	asking   map[protocol.Identity]bool
	leaving  *protocol.Goodbye
	second   time.Time
	asked    int
}

func newConnection(s *Server, ws *websocket.Conn) *connection {
	return &connection{
		s: s, ws: ws, frames: make(chan []byte, outgoing), wake: make(chan struct{}, 1), places: make(chan struct{}, atOnce),
		interest: map[protocol.Identity]bool{}, hints: map[protocol.Identity]protocol.Cause{}, asking: map[protocol.Identity]bool{},
	}
}

// serve runs until the client goes, does not answer, or the server ends.
func (c *connection) serve(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var loops sync.WaitGroup
	defer loops.Wait()
	defer cancel()
	loops.Go(func() {
		defer cancel()
		c.write(ctx)
	})
	loops.Go(func() {
		defer cancel()
		c.ping(ctx)
	})
	for {
		kind, frame, err := c.ws.Read(ctx)
		if err != nil {
			return
		}
		if kind != websocket.MessageText {
			c.refuse("", protocol.Error{Code: protocol.CodeBadRequest, Rule: "text frames"})
			continue
		}
		e, err := protocol.Decode(frame)
		if err != nil {
			c.refuse("", protocol.Error{Code: protocol.CodeBadRequest, Rule: err.Error()})
			continue
		}
		c.take(ctx, &loops, e)
	}
}

// take handles one message. One that is not known is ignored.
func (c *connection) take(ctx context.Context, loops *sync.WaitGroup, e protocol.Envelope) {
	switch e.Type {
	case protocol.TypeHello:
		c.send(protocol.TypeWelcome, "", protocol.Welcome{
			Session: session(), ServerTime: c.s.cfg.Now().UnixMicro(), HeartbeatSeconds: int(c.s.cfg.Heartbeat / time.Second),
			MaxIDs: protocol.MaxIDs, MaxFrame: protocol.MaxFrame, Layout: 1,
		})
		c.send(protocol.TypeConfiguration, "", c.s.conf)
	case protocol.TypeInterest:
		var in protocol.Interest
		if e.Into(&in) != nil || len(in.Add)+len(in.Remove) > protocol.MaxInterest {
			c.refuse(e.RID, protocol.Error{Code: protocol.CodeBadRequest, Field: "add", Rule: "at most 1000 identities"})
			return
		}
		c.interested(in)
	case protocol.TypeQuestion:
		var q protocol.Question
		if refusal, ok := c.admit(e, &q); !ok {
			c.refuse(e.RID, refusal)
			return
		}
		c.places <- struct{}{} // reading waits: a client that asks too much slows itself
		loops.Go(func() {
			defer func() { <-c.places }()
			kind, payload := c.answer(ctx, q)
			c.mu.Lock()
			delete(c.asking, q.Identity) // before the answer, which may lead to the next question
			c.mu.Unlock()
			c.send(kind, e.RID, payload)
		})
	case protocol.TypeWelcome, protocol.TypeConfiguration, protocol.TypeSnapshot, protocol.TypeChanged, protocol.TypeError, protocol.TypeGoodbye:
	}
}

func (c *connection) interested(in protocol.Interest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range in.Remove {
		delete(c.interest, id)
		delete(c.hints, id)
	}
	for _, id := range in.Add {
		if len(c.interest) < protocol.MaxIdentities {
			c.interest[id] = true
		}
	}
}

// admit checks a question before the engine is asked.
func (c *connection) admit(e protocol.Envelope, q *protocol.Question) (refusal protocol.Error, ok bool) {
	if e.RID == "" || e.Into(q) != nil {
		return protocol.Error{Code: protocol.CodeBadRequest, Rule: "a question with a rid"}, false
	}
	r, known := c.s.reducers[q.Reducer]
	switch {
	case !known:
		return protocol.Error{Code: protocol.CodeUnknownReducer, Field: "reducer"}, false
	case q.Definition != r.Definition:
		return protocol.Error{Code: protocol.CodeDefinitionChanged, Field: "definition"}, false
	case len(q.Events)+len(q.Receipts) > protocol.MaxIDs:
		return protocol.Error{Code: protocol.CodeBadRequest, Field: "events", Rule: "with the receipts at most 1000"}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.s.cfg.Now(); now.Sub(c.second) >= time.Second {
		c.second, c.asked = now, 0
	}
	if c.asked++; c.asked > c.s.cfg.Questions {
		return protocol.Error{Code: protocol.CodeRateLimited, RetryAfterMS: time.Second.Milliseconds()}, false
	}
	if c.asking[q.Identity] {
		return protocol.Error{Code: protocol.CodeRateLimited, Rule: "one question of an identity at a time", RetryAfterMS: 100}, false
	}
	c.asking[q.Identity] = true
	return protocol.Error{}, true
}

// answer asks the engine, in one short transaction. // G6, C-T28.
func (c *connection) answer(ctx context.Context, q protocol.Question) (protocol.Type, any) {
	in := engine.SnapshotQuery{Tenant: q.Customer, Reducer: q.Reducer, Bootstrap: q.Bootstrap, Events: q.Events, Receipts: q.Receipts}
	if q.ColdFloor != 0 {
		in.ColdFloor = time.UnixMicro(q.ColdFloor).UTC()
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	s, err := c.s.cfg.Engine.Snapshot(ctx, in)
	if err != nil {
		return protocol.TypeError, refusalOf(err)
	}
	return protocol.TypeSnapshot, snapshotOf(q, s)
}

func snapshotOf(q protocol.Question, s storage.Snapshot) protocol.Snapshot {
	out := protocol.Snapshot{
		Identity: q.Identity, Definition: q.Definition, Version: s.Version, ColdUntil: s.ColdUntil.UnixMicro(), Count: s.Count, Sum: s.Sum.String(),
		Credits: map[string]string{}, Events: s.Events, Receipts: s.Receipts, AsOf: s.AsOf.UnixMicro(), Known: s.Known,
	}
	if !s.WindowStart.IsZero() {
		out.WindowStart = s.WindowStart.UnixMicro()
	}
	if s.Min != nil && s.Max != nil {
		low, high := s.Min.String(), s.Max.String()
		out.Min, out.Max = &low, &high
	}
	for _, m := range s.Credited {
		out.Credits[m.Meter] = m.Amount.String()
	}
	return out
}

func refusalOf(err error) protocol.Error {
	e, ok := errors.AsType[*sdk.Error](err)
	switch {
	case ok && e.Code == "cold_regressed":
		return protocol.Error{Code: protocol.CodeColdRegressed, Field: e.Field, Rule: e.Rule}
	case ok && e.Tag == sdk.TagInvalid:
		return protocol.Error{Code: protocol.CodeBadRequest, Field: e.Field, Rule: e.Rule}
	case ok && e.Tag == sdk.TagUnsupported:
		return protocol.Error{Code: protocol.CodeUnsupported, Field: e.Field, Rule: e.Rule}
	case ok && e.Tag == sdk.TagNotFound:
		return protocol.Error{Code: protocol.CodeUnknownReducer, Field: e.Field, Rule: e.Rule}
	}
	return protocol.Error{Code: protocol.CodeUnavailable, RetryAfterMS: time.Second.Milliseconds()}
}

func (c *connection) refuse(rid string, e protocol.Error) { c.send(protocol.TypeError, rid, e) }

// send queues a frame. A client that does not take them is sent away: what it
// would miss it asks for when it comes back.
func (c *connection) send(t protocol.Type, rid string, payload any) {
	frame, err := protocol.Encode(t, rid, payload)
	if err != nil {
		c.s.cfg.Logger.Error("outpost: encode a message", "type", string(t), "error", err)
		return
	}
	select {
	case c.frames <- frame:
	default:
		c.goodbye("too slow", 5*time.Second)
	}
}

// hint notes that an identity has changed, if it is of interest.
func (c *connection) hint(id protocol.Identity, cause protocol.Cause) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.interest[id] {
		c.hints[id] = cause
		c.look()
	}
}

// hintPart hints about one of several parts of what is of interest.
func (c *connection) hintPart(part, parts int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.interest {
		h := fnv.New32a()
		_, _ = h.Write([]byte(id.Customer))
		if int(h.Sum32()%uint32(parts)) == part {
			if _, waits := c.hints[id]; !waits {
				c.hints[id] = protocol.CauseEdge
			}
		}
	}
	c.look()
}

func (c *connection) look() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// goodbye has the connection closed after a last word.
func (c *connection) goodbye(reason string, after time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaving == nil {
		c.leaving = &protocol.Goodbye{Reason: reason, RetryAfterMS: after.Milliseconds()}
	}
	c.look()
}

// write sends what waits: answers first, then hints, then goodbye.
func (c *connection) write(ctx context.Context) {
	for {
		var frame []byte
		select {
		case frame = <-c.frames:
		case <-c.wake:
		case <-ctx.Done():
			return
		}
		if frame != nil && !c.put(ctx, frame) {
			return
		}
		for _, id := range c.due() {
			frame, err := protocol.Encode(protocol.TypeChanged, "", id)
			if err != nil || !c.put(ctx, frame) {
				return
			}
		}
		c.mu.Lock()
		leaving := c.leaving
		c.mu.Unlock()
		if leaving != nil {
			if frame, err := protocol.Encode(protocol.TypeGoodbye, "", leaving); err == nil {
				c.put(ctx, frame)
			}
			_ = c.ws.Close(websocket.StatusServiceRestart, leaving.Reason)
			return
		}
	}
}

// due takes the hints that wait.
func (c *connection) due() []protocol.Changed {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]protocol.Changed, 0, len(c.hints))
	for id, cause := range c.hints {
		list = append(list, protocol.Changed{Identity: id, Cause: cause})
	}
	clear(c.hints)
	return list
}

func (c *connection) put(ctx context.Context, frame []byte) bool {
	ctx, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	return c.ws.Write(ctx, websocket.MessageText, frame) == nil
}

// ping ends a connection that does not answer for two heartbeats.
func (c *connection) ping(ctx context.Context) {
	tick := time.NewTicker(c.s.cfg.Heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		alive, cancel := context.WithTimeout(ctx, 2*c.s.cfg.Heartbeat)
		err := c.ws.Ping(alive)
		cancel()
		if err != nil {
			return
		}
	}
}
