package postgres

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// The statements that run once per item or per poll, and the index by which
// each must reach every table, whatever the tables hold and whatever the
// statistics say of them: a scan that is harmless today stops the outbox at a
// million rows. Both traps of performance.md 6.2 are here: an empty set of
// leased rows that a plan begins with, and a clock that is no bound of the
// index.
func TestPlans(t *testing.T) {
	t.Parallel()
	const (
		state  = "fencepost_outbox_state"
		key    = state + "_pkey"
		events = "fencepost_events_seq"
		items  = "fencepost_outbox_items_pkey"
	)
	claim := "ARRAY[1,2]::bigint[], '-infinity', 0, 300, 100, 'w', '1 minute', '23 hours', NULL"
	wants := []struct {
		q     query
		args  string
		reach map[string]string // alias → index and condition
	}{
		{qClaimPending, claim, map[string]string{
			"s": state + "_pending ((route = r.route) AND (next_attempt_at <= $) AND (ROW(next_attempt_at, item) > ROW($, $)))",
			"o": "Tid Scan (ctid = seen.tid)", // the plan's CTE is in order, and so are the locks
			"u": "Tid Scan (ctid = l.tid)",
			"h": state + "_serial", // all that is sent now, once, and only if a key was seen
			"i": items + " ((item >= m.item) AND (item <= m.item))",
			"e": events + " ((seq >= i.event_seq) AND (seq <= i.event_seq))",
		}},
		{qClaimExpired, claim, map[string]string{
			"s": state + "_leased ((route = r.route) AND (lease_expires_at < $) AND (ROW(lease_expires_at, item) > ROW($, $)))",
			"o": "Tid Scan (ctid = seen.tid)", // the plan's CTE is in order, and so are the locks
			"u": "Tid Scan (ctid = l.tid)",
			"h": state + "_serial",
			"i": items + " ((item >= m.item) AND (item <= m.item))",
			"e": events + " ((seq >= i.event_seq) AND (seq <= i.event_seq))",
		}},
		{qClaimRaise, "", map[string]string{
			"k": "fencepost_store_pkey (scope = 1)",
		}},
		{qMove, `ARRAY[1,2,3]::bigint[], ARRAY[1,1,NULL]::bigint[], ARRAY[NULL,true,false],
  ARRAY['accepted','accepted','accepted'], NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, true, false, true`, map[string]string{
			"u": key + " ((item >= m.item) AND (item <= m.item))",
		}},
		{qMoveSettled, "ARRAY[1,2,3]::bigint[]", map[string]string{
			"o": key + " (item = ANY (ARRAY[m.item]))",
		}},
		{qMoveFull, `ARRAY[1,2,3]::bigint[], ARRAY['leased','leased','pending'], ARRAY[1,1,NULL]::bigint[], ARRAY[NULL,'m1',NULL],
  ARRAY[NULL,true,false], ARRAY['accepted','accepted','accepted'], NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
  NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL`, map[string]string{
			"o": key + " (item = ANY (ARRAY[m_1.item]))",
			"u": key + " (item = ANY (ARRAY[l.item]))",
			"i": items + " (item = ANY (ARRAY[m_1.item]))",
			// The customer, too.
			"i_1": items + " (item = ANY (ARRAY[l_1.item]))",
		}},
		{qMoveLock, "ARRAY[1,2,3]::bigint[], ARRAY[1,2]::bigint[]", map[string]string{
			"o": key + " (item = ANY (ARRAY[p.item]))",
			"i": "fencepost_outbox_items_depends (depends_on = m_1.item)",
		}},
		{qWaiting, "ARRAY[1,2,3]::bigint[]", map[string]string{
			"w": state + "_waiting (waits_for = ANY ($))",
		}},
		{qRelease, "ARRAY[1,2]::bigint[], ARRAY['pending','pending'], ARRAY[true,true], NULL, NULL, NULL, NULL", map[string]string{
			"i": state + "_waiting (waits_for = m_1.item)",
			"w": key + " (item = ANY (ARRAY[d.item]))",
			"u": key + " (item = ANY (ARRAY[l.waiting]))",
		}},
		{qDependents, "ARRAY[1,2]::bigint[], NULL, NULL", map[string]string{
			"i": "fencepost_outbox_items_depends (depends_on = m_1.item)",
			"w": key + " (item = ANY (ARRAY[d.item]))",
			"u": key + " (item = ANY (ARRAY[l.dependent]))",
		}},
	}
	for _, held := range []string{"empty", "pending", "done"} {
		t.Run(held, func(t *testing.T) {
			t.Parallel()
			o := newOutbox(t)
			if held != "empty" {
				o.fill(o.route, 1, 20_000, "'k' || n % 7")
			}
			if held == "done" {
				o.exec("UPDATE {schema}.fencepost_outbox_state SET state = 'accepted'")
			}
			o.exec("ANALYZE {schema}.fencepost_outbox_state, {schema}.fencepost_outbox_items, {schema}.fencepost_events, {schema}.fencepost_outbox_counts")
			for _, want := range wants {
				for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
					got := o.plan(want.q, mode, want.args, true)
					for alias, reach := range want.reach {
						if got[alias] != reach {
							t.Errorf("%s, %s: %s\n got %s\nwant %s", want.q, mode, alias, got[alias], reach)
						}
						delete(got, alias)
					}
					for alias, reach := range got {
						t.Errorf("%s, %s: %s\n got %s", want.q, mode, alias, reach)
					}
				}
			}
		})
	}
}

