package engine

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/engine/period"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Event returns one recorded event, or not_found.
func (e *Engine) Event(ctx context.Context, key storage.EventKey) (storage.Event, error) {
	ev, err := e.store.events.LoadEvent(ctx, key)
	if err != nil {
		return ev, fmt.Errorf("load event: %w", err)
	}
	return ev, nil
}

// Receipt returns the first receipt of a CloudEvent, or not_found.
func (e *Engine) Receipt(ctx context.Context, key storage.ReceiptKey) (storage.Receipt, error) {
	rc, err := e.store.events.LoadReceipt(ctx, key)
	if err != nil {
		return rc, fmt.Errorf("load receipt: %w", err)
	}
	return rc, nil
}

// Events returns a page of recorded events in insertion order. It fails with
// tag unsupported if the store cannot stream.
func (e *Engine) Events(ctx context.Context, q storage.StreamQuery) (storage.EventPage, error) {
	if e.store.stream == nil {
		_, err := need[storage.EventStreamer](e.cfg.Store, storage.EventStreaming)
		return storage.EventPage{}, err
	}
	page, err := e.store.stream.StreamEvents(ctx, q)
	if err != nil {
		return page, fmt.Errorf("stream events: %w", err)
	}
	return page, nil
}

// PutSubscription creates or replaces a tenant's subscription. It applies to
// what is recorded from now on.
func (e *Engine) PutSubscription(ctx context.Context, s storage.Subscription) (storage.Subscription, error) {
	s, err := checkSubscription(s)
	if err != nil {
		return s, err
	}
	out, err := e.store.subs.PutSubscription(ctx, s)
	if err != nil {
		return out, fmt.Errorf("put subscription: %w", err)
	}
	e.subjects.forget(&storage.Stale{Tenants: []string{s.Tenant}})
	return out, nil
}

// Subscription returns a tenant's subscription, or not_found.
func (e *Engine) Subscription(ctx context.Context, tenant string) (storage.Subscription, error) {
	found, err := e.store.subs.Subscriptions(ctx, []string{tenant})
	if err != nil {
		return storage.Subscription{}, fmt.Errorf("load subscription: %w", err)
	}
	if len(found) == 0 {
		return storage.Subscription{}, &sdk.Error{Tag: sdk.TagNotFound, Field: "tenant", Rule: "a tenant with a subscription"}
	}
	return found[0], nil
}

// Subscriptions returns at most limit subscriptions of tenants after the given
// one, in tenant order.
func (e *Engine) Subscriptions(ctx context.Context, after string, limit int) ([]storage.Subscription, error) {
	list, err := e.store.subs.ListSubscriptions(ctx, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list subscriptions: %w", err)
	}
	return list, nil
}

// firstOfMonth is the anchor of a subscription that names none: the calendar of
// its time zone begins its months and years at local midnight. A zone that does
// not exist is refused afterwards.
func firstOfMonth(zone string) time.Time {
	location, err := time.LoadLocation(zone)
	if err != nil {
		location = time.UTC
	}
	return time.Date(2000, time.January, 1, 0, 0, 0, 0, location)
}

func checkSubscription(s storage.Subscription) (storage.Subscription, error) {
	if !plainText(s.Tenant, meter.MaxID) || s.Tenant == "" {
		return s, sdk.Invalid("tenant", "1 to 128 bytes of UTF-8 without control characters")
	}
	if !plainText(s.Plan, meter.MaxID) {
		return s, sdk.Invalid("plan", "at most 128 bytes of UTF-8 without control characters")
	}
	if !plainText(s.PlanVersion, meter.MaxID) {
		return s, sdk.Invalid("plan_version", "at most 128 bytes of UTF-8 without control characters")
	}
	if s.Interval == "" {
		s.Interval = storage.Month
	}
	if s.Timezone == "" {
		s.Timezone = "UTC"
	}
	if s.Anchor.IsZero() {
		s.Anchor = firstOfMonth(s.Timezone)
	}
	s.Anchor = meter.Truncate(s.Anchor)
	if _, err := period.New(s.Anchor, s.Interval, s.Timezone); err != nil {
		return s, fmt.Errorf("subscription: %w", err)
	}
	if len(s.Customers) > maxCustomers {
		return s, sdk.Invalid("customers", "at most 64 exporters")
	}
	for name, id := range s.Customers {
		if name == "" || !plainText(name, 63) || id == "" || !plainText(id, 255) {
			return s, sdk.Invalid("customers", "exporter names of 1 to 63 bytes and customer ids of 1 to 255, without control characters")
		}
	}
	return s, nil
}

// maxCustomers bounds the exporters at which one tenant is known.
const maxCustomers = 64

// plainText reports whether a text is UTF-8 of at most limit bytes that a
// person can see.
func plainText(s string, limit int) bool {
	return len(s) <= limit && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// Routes returns every route, retired ones included, and every mapping.
func (e *Engine) Routes(ctx context.Context) (storage.RouteSet, error) {
	set, err := e.store.routes.Routes(ctx)
	if err != nil {
		return set, fmt.Errorf("read routes: %w", err)
	}
	return set, nil
}
