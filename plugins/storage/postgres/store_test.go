package postgres

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/pgtest"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// open answers a migrated store in a schema of its own.
func open(t testing.TB) *Adapter {
	t.Helper()
	dsn, _ := pgtest.Schema(t)
	return openDSN(t, dsn)
}

func openDSN(t testing.TB, dsn string) *Adapter {
	t.Helper()
	target, err := parseDSN(Config{DSN: dsn})
	must(t, err)
	dsn += "&application_name=" + target.schema // tells a test's sessions from others
	a, err := Open(context.WithoutCancel(t.Context()), Config{DSN: dsn, Migrate: true, MaxConns: 4})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

// pooled reports whether the server is behind a pooler in transaction mode.
func pooled(dsn string) bool { return strings.Contains(dsn, "pgbouncer=true") }

func digestOf(parts ...string) storage.Hash { return sha256.Sum256(fmt.Appendf(nil, "%q", parts)) }

// tokens is a usage event; its dedupe hash covers the quantity.
func tokens(tenant, id, quantity string) storage.Event {
	return storage.Event{
		Tenant: tenant, EventID: id, Feature: "tokens", Quantity: decimal.MustParse(quantity),
		Kind: storage.Usage, OccurredAt: november.Add(36 * time.Hour), PeriodStart: november,
		PeriodEnd: november.AddDate(0, 1, 0), PeriodSource: storage.FromCalendar,
		Dimensions:  map[string]string{"model": "m1"},
		PayloadHash: digestOf("payload", tenant, id, quantity), DedupeHash: digestOf("dedupe", tenant, id, quantity),
	}
}

func itemFor(e storage.Event, route int64, mapping string) storage.NewItem {
	return storage.NewItem{
		Identity: storage.Identity{
			Tenant: e.Tenant, SubjectKind: storage.SubjectEvent, SubjectRef: e.EventID,
			Exporter: "stripe", Account: "acct_1", Mode: "test", MappingVersion: mapping,
		},
		Digest: digestOf("digest", e.Tenant, e.EventID, mapping), SubjectKey: digestOf("subject", e.Tenant, e.EventID),
		RouteID: route, Customer: "cus_1", AttemptBudget: 3,
	}
}

func plain(e storage.Event, items ...storage.NewItem) storage.Unit {
	return storage.Unit{Entries: []storage.Entry{{Event: e, Items: items}}}
}

// routed adds an exporting route for the feature tokens under mapping "m1" and
// returns it with the routes' revision.
func routed(t testing.TB, a *Adapter) (route, revision int64) {
	t.Helper()
	set, err := a.ChangeRoutes(t.Context(), storage.RouteChange{
		Mappings: []storage.Mapping{{Version: "m1", Label: "1", Content: []byte(`{"event_name":"llm_tokens"}`)}},
		Add: []storage.Route{{
			Exporter: "stripe", Account: "acct_1", Mode: "test", Feature: "tokens",
			Disposition: storage.RouteExport, MappingVersion: "m1",
		}},
	})
	must(t, err)
	return set.Routes[0].ID, set.Revision
}

// recorder of a test: an adapter or a bound store.
type eventStore interface {
	RecordEvents(ctx context.Context, req storage.RecordRequest) (storage.RecordResult, error)
	LoadTotals(ctx context.Context, q storage.TotalsQuery) ([]storage.Total, error)
}

func record(t testing.TB, a eventStore, req storage.RecordRequest) storage.RecordResult {
	t.Helper()
	if req.Mode == "" {
		req.Mode = storage.Atomic
	}
	res, err := a.RecordEvents(t.Context(), req)
	must(t, err)
	return res
}

// cloudEvent is a receipt that feeds one event for each feature.
func cloudEvent(tenant, id, content string, features ...string) storage.Unit {
	u := storage.Unit{Receipt: &storage.Receipt{
		Tenant: tenant, ReceiptID: "4:/src" + id, Source: "/src", ID: id, Type: "llm.completion",
		OccurredAt: november, DedupeHash: digestOf("ce", tenant, id, content), Features: features,
		Body: []byte(`{"id":"` + id + `"}`),
	}}
	for _, f := range features {
		e := tokens(tenant, "ce-"+id+"-"+f, "2")
		e.Feature, e.DedupeHash = f, u.Receipt.DedupeHash
		u.Entries = append(u.Entries, storage.Entry{Event: e})
	}
	return u
}

// outcomes tells an answer without its identities, which may have gaps.
func outcomes(res storage.RecordResult) string {
	all := make([]string, 0, len(res.Units))
	for _, u := range res.Units {
		s := string(u.Outcome)
		for _, e := range u.Entries {
			s += " " + e.EventID //nolint:perfsprint // short
		}
		all = append(all, s)
	}
	return strings.Join(all, "; ")
}

func wantOutcomes(t testing.TB, res storage.RecordResult, want string) {
	t.Helper()
	if got := outcomes(res); got != want {
		t.Errorf("outcomes %q, want %q", got, want)
	}
}

// totalsOf tells a tenant's totals: feature quantity/events/count.
func totalsOf(t testing.TB, a eventStore, tenant string) string {
	t.Helper()
	all, err := a.LoadTotals(t.Context(), storage.TotalsQuery{Tenant: tenant})
	must(t, err)
	return totalsText(all)
}

func totalsText(all []storage.Total) string {
	parts := make([]string, 0, len(all))
	for _, x := range all {
		parts = append(parts, fmt.Sprintf("%s %s/%d/%d", x.Feature, x.Quantity, x.Events, x.Count))
	}
	return strings.Join(parts, ", ")
}

func wantTotals(t testing.TB, a eventStore, tenant, want string) {
	t.Helper()
	if got := totalsOf(t, a, tenant); got != want {
		t.Errorf("totals of %s: %q, want %q", tenant, got, want)
	}
}

func wantFailure(t testing.TB, err error, tag sdk.Tag, code string) {
	t.Helper()
	e, ok := errors.AsType[*sdk.Error](err)
	if !ok || e.Tag != tag || e.Code != code {
		t.Errorf("error %v, want %s %q", err, tag, code)
	}
}
