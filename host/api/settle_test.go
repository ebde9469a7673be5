package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// uncertain makes the first pending item uncertain, as a deliverer does whose
// answers did not come, and returns its id and token.
func (s *service) uncertain() (id, token int64) {
	s.t.Helper()
	id, token = s.leased()
	done, err := s.store.Transition(context.Background(), []storage.Transition{{
		ItemID: id, Expect: storage.Expect{State: storage.Leased, LeaseToken: &token},
		Set: storage.Change{State: storage.Uncertain, MarkUnresolved: true},
	}})
	if err != nil || done[0].Rows != 1 {
		s.t.Fatalf("%+v, %v", done, err)
	}
	return id, token
}

// leased claims the first pending item.
func (s *service) leased() (id, token int64) {
	s.t.Helper()
	set, err := s.engine.Routes(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	var routes []int64
	for _, r := range set.Routes {
		routes = append(routes, r.ID)
	}
	claim, err := s.store.Claim(context.Background(), storage.ClaimRequest{Owner: "w1", Routes: routes, Limit: 1, Lease: time.Minute})
	if err != nil || len(claim.Items) != 1 {
		s.t.Fatalf("%+v, %v", claim, err)
	}
	return claim.Items[0].ItemID, claim.Items[0].LeaseToken
}

func (s *service) charged(ids ...string) {
	s.t.Helper()
	var sub api.SubscriptionBody
	s.into(s.call(http.MethodPut, "/v1/subscriptions/acme", `{"customers":{"stripe":"cus_1"}}`), 200, &sub)
	for _, id := range ids {
		s.recorded(s.post(plainJSON, plain(id, "2")), http.StatusOK)
	}
}

// O26, formats (resolve): an item is settled with the token that somebody saw,
// on evidence; what moved is a conflict that says where it is; what was done is
// in the item and in the log.
func TestResolve(t *testing.T) {
	t.Parallel()
	clock := noon
	s := serveAt(t, &clock)
	s.charged("a")
	id, token := s.uncertain()
	path := fmt.Sprintf("/v1/outbox/%d/resolve", id)
	body := func(token int64, more string) string {
		return fmt.Sprintf(`{"state":"accepted","expect":{"lease_token":%d},"reason":"seen in the dashboard"%s}`, token, more)
	}
	const seen = `,"evidence":{"kind":"asserted","detail":"meter shows 2"}`

	s.refused(s.call(http.MethodPost, path, body(token, "")), 400, "invalid", "evidence")
	s.refused(s.call(http.MethodPost, path, body(token, seen)), 409, "conflict", "item") // too early
	clock = clock.Add(11 * time.Minute)
	s.refused(s.call(http.MethodPost, path, body(token, seen+`,"x":1`)), 400, "invalid", "body")
	s.refused(s.call(http.MethodPost, "/v1/outbox/x/resolve", body(token, seen)), 404, "not_found", "id")
	p := s.refused(s.call(http.MethodPost, path, body(token+1, seen)), 409, "conflict", "item")
	if want := fmt.Sprintf("it is uncertain, lease token %d (its lease token was to be %d)", token, token+1); !strings.Contains(p.Rule, want) { // D15
		t.Errorf("rule %q", p.Rule)
	}
	moved := p.Current
	if moved == nil || moved.State != "uncertain" || moved.LeaseToken != token || moved.Settled {
		t.Errorf("current: %+v", moved)
	}

	var dry api.SettledView
	s.into(s.call(http.MethodPost, path, body(token, seen+`,"dry_run":true`)), 200, &dry)
	if dry.State != "uncertain" || dry.Would != "accepted" || !dry.DryRun || len(dry.Actions) != 0 {
		t.Errorf("dry run: %+v", dry)
	}
	var done api.SettledView
	s.into(s.call(http.MethodPost, path, body(token, seen+`,"actor":"ann"`)), 200, &done)
	if done.State != "accepted" || done.SettledAt == nil || len(done.Actions) != 1 {
		t.Fatalf("%+v", done)
	}
	if a := done.Actions[0]; a.Kind != storage.ActionResolve || a.Actor != "ann" || a.Reason != "seen in the dashboard" || a.From != storage.Uncertain ||
		a.To != storage.Accepted || a.Evidence == nil || a.Evidence.Detail != "meter shows 2" {
		t.Errorf("%+v", a)
	}
	s.refused(s.call(http.MethodPost, path, body(token, seen)), 409, "conflict", "item")
	var log api.Page[api.ActionView]
	s.into(s.get("/v1/actions?kind=resolve"), 200, &log)
	if len(log.Data) != 1 || log.Data[0].Item != done.ID {
		t.Errorf("%+v", log)
	}
	s.refused(s.get("/v1/actions?x=1"), 400, "invalid", "query")
}

// O12: evidence against an accepted item is shown beside its state; O11, O27:
// what is given up stays what it is and is settled.
func TestEvidenceAndAbandonment(t *testing.T) {
	t.Parallel()
	clock := noon
	s := serveAt(t, &clock)
	s.charged("a")
	id, token := s.uncertain()
	clock = clock.Add(11 * time.Minute)
	at := fmt.Sprintf("/v1/outbox/%d/", id)
	var v api.SettledView
	s.into(s.call(http.MethodPost, at+"resolve", fmt.Sprintf(
		`{"state":"accepted","expect":{"lease_token":%d},"reason":"r","evidence":{"kind":"asserted","detail":"d"}}`, token)), 200, &v)
	s.into(s.call(http.MethodPost, at+"evidence", `{"kind":"asserted","finding":"refused","detail":"the invoice lacks it","reason":"r"}`), 200, &v)
	if v.State != "accepted" || v.Disputed == nil || !strings.Contains(*v.Disputed, "invoice") || v.SettledAt != nil {
		t.Errorf("%+v", v)
	}
	var list api.Page[api.ItemView]
	s.into(s.get("/v1/outbox?disputed=true&open=true"), 200, &list)
	if len(list.Data) != 1 {
		t.Errorf("disputed: %+v", list)
	}
	s.refused(s.get("/v1/outbox?disputed=1"), 400, "invalid", "disputed")
	s.refused(s.get("/v1/outbox?unconfirmed=soon"), 400, "invalid", "unconfirmed")
	s.refused(s.call(http.MethodPost, at+"abandon", `{"reason":"r","disposition":"write_off"}`), 400, "invalid", "disposition")
	s.refused(s.call(http.MethodPost, at+"abandon", `{"reason":""}`), 400, "invalid", "reason")
	s.into(s.call(http.MethodPost, at+"abandon", `{"reason":"written off"}`), 200, &v)
	if v.State != "accepted" || v.SettledAt == nil || len(v.Actions) != 3 {
		t.Errorf("%+v", v)
	}
}

// T9, formats (requeue): with the customer that was missing the item is sent;
// with another mapping than expected it is not.
func TestRequeue(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.recorded(s.post(plainJSON, plain("a", "2")), http.StatusOK)
	var list api.Page[api.ItemView]
	s.into(s.get("/v1/outbox?reason=no_customer"), 200, &list)
	if len(list.Data) != 1 {
		t.Fatalf("%+v", list)
	}
	path := "/v1/outbox/" + list.Data[0].ID + "/requeue"
	expect := func(version string) string {
		return fmt.Sprintf(`{"expect":{"mapping_version":%q},"reason":"subscribed"}`, version)
	}
	s.refused(s.call(http.MethodPost, path, expect(list.Data[0].MappingVersion)), 409, "conflict", "item")
	var sub api.SubscriptionBody
	s.into(s.call(http.MethodPut, "/v1/subscriptions/acme", `{"customers":{"stripe":"cus_1"}}`), 200, &sub)
	// D14: expect names the mapping in force; where it is another, the answer says
	// which one is, and what the item is.
	now := s.refused(s.call(http.MethodPost, path, expect("another")), 409, "conflict", "expect.mapping_version").Current
	if now == nil || now.State != "quarantined" || now.Settled || now.Mapping == "" || now.Mapping != list.Data[0].MappingVersion {
		t.Errorf("current: %+v", now)
	}
	var v api.SettledView
	s.into(s.call(http.MethodPost, path, expect(list.Data[0].MappingVersion)), 200, &v)
	if v.State != "pending" || v.Customer != "cus_1" || v.QuarantineReason != nil {
		t.Errorf("%+v", v)
	}
}

// O26, formats (recovery plan): the plan lists what is uncertain and what each
// may become; applied, it refuses what moved and settles the rest.
func TestRecoverPlan(t *testing.T) {
	t.Parallel()
	clock := noon
	s := serveAt(t, &clock)
	s.charged("a", "b", "c")
	for range 3 {
		s.uncertain()
	}
	var early, plan api.Plan
	s.into(s.call(http.MethodPost, "/v1/recover/plan", `{}`), 200, &early)
	if it := early.Items[0]; len(it.May) != 0 || it.About["not_before"] != "2026-11-30T12:10:00.000000Z" { // D15
		t.Errorf("too early: %+v", it)
	}
	clock = clock.Add(11 * time.Minute)
	s.into(s.call(http.MethodPost, "/v1/recover/plan", `{"exporter":"stripe"}`), 200, &plan)
	if plan.Count == nil || *plan.Count != 3 || !plan.End {
		t.Errorf("no count or no end: %+v", plan)
	}
	if len(plan.Items) != 3 || plan.Items[0].State != "" || len(plan.Items[0].May) != 3 || plan.Items[0].About["not_before"] != "" {
		t.Fatalf("%+v", plan)
	}
	apply := func(dry bool) string {
		return fmt.Sprintf(`{"created":%q,"filter":{},"reason":"checked","actor":"ann","dry_run":%t,"items":[
			{"id":%d,"lease_token":%d,"state":"accepted","evidence":{"kind":"asserted","detail":"seen"}},
			{"id":%d,"lease_token":%d,"state":"pending","note":"send it again"},
			{"id":%d,"lease_token":%d,"state":""}]}`, plan.Created, dry, plan.Items[0].ID, plan.Items[0].LeaseToken,
			plan.Items[1].ID, plan.Items[1].LeaseToken+9, plan.Items[2].ID, plan.Items[2].LeaseToken)
	}
	var out api.AppliedAnswer
	s.into(s.call(http.MethodPost, "/v1/recover/apply", apply(true)), 207, &out)
	if out.Summary["would_be_done"] != 1 || out.Summary["refused"] != 1 || out.Summary["left"] != 1 {
		t.Errorf("dry run: %+v", out)
	}
	s.into(s.call(http.MethodPost, "/v1/recover/apply", apply(false)), 207, &out)
	if out.Summary["done"] != 1 || out.Summary["refused"] != 1 || out.Results[1].Error == nil || out.Results[1].Error.Tag != "conflict" ||
		!strings.Contains(out.Results[1].Error.Rule, "its lease token was to be") {
		t.Errorf("%+v", out)
	}
	s.into(s.call(http.MethodPost, "/v1/recover/plan", `{}`), 200, &plan)
	if len(plan.Items) != 2 {
		t.Errorf("%d are left", len(plan.Items))
	}
	// D15: the plan is of these items and of no others, and says something.
	planned := plan.Items[0]
	one := func(created, about string) string {
		return fmt.Sprintf(`{"created":%q,"filter":{},"reason":"checked","actor":"ann","dry_run":true,"items":[
			{"id":%d,"lease_token":%d,"state":"pending","about":{%s}}]}`, created, planned.ID, planned.LeaseToken, about)
	}
	for about, differs := range map[string]string{
		`"identifier":"fencepost_1"`: "identifier", `"tenant":"umbrella"`: "tenant", `"exporter":"billing"`: "exporter", `"feature":"images"`: "feature",
		`"subject":"event zzz"`: "subject", `"subject":"correction c","tenant":"acme"`: "kind, subject",
	} {
		s.into(s.call(http.MethodPost, "/v1/recover/apply", one(plan.Created, about)), 207, &out)
		if e := out.Results[0].Error; e == nil || e.Code != "another_item" || !strings.HasSuffix(e.Rule, "another is its "+differs) {
			t.Errorf("%s: %+v", about, e)
		}
	}
	s.into(s.call(http.MethodPost, "/v1/recover/apply", one(noon.Add(-61*time.Minute).Format(time.RFC3339), "")), 207, &out)
	if e := out.Results[0].Error; e == nil || e.Code != "another_item" {
		t.Errorf("a plan from before the item: %+v", e)
	}
	s.into(s.call(http.MethodPost, "/v1/recover/apply", one(plan.Created, `"tenant":"acme","attempts":"1","subject":"`+planned.About["subject"]+`"`)), 200, &out)
	s.refused(s.call(http.MethodPost, "/v1/recover/apply", one(plan.Created, `"colour":"red"`)), 400, "invalid", "items[0].about")
	s.refused(s.call(http.MethodPost, "/v1/recover/apply", one(clock.Add(61*time.Minute).Format(time.RFC3339), "")), 400, "invalid", "created")
	for body, field := range map[string]string{
		`{"created":"2026-11-30T12:00:00Z","filter":{},"items":[{"id":1},{"id":2,"state":""}],"reason":"r","actor":"a"}`:                    "items",
		`{"created":"2026-11-30T12:00:00Z","filter":{},"items":[{"id":1,"lease_token":-1}],"reason":"r","actor":"a"}`:                       "items[0].lease_token",
		`{"created":"2026-11-30T12:00:00Z","filter":{},"count":2,"items":[{"id":1,"state":"pending"}],"reason":"r","actor":"a"}`:            "count",
		`{"created":"2026-11-30T12:00:00Z","filter":{},"count":0,"items":[{"id":1,"state":"pending"}],"reason":"r","actor":"a","end":true}`: "count",
		`{"created":"2026-11-30T12:00:00Z","filter":{},"count":1,"items":[{"id":1,"state":"pending"}],"reason":"r","actor":"a"}`:            "end",
		`{"created":"2026-11-30T12:00:00Z","filter":{},"items":[{"id":0}],"reason":"r","actor":"a"}`:                                        "items[0].id",
		`{"created":"x","filter":{},"items":[{"id":1}],"reason":"r","actor":"a"}`:                                                           "created",
		`{"created":"2026-11-30T12:00:00Z","filter":{},"items":[],"reason":"r","actor":"a"}`:                                                "items",
		`{"created":"2026-11-30T12:00:00Z","filter":{},"items":[{"id":1,"state":"pending"}],"reason":"","actor":"a"}`:                       "reason",
		`{"created":"2026-11-30T12:00:00Z","filter":{},"items":[{"id":1}],"reason":"r","nobody":"a"}`:                                       "body",
	} {
		s.refused(s.call(http.MethodPost, "/v1/recover/apply", body), 400, "invalid", field)
	}
	s.refused(s.call(http.MethodPost, "/v1/recover/plan", `{"limit":1001}`), 400, "invalid", "limit")
	for _, verb := range []string{"restore", "adopt"} {
		s.refused(s.call(http.MethodPost, "/v1/recover/"+verb, `{"reason":"r"}`), 400, "invalid", "confirm")
		s.refused(s.call(http.MethodPost, "/v1/recover/"+verb, `{"reason":"r","confirm":true}`), 501, "unsupported", "recover")
	}
}

// D15: what the last attempt met is in the plan, also where the item is uncertain
// because its attempts were used up.
func TestPlanShowsTheLastAttempt(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.charged("a", "b")
	for _, e := range []storage.ItemError{{Code: storage.CodeAttemptsExhausted}, {Code: "unknown", Status: 502, Message: "bad gateway"}} {
		id, token := s.leased()
		done, err := s.store.Transition(context.Background(), []storage.Transition{{
			ItemID: id, Expect: storage.Expect{State: storage.Leased, LeaseToken: &token},
			Set: storage.Change{State: storage.Uncertain, MarkUnresolved: true, LastError: &e},
			Attempt: &storage.Attempt{
				ItemID: id, LeaseToken: token, Owner: "w1", StartedAt: noon, FinishedAt: noon, HostClass: "indefinite", Outcome: "retry", Evidence: "host",
				Status: 500, Code: "api_error", Message: "try later", Decided: storage.Uncertain,
			},
		}})
		if err != nil || done[0].Rows != 1 {
			t.Fatalf("%+v, %v", done, err)
		}
	}
	var plan api.Plan
	s.into(s.call(http.MethodPost, "/v1/recover/plan", `{}`), 200, &plan)
	for i, want := range []string{"attempts_exhausted|indefinite api_error 500 try later", "unknown 502 bad gateway|"} {
		if got := plan.Items[i].About["last_error"] + "|" + plan.Items[i].About["last_attempt"]; got != want {
			t.Errorf("item %d: %q", i, got)
		}
	}
}

// Q4: routes are listed, renamed and retired; a backfill makes nothing twice.
func TestRoutesAndBackfill(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.charged("a")
	var routes api.Page[api.RouteView]
	s.into(s.get("/v1/routes"), 200, &routes)
	if len(routes.Data) == 0 || routes.Data[0].Exporter != "stripe" {
		t.Fatalf("%+v", routes)
	}
	var fill api.BackfillAnswer
	s.into(s.call(http.MethodPost, "/v1/outbox/backfill", `{"exporter":"stripe","reason":"r"}`), 200, &fill)
	if fill.Scanned != 1 || fill.Made != 0 || len(fill.Skipped) != 1 || fill.NothingDue != 0 || fill.More {
		t.Errorf("%+v", fill)
	}
	s.refused(s.call(http.MethodPost, "/v1/outbox/backfill", `{"exporter":"none","reason":"r"}`), 404, "not_found", "exporter")
	var changed api.RouteChanged
	s.into(s.call(http.MethodPost, "/v1/routes/rename", `{"from":"stripe","to":"billing","reason":"r","dry_run":true}`), 200, &changed)
	if !changed.DryRun || changed.Routes == 0 || changed.Tenants != 1 {
		t.Errorf("%+v", changed)
	}
	s.refused(s.call(http.MethodPost, "/v1/routes/retire", `{"exporter":"stripe","reason":"r"}`), 409, "conflict", "exporter")
	s.into(s.call(http.MethodPost, "/v1/routes/rename", `{"from":"stripe","to":"billing","reason":"r"}`), 200, &changed)
	var list api.Page[api.ItemView]
	s.into(s.get("/v1/outbox"), 200, &list)
	if len(list.Data) != 1 || list.Data[0].Exporter != "stripe" { // its identity stays
		t.Errorf("%+v", list)
	}
}
