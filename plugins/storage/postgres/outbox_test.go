package postgres

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/internal/pgtest"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// outbox is a store whose outbox was filled by plain SQL: what is tested here
// must not depend on how items get in.
type outbox struct {
	t   testing.TB
	dsn string
	*Adapter
	route int64
}

func newOutbox(t testing.TB) *outbox {
	t.Helper()
	dsn, _ := pgtest.Schema(t)
	o := &outbox{t: t, dsn: dsn, Adapter: openDSN(t, dsn)}
	o.exec(`INSERT INTO {schema}.fencepost_mappings VALUES ('m1', '1', '{"event_name":"llm_tokens"}', clock_timestamp())`)
	o.route = o.addRoute("tokens")
	return o
}

// host is another host on the same store.
func (o *outbox) host() *outbox {
	o.t.Helper()
	return &outbox{t: o.t, dsn: o.dsn, Adapter: openDSN(o.t, o.dsn), route: o.route}
}

func (o *outbox) exec(text string, args ...any) {
	o.t.Helper()
	if _, err := o.pools[workPool].Exec(o.t.Context(), withSchema(text, o.target.schema), args...); err != nil {
		o.t.Fatalf("%s: %v", text, err)
	}
}

func (o *outbox) query(dest any, text string, args ...any) {
	o.t.Helper()
	if err := o.pools[workPool].QueryRow(o.t.Context(), withSchema(text, o.target.schema), args...).Scan(dest); err != nil {
		o.t.Fatalf("%s: %v", text, err)
	}
}

func (o *outbox) addRoute(feature string) (route int64) {
	o.t.Helper()
	o.query(&route, `INSERT INTO {schema}.fencepost_routes
  (exporter, destination_account, mode, feature, disposition, mapping_version, applies_after, created_at)
VALUES ('stripe', 'acct_1', 'test', $1, 'export', 'm1', 0, clock_timestamp()) RETURNING route`, feature)
	return route
}

// fill adds pending items first to last with an event each, due since a minute
// ago, one microsecond apart. serial is an expression over n.
func (o *outbox) fill(route int64, first, last int, serial string) {
	o.t.Helper()
	conn, err := o.pools[workPool].Acquire(o.t.Context())
	if err != nil {
		o.t.Fatal(err)
	}
	defer conn.Release()
	for _, text := range []string{
		`INSERT INTO {schema}.fencepost_events (seq, tenant_key, event_id, feature, quantity, effect, kind,
  occurred_at, period_start, period_end, period_source, dimensions, payload_hash, dedupe_hash, recorded_at)
SELECT n, 'acme', 'e' || n, 'tokens', 1.5, 1.5, 'usage', now(), date_trunc('month', now()),
  date_trunc('month', now()) + interval '1 month', 'calendar', '{"model":"m1"}', sha256('p'), sha256('d'), now()
FROM generate_series($2::bigint, $3::bigint) AS n WHERE $1::bigint > 0`,
		`INSERT INTO {schema}.fencepost_outbox_items (item, tenant_key, subject_kind, subject_ref, exporter,
  destination_account, mode, mapping_version, digest, subject_key, route, event_seq, feature, customer, created_at)
SELECT n, 'acme', 'event', 'e' || n, 'stripe', 'acct_1', 'test', 'm1', sha256(('digest ' || n)::bytea), sha256(('subject ' || n)::bytea), $1, n, 'tokens',
  'cus_1', now() - interval '1 minute'
FROM generate_series($2::bigint, $3::bigint) AS n`,
		`INSERT INTO {schema}.fencepost_outbox_state (item, route, serial_key, state, attempt_budget, next_attempt_at)
SELECT n, $1, ` + serial + `, 'pending', 3, now() - interval '1 minute' + n * interval '1 microsecond'
FROM generate_series($2::bigint, $3::bigint) AS n`,
		`INSERT INTO {schema}.fencepost_outbox_counts (route, state, items, open)
SELECT $1::bigint, 'pending', $3::bigint - $2::bigint + 1, $3::bigint - $2::bigint + 1`,
	} {
		if _, err := conn.Exec(o.t.Context(), withSchema(text, o.target.schema), route, first, last); err != nil {
			o.t.Fatalf("%s: %v", text, err)
		}
	}
}

// seeded is a store with n items; serial as in fill.
func seeded(t testing.TB, n int, serial string) *outbox {
	t.Helper()
	o := newOutbox(t)
	o.fill(o.route, 1, n, serial)
	return o
}

// older makes every time of the outbox earlier: the database's clock is the
// only one, and it does not wait for a test.
func (o *outbox) older(by time.Duration) {
	o.t.Helper()
	err := pgx.BeginFunc(o.t.Context(), o.pools[workPool], func(tx pgx.Tx) error {
		if _, err := tx.Exec(o.t.Context(), "SET LOCAL session_replication_role = replica"); err != nil {
			return err
		}
		_, err := tx.Exec(o.t.Context(), withSchema(`UPDATE {schema}.fencepost_outbox_state SET
  next_attempt_at = next_attempt_at - $1::interval, lease_expires_at = lease_expires_at - $1::interval,
  claimed_at = claimed_at - $1::interval, first_attempt_at = first_attempt_at - $1::interval,
  first_unresolved_at = first_unresolved_at - $1::interval`, o.target.schema), by)
		return err
	})
	if err != nil {
		o.t.Fatal(err)
	}
	o.hints.forget()
}

