package stripedouble

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

const (
	meterEventsPath = "/v1/billing/meter_events"
	adjustmentsPath = "/v1/billing/meter_event_adjustments"
	maxBodyBytes    = 1 << 20
	apiVersion      = "2026-08-26.dahlia" // answered if a request names none
)

// answer is what a request gets.
type answer struct {
	status          int
	body            []byte
	noRetry         bool
	reason          string
	retryAfter      string
	replayed        bool
	originalRequest string
	reached         bool // execution or replay: what after faults may spoil
}

// request is one call of POST /v1/billing/meter_events.
type request struct {
	*http.Request
	id      string
	turn    turn
	book    *book
	params  map[string]string
	badForm error
	live    bool
	account string
	key     string // Idempotency-Key
	cancels bool   // an adjustment
	read    string // what triggers match a read by; empty: it is none
}

// named is what the triggers of faults see of the request.
func (rq *request) named() string {
	switch {
	case rq.read != "":
		return rq.read
	case rq.cancels:
		return cancelTrigger + rq.params[paramCancelID]
	}
	return rq.params[paramIdentifier]
}

func (rq *request) parse(now time.Time) (meterEvent, *apiError) {
	if rq.cancels {
		return parseAdjustment(rq.params)
	}
	return parseEvent(rq.params, now)
}

// stats counts since the start.
type stats struct {
	requests    atomic.Int64
	adjustments atomic.Int64
	reads       atomic.Int64
	replays     atomic.Int64
	status      [600]atomic.Int64
	serial      atomic.Uint64
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+meterEventsPath, func(w http.ResponseWriter, r *http.Request) { s.write(w, r, false) })
	mux.HandleFunc("POST "+adjustmentsPath, func(w http.ResponseWriter, r *http.Request) { s.write(w, r, true) })
	s.readRoutes(mux)
	s.controlRoutes(mux)
	mux.HandleFunc("/", s.notFound)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.enter() {
			panic(http.ErrAbortHandler)
		}
		defer s.handlers.Done()
		mux.ServeHTTP(w, r)
	})
}

func (s *Server) notFound(w http.ResponseWriter, r *http.Request) {
	id := s.newID("req_")
	s.header(w, r, id)
	write(w, unknownURL(r.Method, r.URL.Path).answer(s.cfg.Codes, id, false))
}

// write answers what may have an effect.
func (s *Server) write(w http.ResponseWriter, r *http.Request, cancels bool) {
	rq := &request{Request: r, id: s.newID("req_"), turn: s.faults.current.Load().next(), book: s.book, cancels: cancels}
	if cancels {
		s.stats.adjustments.Add(1)
	} else {
		s.stats.requests.Add(1)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if err != nil {
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); !tooLarge {
			return // the client went away in the middle of its request
		}
		rq.badForm = errors.New("the request is too large")
	} else {
		rq.params, rq.badForm = parseForm(r.URL.RawQuery, string(body))
	}
	rq.key = r.Header.Get(headerIdempotencyKey)
	if f := rq.turn.fire(onArrival, rq.named()); f != nil {
		s.misbehave(w, rq, f, s.pretend(rq))
		return
	}
	a := s.judge(rq)
	if a.reached {
		if f := rq.turn.fire(onReply, rq.named()); f != nil {
			s.misbehave(w, rq, f, a)
			return
		}
	}
	s.send(w, rq, a)
}

// judge runs the checks in the order that doc.go gives.
func (s *Server) judge(rq *request) answer {
	if e := s.authenticate(rq); e != nil {
		return s.refuse(rq, e)
	}
	if s.limiter != nil && !s.limiter.AllowN(s.clock.now(), 1) {
		return s.refuse(rq, rateLimited())
	}
	if len(rq.key) > maxIdempotencyKeyChars || !utf8.ValidString(rq.key) {
		return s.refuse(rq, invalid("", "", "Idempotency keys are at most 255 characters of UTF-8"))
	}
	print := ""
	if rq.key != "" {
		print = fingerprint(rq.Method, rq.URL.Path, rq.params)
		key := owned{rq.account, rq.live, rq.key}
		switch c, stored := rq.book.claimKey(key, print); c {
		case claimReplay:
			s.stats.replays.Add(1)
			stored.replayed, stored.reached = true, true
			return stored
		case claimMismatch:
			return s.refuse(rq, keyMismatch(rq.key))
		case claimInUse:
			return s.refuse(rq, keyInUse(rq.key))
		case claimNew:
			defer rq.book.releaseKey(key)
		}
	}
	if rq.badForm != nil {
		return s.refuse(rq, invalid("", "", "Invalid request: "+rq.badForm.Error()))
	}
	ev, refused := rq.parse(s.clock.now())
	if refused != nil {
		return s.refuse(rq, refused)
	}
	if ev.cancels {
		return s.execute(rq, ev, print)
	}
	place := lockKey{rq.account, ev.customer, ev.eventName, rq.live}
	if !rq.book.enter(place) {
		return s.refuse(rq, locked())
	}
	defer rq.book.leave(place)
	return s.execute(rq, ev, print)
}

