package outbox

import "time"

// breaker stops claiming for a destination that answers nothing about items. It
// opens for a delay that grows with each failure in a row; after that one item
// is tried as a probe. It is closed while failures is 0.
type breaker struct {
	retry    Retry
	failures int
	until    time.Duration // on the boottime clock
}

// left is how long it stays open.
func (b *breaker) left(now time.Duration) time.Duration { return max(b.until-now, 0) }

// fail opens it and returns for how long.
func (b *breaker) fail(now time.Duration, uniform func(int64) int64) time.Duration {
	b.failures++
	pause := b.retry.Backoff(b.failures, uniform)
	b.until = now + pause
	return pause
}

func (b *breaker) succeed() { b.failures, b.until = 0, 0 }