func (o *outbox) claim(req storage.ClaimRequest) storage.Claim {
	o.t.Helper()
	if req.Owner == "" {
		req.Owner = "worker"
	}
	if req.Routes == nil {
		req.Routes = []int64{o.route}
	}
	if req.Limit == 0 {
		req.Limit = 100
	}
	if req.Lease == 0 {
		req.Lease = time.Minute
	}
	cl, err := o.Claim(o.t.Context(), req)
	if err != nil {
		o.t.Fatal(err)
	}
	return cl
}

// wantClaim claims and compares the items' numbers.
func (o *outbox) wantClaim(req storage.ClaimRequest, want ...int64) storage.Claim {
	o.t.Helper()
	cl := o.claim(req)
	wantIDs(o.t, cl, want...)
	return cl
}

func wantIDs(t testing.TB, cl storage.Claim, want ...int64) {
	t.Helper()
	var got []int64
	for _, it := range cl.Items {
		got = append(got, it.ItemID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("claimed %v, want %v", got, want)
	}
}

// move applies transitions and answers the rows that each changed.
func (o *outbox) move(moves ...storage.Transition) []int {
	o.t.Helper()
	res, err := o.Transition(o.t.Context(), moves)
	if err != nil {
		o.t.Fatal(err)
	}
	rows := make([]int, len(res))
	for i, r := range res {
		if r.ItemID != moves[i].ItemID {
			o.t.Errorf("answer %d is about item %d, want %d", i, r.ItemID, moves[i].ItemID)
		}
		rows[i] = r.Rows
	}
	return rows
}

// fenced expects a leased item with a token.
func fenced(token int64) storage.Expect {
	return storage.Expect{State: storage.Leased, LeaseToken: &token}
}

// retry sends item 1 back to pending, due at once.
func (o *outbox) retry(set storage.Change) {
	o.t.Helper()
	set.State, set.NextAttemptAfter = storage.Pending, new(time.Duration(0))
	if rows := o.move(storage.Transition{ItemID: 1, Expect: fenced(1), Set: set}); rows[0] != 1 {
		o.t.Fatal("item 1 did not go back")
	}
}

func (o *outbox) load(id int64) storage.ItemDetail {
	o.t.Helper()
	d, err := o.LoadItem(o.t.Context(), id)
	if err != nil {
		o.t.Fatal(err)
	}
	return d
}

func (o *outbox) stats() storage.OutboxStats {
	o.t.Helper()
	stats, err := o.OutboxStats(o.t.Context())
	if err != nil {
		o.t.Fatal(err)
	}
	return stats
}

// checkCounts compares the gauge with a scan of the outbox.
func (o *outbox) checkCounts() {
	o.t.Helper()
	type key struct {
		exporter string
		state    storage.ItemState
	}
	want := map[key]storage.ItemCount{}
	for after := int64(0); ; {
		page, err := o.ListItems(o.t.Context(), storage.ItemQuery{After: after, Limit: 1000})
		if err != nil {
			o.t.Fatal(err)
		}
		for _, it := range page.Items {
			n := want[key{it.Identity.Exporter, it.State}]
			n.Exporter, n.State = it.Identity.Exporter, it.State
			n.Items++
			if it.SettledAt.IsZero() {
				n.Open++
			}
			want[key{it.Identity.Exporter, it.State}] = n
		}
		if after = page.Next; !page.More {
			break
		}
	}
	for _, n := range o.stats().Counts {
		k := key{n.Exporter, n.State}
		if want[k] != n {
			o.t.Errorf("the gauge says %+v, the outbox %+v", n, want[k])
		}
		delete(want, k)
	}
	for _, n := range want {
		o.t.Errorf("the gauge misses %+v", n)
	}
}

// near compares a time of the database's with one of its own a moment before.
func near(t testing.TB, what string, got, want time.Time) {
	t.Helper()
	if d := got.Sub(want); d < 0 || d > 30*time.Second {
		t.Errorf("%s is %v, want a little after %v", what, got, want)
	}
}

// now is the database's clock.
func (o *outbox) now() (t time.Time) {
	o.t.Helper()
	o.query(&t, "SELECT clock_timestamp()")
	return t.UTC()
}

func sum(parts ...any) storage.Hash { return sha256.Sum256([]byte(fmt.Sprint(parts...))) }

// wantTag fails unless err carries the tag and the code.
func wantTag(t testing.TB, err error, tag sdk.Tag, code string) *sdk.Error {
	t.Helper()
	e, ok := errors.AsType[*sdk.Error](err)
	if !ok || e.Tag != tag || e.Code != code {
		t.Fatalf("error %v, want %s %s", err, tag, code)
	}
	return e
}
