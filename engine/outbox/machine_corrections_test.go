package outbox

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// books are a provider's, which takes events, cancels them for a day and takes
// negative events. It remembers identifiers for a day.
type books struct {
	now      time.Time
	first    map[string]time.Time
	charges  map[string]int
	credits  map[string]int // by the identifier of what was taken back
	wrong    string         // a credit for what was never charged
	flying   []landing
	refusing bool // everything that is not known already
}

// landing is a request that takes effect later.
type landing struct {
	at   time.Time
	item SendItem
}

func (b *books) known(identifier string) bool {
	at, ok := b.first[identifier]
	return ok && b.now.Sub(at) < 24*time.Hour
}

// take is the effect of one request, and what the provider would answer.
func (b *books) take(it SendItem) exporter.HostClass {
	of := it.Corrects
	switch {
	case of != nil && of.Method == exporter.CorrectCancel:
		switch {
		case b.credits[of.Identifier] > 0:
			return exporter.ClassDuplicateOwn
		case !b.known(of.Identifier) || b.refusing:
			return exporter.ClassRefused
		}
		b.credits[of.Identifier]++
	case b.known(it.Identifier):
		return exporter.ClassDuplicateOwn
	case b.refusing:
		return exporter.ClassRefused
	case of != nil:
		b.first[it.Identifier] = b.now
		b.credits[of.Identifier]++
	default:
		b.first[it.Identifier] = b.now
		b.charges[it.Identifier]++
	}
	if of != nil && b.charges[of.Identifier] == 0 {
		b.wrong = it.ID
	}
	return exporter.ClassSuccess
}

// creditor is a world of one deliverer in which events are corrected.
type creditor struct {
	bench
	books
	d       *Deliverer
	events  []int64
	made    map[int64]int64 // original → correction
	methods map[int64]string
	faults  bool
	draw    *rapid.T
}

func newCreditor(t *testing.T, r *rapid.T) *creditor {
	c := &creditor{
		books: books{now: noon, first: map[string]time.Time{}, charges: map[string]int{}, credits: map[string]int{}},
		made:  map[int64]int64{}, methods: map[int64]string{}, faults: true, draw: r,
	}
	clock := func() time.Time { return c.now }
	c.bench = bench{t: t, store: newModelStore(clock), observer: &counts{}}
	for i := range 2 {
		of := sample("req_"+strconv.Itoa(i), noon)
		of.AttemptBudget = 3
		c.events = append(c.events, c.store.add(of))
	}
	c.d = c.deliverer(&scripted{manifest: cancelling(), answer: c.answer}, func(cfg *Config) {
		cfg.Now, cfg.Boottime = clock, func() time.Duration { return c.now.Sub(noon) }
	})
	return c
}

func (c *creditor) answer(_ context.Context, it SendItem) reply {
	how := "whole"
	if c.faults {
		how = rapid.SampledFrom([]string{"whole", "whole", "effect, no answer", "late effect", "no effect", "refused", "throttled", "not sent"}).Draw(c.draw, "answer")
	}
	lost := reply{said: exporter.Retry, exchanges: seen(exporter.ClassIndefinite)}
	switch how {
	case "effect, no answer":
		c.take(it)
		return lost
	case "late effect":
		after := rapid.Int64Range(0, int64(longestFlight)).Draw(c.draw, "flight")
		c.flying = append(c.flying, landing{c.now.Add(time.Duration(after)), it})
		return lost
	case "no effect":
		return lost
	case "throttled":
		return reply{said: exporter.RateLimited, exchanges: seen(exporter.ClassThrottled)}
	case "not sent":
		return reply{said: exporter.Retry, exchanges: seen(exporter.ClassNotSent)}
	case "refused":
		c.refusing = true
		defer func() { c.refusing = false }()
	}
	class := c.take(it)
	said := map[exporter.HostClass]exporter.OutcomeKind{
		exporter.ClassSuccess: exporter.Accepted, exporter.ClassDuplicateOwn: exporter.AcceptedEarlier, exporter.ClassRefused: exporter.Rejected,
	}[class]
	return reply{said: said, exchanges: seen(class)}
}

