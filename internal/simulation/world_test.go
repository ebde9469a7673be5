// Package simulation runs the outbox through worlds of faults on virtual time:
// several hosts with the real deliverer, a store, a provider and operators, all
// drawn from one seed. It has no code of its own. See docs/testing.md.
package simulation

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"time"
)

const (
	horizon = 23 * time.Hour
	// remembered is what the provider promises. What lies between it and the
	// horizon has to hold all of the following.
	remembered   = 24 * time.Hour
	lease        = 120 * time.Second
	stoppedAtMax = 15 * time.Minute // between the last look at the lease and the wire
	flightMax    = 20 * time.Minute // of a request that nobody waits for any more
	steppedMax   = 10 * time.Minute // how far the store's clock goes back in all
	// quiet is how long after the last claim an operator believes what the
	// provider's books say: longer than any send.
	quiet = lease + stoppedAtMax + flightMax + steppedMax

	// Each goroutine wakes only at instants of its own lane, so that exactly
	// one of them runs at a time and a seed replays exactly. Every delay of
	// the deliverer is a multiple of lanes nanoseconds.
	lanes        = 64
	laneReporter = 40
	laneOperator = 48
	laneClock    = 56
	laneArrivals = 57
	laneCounters = 58
	laneBackup   = 59
	laneWeather  = 62
	laneLater    = 63
)

// world is one run.
type world struct {
	seed  uint64
	start time.Time
	hooks hooks
	has   ingredients

	mu     sync.Mutex
	random *rand.Rand
	over   bool
	phase  phase
	heals  time.Duration  // when the faults end
	judged bool           // what the hosts do alone was judged
	later  map[int64]bool // instants of laneLater that are taken
	cancel map[int]context.CancelFunc
	wg     sync.WaitGroup

	store    *store
	provider *provider
	machines [lanes]machine
	fleet    fleet
	told     map[int64]int // pieces of evidence that reached us, by item
	lives    int
	left     map[int64]int // halves of an item that can still be taken back
	stepped  time.Duration
	flying   map[int64]int  // requests under way that nobody waits for, by item
	rushed   int            // events of a rush
	seen     map[string]int // what happened, by name
	digest   uint64         // of everything that happened, in order
	trace    *strings.Builder
	failure  string
}

// hooks take guards out of the parts that the simulation itself holds.
type hooks struct {
	noToken      bool // a write needs no fence
	noBudget     bool // the cap is not tested at the claim
	noHorizon    bool // the horizon is not tested at the claim
	noMark       bool // a re-claimed lease does not leave the item unresolved
	noRecheck    bool // a claim takes what it saw before it had the lock
	noExpect     bool // T8 and T9 do not look at the token they were planned for
	nonce        bool // the identifier carries the attempt
	failedIsNo   bool // an indefinite answer is read as a refusal
	noLeaseLook  bool // the sender does not ask whether its lease is left
	forgetMethod bool // a correction's method is chosen anew at every attempt
	noMoved      bool // a correction is inserted by what its original was before
	noTrusted    bool // a claim does not ask since when the clock can be trusted
	noSerial     bool // a claim takes a key that another one holds
	noIncarnate  bool // nobody compares the store with what was seen of it
	noRestoreLog bool // recovery leaves the items of a restored store as they are
	oldPlans     bool // plans are carried out though a restore was settled since
	overwrites   bool // evidence takes the place of what was known before
	noBound      bool // a window is staged whatever was staged and acknowledged

	without ingredients
}

// ingredients are what some worlds have beside crashes, lost answers and clocks
// that step by minutes.
type ingredients struct {
	clocks   bool // the store's clock is set back by hours, machines start again: Q16
	serial   bool // one send at a time for each customer: O16, Q12
	restore  bool // a backup is restored in the middle: Q17
	disputes bool // the provider withdraws what it had taken: O12
	windows  bool // counters are reported in windows: Q20
}

