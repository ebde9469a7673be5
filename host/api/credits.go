package api

import (
	"io"
	"net/http"
	"strconv"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// CreditBody is a credit as it is shown.
type CreditBody struct {
	Tenant    string             `json:"tenant"`
	Meter     string             `json:"meter"`
	ID        string             `json:"id"`
	Kind      storage.CreditKind `json:"kind"`
	Amount    decimal.Decimal    `json:"amount"`
	Reason    string             `json:"reason"`
	Seq       string             `json:"seq"`
	CreatedAt string             `json:"created_at"`
}

// creditInput is what a caller sends. Unknown fields are errors.
type creditInput struct {
	Tenant string           `json:"tenant"`
	Meter  string           `json:"meter"`
	ID     string           `json:"id"`
	Kind   string           `json:"kind"`
	Amount *decimal.Decimal `json:"amount"`
	Reason string           `json:"reason"`

	UntilRenewal bool `json:"until_renewal"`
}

// BalanceBody is what is left of a meter.
type BalanceBody struct {
	Tenant   string          `json:"tenant"`
	Meter    string          `json:"meter"`
	Credited decimal.Decimal `json:"credited"`
	Consumed decimal.Decimal `json:"consumed"`
	Balance  decimal.Decimal `json:"balance"`
	Since    string          `json:"since,omitempty"`
	AsOf     string          `json:"as_of"`
	Known    bool            `json:"known"`
}

func (s *server) postCredit(w http.ResponseWriter, r *http.Request) {
	var in engine.CreditRequest
	var c storage.Credit
	err := readQuery(r).err
	if err == nil {
		in, err = decodeCredit(r.Body)
	}
	if err == nil {
		c, err = s.cfg.Engine.AddCredit(r.Context(), in)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, creditBody(c))
}

func decodeCredit(body io.Reader) (c engine.CreditRequest, err error) {
	raw, err := io.ReadAll(body)
	if err != nil {
		return c, err
	}
	var in creditInput
	if err := decodeText(raw, &in, "tenant, meter, id, kind, amount, reason and until_renewal"); err != nil {
		return c, err
	}
	c.UntilRenewal = in.UntilRenewal
	c.Credit = storage.Credit{Tenant: in.Tenant, Meter: in.Meter, ID: in.ID, Kind: storage.CreditKind(in.Kind), Reason: in.Reason}
	switch {
	case in.Kind == "":
		c.Kind = storage.CreditGrant
	case c.Kind != storage.CreditGrant && c.Kind != storage.CreditReset:
		return c, sdk.Invalid("kind", "grant or reset")
	}
	if in.Amount == nil {
		return c, sdk.Invalid("amount", "required")
	}
	c.Amount = *in.Amount
	return c, nil
}

func creditBody(c storage.Credit) CreditBody {
	return CreditBody{
		Tenant: c.Tenant, Meter: c.Meter, ID: c.ID, Kind: c.Kind, Amount: c.Amount, Reason: c.Reason,
		Seq: strconv.FormatInt(c.Seq, 10), CreatedAt: stamp(c.CreatedAt),
	}
}

func (s *server) listCredits(w http.ResponseWriter, r *http.Request) {
	q := readQuery(r, "tenant", "meter", "after", "limit")
	sel := storage.CreditQuery{
		Tenant: q.text("tenant"), Meter: q.text("meter"), After: q.number("after", 0, 0, 1<<62), Limit: int(q.number("limit", 100, 1, 1000)),
	}
	if q.err == nil && sel.Tenant == "" {
		q.err = sdk.Invalid("tenant", "required")
	}
	if q.err != nil {
		s.fail(w, r, q.err)
		return
	}
	page, err := s.cfg.Engine.Credits(r.Context(), sel)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	out := Page[CreditBody]{Data: []CreditBody{}}
	for _, c := range page.Credits {
		out.Data = append(out.Data, creditBody(c))
	}
	if page.More {
		out.Next = strconv.FormatInt(page.Next, 10)
	}
	writeJSON(w, http.StatusOK, out)
}

func (s *server) balances(w http.ResponseWriter, r *http.Request) {
	q := readQuery(r, "tenant", "meter")
	tenant := q.text("tenant")
	if q.err == nil && tenant == "" {
		q.err = sdk.Invalid("tenant", "required")
	}
	if q.err != nil {
		s.fail(w, r, q.err)
		return
	}
	meters := s.cfg.Engine.CreditMeters()
	if name := q.text("meter"); name != "" {
		meters = []string{name}
	}
	out := Page[BalanceBody]{Data: []BalanceBody{}}
	for _, m := range meters {
		b, err := s.cfg.Engine.Balance(r.Context(), tenant, m)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		out.Data = append(out.Data, balanceBody(b))
	}
	writeJSON(w, http.StatusOK, out)
}

func balanceBody(b engine.Balance) BalanceBody {
	return BalanceBody{
		Tenant: b.Tenant, Meter: b.Meter, Credited: b.Credited, Consumed: b.Consumed, Balance: b.Balance,
		Since: stamp(b.Since), AsOf: stamp(b.AsOf), Known: b.Known,
	}
}
