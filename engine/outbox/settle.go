package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// writeTries is how often a write with unknown outcome is made; firstRewait the
// pause before the second, doubled each time.
const (
	writeTries  = 5
	firstRewait = 50 * time.Millisecond
)

// decide turns what is known of each item into its transition, and counts the
// answers that were out of contract.
func (p *pass) decide(batch []work, r results) (moves []storage.Transition, lied int) {
	moves = make([]storage.Transition, 0, len(batch))
	for _, w := range batch {
		id, c := w.send.ID, w.claimed
		seen, said := r.seen[id], r.answers[id]
		d := Decide(Observation{
			Said: said.Said, Class: seen.Class, OpenBefore: seen.OpenBefore,
			Grade: r.report.Grade, Trusted: p.cfg.Trusted, Called: r.report.Called,
			Unresolved: c.Unresolved, Mendable: seen.Mendable || said.Mendable,
			DestinationDown: r.down, Attempts: c.Attempts, Budget: c.AttemptBudget,
		})
		if d.Lied {
			lied++
		}
		move := d.Transition(c)
		if d.Wait != WaitNone {
			delay := p.delay(d.Wait, c.Attempts, r.asked(id))
			move.Set.NextAttemptAfter = &delay
		}
		if d.State == storage.Accepted {
			if ref := clip(said.ProviderRef, maxRef); ref != "" {
				move.Set.ProviderRef = &ref
			}
		} else {
			e := lastError(d, seen, said)
			move.Set.LastError = &e
		}
		move.Attempt = p.attempt(w, r, d)
		moves = append(moves, move)
	}
	return moves, lied
}

// Transition is the conditional update for a decision about a claimed item,
// without delay, error and attempt. T5 and T6 also test that nothing is
// unresolved; only the holder of the lease can have changed that, so the test
// is a backstop.
func (d Decision) Transition(c storage.ClaimedItem) storage.Transition {
	move := storage.Transition{ItemID: c.ItemID, Expect: fence(c)}
	move.Set = storage.Change{State: d.State, MarkUnresolved: d.MarkUnresolved, ReturnAttempt: d.ReturnAttempt}
	switch d.State {
	case storage.Rejected, storage.Quarantined:
		move.Expect.Unresolved = new(bool)
	case storage.Accepted:
		settled := true
		move.Set.AcceptedNow, move.Set.Settled = true, &settled
	default:
	}
	if d.QuarantineReason != "" {
		reason := d.QuarantineReason
		move.Set.QuarantineReason = &reason
	}
	move.Waiting, move.Dependents = Effects(c.Identity.SubjectKind, d.State, d.Trigger)
	return move
}

func (p *pass) delay(w Wait, attempts int, asked time.Duration) time.Duration {
	switch w {
	case WaitRateLimit:
		return p.cfg.Retry.RateLimited(asked, p.cfg.Uniform)
	case WaitReturned:
		return p.cfg.Retry.Backoff(1, p.cfg.Uniform)
	default:
		return max(p.cfg.Retry.Backoff(attempts, p.cfg.Uniform), min(asked, MaxRateLimitDelay))
	}
}

// lastError is what people see. This package's own reasons win over the
// provider's code; the plain ones only stand in where there is none.
func lastError(d Decision, seen Seen, said Answer) storage.ItemError {
	code, own := first(seen.Last.Code, said.Code), d.Code
	message := first(seen.Last.Message, said.Message)
	switch own {
	case CodeUnknown, CodeThrottled, CodeRefused, CodeRetry, CodeNoAnswer, CodeNotSent, "":
		code = first(code, own, CodeRefused)
	default:
		if code != "" && code != own {
			message = code + ": " + message
		}
		code = own
	}
	return Sanitize(code, seen.Last.Status, message)
}

func first(texts ...string) string {
	for _, s := range texts {
		if s != "" {
			return s
		}
	}
	return ""
}

