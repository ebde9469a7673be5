package server_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/outpost/protocol"
	"github.com/fencepost/fencepost/outpost/server"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait. Machines that run this are shared.
const patience = 60 * time.Second

// slow is an engine whose answers wait until they are let go.
type slow struct {
	asked chan engine.SnapshotQuery
	let   chan error
}

func (s *slow) Reducers() []engine.Reducer {
	return []engine.Reducer{{ID: "r_1", Feature: "tokens", Function: "sum", Meters: []string{"tokens"}}}
}

func (s *slow) Snapshot(ctx context.Context, q engine.SnapshotQuery) (storage.Snapshot, error) {
	select {
	case s.asked <- q:
	case <-ctx.Done():
		return storage.Snapshot{}, ctx.Err()
	}
	select {
	case err := <-s.let:
		return storage.Snapshot{Version: 1}, err
	case <-ctx.Done():
		return storage.Snapshot{}, ctx.Err()
	}
}

// wire is a server, and a client that speaks the protocol by hand.
type wire struct {
	*testing.T
	ctx    context.Context //nolint:containedctx // of the test
	engine *slow
	server *server.Server
	url    string
}

func newWire(t *testing.T, change func(*server.Config)) *wire {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	w := &wire{T: t, ctx: ctx, engine: &slow{asked: make(chan engine.SnapshotQuery, 100), let: make(chan error, 100)}}
	cfg := server.Config{Engine: w.engine}
	if change != nil {
		change(&cfg)
	}
	w.server = server.New(cfg)
	h := httptest.NewServer(w.server)
	w.url = h.URL
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := w.server.Close(ctx); err != nil {
			t.Error(err)
		}
		h.Close()
	})
	return w
}

func (w *wire) dial(subprotocols ...string) (*websocket.Conn, *http.Response, error) {
	w.Helper()
	ws, res, err := websocket.Dial(w.ctx, w.url, &websocket.DialOptions{Subprotocols: subprotocols})
	if err == nil {
		w.Cleanup(func() { _ = ws.CloseNow() })
	}
	return ws, res, err
}

// join opens a connection and hears its welcome and configuration.
func (w *wire) join() (*websocket.Conn, protocol.Configuration) {
	w.Helper()
	ws, _, err := w.dial(protocol.Subprotocol)
	if err != nil {
		w.Fatal(err)
	}
	w.say(ws, protocol.TypeHello, "", protocol.Hello{SDK: "test", Layouts: []int{1}})
	w.hear(ws, protocol.TypeWelcome, nil)
	var c protocol.Configuration
	w.hear(ws, protocol.TypeConfiguration, &c)
	return ws, c
}

func (w *wire) say(ws *websocket.Conn, t protocol.Type, rid string, payload any) {
	w.Helper()
	frame, err := protocol.Encode(t, rid, payload)
	if err != nil {
		w.Fatal(err)
	}
	if err := ws.Write(w.ctx, websocket.MessageText, frame); err != nil {
		w.Fatal(err)
	}
}

func (w *wire) hear(ws *websocket.Conn, want protocol.Type, into any) protocol.Envelope {
	w.Helper()
	_, frame, err := ws.Read(w.ctx)
	if err != nil {
		w.Fatal(err)
	}
	e, err := protocol.Decode(frame)
	if err != nil || e.Type != want {
		w.Fatalf("%s, want %s, %v", frame, want, err)
	}
	if into != nil {
		if err := e.Into(into); err != nil {
			w.Fatal(err)
		}
	}
	return e
}

// G6, F19: one answer to each question, one question of an identity at a time, and
// another identity is not held up.
func TestOneQuestionOfAnIdentity(t *testing.T) {
	t.Parallel()
	w := newWire(t, nil)
	ws, conf := w.join()
	q := protocol.Question{Identity: protocol.Identity{Customer: "a", Reducer: "r_1"}, Definition: conf.Reducers[0].Definition}
	w.say(ws, protocol.TypeQuestion, "1", q)
	if got := <-w.engine.asked; got.Tenant != "a" || got.Reducer != "r_1" || !got.ColdFloor.IsZero() {
		t.Errorf("%+v", got)
	}
	w.say(ws, protocol.TypeQuestion, "2", q)
	var refusal protocol.Error
	if e := w.hear(ws, protocol.TypeError, &refusal); e.RID != "2" || refusal.Code != protocol.CodeRateLimited || refusal.RetryAfterMS == 0 {
		t.Errorf("%s %+v", e.RID, refusal)
	}
	q.Customer = "b"
	w.say(ws, protocol.TypeQuestion, "3", q)
	<-w.engine.asked
	w.engine.let <- nil
	w.engine.let <- nil
	answered := map[string]bool{}
	for range 2 {
		answered[w.hear(ws, protocol.TypeSnapshot, nil).RID] = true
	}
	if !answered["1"] || !answered["3"] {
		t.Error(answered)
	}
	w.say(ws, protocol.TypeQuestion, "4", q)
	<-w.engine.asked
	w.engine.let <- errors.New("a secret of the database")
	if e := w.hear(ws, protocol.TypeError, &refusal); e.RID != "4" || refusal.Code != protocol.CodeUnavailable || strings.Contains(string(e.Payload), "secret") {
		t.Errorf("%s", e.Payload)
	}
}

