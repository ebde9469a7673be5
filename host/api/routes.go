package api

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/fencepost/fencepost/engine"
)

// RouteView is a route, as the API shows it: where one feature's usage goes, from
// one point in the order of recording onwards.
type RouteView struct {
	ID             string          `json:"id"`
	Exporter       string          `json:"exporter"`
	Account        string          `json:"account"`
	Mode           string          `json:"mode"`
	Feature        string          `json:"feature"` // "*": any without a route of its own
	Disposition    string          `json:"disposition"`
	MappingVersion string          `json:"mapping_version,omitempty"`
	MappingLabel   string          `json:"mapping_label,omitempty"`
	Mapping        json.RawMessage `json:"mapping,omitempty"`
	AppliesAfter   string          `json:"applies_after"`
	RetiredAt      *string         `json:"retired_at"`
}

func (s *server) listRoutes(w http.ResponseWriter, r *http.Request) {
	if q := readQuery(r); q.err != nil {
		s.fail(w, r, q.err)
		return
	}
	set, err := s.cfg.Engine.Routes(r.Context())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	out := Page[RouteView]{Data: []RouteView{}}
	for _, x := range set.Routes {
		v := RouteView{
			ID: strconv.FormatInt(x.ID, 10), Exporter: x.Exporter, Account: x.Account, Mode: x.Mode, Feature: x.Feature,
			Disposition: string(x.Disposition), MappingVersion: x.MappingVersion,
			AppliesAfter: strconv.FormatInt(x.AppliesAfter, 10), RetiredAt: timeOrNull(x.RetiredAt),
		}
		for _, m := range set.Mappings {
			if m.Version == x.MappingVersion {
				v.MappingLabel, v.Mapping = m.Label, m.Content
			}
		}
		out.Data = append(out.Data, v)
	}
	writeJSON(w, http.StatusOK, out)
}

// RouteChanged answers what was done with routes, or in a dry run would be.
type RouteChanged struct {
	DryRun bool `json:"dry_run"`
	Routes int  `json:"routes"`
	// Tenants are those whose customer was copied to the new name.
	Tenants int `json:"tenants,omitempty"`
}

func (s *server) renameRoute(w http.ResponseWriter, r *http.Request) {
	var in struct {
		From string `json:"from"`
		To   string `json:"to"`
		act
	}
	err := readQuery(r).err
	if err == nil {
		err = decodeInput(r.Body, &in, "from, to, actor, reason and dry_run")
	}
	var done engine.RouteRenamed
	if err == nil {
		done, err = s.cfg.Engine.RenameRoute(r.Context(), in.From, in.To, in.engine())
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, RouteChanged{DryRun: in.DryRun, Routes: done.Routes, Tenants: done.Tenants})
}

func (s *server) retireRoute(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Exporter string `json:"exporter"`
		Feature  string `json:"feature"`
		act
	}
	err := readQuery(r).err
	if err == nil {
		err = decodeInput(r.Body, &in, "exporter, feature, actor, reason and dry_run")
	}
	var n int
	if err == nil {
		n, err = s.cfg.Engine.RetireRoute(r.Context(), engine.RouteRetirement{Exporter: in.Exporter, Feature: in.Feature}, in.engine())
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, RouteChanged{DryRun: in.DryRun, Routes: n})
}

// BackfillAnswer answers POST /v1/outbox/backfill for one page of events. Ask
// again with after = next while more is true.
//
// Scanned is how many events and corrections were looked at: Made of them got an
// item (Quarantined is a part of Made), Skipped are events that have, or had, one,
// and for NothingDue, the rest, there is nothing to make: the quantity is zero, the
// feature has no route there, or is ignored by it, the counter reports the period,
// or it is a correction that has its item, or, in a dry run, whose event has none
// yet.
type BackfillAnswer struct {
	DryRun      bool          `json:"dry_run"`
	Scanned     int           `json:"scanned"`
	Made        int           `json:"made"`
	Quarantined int           `json:"quarantined"`
	Skipped     []SkippedView `json:"skipped"`
	NothingDue  int           `json:"nothing_due"`
	Next        string        `json:"next,omitempty"`
	More        bool          `json:"more"`
}

// SkippedView is an event that has, or had, an item for the same place.
type SkippedView struct {
	Tenant string `json:"tenant"`
	Event  string `json:"event"`
	Seq    string `json:"seq"`
	Item   string `json:"item"`
	State  string `json:"state"`
}

func (s *server) backfill(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Exporter string    `json:"exporter"`
		Feature  string    `json:"feature"`
		Tenant   string    `json:"tenant"`
		After    seqNumber `json:"after"`
		Limit    int       `json:"limit"`
		act
	}
	err := readQuery(r).err
	if err == nil {
		err = decodeInput(r.Body, &in, "exporter, feature, tenant, after, limit, actor, reason and dry_run")
	}
	var done engine.Backfilled
	if err == nil {
		done, err = s.cfg.Engine.Backfill(r.Context(), engine.Backfill{
			Exporter: in.Exporter, Feature: in.Feature, Tenant: in.Tenant, After: int64(in.After), Limit: in.Limit,
		}, in.engine())
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	out := BackfillAnswer{
		DryRun: done.DryRun, Scanned: done.Scanned, Made: done.Made, Quarantined: done.Quarantined, Skipped: []SkippedView{}, More: done.More,
		NothingDue: max(0, done.Scanned-done.Made-len(done.Skipped)),
	}
	if done.More {
		out.Next = strconv.FormatInt(done.Next, 10)
	}
	for _, x := range done.Skipped {
		out.Skipped = append(out.Skipped, SkippedView{
			Tenant: x.Event.Tenant, Event: x.Event.EventID, Seq: seqText(x.Seq), Item: strconv.FormatInt(x.ItemID, 10), State: string(x.State),
		})
	}
	writeJSON(w, http.StatusOK, out)
}
