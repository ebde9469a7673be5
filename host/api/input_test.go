package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/host/api"
)

// D14: what is wrong with a body is said by the name that the body has for it,
// and a key counts only letter for letter: what a reviewer read is what is done.
func TestBodiesNameWhatIsWrong(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.charged("a")
	id, token := s.uncertain()
	item := fmt.Sprintf("/v1/outbox/%d/", id)
	const asserted = `"evidence":{"kind":"asserted","detail":"seen"}`
	for name, tc := range map[string]struct{ path, body, field, rule string }{
		"a state that none is":       {item + "resolve", `{"state":"done","reason":"r",` + asserted + `}`, "state", "accepted, pending or rejected"},
		"no state":                   {item + "resolve", `{"reason":"r"}`, "state", "accepted, pending or rejected"},
		"evidence without a text":    {item + "resolve", `{"state":"accepted","reason":"r","evidence":{"kind":"asserted"}}`, "evidence.detail", "1 to 1000"},
		"evidence of no kind":        {item + "resolve", `{"state":"accepted","reason":"r","evidence":{"kind":"rumour","detail":"d"}}`, "evidence.kind", "provider or asserted"},
		"evidence without detail":    {item + "evidence", `{"kind":"asserted","finding":"taken","reason":"r"}`, "detail", "1 to 1000"},
		"evidence of no finding":     {item + "evidence", `{"kind":"asserted","detail":"d","reason":"r"}`, "finding", "taken or refused"},
		"evidence from a source":     {item + "evidence", `{"kind":"asserted","source":"x","finding":"taken","detail":"d","reason":"r"}`, "source", "empty"},
		"a negative token":           {item + "resolve", `{"state":"accepted","expect":{"lease_token":-1},"reason":"r",` + asserted + `}`, "expect.lease_token", "0 or more"},
		"a negative token, requeue":  {item + "requeue", `{"expect":{"lease_token":-1},"reason":"r"}`, "expect.lease_token", "0 or more"},
		"a negative token, abandon":  {item + "abandon", `{"expect":{"lease_token":-9},"reason":"r"}`, "expect.lease_token", "0 or more"},
		"a mapping, resolve":         {item + "resolve", `{"state":"pending","expect":{"mapping_version":"x"},"reason":"r"}`, "expect.mapping_version", "of requeue"},
		"a mapping, abandon":         {item + "abandon", `{"expect":{"mapping_version":"x"},"reason":"r"}`, "expect.mapping_version", "of requeue"},
		"a token that is a text":     {item + "resolve", `{"state":"accepted","expect":{"lease_token":"3"},"reason":"r"}`, "expect.lease_token", "a whole number"},
		"a token and a half":         {item + "resolve", `{"state":"accepted","expect":{"lease_token":1.5},"reason":"r"}`, "expect.lease_token", "a whole number"},
		"an expectation that is one": {item + "resolve", `{"state":"accepted","expect":3,"reason":"r"}`, "expect", "a JSON object"},
		"a reason that is a number":  {item + "abandon", `{"reason":5}`, "reason", "a JSON string"},
		"a dry run in words":         {item + "abandon", `{"reason":"r","dry_run":"yes"}`, "dry_run", "true or false"},
		"NUL in a reason":            {item + "abandon", `{"reason":"a\u0000b"}`, "reason", "NUL"},
		"NUL deep inside":            {item + "resolve", `{"state":"accepted","reason":"r","evidence":{"kind":"asserted","detail":"\u0000"}}`, "evidence.detail", "NUL"},
		"a lone surrogate":           {item + "abandon", `{"reason":"\ud800"}`, "reason", "surrogate"},
		"a key in capitals":          {item + "abandon", `{"Reason":"r"}`, "body", "not Reason"},
		"a key in capitals beside":   {item + "abandon", `{"reason":"r","REASON":"s"}`, "body", "not REASON"},
		"a key in capitals, deep":    {item + "resolve", `{"state":"accepted","reason":"r","expect":{"Lease_Token":1}}`, "expect", "lease_token, mapping_version, not Lease_Token"},
		"a key twice":                {item + "abandon", `{"reason":"r","reason":"s"}`, "body", "no key twice"},
		"a key twice, deep":          {item + "resolve", `{"state":"accepted","reason":"r","expect":{"lease_token":1,"lease_token":2}}`, "expect", "no key twice"},
		"a key that nobody knows":    {item + "abandon", `{"reason":"r","force":true}`, "body", "not force"},
		"a key that may be anything": {item + "abandon", `{"reason":"r","a b":true}`, "body", "only the keys"},
		"a list":                     {item + "abandon", `["r"]`, "body", "one JSON object"},
		"two values":                 {item + "abandon", `{"reason":"r"}{}`, "body", "one JSON value"},
		"a plan after":               {"/v1/recover/plan", `{"after":-1}`, "after", "0"},
		"a plan's limit":             {"/v1/recover/plan", `{"limit":-1}`, "limit", "1 to 1000"},
		"an item's token":            {"/v1/recover/apply", plan(`{"id":1,"lease_token":"x"}`), "items[0].lease_token", "a whole number"},
		"an item's key":              {"/v1/recover/apply", plan(`{"id":1},{"id":2,"State":"accepted"}`), "items[1]", "not State"},
		"an item's state":            {"/v1/recover/apply", plan(`{"id":1,"state":7}`), "items[0].state", "a JSON string"},
		"NUL in an item's note":      {"/v1/recover/apply", plan(`{"id":1,"note":"\u0000"}`), "items[0].note", "NUL"},
		"items that are none":        {"/v1/recover/apply", `{"created":"2026-11-30T12:00:00Z","items":{},"reason":"r"}`, "items", "a JSON array"},
		"a time":                     {"/v1/reconciliations", `{"exporter":"stripe","from":"yesterday"}`, "from", "an RFC 3339 time"},
		"a cursor":                   {"/v1/outbox/backfill", `{"exporter":"stripe","after":"x","reason":"r"}`, "after", "a whole number from 0"},
		"a cursor below":             {"/v1/outbox/backfill", `{"exporter":"stripe","after":-1,"reason":"r"}`, "after", "a whole number from 0"},
	} {
		p := s.refused(s.call(http.MethodPost, tc.path, tc.body), 400, "invalid", tc.field)
		if !strings.Contains(p.Rule, tc.rule) {
			t.Errorf("%s: rule %q", name, p.Rule)
		}
	}
	// A cursor may be a string, as every other, or a number.
	var fill api.BackfillAnswer
	for _, after := range []string{`"0"`, `0`} {
		s.into(s.call(http.MethodPost, "/v1/outbox/backfill", `{"exporter":"stripe","reason":"r","dry_run":true,"after":`+after+`}`), 200, &fill)
	}
	// What is absent or null is what it is without.
	path := fmt.Sprintf("/v1/outbox/%d/resolve", id)
	s.refused(s.call(http.MethodPost, path, fmt.Sprintf(`{"state":"accepted","expect":{"lease_token":%d,"mapping_version":null},"evidence":null,"reason":"r"}`, token)), 400, "invalid", "evidence")
}

