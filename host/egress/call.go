package egress

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// CallItem is one item that a call of the plugin may report.
type CallItem struct {
	ID string
	// Identifier must occur in every request that reports the item: it is
	// what the provider recognises a repetition by.
	Identifier string
	// Key is what [Config.Records] names of the item; see [KeyOf]. The
	// provider recognises a repetition by it and not by the identifier.
	Key []string
	// SerialKey: requests for items of one key are never in flight together.
	// Empty: no such limit. Keys are the caller's and compared whole.
	SerialKey string
}

// Call collects what the host saw while a plugin delivered one batch. It is
// safe for concurrent use.
type Call struct {
	items map[string]CallItem
	// sendBefore is the instant on the Elapsed clock after which nothing more
	// is sent; zero: no deadline.
	sendBefore time.Duration

	mu        sync.Mutex
	ended     bool
	requests  int // accepted so far, against requestsMax
	exchanges map[string][]exporter.Exchange
	inFlight  map[*exchange]struct{}
}

// exchange is one request on its way.
type exchange struct {
	items   []CallItem
	started time.Time
}

type callKey struct{ client *Client }

// Begin returns a context in which the plugin may report these items, and the
// call that holds the evidence afterwards. What is sent in another context may
// cover no item. The context's deadline also bounds sending on the clock that
// runs through a suspend, measured from here.
func (c *Client) Begin(ctx context.Context, items []CallItem) (context.Context, *Call) {
	call := &Call{
		items:     make(map[string]CallItem, len(items)),
		exchanges: make(map[string][]exporter.Exchange),
		inFlight:  make(map[*exchange]struct{}),
	}
	for _, it := range items {
		call.items[it.ID] = it
	}
	if left, ok := timeLeft(ctx); ok {
		// One nanosecond at least, as zero means no deadline.
		call.sendBefore = max(1, c.cfg.Elapsed()+left)
	}
	return context.WithValue(ctx, callKey{c}, call), call
}

// Exchanges ends the call and returns, for each item that a request covered,
// what became of its requests in the order in which they ended. Once it has
// returned nothing more is sent under this call, and a request still on the wire
// is among the answers as indefinite, code in_flight; an item that is absent was
// never sent. Calling it again gives the same and what has ended since.
func (k *Call) Exchanges() map[string][]exporter.Exchange {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended = true
	out := make(map[string][]exporter.Exchange, len(k.exchanges))
	for id, list := range k.exchanges {
		out[id] = slices.Clone(list)
	}
	for x := range k.inFlight {
		for _, it := range x.items {
			out[it.ID] = append(out[it.ID], exporter.Exchange{
				Class: exporter.ClassIndefinite, Code: reasonInFlight, Message: sentences[reasonInFlight], StartedAt: x.started,
			})
		}
	}
	return out
}

// admit counts a request against the call's bound.
func (k *Call) admit() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.requests++
	// A request for each item and some to spare: pages, a second look. More is
	// a plugin in a loop.
	return k.requests <= 4*len(k.items)+64
}

// start registers an exchange before its first byte. It reports false once the
// call has ended.
func (k *Call) start(x *exchange) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		return false
	}
	k.inFlight[x] = struct{}{}
	return true
}

// finish records what became of an exchange, started or not.
func (k *Call) finish(x *exchange, verdicts []exporter.Exchange) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.inFlight, x)
	for i, it := range x.items {
		k.exchanges[it.ID] = append(k.exchanges[it.ID], verdicts[i])
	}
}