// authenticate sets mode and account.
func (s *Server) authenticate(rq *request) *apiError {
	key, _, basic := rq.BasicAuth()
	if !basic {
		key, _ = strings.CutPrefix(rq.Header.Get("Authorization"), "Bearer ")
	}
	if key == "" {
		return noKey()
	}
	live, ok := keyMode(key)
	if !ok || (s.cfg.Keys != nil && !slices.Contains(s.cfg.Keys, key)) {
		return wrongKey(key)
	}
	rq.live, rq.account = live, s.cfg.Account
	if a := rq.Header.Get("Stripe-Account"); a != "" && a != s.cfg.Account {
		if !strings.HasPrefix(a, "acct_") || len(a) > maxNameLength || !utf8.ValidString(a) || (s.cfg.Accounts != nil && !slices.Contains(s.cfg.Accounts, a)) {
			return noSuchAccount(a)
		}
		rq.account = a
	}
	return nil
}

func (s *Server) refuse(rq *request, e *apiError) answer {
	return e.answer(s.cfg.Codes, rq.id, rq.live)
}

// execute looks up, charges, and stores the answer under the key. What it
// returns is in the ledger.
func (s *Server) execute(rq *request, ev meterEvent, print string) answer {
	if f := rq.turn.fire(beforePause, ev.named()); f != nil {
		s.pause(f.delay)
	}
	s.pause(s.cfg.Latency)
	if ev.identifier == "" {
		ev.identifier = s.newID("")
	}
	a, mark, recorded := s.decide(rq, ev, print)
	if recorded {
		if err := rq.book.j.wait(mark); err != nil {
			s.cfg.Logger.Error("ledger write", "error", err)
			return s.refuse(rq, statusError(500))
		}
	}
	a.reached = true
	return a
}

// decide makes the outcome and its record under the book's lock.
func (s *Server) decide(rq *request, ev meterEvent, print string) (a answer, mark int64, recorded bool) {
	b := rq.book
	b.mu.Lock()
	defer b.mu.Unlock()
	now := s.clock.now()
	r := record{Op: opAnswer, At: now.UnixMicro(), Account: rq.account, Live: rq.live}
	b.settle()
	refused := b.refusal(ev)
	switch {
	case rq.turn.fire(beforeEffect, ev.named()) != nil:
		a = s.refuse(rq, statusError(500))
	case ev.cancels:
		a = s.adjust(rq, ev, now, &r)
	case refused != nil:
		a = s.refuse(rq, refused)
	case b.inWindow(owned{rq.account, rq.live, ev.identifier}, now):
		r.Op, r.Identifier = opRepeat, ev.identifier
		a = s.refuse(rq, alreadyExists(ev.identifier))
	default:
		r.Op, r.Identifier, r.EventName = opCharge, ev.identifier, ev.eventName
		r.Customer, r.Value, r.Timestamp = ev.customer, ev.value, ev.timestamp
		rq.lateFaults(ev, now, &r)
		a = ev.accepted(now, rq.live)
	}
	if rq.turn.fire(insteadOfReply, ev.named()) != nil {
		a = s.refuse(rq, statusError(500))
	}
	if rq.key != "" {
		r.Key, r.Fingerprint, r.RequestID = rq.key, print, rq.id
		r.Status, r.Body, r.NoRetry = a.status, string(a.body), a.noRetry
	} else if r.Op == opAnswer {
		return a, 0, false
	}
	return a, b.commit(r), true
}

// send writes a as it is.
func (s *Server) send(w http.ResponseWriter, rq *request, a answer) {
	if !rq.cancels && rq.read == "" {
		s.stats.status[a.status].Add(1)
	}
	s.header(w, rq.Request, rq.id)
	write(w, a)
}

// header sets what every answer carries.
func (s *Server) header(w http.ResponseWriter, r *http.Request, id string) {
	h := w.Header()
	h["Content-Type"] = []string{"application/json"}
	h["Date"] = []string{s.clock.now().Format(http.TimeFormat)}
	h["Request-Id"] = []string{id}
	version := r.Header.Get("Stripe-Version")
	if version == "" {
		version = apiVersion
	}
	h["Stripe-Version"] = []string{version}
	if key := r.Header.Get(headerIdempotencyKey); key != "" {
		h["Idempotency-Key"] = []string{key}
	}
}

func write(w http.ResponseWriter, a answer) {
	h := w.Header()
	if a.noRetry {
		h.Set("Stripe-Should-Retry", "false")
	}
	if a.reason != "" {
		h.Set("Stripe-Rate-Limited-Reason", a.reason)
	}
	if a.retryAfter != "" {
		h.Set("Retry-After", a.retryAfter)
	}
	if a.replayed {
		h.Set("Idempotent-Replayed", "true")
		h.Set("Original-Request", a.originalRequest)
	}
	if a.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Basic realm="Stripe"`)
	}
	h["Content-Length"] = []string{strconv.Itoa(len(a.body))}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // the client may be gone: its affair
}

// newID makes an identifier that does not repeat, not even after a restart:
// the clock is in it.
func (s *Server) newID(prefix string) string {
	const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	x := mix(s.cfg.Seed ^ uint64(s.clock.now().UnixNano()))
	y := mix(x ^ s.stats.serial.Add(1))
	var b [16]byte
	for i := range b {
		v := &x
		if i%2 == 0 {
			v = &y
		}
		b[i] = alphabet[*v%62]
		*v /= 62
	}
	return prefix + string(b[:])
}

// pretend is the answer that a fault before the effect spoils: a success that
// did not happen.
func (s *Server) pretend(rq *request) answer {
	_ = s.authenticate(rq) // the mode, if the key shows one
	ev, _ := rq.parse(s.clock.now())
	if ev.cancels {
		return ev.adjusted(rq.live)
	}
	return ev.accepted(s.clock.now().Truncate(time.Second), rq.live)
}
