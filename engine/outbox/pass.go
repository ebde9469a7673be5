package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/fault"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// releaseDelay precedes the next try of what was handed back unsent.
const releaseDelay = time.Second

// Once makes one pass: claim, send, write. An error means that the store failed
// or a fault was injected; what was leased then comes back when its lease ends.
func (d *Deliverer) Once(ctx context.Context) (Summary, error) {
	p := &pass{Deliverer: d, sum: Summary{States: make(map[storage.ItemState]int)}}
	p.sum.Pause = d.pauseLeft()
	var err error
	if p.sum.Pause == 0 && ctx.Err() == nil {
		if err = p.run(ctx); err != nil {
			err = fmt.Errorf("deliver to %s: %w", d.cfg.Destination.Exporter, err)
		}
		p.sum.Pause = d.pauseLeft()
	}
	return p.sum, err
}

// pauseLeft is how long nothing may be claimed.
func (d *Deliverer) pauseLeft() time.Duration {
	now := d.cfg.Boottime()
	return max(d.limitedUntil-now, d.breaker.left(now), 0)
}

// pass is one claim and what follows from it.
type pass struct {
	*Deliverer
	sum Summary
	// started and until bound the part of the lease in which requests may be
	// made, on the boottime clock. It starts before the claim does, so it
	// ends before the store's lease whatever the claim took.
	started, until time.Duration
}

// work is a claimed item that may be sent.
type work struct {
	claimed storage.ClaimedItem
	send    SendItem
}

func (p *pass) run(ctx context.Context) error {
	routes := p.cfg.Routes()
	if len(routes) == 0 {
		return nil
	}
	if err := fault.Point(ctx, "d1"); err != nil {
		return err
	}
	limit := p.limit()
	claim, err := p.claim(ctx, routes, limit)
	if err != nil {
		return err
	}
	if err := fault.Point(ctx, "d2"); err != nil {
		return err
	}
	// Expired leases come in pages of one, so a page that is not full may
	// still have work behind it.
	reclaimed := slices.ContainsFunc(claim.Items, func(c storage.ClaimedItem) bool { return c.Unresolved })
	p.sum.More = len(claim.Items) >= limit || len(claim.Exhausted) > 0 || reclaimed
	if err := p.allowed(ctx, claim); err != nil {
		return err
	}
	ready, err := p.screen(ctx, claim.Items)
	if err != nil {
		return err
	}
	batch := orDefault(p.cfg.Sender.Manifest().MaxBatch, p.cfg.Page)
	for len(ready) > 0 {
		if stop, delay := p.stop(ctx); stop {
			return p.release(ctx, ready, delay)
		}
		n := min(batch, len(ready))
		if err := p.deliver(ctx, ready[:n]); err != nil {
			return err
		}
		ready = ready[n:]
	}
	return nil
}

// allowed asks whether what was claimed may be sent, and hands it back if not.
func (p *pass) allowed(ctx context.Context, claim storage.Claim) error {
	if p.cfg.BeforeSend == nil || len(claim.Items) == 0 {
		return nil
	}
	err := p.cfg.BeforeSend(ctx, claim)
	if err == nil {
		return nil
	}
	p.sum.More = false
	back := make([]work, len(claim.Items))
	for i, c := range claim.Items {
		back[i].claimed = c
	}
	return errors.Join(fmt.Errorf("before sending: %w", err), p.release(ctx, back, releaseDelay))
}

// claim goes on after ctx is done: a claim that was committed but not heard of
// would leave its items leased and unresolved.
func (p *pass) claim(ctx context.Context, routes []int64, limit int) (storage.Claim, error) {
	cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.Grace)
	defer cancel()
	p.started = p.cfg.Boottime()
	p.until = p.started + sendShare(p.cfg.Lease)
	req := storage.ClaimRequest{
		Owner: p.cfg.Owner, Routes: routes, Limit: limit, Lease: p.cfg.Lease, Horizon: p.horizon(),
	}
	if p.cfg.TrustedSince != nil {
		req.TrustedSince = p.cfg.TrustedSince()
	}
	claim, err := p.cfg.Store.Claim(cctx, req)
	if err != nil {
		return storage.Claim{}, fmt.Errorf("claim items: %w", err)
	}
	p.sum.Claimed, p.sum.Exhausted = len(claim.Items), len(claim.Exhausted)
	for range claim.Exhausted {
		p.landed(storage.Uncertain)
	}
	return claim, nil
}