// attempt is the log line of one item in one Send.
func (p *pass) attempt(w work, r results, d Decision) *storage.Attempt {
	seen, said := r.seen[w.send.ID], r.answers[w.send.ID]
	e := Sanitize(first(seen.Last.Code, said.Code, d.Code), seen.Last.Status, first(seen.Last.Message, said.Message))
	a := &storage.Attempt{
		ItemID: w.claimed.ItemID, LeaseToken: w.claimed.LeaseToken, Owner: p.cfg.Owner,
		StartedAt: r.began, FinishedAt: r.ended,
		HostClass: first(string(seen.Class), "none"), Outcome: string(said.Said),
		Evidence: string(d.Evidence), Status: e.Status, RequestID: cleanMessage(seen.Last.RequestID),
		Code: e.Code, Message: e.Message, Decided: d.State,
	}
	if !seen.Last.StartedAt.IsZero() {
		a.StartedAt, a.FinishedAt = seen.Last.StartedAt, seen.Last.FinishedAt
	}
	a.StartedAt, a.FinishedAt = a.StartedAt.UTC(), a.FinishedAt.UTC()
	return a
}

// write applies transitions with a context that outlives cancellation. Zero
// rows mean that the lease was lost: counted, never written again. Only a write
// whose outcome is unknown is repeated; the fence makes that harmless.
func (p *pass) write(ctx context.Context, moves []storage.Transition) error {
	if len(moves) == 0 {
		return nil
	}
	done, tries, err := p.apply(ctx, moves)
	if err != nil {
		return err
	}
	stale := 0
	for i, m := range moves {
		if done[i].Rows > 0 || (tries > 1 && p.written(ctx, m)) {
			p.landed(m.Set.State)
			continue
		}
		stale++
		p.stale(ctx, m)
	}
	p.staled(stale)
	return nil
}

// apply asks the store, as often as it takes to hear its answer.
func (p *pass) apply(ctx context.Context, moves []storage.Transition) (done []storage.TransitionResult, tries int, err error) {
	wctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.Grace)
	defer cancel()
	for pause := firstRewait; ; pause *= 2 {
		tries++
		done, err = p.cfg.Store.Transition(wctx, moves)
		if err == nil || sdk.TagOf(err) != sdk.TagUnavailable || tries == writeTries || !sleep(wctx, pause) {
			break
		}
	}
	if err == nil && len(done) != len(moves) {
		err = errors.New("store answered for another number of items")
	}
	if err != nil {
		return nil, tries, fmt.Errorf("write outcomes of %d items: %w", len(moves), err)
	}
	return done, tries, nil
}

// stale notes one update that changed nothing.
func (p *pass) stale(ctx context.Context, m storage.Transition) {
	p.cfg.Logger.WarnContext(ctx, "stale worker: lease lost before the outcome was written",
		"item_id", m.ItemID, "lease_token", *m.Expect.LeaseToken, "state", m.Set.State)
}

func (p *pass) staled(n int) {
	if n > 0 {
		p.sum.Stale += n
		p.cfg.Observer.Stale(n)
	}
}

// written reports whether an earlier try of the same write went through although
// its answer was lost: the token is ours, and only we could leave leased with it.
func (p *pass) written(ctx context.Context, m storage.Transition) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.Grace)
	defer cancel()
	item, err := p.cfg.Store.LoadItem(ctx, m.ItemID)
	return err == nil && item.Item.LeaseToken == *m.Expect.LeaseToken && item.Item.State != storage.Leased
}

func (p *pass) landed(state storage.ItemState) {
	p.sum.States[state]++
	p.cfg.Observer.Delivered(state, p.cfg.Boottime()-p.started)
}

func (p *pass) lied(n int) {
	if n == 0 {
		return
	}
	p.sum.Lied += n
	p.cfg.Observer.Lied(n)
	p.cfg.Logger.Warn("exporter answers contradict the host's evidence", "answers", n)
}