func plan(items string) string {
	return fmt.Sprintf(`{"created":%q,"filter":{},"items":[%s],"reason":"r","actor":"a"}`, noon.Format(time.RFC3339), items)
}

// D14: a filter that can select nothing is refused by its name and its rule. An
// empty answer would say that nothing is stuck.
func TestFiltersThatSelectNothing(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.charged("a")
	s.refused(s.get("/v1/actions?item=99"), 404, "not_found", "item")
	var p problem
	for path, want := range map[string][2]string{
		"/v1/outbox?state=foo":                     {"state", "pending, leased"},
		"/v1/outbox?reason=foo":                    {"reason", "no_customer"},
		"/v1/outbox?mode=prod":                     {"mode", "test, live"},
		"/v1/outbox?exporter=none":                 {"exporter", "such as stripe"},
		"/v1/outbox?exporter=none&after=7":         {"exporter", "such as stripe"},
		"/v1/outbox?account=acct_9":                {"account", "such as acct_1"},
		"/v1/outbox?exporter=stripe&account=a%00b": {"account", "NUL"},
		"/v1/outbox?tenant=%00":                    {"tenant", "NUL"},
		"/v1/outbox?subject_ref=%ff":               {"subject_ref", "UTF-8"},
		"/v1/events?tenant=a%00b":                  {"tenant", "NUL"},
		"/v1/events/a%00b?tenant=acme":             {"path", "NUL"},
		"/v1/subscriptions/%ff":                    {"path", "UTF-8"},
		"/v1/reconciliations/%00/lines":            {"path", "NUL"},
		"/v1/actions?kind=foo":                     {"kind", "resolve, requeue"},
		"/v1/reconciliations?exporter=none":        {"exporter", "such as stripe"},
		"/v1/usage?tenant=acme&from=2026-12-01T00:00:00Z&to=2026-11-01T00:00:00Z":                                 {"to", "after from"},
		"/v1/usage?tenant=acme&feature=tokens&window=day&from=2026-12-01T00:00:00Z&to=2026-11-01T00:00:00Z":       {"to", "after from"},
		"/v1/usage?tenant=acme&feature=tokens&window=day&from=2026-11-01T00:00:00Z&to=2026-11-02T00:00:00Z&x=%00": {"query", ""},
	} {
		if p = s.refused(s.get(path), 400, "invalid", want[0]); !strings.Contains(p.Rule, want[1]) {
			t.Errorf("%s: rule %q", path, p.Rule)
		}
	}
	if p = s.refused(s.call(http.MethodPost, "/v1/recover/plan", `{"exporter":"none"}`), 400, "invalid", "exporter"); !strings.Contains(p.Rule, "stripe") {
		t.Errorf("plan: rule %q", p.Rule)
	}
	// What may be empty is.
	var list api.Page[api.ItemView]
	for _, path := range []string{"?exporter=stripe&state=rejected", "?tenant=nobody", "?reason=no_customer", "?account=acct_1&mode=live"} {
		if s.into(s.get("/v1/outbox"+path), 200, &list); len(list.Data) != 0 {
			t.Errorf("%s: %+v", path, list)
		}
	}
	// Under the name that an exporter had its items are found.
	var changed api.RouteChanged
	s.into(s.call(http.MethodPost, "/v1/routes/rename", `{"from":"stripe","to":"billing","reason":"r"}`), 200, &changed)
	s.into(s.get("/v1/outbox?exporter=stripe&state=rejected"), 200, &list)
	s.into(s.get("/v1/outbox?exporter=billing"), 200, &list)
}
