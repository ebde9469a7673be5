package journal

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// Item is one item that a call of the plugin may report.
type Item struct {
	ID         string
	Identifier string
	// Again says that an earlier attempt may have written it. The file is then
	// searched whatever the plugin says.
	Again bool
}

// Call collects what became of the records of one delivery. It is safe for
// concurrent use.
type Call struct {
	mu        sync.Mutex
	items     map[string]*callItem
	ended     bool
	exchanges map[string][]exporter.Exchange
}

type callItem struct {
	Item
	// since is when an append of it began; zero: none is on its way.
	since time.Time
}

type callKey struct{ file *File }

// Begin returns a context in which the plugin may append records of these items,
// and the call that holds the evidence afterwards.
func (f *File) Begin(ctx context.Context, items []Item) (context.Context, *Call) {
	c := &Call{items: make(map[string]*callItem, len(items)), exchanges: map[string][]exporter.Exchange{}}
	for _, it := range items {
		c.items[it.ID] = &callItem{Item: it}
	}
	return context.WithValue(ctx, callKey{f}, c), c
}

// Exchanges ends the call and returns, for each item of which a record was asked
// for, what became of it. An append that is still on its way is among them as
// indefinite; an item that is absent was never asked for.
func (c *Call) Exchanges() map[string][]exporter.Exchange {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	out := make(map[string][]exporter.Exchange, len(c.exchanges))
	for id, list := range c.exchanges {
		out[id] = slices.Clone(list)
	}
	for id, it := range c.items {
		if !it.since.IsZero() {
			out[id] = append(out[id], exporter.Exchange{Class: exporter.ClassIndefinite, Code: "in_flight", StartedAt: it.since})
		}
	}
	return out
}

// start says why an item may not be appended, or that it may and whether the
// file is to be searched for it first.
func (c *Call) start(item, identifier string, now time.Time) (again bool, reason string) {
	if c == nil {
		return false, ReasonNoCall
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	it, ok := c.items[item]
	switch {
	case c.ended:
		return false, ReasonCallEnded
	case !ok:
		return false, ReasonUnknown
	case it.Identifier != identifier:
		return false, ReasonInvalid
	case !it.since.IsZero():
		return false, ReasonTwice
	}
	it.since = now
	// From here on it may be there.
	again, it.Again = it.Again, true
	return again, ""
}

// finish records what became of an item. One that was never started is noted if
// the call has it.
func (c *Call) finish(item string, x exporter.Exchange) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	it, ok := c.items[item]
	if !ok {
		return
	}
	it.since = time.Time{}
	c.exchanges[item] = append(c.exchanges[item], x)
}