// left is how much of the lease is left for sending.
func (p *pass) left() time.Duration { return p.until - p.cfg.Boottime() }

// stop reports whether nothing more may be sent in this pass, and after which
// delay what is left may be claimed again.
func (p *pass) stop(ctx context.Context) (bool, time.Duration) {
	if limited := p.limitedUntil - p.cfg.Boottime(); limited > 0 {
		return true, jittered(limited, p.cfg.Uniform)
	}
	return ctx.Err() != nil || p.left() <= 0 || p.pauseLeft() > 0, releaseDelay
}

// screen judges each item again, because time has passed and this host knows
// its exporter, and moves what cannot be sent. What it returns can.
func (p *pass) screen(ctx context.Context, items []storage.ClaimedItem) ([]work, error) {
	manifest := p.cfg.Sender.Manifest()
	now := p.cfg.Now()
	var ready []work
	var moves []storage.Transition
	for _, c := range items {
		item, reason := intent(manifest, c)
		if reason == ReasonNone {
			reason = Check(manifest, p.cfg.Destination, item, now)
		}
		if reason != ReasonNone {
			moves = append(moves, problem(c, reason))
			continue
		}
		serial := SerialKey(p.cfg.Destination, manifest.SerialBy, item)
		ready = append(ready, work{claimed: c, send: sendItem(item, serial)})
	}
	if err := p.write(ctx, moves); err != nil {
		return nil, err
	}
	return p.settleMethods(ctx, ready)
}

// intent is what a claimed item says, a correction with its method.
func intent(m exporter.Manifest, c storage.ClaimedItem) (exporter.Item, Reason) {
	item, err := Payload(c)
	switch {
	case err != nil, (item.Corrects != nil) != (c.Identity.SubjectKind == storage.SubjectCorrection):
		return item, ReasonPayloadInvalid
	case item.Corrects == nil:
		return item, ReasonNone
	}
	method, reason := ChooseMethod(m, c, item)
	item.Corrects.Method = method
	return item, reason
}

// settleMethods stores how corrections are told, before the first is sent: one
// that may have been sent is never told in another way, whoever sends it next.
// What was lost meanwhile is left out. // Q19.
func (p *pass) settleMethods(ctx context.Context, ready []work) ([]work, error) {
	var moves []storage.Transition
	for _, w := range ready {
		if c := w.send.Corrects; c != nil && w.claimed.Method == "" {
			method := string(c.Method)
			moves = append(moves, storage.Transition{
				ItemID: w.claimed.ItemID, Expect: fence(w.claimed),
				Set: storage.Change{State: storage.Leased, Method: &method},
			})
		}
	}
	if len(moves) == 0 {
		return ready, nil
	}
	done, _, err := p.apply(ctx, moves)
	if err != nil {
		return nil, err
	}
	lost := make(map[int64]bool)
	for i, m := range moves {
		if done[i].Rows == 0 {
			lost[m.ItemID] = true
			p.stale(ctx, m)
		}
	}
	p.staled(len(lost))
	return slices.DeleteFunc(ready, func(w work) bool { return lost[w.claimed.ItemID] }), nil
}

// problem is T6, or T4 if an earlier attempt is open. Nothing was sent, so the
// attempt is returned.
func problem(c storage.ClaimedItem, reason Reason) storage.Transition {
	text := string(reason)
	move := storage.Transition{
		ItemID: c.ItemID,
		Expect: fence(c),
		Set: storage.Change{
			State: storage.Uncertain, ReturnAttempt: true,
			LastError: &storage.ItemError{Code: text},
		},
	}
	if !c.Unresolved {
		move.Expect.Unresolved = new(bool)
		move.Set.State, move.Set.QuarantineReason = storage.Quarantined, &text
	}
	if reason == ReasonOriginalDisputed {
		move.Set.Disputed = &c.Original.Disputed
	}
	return move
}

// fence is the predicate of everything that leaves leased.
func fence(c storage.ClaimedItem) storage.Expect {
	token := c.LeaseToken
	return storage.Expect{State: storage.Leased, LeaseToken: &token}
}

// release hands back items that were never given to the sender.
func (p *pass) release(ctx context.Context, items []work, delay time.Duration) error {
	moves := make([]storage.Transition, 0, len(items))
	for _, w := range items {
		moves = append(moves, storage.Transition{
			ItemID: w.claimed.ItemID,
			Expect: fence(w.claimed),
			Set:    storage.Change{State: storage.Pending, NextAttemptAfter: &delay, ReturnAttempt: true},
		})
	}
	p.sum.Released += len(items)
	return p.write(ctx, moves)
}