// mix gives each seed its ingredients, so that all pairs but one meet. A restored
// counter is not among what is promised, see docs/guarantees.md.
func mix(seed uint64, without ingredients) ingredients {
	restore := seed%5 == 0 && !without.restore
	return ingredients{
		clocks: seed%4 == 1 && !without.clocks, serial: seed%2 == 0 && !without.serial, restore: restore,
		disputes: seed%3 != 1 && !without.disputes, windows: seed%3 == 1 && !restore && !without.windows,
	}
}

// phase is the weather of some hours, in percent.
type phase struct {
	name      string
	store     int // calls of the store that go wrong
	crash     int // steps at which a host dies
	stop      int // steps at which a host is stopped for a while
	send      int // requests that do not end well
	fates     []fate
	hostsDown bool
}

func newWorld(seed uint64, h hooks, trace bool) *world {
	w := &world{
		seed: seed, start: time.Now(), hooks: h, random: rand.New(rand.NewPCG(seed, 0x6f7574626f78)),
		has:   mix(seed, h.without),
		later: map[int64]bool{}, left: map[int64]int{}, cancel: map[int]context.CancelFunc{}, seen: map[string]int{}, told: map[int64]int{}, flying: map[int64]int{},
	}
	if trace {
		w.trace = &strings.Builder{}
	}
	w.store, w.provider = newStore(w), newProvider(w)
	return w
}

// run is the whole of a world, from its first item to the verdict.
func (w *world) run() {
	hosts := 2 + w.draw(3)
	phases := w.phases()
	lengths := make([]time.Duration, len(phases))
	for i := range phases {
		lengths[i] = w.between(time.Hour, 16*time.Hour)
		if w.has.clocks && phases[i].hostsDown { // about as long as the provider remembers
			lengths[i] = w.between(21*time.Hour, 28*time.Hour)
		}
		w.heals += lengths[i]
	}
	w.phase = phases[0]
	items := 120 + w.draw(120)
	for lane := range hosts {
		w.begin(lane, func() { w.host(lane) })
	}
	w.begin(laneArrivals, func() { w.arrivals(items, w.heals*3/4) })
	w.begin(laneClock, w.steps)
	if w.has.restore {
		w.begin(laneBackup, w.backups)
	}
	if w.has.windows {
		w.begin(laneCounters, w.counts)
		for i := range 2 {
			w.begin(laneReporter+i, func() { w.reporter(laneReporter + i) })
		}
	}
	for i := range 2 {
		w.begin(laneOperator+i, func() { w.operator(laneOperator + i) })
	}
	for i, p := range phases {
		w.setPhase(p)
		if w.has.clocks && i+1 < len(phases) && phases[i+1].hostsDown {
			w.rush(lengths[i] - w.drawn(time.Minute, min(20*time.Minute, lengths[i])))
		}
		w.rest(lengths[i])
	}
	w.setPhase(phase{name: "healed"})
	w.rest(12 * time.Hour) // longer than any backoff, rate limit and breaker
	w.mu.Lock()
	w.judgeHealed()
	w.judged = true
	w.mu.Unlock()
	w.rest(60 * time.Hour) // now people look, and look again
	w.mu.Lock()
	w.judgeEnd()
	w.over = true
	w.stopHosts()
	w.mu.Unlock()
	w.wg.Wait()
}

// begin runs f beside the rest, from the first instant of its lane.
func (w *world) begin(lane int, f func()) {
	w.wg.Go(func() {
		w.sleep(context.Background(), lane, 0)
		f()
	})
}

// rest lets that much time pass, unless the world has failed.
func (w *world) rest(d time.Duration) {
	for until := w.since() + d; w.since() < until && !w.ended(); {
		w.sleep(context.Background(), laneWeather, min(until-w.since(), 30*time.Minute))
	}
}

