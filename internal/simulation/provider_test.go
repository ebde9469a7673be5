package simulation

import (
	"context"
	"strconv"
	"time"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// provider counts as a billing provider does: an identifier that it remembers is
// not charged again. Its clock is right.
type provider struct {
	w         *world
	first     map[string]time.Duration
	cancelled map[string]bool // by the identifier of the charge
	booked    map[int64]int   // charges and credits by item, under whatever identifier
	facts     map[storage.Hash]int
	gone      map[int64]bool          // withdrawn after it was taken
	toldAt    map[int64]time.Duration // when the store knew that
	busy      map[string]int          // requests by customer and meter
	forward   time.Duration           // when the store's clock was last set forward

	counted, writtenOff map[string]decimal.Decimal // of a tenant's counter
}

func newProvider(w *world) *provider {
	return &provider{
		w: w, first: map[string]time.Duration{}, cancelled: map[string]bool{}, booked: map[int64]int{},
		facts: map[storage.Hash]int{}, gone: map[int64]bool{}, toldAt: map[int64]time.Duration{}, busy: map[string]int{}, forward: -lease,
		counted: map[string]decimal.Decimal{}, writtenOff: map[string]decimal.Decimal{},
	}
}

func (p *provider) knows(identifier string) bool {
	at, known := p.first[identifier]
	return known && p.w.since()-at < remembered
}

// take charges an item under an identifier that is not known.
func (p *provider) take(id int64, identifier string) {
	p.first[identifier] = p.w.since()
	p.book(id)
	p.maybeWithdrawn(id)
}

func (p *provider) book(id int64) {
	r := p.w.store.row(id)
	p.booked[id]++
	p.facts[r.subject]++
	p.w.note("item %d booked", id)
	p.w.judgeBooking(id)
	if r.Identity.SubjectKind == storage.SubjectWindow {
		tenant := r.Identity.Tenant
		p.counted[tenant] = p.counted[tenant].Add(windowValue(r))
		for _, k := range p.w.store.boundKeys() {
			if k.Tenant == tenant {
				p.w.judgeWindow(k)
			}
		}
	}
}

// begin and end are of one request about a customer and a meter. // O16.
func (p *provider) begin(key string) {
	p.busy[key]++
	settled := p.w.since()-p.forward > lease // or the leases ended early
	if p.w.has.serial && p.busy[key] > 1 && settled {
		p.w.fail("two requests of %s at a time", key)
	}
}

func (p *provider) end(key string) { p.busy[key]-- }

// fate is what becomes of one request.
type fate int

const (
	fateWell fate = iota
	fateEffectLost
	fateNoEffect
	fateLate
	fateFailedAfter
	fateFailedBefore
	fateDown
	fateDownAfter
	fateRefused
	fateMendable
	fateLimited
	fateUnsent
	fateLie
	fateTwice
	fatePanic
	fateForgotten
	fates
)

// mixed is the bad weather of most phases.
var mixed = []fate{
	fateEffectLost, fateEffectLost, fateNoEffect, fateNoEffect, fateLate, fateLate, fateFailedAfter, fateFailedBefore, fateDown,
	fateDownAfter, fateRefused, fateRefused, fateMendable, fateMendable, fateLimited, fateUnsent, fateLie, fateTwice, fatePanic, fateForgotten,
}

var fateNames = [fates]string{
	"taken", "taken, answer lost", "lost on the way", "taken late, nobody waits", "500 after the effect", "500 before it",
	"401", "401 after the effect", "refused", "refused, mendable", "429", "not sent", "plugin lies", "plugin sends twice", "plugin traps", "plugin says nothing",
}

// sender is the exporter, the plugin and the host's egress in one.
type sender struct {
	session
	manifest exporter.Manifest
}

func (s sender) Manifest() exporter.Manifest { return s.manifest }

func (s sender) Send(ctx context.Context, items []outbox.SendItem, _ time.Time) outbox.Report {
	r := outbox.Report{Called: true, Grade: outbox.GradeHost, Exchanges: map[string][]exporter.Exchange{}}
	for i := range items {
		said, exchanges := s.one(ctx, &items[i])
		if exchanges != nil {
			r.Exchanges[items[i].ID] = exchanges
		}
		if said != "" {
			r.Outcomes = append(r.Outcomes, exporter.ItemOutcome{ItemID: items[i].ID, Kind: said})
		}
	}
	return r
}

func seen(c exporter.HostClass) []exporter.Exchange { return []exporter.Exchange{{Class: c}} }

// one sends one item, if its lease is left.
func (s sender) one(ctx context.Context, it *outbox.SendItem) (exporter.OutcomeKind, []exporter.Exchange) {
	s.stopped()
	if left, _ := outbox.LeaseLeft(ctx); left <= 0 && !s.w.hooks.noLeaseLook {
		s.w.mu.Lock()
		s.w.count("no lease left to send")
		s.w.mu.Unlock()
		return exporter.Retry, seen(exporter.ClassNotSent)
	}
	s.w.mu.Lock()
	f := fateWell
	if s.w.chance(s.w.phase.send) {
		f = s.w.phase.fates[s.w.draw(len(s.w.phase.fates))]
	}
	dies := -1
	if s.w.chance(s.w.phase.crash) {
		dies = s.w.draw(2)
	}
	pause := time.Duration(0)
	if s.w.chance(s.w.phase.stop) {
		pause = s.w.between(time.Second, stoppedAtMax)
	}
	there, back := s.w.between(time.Millisecond, 300*time.Millisecond), s.w.between(time.Millisecond, 300*time.Millisecond)
	s.w.mu.Unlock()
	if dies == 0 {
		s.w.die()
	}
	if pause > 0 { // stopped with the request ready: the lease cannot help
		s.w.sleep(context.Background(), s.lane, pause)
	}
	counts := pause == 0 && f != fateUnsent
	key := it.Customer + " " + it.Mapping["event_name"]
	if f != fateUnsent {
		if counts {
			s.w.mu.Lock()
			s.w.provider.begin(key)
			s.w.mu.Unlock()
		}
		s.w.sleep(context.Background(), s.lane, there)
	}
	s.w.mu.Lock()
	if counts {
		s.w.provider.end(key)
	}
	s.w.count("send: " + fateNames[f])
	said, exchanges := s.happens(f, it)
	s.w.note("item %s sent: %s", it.ID, fateNames[f])
	if s.w.hooks.failedIsNo && len(exchanges) == 1 && exchanges[0].Class == exporter.ClassIndefinite {
		said, exchanges = exporter.Rejected, seen(exporter.ClassRefused)
	}
	s.w.mu.Unlock()
	if f == fatePanic {
		panic("the plugin traps")
	}
	if dies == 1 {
		s.w.die()
	}
	s.w.sleep(ctx, s.lane, back)
	return said, exchanges
}

// happens is what one request does at the provider, what the host sees of it and
// what the plugin says.
func (s sender) happens(f fate, it *outbox.SendItem) (exporter.OutcomeKind, []exporter.Exchange) {
	w, request := s.w, s.request(it)
	switch f {
	case fateWell:
		return request.do()
	case fateEffectLost:
		request.do()
		return exporter.Retry, seen(exporter.ClassIndefinite)
	case fateLate:
		w.flying[request.id]++
		w.after(w.between(time.Second, flightMax), func() {
			w.flying[request.id]--
			request.do()
		})
		return exporter.Uncertain, seen(exporter.ClassIndefinite)
	case fateFailedAfter:
		request.do()
		return exporter.Retry, []exporter.Exchange{{Class: exporter.ClassIndefinite, Status: 500}}
	case fateFailedBefore:
		return exporter.Retry, []exporter.Exchange{{Class: exporter.ClassIndefinite, Status: 503}}
	case fateDown:
		return exporter.Retry, []exporter.Exchange{{Class: exporter.ClassIndefinite, Status: 401, Breaker: true}}
	case fateDownAfter:
		request.do()
		return exporter.Retry, []exporter.Exchange{{Class: exporter.ClassIndefinite, Status: 401, Breaker: true}}
	case fateRefused, fateMendable:
		if request.known() { // the duplicate is noticed first
			return request.do()
		}
		return exporter.Rejected, []exporter.Exchange{{Class: exporter.ClassRefused, Status: 400, Mendable: f == fateMendable}}
	case fateLimited:
		return exporter.RateLimited, []exporter.Exchange{{Class: exporter.ClassThrottled, Status: 429, RetryAfter: time.Duration(w.draw(90)) * time.Second}}
	case fateUnsent:
		return exporter.Retry, seen(exporter.ClassNotSent)
	case fateLie:
		_, exchanges := request.do()
		all := outbox.AllSaid()
		return exporter.OutcomeKind(all[w.draw(len(all))]), exchanges
	case fateTwice:
		_, first := request.do()
		said, second := request.do()
		return said, append(first, second...)
	case fatePanic, fateForgotten:
		if w.draw(2) == 0 {
			request.do()
		}
		return "", seen(exporter.ClassIndefinite)
	default:
		return exporter.Retry, seen(exporter.ClassIndefinite)
	}
}

// request is one item as it reaches the provider: a charge under an identifier,
// or the cancellation of one.
type request struct {
	p          *provider
	id         int64
	identifier string
	cancels    bool
}

func (s sender) request(it *outbox.SendItem) request {
	id, _ := strconv.ParseInt(it.ID, 10, 64)
	r := request{p: s.w.provider, id: id, identifier: it.Covers}
	r.cancels = it.Corrects != nil && it.Corrects.Method == exporter.CorrectCancel
	if s.w.hooks.nonce {
		r.identifier += strconv.Itoa(it.Attempt)
	}
	if it.Corrects != nil {
		s.w.count("correction sent: " + string(it.Corrects.Method))
	}
	return r
}

// known reports whether the provider would see at once that it has done this.
func (r request) known() bool {
	if r.cancels {
		return r.p.cancelled[r.identifier]
	}
	return r.p.knows(r.identifier)
}

// do is the request taken by the provider, and its answer.
func (r request) do() (exporter.OutcomeKind, []exporter.Exchange) {
	switch {
	case r.known():
		return exporter.AcceptedEarlier, seen(exporter.ClassDuplicateOwn)
	case !r.cancels:
		r.p.take(r.id, r.identifier)
	case !r.p.knows(r.identifier): // never charged, or too long ago
		return exporter.Rejected, []exporter.Exchange{{Class: exporter.ClassRefused, Status: 400}}
	default:
		r.p.cancelled[r.identifier] = true
		r.p.book(r.id)
	}
	return exporter.Accepted, seen(exporter.ClassSuccess)
}