// deliver sends one batch and writes what became of it.
func (p *pass) deliver(ctx context.Context, batch []work) error {
	if err := fault.Point(ctx, "d3"); err != nil {
		return err
	}
	left := p.left()
	if left <= 0 { // the point before may have slept
		return p.release(ctx, batch, releaseDelay)
	}
	items, ids := make([]SendItem, len(batch)), make([]string, len(batch))
	for i, w := range batch {
		items[i], ids[i] = w.send, w.send.ID
	}
	sctx, cancel := p.sendContext(ctx, left)
	began := p.cfg.Now()
	sctx, landed := p.startSend(sctx, batch)
	report := guardedSend(sctx, p.cfg.Sender, items, began.Add(left))
	ended := p.cfg.Now()
	cancel()
	p.sum.Sent += len(batch)
	if report.Err != nil {
		p.cfg.Logger.WarnContext(ctx, "exporter call", "error", report.Err, "items", len(batch))
	}
	answers, foreign := Answers(ids, report.Outcomes)
	r := results{report: report, answers: answers, seen: make(map[string]Seen, len(ids)), began: began, ended: ended}
	for _, id := range ids {
		r.seen[id] = Look(report.Exchanges[id])
	}
	r.down = p.judge(r)
	moves, lied := p.decide(batch, r)
	landed(moves)
	p.lied(lied + foreign)
	if err := fault.Point(ctx, "d8"); err != nil {
		return err
	}
	return p.write(ctx, moves)
}

// sendContext ends with the lease. When ctx is done no further request begins,
// and those in flight have Grace to end.
func (p *pass) sendContext(ctx context.Context, left time.Duration) (context.Context, context.CancelFunc) {
	sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), left)
	stop := context.AfterFunc(ctx, func() {
		if sleep(sctx, p.cfg.Grace) {
			cancel()
		}
	})
	// Another variable: the function above may be reading sctx.
	leased := withLease(sctx, func() time.Duration {
		if ctx.Err() != nil {
			return 0
		}
		return p.left()
	})
	return leased, func() { stop(); cancel() }
}

// results is what is known after one Send.
type results struct {
	report       Report
	answers      map[string]Answer
	seen         map[string]Seen
	began, ended time.Time
	down         bool // see Observation.DestinationDown
}

// asked is the longest delay that provider or plugin asked for.
func (r results) asked(id string) time.Duration {
	return max(r.seen[id].Last.RetryAfter, r.answers[id].RetryAfter)
}

// judge draws conclusions about the destination: a rate limit pauses claiming;
// answers that concern no item, or nothing that could be sent at all, open the
// breaker; any answer about an item closes it. It reports whether the items
// were probes that found the destination still down.
func (p *pass) judge(r results) bool {
	var limited, good, trip bool
	var asked time.Duration
	unsent := true
	for id, s := range r.seen {
		unsent = unsent && (s.Class == exporter.ClassNotSent || (s.Class == ClassNone && !r.report.Called))
		trip = trip || s.Breaker
		switch s.Class {
		case exporter.ClassSuccess, exporter.ClassDuplicateOwn, exporter.ClassRefused:
			good = true
		case exporter.ClassThrottled:
			good, limited, asked = true, true, max(asked, r.asked(id))
		case ClassNone:
			said := r.answers[id].Said
			good = good || (r.report.Grade == GradePlugin && said == Said(exporter.Accepted))
			if said == Said(exporter.RateLimited) {
				limited, asked = true, max(asked, r.asked(id))
			}
		default: // says nothing of the destination
		}
	}
	now := p.cfg.Boottime()
	if limited {
		pause := p.cfg.Retry.limit(asked)
		p.limitedUntil = now + pause
		p.cfg.Observer.Paused(PausedThrottled, pause)
	}
	if good {
		p.breaker.succeed()
		return false
	}
	probing := p.breaker.failures > 0
	if trip || unsent || probing {
		pause := p.breaker.fail(now, p.cfg.Uniform)
		p.cfg.Logger.Warn("breaker open", "pause", pause, "failures", p.breaker.failures)
		p.cfg.Observer.Paused(PausedBreaker, pause)
	}
	return probing && trip
}
