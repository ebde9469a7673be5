package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Restorer is what a host does after its store went back in time.
type Restorer interface {
	// RecoverRestore makes everything uncertain that may have been sent after
	// the backup was made, and lets delivery go on. It fails with a conflict, code
	// "no_restore_pending", where no host noticed one and the ask does not insist.
	RecoverRestore(ctx context.Context, ask RestoreAsk) (RestoreAnswer, error)
	// RecoverAdopt lets a host deliver that remembers nothing of its store.
	RecoverAdopt(ctx context.Context, a engine.Act) error
}

// PlanFilter selects the items of a plan.
type PlanFilter struct {
	Exporter string `json:"exporter,omitempty" yaml:"exporter,omitempty"`
	Tenant   string `json:"tenant,omitempty"   yaml:"tenant,omitempty"`
	Feature  string `json:"feature,omitempty"  yaml:"feature,omitempty"`
	After    int64  `json:"after,omitempty"    yaml:"after,omitempty"`
	Limit    int    `json:"limit,omitempty"    yaml:"limit,omitempty"`
}

// Plan is a list of uncertain items for a person to decide about. What an item
// was when the plan was made is its expected state: applied, a plan refuses what
// has moved.
type Plan struct {
	Created string     `json:"created" yaml:"created"`
	Filter  PlanFilter `json:"filter"  yaml:"filter"`
	// Count is how many items the plan has. Where it is given, a plan with another
	// number of them, or without End after them, was cut off and is refused. A plan
	// that was written by hand needs neither.
	Count  *int       `json:"count,omitempty" yaml:"count,omitempty"`
	Items  []PlanItem `json:"items"   yaml:"items"`
	Reason string     `json:"reason"  yaml:"reason"`
	Actor  string     `json:"actor"   yaml:"actor"`
	// Next is set where the filter selects more than the plan holds.
	Next int64 `json:"next,omitempty" yaml:"next,omitempty"`
	// End is the last line of a plan, see Count.
	End bool `json:"end,omitempty" yaml:"end,omitempty"`
}

// whole fails if a part of the plan is missing.
func (p Plan) whole() error {
	switch {
	case p.Count == nil:
		return nil
	case *p.Count != len(p.Items):
		return &sdk.Error{
			Tag: sdk.TagInvalid, Code: codePlanCut, Field: "count",
			Rule: "the number of items: it says " + strconv.Itoa(*p.Count) + ", and the plan has " + strconv.Itoa(len(p.Items)),
			Hint: "if the file is whole and you took items out, correct count or take it out, too; otherwise make the plan anew",
		}
	case !p.End:
		return &sdk.Error{
			Tag: sdk.TagInvalid, Code: codePlanCut, Field: "end", Rule: "true, in the last line of a plan with count: without it the plan was cut off",
			Hint: "if the file is whole, put end: true back or take count out; otherwise make the plan anew",
		}
	}
	return nil
}

// codePlanCut is that of a plan of which a part is missing.
const codePlanCut = "plan_cut"

// PlanItem is one item of a plan. An empty State leaves it alone.
type PlanItem struct {
	ID         int64             `json:"id"                     yaml:"id"`
	LeaseToken int64             `json:"lease_token"            yaml:"lease_token"`
	State      storage.ItemState `json:"state"                  yaml:"state"`
	Evidence   *evidence         `json:"evidence,omitempty"     yaml:"evidence,omitempty"`
	Note       string            `json:"note,omitempty"         yaml:"note,omitempty"`
	Ref        string            `json:"provider_ref,omitempty" yaml:"provider_ref,omitempty"`
	// About is for whoever reviews the plan. Tenant, exporter, feature, subject and
	// identifier in it are compared with the item when the plan is applied, where
	// they are given. May is what the item could become when the plan was made.
	About map[string]string   `json:"about,omitempty" yaml:"about,omitempty"`
	May   []storage.ItemState `json:"may,omitempty"   yaml:"may,omitempty"`
}

// Applied is what became of one item of a plan.
type Applied struct {
	ID      string            `json:"id"`
	State   storage.ItemState `json:"state,omitempty"`
	Outcome string            `json:"outcome"` // done, would_be_done, refused or left
	Error   *errorMessage     `json:"error,omitempty"`
}

// AppliedAnswer answers POST /v1/recover/apply.
type AppliedAnswer struct {
	Results []Applied      `json:"results"`
	Summary map[string]int `json:"summary"`
}

