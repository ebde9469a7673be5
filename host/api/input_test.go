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