func (c *creditor) pass(t *rapid.T) {
	if _, err := c.d.Once(c.t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (c *creditor) advance(d time.Duration) {
	target := c.now.Add(d)
	var still []landing
	for _, f := range c.flying {
		if f.at.After(target) {
			still = append(still, f)
			continue
		}
		c.now = f.at
		c.take(f.item)
	}
	c.flying, c.now = still, target
}

// correct takes all of an event back, once.
func (c *creditor) correct(t *rapid.T) {
	id := rapid.SampledFrom(c.events).Draw(t, "of")
	if c.made[id] == 0 {
		cor := c.addCorrection(id, "cor_"+strconv.FormatInt(id, 10), "-12.5")
		r := c.store.rows[cor]
		r.item.AttemptBudget, r.claimed.AttemptBudget = 3, 3
		c.made[id] = cor
	}
}

// person looks at the books and settles an item by them, or gives it up.
func (c *creditor) person(t *rapid.T) {
	id := rapid.Int64Range(1, int64(len(c.store.rows))).Draw(t, "item")
	i := c.store.row(id)
	own := IdentifierOf(i.Digest)
	taken := c.charges[own] > 0 || (i.DependsOn != 0 && c.credits[IdentifierOf(c.store.row(i.DependsOn).Digest)] > 0)
	s := Standing{QuietFor: machineQuiet, Horizon: machineHorizon, Budget: 2}
	var move storage.Transition
	var err error
	switch how := rapid.SampledFrom([]string{"books", "again", "abandon"}).Draw(t, "how"); {
	case how == "again":
		move, err = Resolve(i, Resolution{To: storage.Pending}, s, anna)
	case how == "abandon" && !taken:
		move, err = Abandon(i, Abandonment{}, s, anna)
	case taken:
		move, err = Resolve(i, Resolution{To: storage.Accepted, Evidence: statement(FoundTaken)}, s, anna)
	default:
		move, err = Resolve(i, Resolution{To: storage.Rejected, Evidence: statement(FoundRefused)}, s, anna)
	}
	if err != nil && !errors.Is(err, sdk.ErrConflict) {
		t.Fatal(err)
	}
	if err == nil {
		if _, err := c.store.Transition(c.t.Context(), []storage.Transition{move}); err != nil {
			t.Fatal(err)
		}
	}
}

// check holds after every step.
func (c *creditor) check(t *rapid.T) {
	if c.wrong != "" {
		t.Fatalf("Q18: item %s took back what was never charged", c.wrong)
	}
	for _, id := range c.events {
		of := c.store.row(id)
		own := IdentifierOf(of.Digest)
		switch {
		case c.charges[own] > 1 || c.credits[own] > 1:
			t.Fatalf("P1: %d charges and %d credits of item %d", c.charges[own], c.credits[own], id)
		case of.State == storage.Accepted && c.charges[own] != 1, of.State == storage.Rejected && c.charges[own] != 0:
			t.Fatalf("P4: item %d is %s, %d charges", id, of.State, c.charges[own])
		}
		cor, ok := c.made[id]
		if !ok {
			continue
		}
		item := c.store.row(cor)
		switch was := c.methods[cor]; {
		case was != "" && item.Method != was:
			t.Fatalf("Q19: item %d was told as %s and now as %s", cor, was, item.Method)
		case item.State == storage.Accepted && c.credits[own] != 1, item.State == storage.Rejected && c.credits[own] != 0:
			t.Fatalf("P4: item %d is %s, %d credits", cor, item.State, c.credits[own])
		case item.Waits && item.Attempts+int(item.LeaseToken) != 0:
			t.Fatalf("Q18: item %d was claimed while it waits", cor)
		case item.Waits && (Charged(of.State) || of.State == storage.Rejected):
			t.Fatalf("Q18: item %d waits for one that is %s", cor, of.State)
		case item.QuarantineReason == string(ReasonOriginalNotCharged) && of.State != storage.Rejected && of.SettledAt.IsZero():
			t.Fatalf("Q18: item %d is given up, its original is %s", cor, of.State)
		}
		c.methods[cor] = item.Method
	}
}

// P1, P4, Q18, Q19, O21, R3: whatever becomes of events, what takes them back
// takes back what was charged, once, in one way.
func TestMachineOfCorrections(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		c := newCreditor(t, r)
		r.Repeat(map[string]func(*rapid.T){
			"":        c.check,
			"pass":    c.pass,
			"pass2":   c.pass,
			"correct": c.correct,
			"person":  c.person,
			"die": func(*rapid.T) { // a worker that claims and is gone
				_, _ = c.store.Claim(t.Context(), storage.ClaimRequest{Owner: "dead", Routes: []int64{7}, Limit: 1, Lease: machineLease, Horizon: machineHorizon})
			},
			"wait": func(r *rapid.T) {
				c.advance(rapid.SampledFrom([]time.Duration{time.Second, time.Minute, 3 * time.Minute, 40 * time.Minute, 8 * time.Hour}).Draw(r, "wait"))
			},
		})
		c.faults = false
		for range 60 {
			c.advance(20 * time.Minute)
			c.pass(r)
			c.check(r)
		}
		for id := range c.store.rows {
			if i := c.store.row(id); !i.Waits && !ended(i.State) {
				r.Fatalf("item %d never ends: %+v", id, i)
			}
		}
	})
}
