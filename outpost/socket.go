package outpost

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/outpost/protocol"
	"github.com/fencepost/fencepost/outpost/state"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// Pauses between two connections: full jitter below a bound that doubles. // F4.
const (
	reconnectBase = 500 * time.Millisecond
	reconnectCap  = 30 * time.Second
	dialWithin    = 10 * time.Second
	// silence is how long the engine may say nothing, heartbeats included.
	silence = 45 * time.Second
)

// socket is the link over a WebSocket. It reconnects until its context ends, but
// not with a token that was refused.
type socket struct {
	url     string
	token   string
	client  *http.Client
	log     *slog.Logger
	uniform func(int64) int64

	mu      sync.Mutex
	ws      *websocket.Conn // nil: down
	ctx     context.Context //nolint:containedctx // of the connection
	next    int64
	waiting map[string]chan protocol.Envelope
}

func newSocket(cfg Config) *socket {
	u, _ := url.Parse(cfg.Server) // was checked with the transport
	u.Scheme = map[string]string{"http": "ws", "https": "wss"}[u.Scheme]
	return &socket{
		url: strings.TrimSuffix(u.String(), "/") + "/v1/outpost", token: cfg.Token, client: cfg.HTTP, log: cfg.Logger,
		uniform: rand.Int64N, waiting: map[string]chan protocol.Envelope{},
	}
}

func (s *socket) run(ctx context.Context, h handler) {
	for attempt := 0; ctx.Err() == nil; attempt++ {
		began := time.Now() //nolint:forbidigo // how long a connection held, on this machine alone
		wait, err := s.connect(ctx, h)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errRefused) {
			s.log.ErrorContext(ctx, "outpost: the engine refuses the token; balances are not kept up any more")
			<-ctx.Done()
			return
		}
		if time.Since(began) > reconnectCap { //nolint:forbidigo // as above
			attempt = 0
		}
		bound := reconnectCap
		if attempt < 10 && reconnectBase<<attempt < reconnectCap {
			bound = reconnectBase << attempt
		}
		pause := max(wait, time.Duration(s.uniform(int64(bound))))
		s.log.InfoContext(ctx, "outpost: not connected to the engine", "again_in", pause, "error", err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

var errRefused = errors.New("the token is refused")

// connect is one connection. It answers how long the engine wants to be left alone.
func (s *socket) connect(ctx context.Context, h handler) (wait time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dial, stop := context.WithTimeout(ctx, dialWithin)
	defer stop()
	header := http.Header{}
	if s.token != "" {
		header.Set("Authorization", "Bearer "+s.token)
	}
	ws, res, err := websocket.Dial(dial, s.url, &websocket.DialOptions{ //nolint:bodyclose // the library has no body for its caller
		HTTPClient: s.client, HTTPHeader: header, Subprotocols: []string{protocol.Subprotocol}, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		if res != nil && (res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden) {
			err = errors.Join(errRefused, err)
		}
		return 0, err
	}
	defer func() { _ = ws.CloseNow() }()
	ws.SetReadLimit(protocol.MaxFrame)
	s.attach(ctx, ws)
	defer s.detach()
	if err := s.write(ctx, protocol.TypeHello, "", protocol.Hello{SDK: "go", Layouts: []int{state.Layout}}); err != nil {
		return 0, err
	}
	for {
		e, err := s.read(ctx)
		if err != nil {
			if code := websocket.CloseStatus(err); code == protocol.CloseUnauthorized || code == protocol.CloseForbidden {
				err = errors.Join(errRefused, err)
			}
			return wait, err
		}
		if e.Type == protocol.TypeGoodbye {
			var bye protocol.Goodbye
			if e.Into(&bye) == nil {
				wait = min(time.Duration(bye.RetryAfterMS)*time.Millisecond, reconnectCap)
			}
			continue
		}
		s.heard(e, h)
	}
}

// read reads a message. The engine pings: what is silent for three heartbeats is
// dead, whatever the connection says. // F9.
func (s *socket) read(ctx context.Context) (protocol.Envelope, error) {
	for {
		quiet, cancel := context.WithTimeout(ctx, silence)
		_, frame, err := s.ws.Read(quiet)
		cancel()
		if err != nil {
			return protocol.Envelope{}, err
		}
		if e, err := protocol.Decode(frame); err == nil {
			return e, nil
		}
	}
}

func (s *socket) heard(e protocol.Envelope, h handler) {
	switch e.Type {
	case protocol.TypeConfiguration:
		var c protocol.Configuration
		if e.Into(&c) != nil {
			return
		}
		compiled, err := compile(c)
		if err != nil {
			s.log.Error("outpost: a configuration of the engine that cannot be used", "error", err)
			return
		}
		h.configure(compiled)
		h.connected()
	case protocol.TypeChanged:
		var c protocol.Changed
		if e.Into(&c) == nil {
			h.changed(c.Customer, c.Reducer)
		}
	case protocol.TypeSnapshot, protocol.TypeError:
		s.mu.Lock()
		answer := s.waiting[e.RID]
		delete(s.waiting, e.RID)
		s.mu.Unlock()
		if answer != nil {
			answer <- e
		}
	default: // a later release may say more
	}
}

func (s *socket) attach(ctx context.Context, ws *websocket.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ws, s.ctx = ws, ctx
}

// detach ends what waits for an answer of this connection.
func (s *socket) detach() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ws = nil
	for rid, answer := range s.waiting {
		close(answer)
		delete(s.waiting, rid)
	}
}

func (s *socket) write(ctx context.Context, t protocol.Type, rid string, payload any) error {
	frame, err := protocol.Encode(t, rid, payload)
	if err != nil {
		return err
	}
	s.mu.Lock()
	ws := s.ws
	s.mu.Unlock()
	if ws == nil {
		return errDown
	}
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	return ws.Write(ctx, websocket.MessageText, frame)
}

func (s *socket) interested(ids []state.Identity) {
	for page := range slices.Chunk(ids, protocol.MaxInterest) {
		in := protocol.Interest{}
		for _, id := range page {
			in.Add = append(in.Add, protocol.Identity{Customer: id.Customer, Reducer: id.Reducer})
		}
		s.mu.Lock()
		ctx := s.ctx
		s.mu.Unlock()
		if ctx == nil || s.write(ctx, protocol.TypeInterest, "", in) != nil {
			return // it is said again with the next connection
		}
	}
}

func (s *socket) ask(ctx context.Context, q question) (snapshot, error) {
	in := protocol.Question{
		Identity: protocol.Identity{Customer: q.customer, Reducer: q.reducer}, Definition: q.definition, ColdFloor: q.coldFloor, Bootstrap: q.bootstrap,
	}
	for _, n := range q.ids {
		switch kind, id, ok := state.ParseEventID(n); {
		case ok && kind == state.CloudEvent:
			in.Receipts = append(in.Receipts, id)
		case ok && kind == state.Plain:
			in.Events = append(in.Events, id)
		}
	}
	answer := make(chan protocol.Envelope, 1)
	s.mu.Lock()
	if s.ws == nil {
		s.mu.Unlock()
		return snapshot{}, errDown
	}
	s.next++
	rid := strconv.FormatInt(s.next, 10)
	s.waiting[rid] = answer
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.waiting, rid)
		s.mu.Unlock()
	}()
	if err := s.write(ctx, protocol.TypeQuestion, rid, in); err != nil {
		return snapshot{}, err
	}
	select {
	case e, ok := <-answer:
		if !ok {
			return snapshot{}, errDown
		}
		return readAnswer(e)
	case <-ctx.Done():
		return snapshot{}, ctx.Err()
	}
}

