package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/host/api"
)

// C-T16, B-T1: a credit is repeated without harm, and refusals name the field.
func TestCredits(t *testing.T) {
	t.Parallel()
	handler, s := buildOver(t, func(c *engine.Config) { c.Features = map[string]engine.Feature{"gauge": {Buckets: true}} })
	s.start(handler)
	const good = `{"tenant":"acme","meter":"gauge","id":"1","amount":"10.5","reason":"paid"}`
	var first, again api.CreditBody
	s.into(s.call(http.MethodPost, "/v1/credits", good), http.StatusOK, &first)
	s.into(s.call(http.MethodPost, "/v1/credits", good), http.StatusOK, &again)
	if first != again || first.Kind != "grant" || first.Amount.String() != "10.5" || first.Seq != "1" || first.CreatedAt == "" {
		t.Errorf("%+v, then %+v", first, again)
	}
	for body, want := range map[string]struct {
		status     int
		tag, field string
	}{
		strings.Replace(good, "10.5", "11", 1):                 {409, "conflict", "id"},
		strings.Replace(good, "gauge", "other", 1):             {404, "not_found", "meter"},
		strings.Replace(good, `"amount":"10.5",`, "", 1):       {400, "invalid", "amount"},
		strings.Replace(good, `"10.5"`, `"1e30"`, 1):           {400, "invalid", "amount"},
		strings.Replace(good, `"id"`, `"kind":"gift","id"`, 1): {400, "invalid", "kind"},
		strings.Replace(good, `"acme"`, `""`, 1):               {400, "invalid", "tenant"},
		strings.Replace(good, `"1"`, `""`, 1):                  {400, "invalid", "id"},
		strings.Replace(good, `"reason"`, `"because"`, 1):      {400, "invalid", "body"},
		strings.Replace(good, `"paid"`, `"a\u0007"`, 1):        {400, "invalid", "reason"},
		good[:20]: {400, "invalid", "body"},
		strings.Replace(good, `"id"`, `"kind":"reset","id"`, 1): {409, "conflict", "id"},
	} {
		s.refused(s.call(http.MethodPost, "/v1/credits", body), want.status, want.tag, want.field)
	}
	s.refused(s.get("/v1/credits"), 400, "invalid", "tenant")
	s.refused(s.get("/v1/credits?tenant=a&x=1"), 400, "invalid", "query")
	s.refused(s.get("/v1/balances"), 400, "invalid", "tenant")
	s.refused(s.get("/v1/balances?tenant=a&meter=x"), 404, "not_found", "meter")
	var page api.Page[api.CreditBody]
	s.into(s.get("/v1/credits?tenant=acme&meter=gauge"), http.StatusOK, &page)
	if len(page.Data) != 1 || page.Next != "" {
		t.Errorf("%+v", page)
	}
	if _, err := s.engine.ApplyRoutes(t.Context(), nil); err != nil { // the settings of the feature
		t.Fatal(err)
	}
	if _, err := s.engine.Replay(t.Context(), engine.ReplayOptions{}); err != nil {
		t.Fatal(err)
	}
	var left api.Page[api.BalanceBody]
	s.into(s.get("/v1/balances?tenant=acme"), http.StatusOK, &left)
	if len(left.Data) != 1 || left.Data[0].Balance.String() != "10.5" || !left.Data[0].Known || left.Data[0].Since != "" {
		t.Errorf("%+v", left)
	}
}
