package buffer

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Scales of the two lanes: whole numbers, and numbers with up to six decimals.
const (
	wholeScale = 0
	microScale = 6
)

// A lane is moved to the wide sum long before it could overflow: adders that
// have not looked yet can add little more, at most 2^40 each.
const (
	spillAt   = 1 << 60
	dead      = -(1<<62 + 1<<61)
	deadBelow = -(1 << 62)
)

// cell is what one counter grew by in one step of its history. Adding is one
// atomic addition for most quantities; it takes the lock only for those that do
// not fit and to empty the cell.
//
// A cell is killed before it is forgotten. An adder that still holds it finds
// that out from the sum its own addition returns, and goes to the living one:
// so nothing is added to a cell that nobody will look at again.
type cell struct {
	key      storage.CounterKey
	end      time.Time // of the period
	step     time.Time
	from     int64 // the instants that it counts, [from, until), in nanoseconds since 1970
	until    int64
	revision int64 // of the subscription that gave the period
	signed   bool

	whole, micro atomic.Int64

	mu   sync.Mutex
	wide decimal.Decimal
	gone bool // the cell is dead
}

func (c *cell) covers(now int64) bool { return now >= c.from && now < c.until }

// lane is where a quantity is added.
type lane int

const (
	whole lane = iota
	micro
	wide
)

// toMicro brings a mantissa of 0 to 6 decimals to six.
var toMicro = [microScale + 1]int64{1e6, 1e5, 1e4, 1e3, 100, 10, 1}

// laneOf returns the lane of q and its mantissa there.
func laneOf(q decimal.Decimal) (lane, int64) {
	m, scale, ok := q.Small()
	switch {
	case !ok || scale > microScale:
		return wide, 0
	case scale == wholeScale:
		return whole, m
	}
	m *= toMicro[scale]
	if m > 1<<40 || m < -(1<<40) {
		return wide, 0
	}
	return micro, m
}

// add adds q, which is m in lane l, and reports false if the cell is dead:
// nothing was added then.
func (c *cell) add(q decimal.Decimal, l lane, m int64) bool {
	if l == wide {
		return c.addWide(q)
	}
	n := &c.whole
	if l == micro {
		n = &c.micro
	}
	switch v := n.Add(m); {
	case v < deadBelow:
		return false
	case v > spillAt || v < -spillAt:
		c.mu.Lock()
		c.drain()
		c.mu.Unlock()
	}
	return true
}

func (c *cell) addWide(q decimal.Decimal) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return false
	}
	c.wide = c.wide.Add(q)
	return true
}

// drain moves the lanes into the wide sum. The caller holds the lock.
func (c *cell) drain() {
	if c.gone {
		return
	}
	c.wide = c.wide.Add(decimal.FromScaled(c.whole.Swap(0), wholeScale)).Add(decimal.FromScaled(c.micro.Swap(0), microScale))
}

// take empties the cell and returns what was in it. With kill nothing can be
// added to it any more.
func (c *cell) take(kill bool) decimal.Decimal {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return decimal.Decimal{}
	}
	if kill {
		c.wide = c.wide.Add(decimal.FromScaled(c.whole.Swap(dead), wholeScale)).Add(decimal.FromScaled(c.micro.Swap(dead), microScale))
		c.gone = true
	} else {
		c.drain()
	}
	sum := c.wide
	c.wide = decimal.Decimal{}
	return sum
}

// peek returns what is in the cell.
func (c *cell) peek() decimal.Decimal {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.gone {
		c.drain()
	}
	return c.wide
}
