package stripedouble

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// book is the state: who was charged, what is stored under which key. Every
// change is a record that is applied and handed to the journal under one lock,
// so the file replays to the same state.
type book struct {
	cfg   Config
	clock *clock
	j     *journal

	mu        sync.Mutex
	entries   map[owned]*Entry
	order     []*Entry
	totals    map[string]*eventTotal
	charges   int
	double    []*Entry
	refused   int
	keys      map[owned]storedAnswer
	inUse     map[owned]bool
	executing map[lockKey]int
	customers map[string]bool

	places    map[lockKey][]*Entry // by customer and meter
	late      []lateCharge
	reports   []*report
	cancelled int
	rejected  int
}

// owned is a name within an account and mode.
type owned struct {
	account string
	live    bool
	name    string
}

type lockKey struct {
	account, customer, eventName string
	live                         bool
}

type eventTotal struct {
	events, charges int
	sum             decimal.Decimal
	net             decimal.Decimal
}

type storedAnswer struct {
	fingerprint string
	at          int64
	answer      answer
}

func openBook(cfg Config, c *clock) (*book, error) {
	b := &book{cfg: cfg, clock: c, inUse: map[owned]bool{}, executing: map[lockKey]int{}}
	b.clear()
	if cfg.Customers != nil {
		b.customers = map[string]bool{}
		for _, id := range cfg.Customers {
			b.customers[id] = true
		}
	}
	j, err := openJournal(cfg.Dir, cfg.Sync, b.apply)
	if err != nil {
		return nil, err
	}
	b.j = j
	return b, nil
}

func (b *book) clear() {
	b.entries, b.order = map[owned]*Entry{}, nil
	b.totals, b.keys = map[string]*eventTotal{}, map[owned]storedAnswer{}
	b.charges, b.refused, b.double = 0, 0, nil
	b.places, b.late, b.reports = map[lockKey][]*Entry{}, nil, nil
	b.cancelled, b.rejected = 0, 0
}

func (b *book) close() error { return b.j.close() }

// apply changes the state as r says. r passed [record.check].
func (b *book) apply(r record) {
	switch r.Op {
	case opCharge:
		b.charge(r)
	case opRepeat:
		if e := b.entries[owned{r.Account, r.Live, r.Identifier}]; e != nil {
			e.TimesSeen++
		}
		b.refused++
	case opClock:
		b.clock.add(time.Duration(r.Advance))
	case opCancel:
		b.cancel(r)
	case opReject:
		b.reject(r)
	case opReport:
		b.reports = append(b.reports, &report{id: r.Identifier, account: r.Account, live: r.Live, body: r.Body})
	case opSent:
		for _, m := range b.reports {
			m.delivered = m.delivered || m.id == r.Identifier
		}
	}
	if r.Key != "" {
		b.keys[owned{r.Account, r.Live, r.Key}] = storedAnswer{
			fingerprint: r.Fingerprint,
			at:          r.At,
			answer:      answer{status: r.Status, body: []byte(r.Body), noRetry: r.NoRetry, originalRequest: r.RequestID},
		}
	}
}

func (b *book) charge(r record) {
	at := time.UnixMicro(r.At).UTC()
	t := b.totals[r.EventName]
	if t == nil {
		t = &eventTotal{}
		b.totals[r.EventName] = t
	}
	id := owned{r.Account, r.Live, r.Identifier}
	e := b.entries[id]
	if e == nil {
		e = &Entry{
			Identifier: r.Identifier, Account: r.Account, Livemode: r.Live,
			EventName: r.EventName, Customer: r.Customer, Value: r.Value, Timestamp: r.Timestamp,
			FirstSeen: at,
		}
		b.entries[id] = e
		b.order = append(b.order, e)
		place := lockKey{r.Account, r.Customer, r.EventName, r.Live}
		b.places[place] = append(b.places[place], e)
		t.events++
	}
	if r.Code != "" {
		b.late = append(b.late, lateCharge{entry: e, code: r.Code, at: time.UnixMicro(r.LateAt).UTC()})
	}
	e.Omitted = e.Omitted || r.Omit
	e.TimesSeen++
	e.Charges++
	e.LastCharged = at
	if e.Charges == 2 {
		b.double = append(b.double, e)
	}
	v, _ := parseValue(r.Value) // checked before
	t.sum, t.net = t.sum.Add(v), t.net.Add(v)
	t.charges++
	b.charges++
}

// commit applies and records r; the returned mark is for journal.wait. The
// lock is held.
func (b *book) commit(r record) int64 {
	b.apply(r)
	return b.j.append(r)
}

// claim is what an Idempotency-Key was found to be.
type claim int