func (s *server) recoverPlan(w http.ResponseWriter, r *http.Request) {
	var f PlanFilter
	err := readQuery(r).err
	if err == nil {
		err = decodeInput(r.Body, &f, "exporter, tenant, feature, after and limit")
	}
	switch {
	case err != nil:
	case f.After < 0:
		err = sdk.Invalid("after", "the id of an item, or 0")
	case f.Limit < 0 || f.Limit > 1000:
		err = sdk.Invalid("limit", "1 to 1000")
	}
	var plan engine.RecoverPlan
	if err == nil {
		plan, err = s.cfg.Engine.RecoverPlan(r.Context(), engine.RecoverFilter{Exporter: f.Exporter, Tenant: f.Tenant, Feature: f.Feature, After: f.After, Limit: f.Limit})
	}
	if err == nil && len(plan.Items) == 0 {
		err = s.knownPlace(r.Context(), f.Exporter, "")
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	out := Plan{Created: stamp(plan.MadeAt), Filter: f, Items: []PlanItem{}, Next: plan.Next, End: true}
	for _, i := range plan.Items {
		out.Items = append(out.Items, planItem(i))
	}
	out.Count = new(len(out.Items))
	writeJSON(w, http.StatusOK, out)
}

func planItem(i engine.RecoverItem) PlanItem {
	about := map[string]string{
		"tenant": i.Tenant, "exporter": i.Exporter, "feature": i.Feature, "subject": i.Kind + " " + i.Subject,
		"identifier": i.Identifier, "attempts": strconv.Itoa(i.Attempts), "last_error": i.LastError,
	}
	if i.LastAttempt != "" {
		about["last_attempt"] = i.LastAttempt
	}
	if i.NotBefore != nil {
		about["not_before"] = stamp(*i.NotBefore)
	}
	if i.UnresolvedSince != nil {
		about["unresolved_since"] = stamp(*i.UnresolvedSince)
	}
	return PlanItem{ID: i.ItemID, LeaseToken: i.LeaseToken, About: about, May: i.May}
}

func (s *server) recoverApply(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Plan
		DryRun bool `json:"dry_run"`
	}
	err := readQuery(r).err
	if err == nil {
		err = decodeInput(r.Body, &in, "created, filter, count, items (id, lease_token, state, evidence, note), end, reason, actor and dry_run")
	}
	var results []engine.Recovered
	if err == nil {
		results, err = s.apply(r.Context(), in.Plan, in.DryRun)
	}
	if err != nil && len(results) == 0 {
		s.fail(w, r, err)
		return
	}
	out := AppliedAnswer{Results: make([]Applied, len(results)), Summary: map[string]int{"done": 0, "would_be_done": 0, "refused": 0, "left": 0}}
	for i, res := range results {
		out.Results[i] = applied(res, in.DryRun)
		out.Summary[out.Results[i].Outcome]++
	}
	status := http.StatusOK
	if out.Summary["refused"] > 0 {
		status = http.StatusMultiStatus
	}
	writeJSON(w, status, out)
}

func (s *server) apply(ctx context.Context, p Plan, dry bool) ([]engine.Recovered, error) {
	if err := p.whole(); err != nil {
		return nil, err
	}
	if len(p.Items) == 0 || len(p.Items) > 1000 {
		return nil, sdk.Invalid("items", "1 to 1000 items")
	}
	made, err := time.Parse(time.RFC3339, p.Created)
	if err != nil {
		return nil, sdk.Invalid("created", "the time at which the plan was made, as it was written")
	}
	plan := engine.RecoverPlan{Version: 1, MadeAt: made, Items: make([]engine.RecoverItem, len(p.Items))}
	filled := false
	for i, it := range p.Items {
		if plan.Items[i], err = it.engine(element("items", i)); err != nil {
			return nil, err
		}
		filled = filled || it.State != ""
	}
	if !filled {
		return nil, &sdk.Error{
			Tag: sdk.TagInvalid, Code: "nothing_filled_in", Field: "items", Rule: "a state for at least one: as it is, the plan does nothing",
			Hint: "fill in state, as the head of the plan says",
		}
	}
	results, err := s.cfg.Engine.RecoverApply(ctx, plan, act{Actor: p.Actor, Reason: p.Reason, DryRun: dry}.engine())
	for i := range results {
		results[i].Err = renamed(results[i].Err, "to", "state", "evidence.text", "evidence.detail")
	}
	return results, err
}

// engine is the item as the engine knows it; at is where it stands in the plan.
func (it PlanItem) engine(at string) (engine.RecoverItem, error) {
	out := engine.RecoverItem{
		ItemID: it.ID, State: storage.Uncertain, LeaseToken: it.LeaseToken, To: it.State, Evidence: it.Evidence.of(it.State), ProviderRef: it.Ref,
	}
	if it.ID < 1 {
		return out, sdk.Invalid(at+".id", "the id of an item, above 0")
	}
	if it.LeaseToken < 0 {
		return out, sdk.Invalid(at+".lease_token", "0 or more, as the plan was written")
	}
	for name, value := range it.About {
		switch name {
		case "tenant":
			out.Tenant = value
		case "exporter":
			out.Exporter = value
		case "feature":
			out.Feature = value
		case "subject":
			out.Kind, out.Subject, _ = strings.Cut(value, " ")
		case "identifier":
			out.Identifier = value
		case "attempts", "last_error", "last_attempt", "unresolved_since", "not_before": // told by the token
		default:
			return out, sdk.Invalid(at+".about", "only what a plan is written with: tenant, exporter, feature, subject, identifier, attempts, last_error, last_attempt, unresolved_since, not_before")
		}
	}
	return out, nil
}

func applied(res engine.Recovered, dry bool) Applied {
	out := Applied{ID: strconv.FormatInt(res.ItemID, 10), State: res.To}
	switch {
	case res.Err != nil:
		out.Outcome = "refused"
		out.Error = message(res.Err)
	case res.To == "":
		out.Outcome = "left"
	case dry:
		out.Outcome = "would_be_done"
	default:
		out.Outcome = "done"
	}
	return out
}
