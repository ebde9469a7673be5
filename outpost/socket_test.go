package outpost

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/outpost/protocol"
	"github.com/fencepost/fencepost/outpost/server"
	"github.com/fencepost/fencepost/outpost/state"
)

// sockets puts the real endpoint in front of the engine.
func (r *rig) sockets(change func(*server.Config)) *server.Server {
	r.Helper()
	cfg := server.Config{Engine: r.engine, Meters: measures()}
	if change != nil {
		change(&cfg)
	}
	s := server.New(cfg)
	r.server.Close()
	r.server = httptest.NewServer(api.New(api.Config{Engine: r.engine, Outbox: r.store, Ready: r.store.Ping, Outposts: s}))
	r.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			r.Error(err)
		}
	})
	return s
}

// C3, C4, C38, G1, G6: nothing but what a merchant has: two instances, their
// Redis, and the engine over HTTP and a WebSocket.
func TestOverTheWire(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.sockets(nil)
	r.grant("tokens", "1000")
	wired := func(c *Config) { c.link = nil }
	a, b := r.client(wired), r.client(wired)
	r.reads(a, "tokens", "1000")
	r.reads(b, "tokens", "1000")
	r.track(a, event("e1", "12.5", "big"))
	r.reads(a, "tokens", "987.5")
	r.until("the other instance follows", func() bool {
		got, err := b.Balance(t.Context(), "cus", "tokens")
		return err == nil && got.Balance.String() == "987.5"
	})
	r.until("delivered", func() bool { return r.stored() == 1 })
	// A grant at the engine is known here with a hint.
	r.grantAs("more", "tokens", "0.5")
	s.Changed("cus", "tokens", protocol.CauseCredit)
	r.until("the grant", func() bool {
		got, err := a.Balance(t.Context(), "cus", "tokens")
		return err == nil && got.Balance.String() == "988"
	})
	if got, err := b.Fresh(t.Context(), "cus", "tokens"); err != nil || got.Balance.String() != "988" {
		t.Errorf("%s, %v", got.Balance, err)
	}
}

// F4, F53: the engine says goodbye and comes back; reads go on meanwhile, and what
// changed there is asked for after the return.
func TestGoodbye(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.sockets(nil)
	r.grant("tokens", "10")
	sock := (*socket)(nil)
	a := r.client(func(c *Config) {
		filled := c.withDefaults()
		sock = newSocket(filled)
		sock.uniform = func(int64) int64 { return 0 }
		c.link = sock
	})
	r.reads(a, "tokens", "10")
	down := make(chan struct{})
	go func() {
		defer close(down)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	<-down
	r.reads(a, "tokens", "10") // from memory, or from Redis
	r.grantAs("more", "tokens", "5")
	second := server.New(server.Config{Engine: r.engine, Meters: measures()})
	r.server.Config.Handler = api.New(api.Config{Engine: r.engine, Outbox: r.store, Ready: r.store.Ping, Outposts: second})
	t.Cleanup(func() { _ = second.Close(context.Background()) })
	r.until("what changed meanwhile", func() bool {
		got, err := a.Balance(t.Context(), "cus", "tokens")
		return err == nil && got.Balance.String() == "15"
	})
}

// The endpoint itself, by hand: what it refuses and how. F19, C-T27, C-T28.
func TestEndpoint(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.sockets(func(c *server.Config) { c.Questions = 5 })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ws, res, err := websocket.Dial(ctx, "ws"+r.server.URL[len("http"):]+"/v1/outpost", &websocket.DialOptions{Subprotocols: []string{protocol.Subprotocol}})
	if err != nil {
		t.Fatal(err)
	}
	if res.Body != nil {
		_ = res.Body.Close()
	}
	defer func() { _ = ws.CloseNow() }()
	say := func(frame string) {
		if err := ws.Write(ctx, websocket.MessageText, []byte(frame)); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(want protocol.Type, into any) {
		t.Helper()
		for {
			_, frame, err := ws.Read(ctx)
			if err != nil {
				t.Fatal(err)
			}
			e, err := protocol.Decode(frame)
			if err != nil {
				t.Fatal(err)
			}
			if e.Type == protocol.TypeChanged && want != e.Type {
				continue
			}
			if e.Type != want {
				t.Fatalf("%s %s, want %s", e.Type, e.Payload, want)
			}
			if err := e.Into(into); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	say(`{"type":"hello","payload":{"sdk":"test","layouts":[1],"instance":"x","later":true}}`)
	var welcome protocol.Welcome
	hear(protocol.TypeWelcome, &welcome)
	var conf protocol.Configuration
	hear(protocol.TypeConfiguration, &conf)
	if welcome.Layout != state.Layout || welcome.MaxIDs != 1000 || len(conf.Reducers) != 3 || len(conf.Measures) != 2 || conf.ETag == "" {
		t.Errorf("%+v %+v", welcome, conf)
	}
	say(`{"type":"dance"}`) // ignored
	ask := func(rid string, q protocol.Question) {
		frame, err := protocol.Encode(protocol.TypeQuestion, rid, q)
		if err != nil {
			t.Fatal(err)
		}
		say(string(frame))
	}
	good := protocol.Question{Identity: protocol.Identity{Customer: "nobody", Reducer: conf.Reducers[0].ID}, Definition: conf.Reducers[0].Definition}
	ask("1", good)
	var snap protocol.Snapshot
	hear(protocol.TypeSnapshot, &snap)
	if snap.Known || snap.Sum != "0" || snap.Count != 0 || snap.ColdUntil%state.Width.Microseconds() != 0 || snap.Version == 0 {
		t.Errorf("%+v", snap)
	}
	for want, change := range map[protocol.Code]func(*protocol.Question){
		protocol.CodeUnknownReducer:    func(q *protocol.Question) { q.Reducer = "r_0" },
		protocol.CodeDefinitionChanged: func(q *protocol.Question) { q.Definition = "older" },
		protocol.CodeBadRequest:        func(q *protocol.Question) { q.Customer = "" },
		protocol.CodeColdRegressed:     func(q *protocol.Question) { q.ColdFloor = time.Now().Add(time.Hour).Truncate(state.Width).UnixMicro() },
	} {
		q := good
		change(&q)
		ask("x", q)
		var refusal protocol.Error
		hear(protocol.TypeError, &refusal)
		if refusal.Code != want {
			t.Errorf("%+v, want %s", refusal, want)
		}
	}
	var refusal protocol.Error
	for range 6 {
		ask("y", protocol.Question{Identity: good.Identity, Definition: good.Definition, Events: make([]string, 1001)})
		hear(protocol.TypeError, &refusal)
	}
	limited := false
	for n := range 20 {
		q := good
		q.Customer = string(rune('a' + n))
		text, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		say(`{"type":"question","rid":"z","payload":` + string(text) + `}`)
	}
	for range 20 {
		_, frame, err := ws.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		e, err := protocol.Decode(frame)
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == protocol.TypeError && e.Into(&refusal) == nil {
			limited = limited || refusal.Code == protocol.CodeRateLimited
		}
	}
	if !limited {
		t.Error("twenty questions in a second were all answered")
	}
}
