package outbox

import "time"

// Bounds of the delay after a rate limit, whatever the provider asks for.
const (
	MinRateLimitDelay = time.Second
	MaxRateLimitDelay = time.Hour
)

// Retry holds the delays between attempts. Use [Retry.withDefaults] values by
// leaving fields zero: 5 s, 900 s and 30 s.
type Retry struct {
	Base           time.Duration // delay after the first attempt
	Cap            time.Duration // no delay is longer, before jitter
	RateLimitDelay time.Duration // after a rate limit without a Retry-After
}

func (r Retry) withDefaults() Retry {
	if r.Base <= 0 {
		r.Base = 5 * time.Second
	}
	if r.Cap <= 0 {
		r.Cap = 900 * time.Second
	}
	if r.RateLimitDelay <= 0 {
		r.RateLimitDelay = 30 * time.Second
	}
	return r
}

// Backoff is the delay after the attempt with the given number, from 1:
// min(Cap, Base·2^(attempt−1)) plus a jitter uniform in [0, a quarter of that].
// Jitter comes after the cap, so that items at the cap do not move in step.
// It overflows at no attempt number. uniform(n) returns a number in [0, n).
func (r Retry) Backoff(attempt int, uniform func(n int64) int64) time.Duration {
	r = r.withDefaults()
	delay := r.Cap
	// Doubling stops before it can pass the cap, so it never overflows.
	if d, steps := r.Base, attempt-1; r.Base < r.Cap {
		for ; steps > 0 && d <= r.Cap/2; steps-- {
			d *= 2
		}
		if steps <= 0 {
			delay = d
		}
	}
	return jittered(delay, uniform)
}

// RateLimited is the delay after a rate limit: what the provider asked for, or
// RateLimitDelay if it asked for nothing, within [1 s, 1 h]; plus the same
// jitter as [Retry.Backoff], so that what was limited together does not return
// together.
func (r Retry) RateLimited(asked time.Duration, uniform func(n int64) int64) time.Duration {
	return jittered(r.limit(asked), uniform)
}

// limit is RateLimited without jitter.
func (r Retry) limit(asked time.Duration) time.Duration {
	if asked <= 0 {
		asked = r.withDefaults().RateLimitDelay
	}
	return min(max(asked, MinRateLimitDelay), MaxRateLimitDelay)
}

func jittered(d time.Duration, uniform func(n int64) int64) time.Duration {
	return d + time.Duration(uniform(int64(d/4)+1))
}
