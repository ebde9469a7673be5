package stripedouble

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// place is where in a request's life a fault may happen.
type place int

const (
	onArrival      place = iota // before faults, but those of execution
	beforeEffect                // before:500
	beforePause                 // before:slow
	insteadOfReply              // after:500
	onReply                     // the other after faults
	onCharge                    // late faults
)

func (r *rule) place() place {
	switch {
	case r.phase == late:
		return onCharge
	case r.phase == before && r.kind == status500:
		return beforeEffect
	case r.phase == before && r.kind == kindSlow:
		return beforePause
	case r.phase == before:
		return onArrival
	case r.kind == status500:
		return insteadOfReply
	default:
		return onReply
	}
}

// schedule is a running [Faults].
type schedule struct {
	faults Faults
	seed   uint64
	seq    atomic.Uint64
	fired  []atomic.Int64
}

// turn is one request's place in a schedule.
type turn struct {
	s   *schedule
	seq uint64 // from 1; 0: a read, which only its name can hit
}

// next counts a request.
func (s *schedule) next() turn { return turn{s, s.seq.Add(1)} }

// fire returns the first rule that hits the request at this place and counts
// it, or nil.
func (t turn) fire(at place, identifier string) *rule {
	for i := range t.s.faults.rules {
		r := &t.s.faults.rules[i]
		if r.place() == at && t.hits(i, identifier) && t.s.count(i) {
			return r
		}
	}
	return nil
}

// fireLate is fire for one kind of what comes of a charge.
func (t turn) fireLate(kind string, ev meterEvent) *rule {
	for i := range t.s.faults.rules {
		r := &t.s.faults.rules[i]
		hits := r.place() == onCharge && r.kind == kind
		switch r.trigger.kind {
		case triggerCustomer:
			hits = hits && ev.customer == r.trigger.text
		case triggerMeter:
			hits = hits && ev.eventName == r.trigger.text
		default:
			hits = hits && t.hits(i, ev.identifier)
		}
		if hits && t.s.count(i) {
			return r
		}
	}
	return nil
}

// hits reports whether rule i hits the request by its number or its identifier.
func (t turn) hits(i int, identifier string) bool {
	tr := &t.s.faults.rules[i].trigger
	if t.seq == 0 && tr.kind != triggerID {
		return false
	}
	switch tr.kind {
	case "p":
		// The draw depends on seed, rule and number alone, so that neither
		// the order of goroutines nor another rule moves it.
		return mix(mix(t.s.seed+uint64(i))^t.seq)>>11 < tr.cut
	case "n":
		return t.seq == tr.n
	case "every":
		return t.seq%tr.n == 0
	case "first":
		return t.seq <= tr.n
	case triggerID:
		return strings.Contains(identifier, tr.text)
	default:
		return true
	}
}

// count notes that rule i fires, unless it has fired often enough.
func (s *schedule) count(i int) bool {
	limit := s.faults.rules[i].times
	for {
		n := s.fired[i].Load()
		if limit > 0 && n >= limit {
			return false
		}
		if s.fired[i].CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// mix is the finaliser of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// faultState is the schedule in force and what earlier ones fired.
type faultState struct {
	current atomic.Pointer[schedule]
	mu      sync.Mutex
	past    []*schedule // kept, for a request may still be under way in one
}

func (f *faultState) replace(faults Faults, seed uint64) {
	s := &schedule{faults: faults, seed: seed, fired: make([]atomic.Int64, len(faults.rules))}
	f.mu.Lock()
	defer f.mu.Unlock()
	if old := f.current.Swap(s); old != nil && len(old.faults.rules) > 0 {
		f.past = append(f.past, old)
	}
}

// forget drops what earlier schedules fired and starts the current one anew.
func (f *faultState) forget() {
	cur := f.current.Load()
	f.replace(cur.faults, cur.seed)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.past = nil
}

// counts returns by rule how often it fired; rules that never did are 0.
func (f *faultState) counts() map[string]int64 {
	f.mu.Lock()
	all := slices.Concat(f.past, []*schedule{f.current.Load()})
	f.mu.Unlock()
	out := map[string]int64{}
	for _, s := range all {
		for i := range s.faults.rules {
			out[s.faults.rules[i].String()] += s.fired[i].Load()
		}
	}
	return out
}
