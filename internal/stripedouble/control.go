package stripedouble

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"
)

const pageSize = 1000

// Ledger returns the double's judgement. The zero Ledger before Start.
func (s *Server) Ledger() Ledger {
	b, err := s.running()
	if err != nil {
		return Ledger{}
	}
	l := b.summary()
	l.Requests, l.Replays = s.stats.requests.Load(), s.stats.replays.Load()
	l.Adjustments, l.Reads = s.stats.adjustments.Load(), s.stats.reads.Load()
	l.Answers = map[string]int64{}
	for status := range s.stats.status {
		if n := s.stats.status[status].Load(); n > 0 {
			l.Answers[strconv.Itoa(status)] = n
		}
	}
	l.FaultsFired = s.faults.counts()
	return l
}

// Entries returns a copy of every entry, in order of first charge.
func (s *Server) Entries() []Entry {
	b, err := s.running()
	if err != nil {
		return nil
	}
	var all []Entry
	for {
		page := b.page(len(all), pageSize)
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
	}
}

// Entry returns what is known of an identifier; account "" is
// [Config.Account].
func (s *Server) Entry(account string, livemode bool, identifier string) (Entry, bool) {
	b, err := s.running()
	if err != nil {
		return Entry{}, false
	}
	if account == "" {
		account = s.cfg.Account
	}
	return b.entry(owned{account, livemode, identifier})
}

// FaultsFired counts by rule of every schedule so far how often it fired.
func (s *Server) FaultsFired() map[string]int64 { return s.faults.counts() }

// SetFaults replaces the schedule. Requests are counted anew.
func (s *Server) SetFaults(f Faults) { s.faults.replace(f, s.cfg.Seed) }

// Advance moves the double's clock, backwards if d is negative, and remembers
// it over restarts.
func (s *Server) Advance(d time.Duration) error {
	b, err := s.running()
	if err != nil {
		return err
	}
	return b.advance(d)
}

// Preload charges an event that somebody else reported, whatever its meter and
// time. Identifier, EventName, Customer and Value are needed; an empty Account
// is [Config.Account], a zero Timestamp and FirstSeen are now; the counts are
// ignored.
func (s *Server) Preload(e Entry) error {
	b, err := s.running()
	if err != nil {
		return err
	}
	if e.Account == "" {
		e.Account = s.cfg.Account
	}
	now := s.clock.now()
	if e.FirstSeen.IsZero() {
		e.FirstSeen = now
	}
	if e.Timestamp == 0 {
		e.Timestamp = now.Unix()
	}
	v, err := parseValue(e.Value)
	if err != nil {
		return errors.New("preload: value: " + err.Error())
	}
	for _, text := range []string{e.Identifier, e.EventName, e.Customer} {
		if text == "" || utf8.RuneCountInString(text) > maxNameLength {
			return errors.New("preload: identifier, event_name and customer have 1 to 100 characters")
		}
	}
	b.mu.Lock()
	mark := b.commit(record{
		Op: opCharge, At: e.FirstSeen.UnixMicro(), Account: e.Account, Live: e.Livemode, Identifier: e.Identifier,
		EventName: e.EventName, Customer: e.Customer, Value: v.String(), Timestamp: e.Timestamp,
	})
	b.mu.Unlock()
	return b.j.wait(mark)
}

// Reset forgets ledger, stored answers and counters. Clock and schedule stay;
// the schedule counts from the beginning.
func (s *Server) Reset() error {
	b, err := s.running()
	if err != nil {
		return err
	}
	s.faults.forget()
	s.stats.requests.Store(0)
	s.stats.replays.Store(0)
	s.stats.adjustments.Store(0)
	s.stats.reads.Store(0)
	for i := range s.stats.status {
		s.stats.status[i].Store(0)
	}
	return b.reset()
}

func (s *Server) controlRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /__ledger", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, s.Ledger()) })
	mux.HandleFunc("GET /__ledger/events", s.streamEntries)
	mux.HandleFunc("POST /__reset", func(w http.ResponseWriter, _ *http.Request) { done(w, s.Reset()) })
	mux.HandleFunc("POST /__clock", func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Advance string }
		if !read(w, r, &in) {
			return
		}
		d, err := time.ParseDuration(in.Advance)
		if err != nil {
			refuse(w, "advance is a duration, such as 25h")
			return
		}
		if err := s.Advance(d); err != nil {
			done(w, err)
			return
		}
		reply(w, http.StatusOK, map[string]time.Time{"now": s.clock.now()})
	})
	mux.HandleFunc("POST /__faults", func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Faults string }
		if !read(w, r, &in) {
			return
		}
		f, err := ParseFaults(in.Faults)
		if err != nil {
			refuse(w, err.Error())
			return
		}
		s.SetFaults(f)
		reply(w, http.StatusOK, map[string]string{"faults": f.String()})
	})
	s.lateRoutes(mux)
	mux.HandleFunc("POST /__preload", func(w http.ResponseWriter, r *http.Request) {
		var in Entry
		if !read(w, r, &in) {
			return
		}
		if err := s.Preload(in); err != nil {
			refuse(w, err.Error())
			return
		}
		done(w, nil)
	})
}

// streamEntries writes the entries that exist when it begins, page by page, so
// that a large ledger is neither copied whole nor locked for long.
func (s *Server) streamEntries(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	enc := json.NewEncoder(w)
	for n := 0; ; {
		page := s.book.page(n, pageSize)
		if len(page) == 0 {
			return
		}
		n += len(page)
		for i := range page {
			if enc.Encode(&page[i]) != nil {
				return
			}
		}
	}
}

func read(w http.ResponseWriter, r *http.Request, into any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		refuse(w, "the body is not the JSON object that is expected here")
		return false
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		refuse(w, "more than one JSON value")
		return false
	}
	return true
}

func refuse(w http.ResponseWriter, why string) {
	reply(w, http.StatusBadRequest, map[string]string{"error": why})
}

func done(w http.ResponseWriter, err error) {
	if err != nil {
		reply(w, http.StatusInternalServerError, map[string]string{"error": err.Error()})
		return
	}
	reply(w, http.StatusOK, map[string]bool{"ok": true})
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}