// What people and the gauge read has an index too, chosen by the planner alone.
func TestListPlans(t *testing.T) {
	t.Parallel()
	o := newOutbox(t)
	o.fill(o.route, 1, 30_000, noSerial)
	o.exec("UPDATE {schema}.fencepost_outbox_state SET state = 'accepted' WHERE item < 29900")
	o.exec("UPDATE {schema}.fencepost_outbox_state SET state = 'uncertain' WHERE item > 29990")
	o.exec("INSERT INTO {schema}.fencepost_attempts (item, lease_token, owner, host_class, outcome, evidence, status, request_id, code, message, decided, fenced, recorded_at) SELECT n, 1, '', '', '', '', 0, '', '', '', '', n % 1000 = 0, now() FROM generate_series(1, 20000) AS n")
	o.exec("VACUUM ANALYZE {schema}.fencepost_outbox_state, {schema}.fencepost_outbox_items, {schema}.fencepost_events, {schema}.fencepost_attempts")
	const more = ", NULL, NULL, false, false, NULL, NULL, NULL"
	none := ", NULL, NULL, NULL, NULL, NULL" + more
	for _, want := range []struct {
		q     query
		args  string
		alias string
		reach string
	}{
		{qItemsAttention, "0, 100, 'uncertain'" + none, "s", "fencepost_outbox_state_attention"},
		{qItemsPending, "0, 100, 'pending'" + none, "s", "fencepost_outbox_state_oldest"},
		{qItems, "0, 100, NULL" + none, "i", "fencepost_outbox_items_pkey"},
		{qItemsOfEvent, "0, 100, NULL, 'acme', NULL, NULL, NULL, 'e77'" + more, "i", "fencepost_outbox_items_event"},
		{qItemsOfEvents, "0, 100, NULL" + none + ", ARRAY['acme'], ARRAY['e77']", "i", "fencepost_outbox_items_event"},
		{qItemsOfEvents, "0, 100, NULL" + none + ", ARRAY['acme'], ARRAY['e77']", "e", "fencepost_events_pkey"},
		{qItemsOf, "0, 100, NULL" + none[:len(none)-len(", NULL")] + ", 5", "i", "fencepost_outbox_items_depends"},
		{qItemsDisputed, "0, 100, NULL" + none, "s", "fencepost_outbox_state_disputed"},
		{qDisputed, "", "s", "fencepost_outbox_state_disputed"},
		{qOldestAccepted, "", "s", "fencepost_outbox_state_accepted"},
		{qWaiting, "ARRAY[1,2,3]::bigint[]", "w", "fencepost_outbox_state_waiting"},
		{qItem, "77", "i", "fencepost_outbox_items_pkey (item = $)"},
		{qItemAttempts, "77", "fencepost_attempts", "fencepost_attempts_pkey (item = $)"},
		{qOldestPending, "", "s", "fencepost_outbox_state_oldest"},
		{qFencedAttempts, "", "fencepost_attempts", "fencepost_attempts_fenced"},
	} {
		for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
			if got := o.plan(want.q, mode, want.args, false)[want.alias]; !strings.HasPrefix(got, want.reach) {
				t.Errorf("%s, %s: %s is reached by %s, want %s", want.q, mode, want.alias, got, want.reach)
			}
		}
	}
}