func readAnswer(e protocol.Envelope) (snapshot, error) {
	if e.Type == protocol.TypeError {
		var refusal protocol.Error
		if err := e.Into(&refusal); err != nil {
			return snapshot{}, err
		}
		if refusal.Code == protocol.CodeColdRegressed {
			return snapshot{}, errRegressed
		}
		return snapshot{}, &sdk.Error{Tag: sdk.TagUnavailable, Code: string(refusal.Code), Field: refusal.Field, Rule: refusal.Rule}
	}
	var in protocol.Snapshot
	if err := e.Into(&in); err != nil {
		return snapshot{}, err
	}
	out := snapshot{
		version: in.Version, coldUntil: in.ColdUntil, windowStart: in.WindowStart, totals: state.Aggregate{Count: in.Count}, credits: map[string]decimal.Decimal{},
	}
	var err error
	read := func(text string) (d decimal.Decimal) {
		var bad error
		d, bad = decimal.ParseTotal(text)
		err = errors.Join(err, bad)
		return d
	}
	out.totals.Sum = read(in.Sum)
	if in.Min != nil && in.Max != nil {
		out.totals.Min, out.totals.Max, out.totals.Extremes = read(*in.Min), read(*in.Max), true
	}
	for m, amount := range in.Credits {
		out.credits[m] = read(amount)
	}
	for _, id := range in.Events {
		out.confirmed = append(out.confirmed, state.EventID(state.Plain, id))
	}
	for _, id := range in.Receipts {
		out.confirmed = append(out.confirmed, state.EventID(state.CloudEvent, id))
	}
	return out, err
}

// compile makes settings of the engine's configuration.
func compile(c protocol.Configuration) (*settings, error) {
	set, err := meter.NewSet(c.Measures)
	if err != nil {
		return nil, err
	}
	s := &settings{measures: set, reducers: map[string]reducer{}, byFeature: map[string][]reducer{}, meters: map[string]string{}}
	for _, x := range c.Reducers {
		r := reducer{ID: x.ID, Definition: x.Definition, Feature: x.Feature, Function: state.Function(x.Function), Filter: x.Filter}
		s.reducers[r.ID] = r
		s.byFeature[r.Feature] = append(s.byFeature[r.Feature], r)
		for _, m := range x.Meters {
			s.meters[m] = r.ID
		}
	}
	return s, nil
}