const (
	claimNew claim = iota
	claimReplay
	claimMismatch
	claimInUse
)

// claimKey takes an Idempotency-Key for one request, or says why not.
func (b *book) claimKey(key owned, fingerprint string) (claim, answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inUse[key] {
		return claimInUse, answer{}
	}
	if s, ok := b.keys[key]; ok {
		keep := max(b.cfg.DedupeWindow, DefaultDedupeWindow)
		if b.clock.now().Sub(time.UnixMicro(s.at)) < keep {
			if s.fingerprint != fingerprint {
				return claimMismatch, answer{}
			}
			return claimReplay, s.answer
		}
	}
	b.inUse[key] = true
	return claimNew, answer{}
}

func (b *book) releaseKey(key owned) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.inUse, key)
}

// enter takes one of the places for this customer and meter.
func (b *book) enter(k lockKey) bool {
	if b.cfg.SerialLimit < 0 {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.executing[k] >= b.cfg.SerialLimit {
		return false
	}
	b.executing[k]++
	return true
}

func (b *book) leave(k lockKey) {
	if b.cfg.SerialLimit < 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.executing[k]--; b.executing[k] == 0 {
		delete(b.executing, k)
	}
}

// refusal is what execution says against an event, before its identifier is
// looked up.
func (b *book) refusal(ev meterEvent) *apiError {
	if b.cfg.Meters != nil {
		switch b.cfg.Meters[ev.eventName] {
		case MeterActive:
		case MeterArchived:
			return noActiveMeter(codeArchivedMeter, ev.eventName)
		default:
			return noActiveMeter(codeNoMeter, ev.eventName)
		}
	}
	known := b.customers[ev.customer]
	if b.customers == nil {
		known = strings.HasPrefix(ev.customer, "cus_")
	}
	if !known {
		return noSuchCustomer(ev.customer)
	}
	return nil
}

// inWindow reports whether the identifier is still recognised.
func (b *book) inWindow(id owned, now time.Time) bool {
	e := b.entries[id]
	return e != nil && now.Sub(e.LastCharged) < b.cfg.DedupeWindow
}

// reset forgets everything but the clock's offset.
func (b *book) reset() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clear()
	if err := b.j.reset(); err != nil {
		return err
	}
	if adv := b.clock.offset.Load() - int64(b.cfg.ClockOffset); adv != 0 {
		return b.j.wait(b.j.append(record{Op: opClock, At: b.clock.now().UnixMicro(), Advance: adv}))
	}
	return nil
}

// advance moves the clock and records it.
func (b *book) advance(d time.Duration) error {
	b.mu.Lock()
	mark := b.commit(record{Op: opClock, At: b.clock.now().UnixMicro(), Advance: int64(d)})
	b.mu.Unlock()
	return b.j.wait(mark)
}

// summary fills in what the book knows of a ledger.
func (b *book) summary() Ledger {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settle()
	l := Ledger{
		ChargesTotal: map[string]string{}, NetTotal: map[string]string{}, ByEventName: map[string]EventTotal{},
		Cancelled: b.cancelled, Rejected: b.rejected,
		Events: len(b.order), Charges: b.charges,
		DoubleCharges: len(b.double), DoubleCharged: []string{}, DuplicatesRefused: b.refused,
		Clock: b.clock.now(),
	}
	for name, t := range b.totals {
		l.ChargesTotal[name], l.NetTotal[name] = t.sum.String(), t.net.String()
		l.ByEventName[name] = EventTotal{Events: t.events, Charges: t.charges, Total: t.sum.String(), Net: t.net.String()}
	}
	for _, e := range b.double[:min(len(b.double), maxDoubleCharged)] {
		l.DoubleCharged = append(l.DoubleCharged, e.Identifier)
	}
	return l
}

const maxDoubleCharged = 100

// page copies up to n entries from position from.
func (b *book) page(from, n int) []Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settle()
	from = min(from, len(b.order))
	out := make([]Entry, 0, min(n, len(b.order)-from))
	for _, e := range b.order[from:min(from+n, len(b.order))] {
		out = append(out, *e)
	}
	return out
}

func (b *book) entry(id owned) (Entry, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settle()
	if e := b.entries[id]; e != nil {
		return *e, true
	}
	return Entry{}, false
}

// fingerprint identifies the parameters of a request.
func fingerprint(method, path string, params map[string]string) string {
	h := sha256.New()
	write := func(s string) {
		var n [8]byte
		for i := range n {
			n[i] = byte(len(s) >> (8 * i))
		}
		h.Write(n[:])
		h.Write([]byte(s))
	}
	write(method)
	write(path)
	for _, k := range slices.Sorted(maps.Keys(params)) {
		write(k)
		write(params[k])
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