// node is what interests of a node of a plan.
type node struct {
	Type  string `json:"Node Type"`
	Table string `json:"Relation Name"`
	Alias string `json:"Alias"`
	Index string `json:"Index Name"`
	Cond  string `json:"Index Cond"`
	Tid   string `json:"TID Cond"`
	Plans []node `json:"Plans"`
}

// plan answers, by alias, how a statement reaches each table; in the order of
// the plan where one alias occurs twice. set is for the settings of
// transactions of the outbox.
func (o *outbox) plan(q query, mode, args string, set bool) map[string]string {
	o.t.Helper()
	text, err := o.texts.text(q)
	if err != nil {
		o.t.Fatal(err)
	}
	if args != "" {
		args = "(" + args + ")"
	}
	var raw []byte
	err = pgx.BeginFunc(o.t.Context(), o.pools[workPool], func(q pgx.Tx) error {
		t := &tx{a: o.Adapter, q: q}
		if set {
			if _, err := t.exec(o.t.Context(), qOutboxPlanner); err != nil {
				return err
			}
		}
		for _, s := range []string{"SET LOCAL plan_cache_mode = " + mode, "PREPARE examined AS " + text} {
			if _, err := q.Exec(o.t.Context(), s, pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
		}
		if err := q.QueryRow(o.t.Context(), "EXPLAIN (FORMAT JSON) EXECUTE examined"+args, pgx.QueryExecModeSimpleProtocol).Scan(&raw); err != nil {
			return err
		}
		_, err := q.Exec(o.t.Context(), "DEALLOCATE examined")
		return err
	})
	if err != nil {
		o.t.Fatalf("%s: %v", q, err)
	}
	var plans []struct{ Plan node }
	if err := json.Unmarshal(raw, &plans); err != nil {
		o.t.Fatal(err)
	}
	found := map[string][]string{}
	var walk func(n node)
	walk = func(n node) {
		if n.Table != "" && n.Type != "ModifyTable" {
			how := n.Type
			if strings.HasPrefix(n.Type, "Index") {
				how = strings.TrimSpace(n.Index + " " + normal(n.Cond))
			}
			how = strings.TrimSpace(how + " " + place.ReplaceAllString(n.Tid, "(ctid = $1)"))
			if !slices.Contains(found[n.Alias], how) {
				found[n.Alias] = append(found[n.Alias], how)
			}
		}
		for _, child := range n.Plans {
			walk(child)
		}
	}
	walk(plans[0].Plan)
	joined := map[string]string{}
	for alias := range found {
		joined[alias] = strings.Join(found[alias], " | ")
	}
	return joined
}

var parameter = regexp.MustCompile(`\$\d+|\(InitPlan \d+\)\.col1|'[^']*'::(timestamp with time zone|bigint)`)

// place is a condition on where a row is, as newer versions write it.
var place = regexp.MustCompile(`^\((\S+) = ctid\)$`)

// normal makes a condition the same under both modes of planning, and in the
// words of every version.
func normal(cond string) string { return parameter.ReplaceAllString(cond, "$$") }