func (w *world) phases() []phase {
	all := []phase{
		{name: "calm", store: 1, send: 2, fates: mixed},
		{name: "storm", store: 8, crash: 3, stop: 1, send: 40, fates: mixed},
		{name: "outage", store: 1, send: 98, fates: []fate{fateUnsent, fateUnsent, fateDown, fateNoEffect}},
		{name: "silence", store: 1, crash: 1, send: 85, fates: []fate{fateEffectLost, fateLate, fateFailedAfter, fateDownAfter}},
		{name: "limited", store: 1, send: 60, fates: []fate{fateLimited, fateLimited, fateLimited, fateRefused, fateEffectLost}},
		{name: "store", store: 35, send: 5, fates: mixed},
		{name: "killing", store: 2, crash: 25, stop: 4, send: 10, fates: mixed},
		{name: "nobody", send: 2, fates: mixed, hostsDown: true},
	}
	out := make([]phase, 3+w.draw(4))
	for i := range out {
		out[i] = all[w.draw(len(all))]
	}
	if w.has.clocks { // what was sent without an answer, and then nobody for a day
		out[len(out)-2], out[len(out)-1] = all[3], all[len(all)-1]
		out = append(out, all[w.draw(2)])
	}
	return out
}

func (w *world) setPhase(p phase) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.phase = p
	w.note("phase %s", p.name)
	if p.hostsDown {
		w.stopHosts()
		w.powerCut()
	}
}

// stopHosts sends SIGTERM to all of them, one after another.
func (w *world) stopHosts() {
	for lane := range lanes {
		if cancel := w.cancel[lane]; cancel != nil {
			w.after(time.Duration(lane+1)*time.Second, cancel)
		}
	}
}

// --- time and chance; everything below but sleep is called with mu held, or
// before there is a second goroutine.

func (w *world) since() time.Duration { return time.Since(w.start) }

// sleep waits for the first instant of the lane that is d away or more. It
// reports false if ctx ended first.
func (w *world) sleep(ctx context.Context, lane int, d time.Duration) bool {
	t := time.NewTimer(w.align(lane, d))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func (w *world) align(lane int, d time.Duration) time.Duration {
	now := int64(w.since())
	at := now + max(int64(d), 1)
	at += (int64(lane) - at%lanes + lanes) % lanes
	return time.Duration(at - now)
}

// after does something at a later instant that nothing else happens at.
func (w *world) after(d time.Duration, f func()) {
	wait := w.align(laneLater, d)
	for w.later[int64(w.since()+wait)] {
		wait += lanes
	}
	w.later[int64(w.since()+wait)] = true
	w.wg.Add(1)
	time.AfterFunc(wait, func() {
		defer w.wg.Done()
		w.mu.Lock()
		defer w.mu.Unlock()
		f()
	})
}

func (w *world) draw(n int) int          { return w.random.IntN(n) }
func (w *world) chance(percent int) bool { return percent > 0 && w.draw(100) < percent }
func (w *world) count(what string)       { w.seen[what]++ }
func (w *world) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(w.random.Int64N(int64(hi-lo)+1))
}

// drawn is between, for whoever does not hold mu.
func (w *world) drawn(lo, hi time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.between(lo, hi)
}

// uniform is what the deliverer draws its jitter from.
func (w *world) uniform(n int64) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.Int64N(n) / lanes * lanes
}

func (w *world) ended() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.over || w.failure != ""
}

// note adds a line to what happened.
func (w *world) note(format string, args ...any) {
	f := fnv.New64a()
	fmt.Fprintf(f, "%d %d "+format, append([]any{w.digest, w.since()}, args...)...)
	w.digest = f.Sum64()
	if w.trace != nil {
		fmt.Fprintf(w.trace, "%15s  "+format+"\n", append([]any{w.since()}, args...)...)
	}
}

// fail keeps the first thing that must not be.
func (w *world) fail(format string, args ...any) {
	if w.failure == "" {
		w.failure = fmt.Sprintf(format, args...)
		w.note("FAILED: %s", w.failure)
	}
}

// die ends the goroutine of a host as SIGKILL would: nothing more is sent or
// written by it. Called without mu.
func (w *world) die() {
	w.mu.Lock()
	w.count("host died")
	w.mu.Unlock()
	runtime.Goexit()
}