// Every refusal of the engine has a code that a client can act on.
func TestRefusals(t *testing.T) {
	t.Parallel()
	w := newWire(t, nil)
	ws, conf := w.join()
	q := protocol.Question{Identity: protocol.Identity{Customer: "a", Reducer: "r_1"}, Definition: conf.Reducers[0].Definition}
	for _, c := range []struct {
		err  error
		want protocol.Code
	}{
		{&sdk.Error{Tag: sdk.TagConflict, Code: "cold_regressed"}, protocol.CodeColdRegressed}, // G4
		{sdk.Invalid("tenant", "a rule"), protocol.CodeBadRequest},
		{&sdk.Error{Tag: sdk.TagUnsupported, Code: "buckets_incomplete"}, protocol.CodeUnsupported},
		{&sdk.Error{Tag: sdk.TagNotFound}, protocol.CodeUnknownReducer},
		{sdk.Unavailable("storage", errors.New("x")), protocol.CodeUnavailable},
	} {
		w.say(ws, protocol.TypeQuestion, "1", q) // at once: what was answered holds up nothing
		<-w.engine.asked
		w.engine.let <- c.err
		var refusal protocol.Error
		if w.hear(ws, protocol.TypeError, &refusal); refusal.Code != c.want {
			t.Errorf("%v: %+v", c.err, refusal)
		}
	}
}

// G7, C9: who is interested is told, and nobody else; a change of an unknown
// feature is none.
func TestHints(t *testing.T) {
	t.Parallel()
	w := newWire(t, nil)
	ws, conf := w.join()
	id := protocol.Identity{Customer: "a", Reducer: "r_1"}
	w.say(ws, protocol.TypeInterest, "", protocol.Interest{Add: []protocol.Identity{id}})
	// What follows is read after the interest.
	w.say(ws, protocol.TypeQuestion, "1", protocol.Question{Identity: id, Definition: conf.Reducers[0].Definition})
	<-w.engine.asked
	w.server.Changed("b", "tokens", protocol.CauseLate)
	w.server.Changed("a", "other", protocol.CauseLate)
	w.server.Changed("a", "tokens", protocol.CauseSeal)
	var c protocol.Changed
	if w.hear(ws, protocol.TypeChanged, &c); c.Identity != id || c.Cause != protocol.CauseSeal {
		t.Errorf("%+v", c)
	}
	w.engine.let <- nil
	w.hear(ws, protocol.TypeSnapshot, nil)
}

// F53: a planned end says goodbye, with a time, before it closes; a question that
// is being answered does not hold it up.
func TestPlannedEnd(t *testing.T) {
	t.Parallel()
	w := newWire(t, nil)
	ws, conf := w.join()
	w.say(ws, protocol.TypeQuestion, "1", protocol.Question{Identity: protocol.Identity{Customer: "a", Reducer: "r_1"}, Definition: conf.Reducers[0].Definition})
	<-w.engine.asked
	closed := make(chan error, 1)
	go func() { closed <- w.server.Close(w.ctx) }()
	var bye protocol.Goodbye
	if w.hear(ws, protocol.TypeGoodbye, &bye); bye.RetryAfterMS == 0 || bye.Reason == "" {
		t.Errorf("%+v", bye)
	}
	if _, _, err := ws.Read(w.ctx); websocket.CloseStatus(err) != websocket.StatusServiceRestart {
		t.Error(err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	ws, _, err := w.dial(protocol.Subprotocol)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := ws.Read(w.ctx); websocket.CloseStatus(err) != websocket.StatusTryAgainLater {
		t.Error(err)
	}
}

// What is not admitted: too many, another protocol, a frame too large, and whoever
// is refused before the handshake.
func TestNotAdmitted(t *testing.T) {
	t.Parallel()
	w := newWire(t, func(c *server.Config) { c.Connections = 1 })
	first, _ := w.join()
	second, _, err := w.dial(protocol.Subprotocol)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := second.Read(w.ctx); websocket.CloseStatus(err) != websocket.StatusTryAgainLater {
		t.Error(err)
	}
	other, _, err := w.dial("outpost.v2")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := other.Read(w.ctx); websocket.CloseStatus(err) != websocket.StatusProtocolError {
		t.Error(err)
	}
	_ = first.Write(w.ctx, websocket.MessageText, make([]byte, protocol.MaxFrame+1)) // it may be cut off meanwhile
	if _, _, err := first.Read(w.ctx); err == nil {
		t.Error("a frame above the limit was taken")
	}
	closed := newWire(t, func(c *server.Config) {
		c.Authorize = func(*http.Request) error { return errors.New("no") }
	})
	_, res, err := closed.dial(protocol.Subprotocol)
	if err == nil || res == nil || res.StatusCode != http.StatusUnauthorized {
		t.Errorf("%v, %v", res, err)
	}
}
