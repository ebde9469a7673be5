package api

import (
	"io"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// SubscriptionBody is a subscription as it is sent and shown.
type SubscriptionBody struct {
	Tenant      string            `json:"tenant"`
	Plan        string            `json:"plan,omitempty"`
	PlanVersion string            `json:"plan_version,omitempty"`
	Anchor      string            `json:"anchor"`
	Interval    storage.Interval  `json:"interval"`
	Timezone    string            `json:"timezone"`
	Customers   map[string]string `json:"customers,omitempty"`
	Revision    int64             `json:"revision,omitempty"`
	UpdatedAt   string            `json:"updated_at,omitempty"`
}

// subscriptionInput is what a caller may set. Unknown fields are errors.
type subscriptionInput struct {
	Tenant      string            `json:"tenant"`
	Plan        string            `json:"plan"`
	PlanVersion string            `json:"plan_version"`
	Anchor      string            `json:"anchor"`
	Interval    storage.Interval  `json:"interval"`
	Timezone    string            `json:"timezone"`
	Customers   map[string]string `json:"customers"`
}

func (s *server) putSubscription(w http.ResponseWriter, r *http.Request) {
	var sub storage.Subscription
	err := readQuery(r).err
	if err == nil {
		sub, err = decodeSubscription(r.PathValue("tenant"), r.Body)
	}
	if err == nil {
		sub, err = s.cfg.Engine.PutSubscription(r.Context(), sub)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, subscriptionBody(sub))
}

func decodeSubscription(tenant string, body io.Reader) (storage.Subscription, error) {
	var in subscriptionInput
	raw, err := io.ReadAll(body)
	if err != nil {
		return storage.Subscription{}, err
	}
	if err := decodeText(raw, &in, "tenant, plan, plan_version, anchor, interval, timezone and customers"); err != nil {
		return storage.Subscription{}, err
	}
	if in.Tenant != "" && in.Tenant != tenant {
		return storage.Subscription{}, sdk.Invalid("tenant", "the same as in the path")
	}
	sub := storage.Subscription{
		Tenant: tenant, Plan: in.Plan, PlanVersion: in.PlanVersion,
		Interval: in.Interval, Timezone: in.Timezone, Customers: in.Customers,
	}
	if in.Anchor != "" {
		at, err := time.Parse(time.RFC3339Nano, in.Anchor)
		if err != nil {
			return sub, sdk.Invalid("anchor", "an RFC 3339 time")
		}
		sub.Anchor = at
	}
	return sub, nil
}

func (s *server) getSubscription(w http.ResponseWriter, r *http.Request) {
	if q := readQuery(r); q.err != nil {
		s.fail(w, r, q.err)
		return
	}
	sub, err := s.cfg.Engine.Subscription(r.Context(), r.PathValue("tenant"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, subscriptionBody(sub))
}

func (s *server) listSubscriptions(w http.ResponseWriter, r *http.Request) {
	q := readQuery(r, "after", "limit")
	limit := int(q.number("limit", 100, 1, 1000))
	if q.err != nil {
		s.fail(w, r, q.err)
		return
	}
	list, err := s.cfg.Engine.Subscriptions(r.Context(), q.text("after"), limit)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	out := Page[SubscriptionBody]{Data: []SubscriptionBody{}}
	for _, sub := range list {
		out.Data = append(out.Data, subscriptionBody(sub))
	}
	if len(list) == limit {
		out.Next = list[len(list)-1].Tenant
	}
	writeJSON(w, http.StatusOK, out)
}

func subscriptionBody(s storage.Subscription) SubscriptionBody {
	return SubscriptionBody{
		Tenant: s.Tenant, Plan: s.Plan, PlanVersion: s.PlanVersion, Anchor: stamp(s.Anchor), Interval: s.Interval,
		Timezone: s.Timezone, Customers: s.Customers, Revision: s.Revision, UpdatedAt: stamp(s.UpdatedAt),
	}
}
