package engine

import (
	"sync"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// calls admits what records and corrects: so many calls at the same time, and
// none once the engine closes. A permit lives exactly as long as its call: it
// is given back by a defer, so a panic gives it back too, and no clock is
// involved. A call that is turned away has done nothing, and nothing else
// counts it instead.
type calls struct {
	limit int // not positive: any number

	mu     sync.Mutex
	closed bool
	n      int
	open   sync.WaitGroup
}

// begin admits a call or says why not; if it does, end must follow.
func (c *calls) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return closedError()
	case c.limit > 0 && c.n >= c.limit:
		return overloadedError()
	}
	c.n++
	c.open.Add(1)
	return nil
}

func (c *calls) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n--
	c.open.Done()
}

// close turns later calls away and waits for those that run.
func (c *calls) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.open.Wait()
}

func closedError() *sdk.Error {
	return &sdk.Error{Tag: sdk.TagUnavailable, Code: "closed", Rule: "the engine is closing; nothing was recorded"}
}

func overloadedError() *sdk.Error {
	return &sdk.Error{Tag: sdk.TagUnavailable, Code: "overloaded", Rule: "fewer calls at the same time; nothing was recorded"}
}
