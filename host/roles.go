package host

import (
	"context"
	"time"
)

// The roles that one host at a time holds.
const (
	roleReporter = "reporter"
	roleBuckets  = "buckets"
	roleRenewer  = "renewer"
)

const (
	// roleTTL is how long a role stays with a holder that is gone, and
	// roleEvery how often it is renewed, and asked for by those who wait.
	roleTTL   = 30 * time.Second
	roleEvery = 10 * time.Second
	// roleMargin is how long before its time a holder that cannot renew stops:
	// it must have ended when another begins.
	roleMargin = 10 * time.Second
)

// holding runs a loop while this host holds a role, and returns when the loop
// returned by itself or ctx ended. A loop whose role is lost is told to end, and
// begins again when the role comes back. A holder that dies keeps the others
// waiting for at most roleTTL.
//
// A role keeps work from being done twice; it is no fence. Everything that runs
// under one writes conditionally, so that two at once do no harm.
func (p *presence) holding(ctx context.Context, role string, run func(ctx context.Context)) {
	for ctx.Err() == nil {
		asked, held, err := p.take(ctx, role)
		if err != nil && ctx.Err() == nil {
			p.log.WarnContext(ctx, "ask for a role", "role", role, "error", err)
		}
		if held && p.hold(ctx, role, asked, run) {
			return
		}
		pause(ctx, roleEvery)
	}
}

// take asks for a role, or to keep it, and says when it asked.
func (p *presence) take(ctx context.Context, role string) (asked time.Duration, held bool, err error) {
	asked = p.clock()
	ctx, cancel := context.WithTimeout(ctx, roleEvery)
	defer cancel()
	res, err := p.store.Hold(ctx, role, p.owner, roleTTL)
	return asked, err == nil && res.Held, err
}

// hold runs while the role is held, and reports whether run returned by itself.
func (p *presence) hold(ctx context.Context, role string, asked time.Duration, run func(ctx context.Context)) bool {
	rctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(rctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
	tick := time.NewTicker(roleEvery)
	defer tick.Stop()
	for {
		select {
		case <-done:
			p.giveUp(ctx, role)
			return ctx.Err() == nil
		case <-ctx.Done():
			<-done
			p.giveUp(ctx, role)
			return false
		case <-tick.C:
		}
		renewed, held, err := p.take(ctx, role)
		switch {
		case held:
			asked = renewed
		case err == nil, p.clock()-asked >= roleTTL-roleMargin:
			// Another has it, or will have before we hear that we may go on.
			p.log.WarnContext(ctx, "a role was lost", "role", role, "error", err)
			return false
		}
	}
}

// giveUp lets the next one begin at once.
func (p *presence) giveUp(ctx context.Context, role string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWait)
	defer cancel()
	if _, err := p.store.Hold(ctx, role, p.owner, 0); err != nil {
		p.log.WarnContext(ctx, "give up a role", "role", role, "error", err)
	}
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
