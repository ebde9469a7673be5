package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// Sender hands a batch to an exporter and reports what it said and what the
// host saw. It is used by one goroutine at a time.
type Sender interface {
	// Manifest is the exporter's, with the operator's smaller limits applied.
	Manifest() exporter.Manifest
	// Send hands the items over in one call and returns when every request
	// it began has ended or been given up, at the latest soon after ctx is
	// done. Before each request leaves the machine it asks [LeaseLeft]: what
	// cannot be answered within the lease is not sent. deadline is the same
	// moment on the wall clock, for the plugin. It never fails: what went
	// wrong is in the report.
	Send(ctx context.Context, items []SendItem, deadline time.Time) Report
}

// SendItem is an item to send. Items of equal, non-empty serial key are sent
// one after another.
type SendItem struct {
	exporter.Item
	SerialKey string
	// Covers is the identifier that a request about this item contains, and
	// its duplicate answers name: the item's own, or of a correction that
	// cancels its original's. Never empty. // Q9
	Covers string
}

// sendItem is an item as its sender gets it.
func sendItem(item exporter.Item, serial string) SendItem {
	s := SendItem{Item: item, SerialKey: serial, Covers: item.Identifier}
	if c := item.Corrects; c != nil && c.Method == exporter.CorrectCancel {
		s.Covers = c.Identifier
	}
	return s
}

// Report is what became of one Send.
type Report struct {
	// Called is set once Deliver was entered: from there on the plugin may
	// have sent anything it was able to send.
	Called   bool
	Outcomes []exporter.ItemOutcome
	// Exchanges holds, by item id, every request that covered the item, in
	// the order in which they began. With Grade host, an item that is absent
	// was in no request: a host that saw a request which may have an effect
	// and names no items must add an indefinite exchange to every item.
	Exchanges map[string][]exporter.Exchange
	Grade     Grade
	// Err is a trap, a passed deadline or a protocol fault: outcomes may be
	// missing. It is logged; the outcomes and exchanges decide.
	Err error
}

type leaseKey struct{}

// LeaseLeft returns how much of the lease is left for sending, measured on a
// clock that goes on while the machine sleeps. It is zero once nothing may be
// sent any more, and ok is false outside a Send.
func LeaseLeft(ctx context.Context) (left time.Duration, ok bool) {
	until, ok := ctx.Value(leaseKey{}).(func() time.Duration)
	if !ok {
		return 0, false
	}
	return max(until(), 0), true
}

func withLease(ctx context.Context, left func() time.Duration) context.Context {
	return context.WithValue(ctx, leaseKey{}, left)
}

// guardedSend keeps a panic of the sender from taking the loop down. What it
// had sent is then unknown.
func guardedSend(ctx context.Context, s Sender, items []SendItem, deadline time.Time) (r Report) {
	defer func() {
		if p := recover(); p != nil {
			r = Report{Called: true, Grade: GradeNone, Err: fmt.Errorf("send: panic: %v", p)}
		}
	}()
	return s.Send(ctx, items, deadline)
}
