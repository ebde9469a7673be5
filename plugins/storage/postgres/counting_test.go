package postgres

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

var november = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

var decimals = cmp.Comparer(decimal.Decimal.Equal)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// usageOf is a usage event of the feature "calls" at a time.
func usageOf(tenant, id, quantity string, at time.Time, dimensions map[string]string) storage.Event {
	q := decimal.MustParse(quantity)
	return storage.Event{
		Tenant: tenant, EventID: id, Feature: "calls", Quantity: q, Effect: q, Kind: storage.Usage,
		OccurredAt: at, PeriodStart: november, PeriodEnd: november.AddDate(0, 1, 0),
		PeriodSource: storage.FromCalendar, Dimensions: dimensions,
		PayloadHash: sha256.Sum256([]byte("p" + tenant + id + quantity)),
		DedupeHash:  sha256.Sum256([]byte("d" + tenant + id + quantity)),
	}
}

// correctionOf is a correction as it is stored.
func correctionOf(original storage.Event, id, magnitude string, reverses bool) storage.Event {
	ev := usageOf(original.Tenant, id, magnitude, original.OccurredAt, original.Dimensions)
	ev.Kind, ev.OriginalEventID, ev.Reverses = storage.Correction, original.EventID, reverses
	ev.Feature = original.Feature
	if original.Quantity.Sign() > 0 {
		ev.Effect = ev.Quantity.Neg()
	}
	return ev
}

// putEvents writes events past every rule: what a test of reading needs, in
// the order given.
func putEvents(t testing.TB, a *Adapter, events ...storage.Event) {
	t.Helper()
	columns := []string{
		"tenant_key", "event_id", "feature", "quantity", "effect", "kind", "reverses", "original_event_id",
		"occurred_at", "period_start", "period_end", "period_source", "dimensions", "payload_hash", "dedupe_hash",
		"recorded_at",
	}
	rows := pgx.CopyFromSlice(len(events), func(i int) ([]any, error) {
		e := &events[i]
		var original *string
		if e.OriginalEventID != "" {
			original = &e.OriginalEventID
		}
		var dimensions any
		if len(e.Dimensions) > 0 {
			dimensions = e.Dimensions
		}
		return []any{
			e.Tenant, e.EventID, e.Feature, e.Quantity.String(), e.Effect.String(), string(e.Kind), e.Reverses, original,
			e.OccurredAt, e.PeriodStart, e.PeriodEnd, string(e.PeriodSource), dimensions, e.PayloadHash[:], e.DedupeHash[:],
			time.Now(),
		}, nil
	})
	c, err := a.pools[workPool].Acquire(t.Context())
	must(t, err)
	defer c.Release()
	n, err := c.CopyFrom(t.Context(), pgx.Identifier{a.target.schema, "fencepost_events"}, columns, rows)
	if err != nil || int(n) != len(events) {
		t.Fatalf("put %d events: %d, %v", len(events), n, err)
	}
}

// sqlExec runs a statement of the test's own; {schema} is put in.
func sqlExec(t testing.TB, a *Adapter, text string, args ...any) {
	t.Helper()
	_, err := a.pools[workPool].Exec(t.Context(), withSchema(text, a.target.schema), args...)
	must(t, err)
}

// sqlOne reads one value.
func sqlOne[T any](t testing.TB, a *Adapter, text string, args ...any) (v T) {
	t.Helper()
	must(t, a.pools[workPool].QueryRow(t.Context(), withSchema(text, a.target.schema), args...).Scan(&v))
	return v
}
