package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/fault"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// run is one run under way.
type run struct {
	Config
	request  Request
	stored   storage.Reconciliation
	mappings map[string]map[string]string

	waiting    []group // not yet asked
	unanswered int
	firstCode  string
}

// group is everything that one customer has at one meter of the provider in one
// stretch: several features and versions of a mapping may share a meter, and the
// provider knows only their sum.
type group struct {
	query    storage.SumQuery
	customer string
	mapping  map[string]string // nil: not known
	sums     []storage.ItemSum
}

func (r *run) all(ctx context.Context) error {
	set, err := r.Routes.Routes(ctx)
	if err != nil {
		return fmt.Errorf("read routes: %w", err)
	}
	r.mappings = map[string]map[string]string{}
	for _, m := range set.Mappings {
		if fields, err := outbox.MappingFields(m); err == nil {
			r.mappings[m.Version] = fields
		}
	}
	for _, s := range r.request.stretches() {
		q := storage.SumQuery{
			Exporter: r.Destination.Exporter, Account: r.Destination.Account, Mode: r.Destination.Mode,
			From: s[0], To: s[1], Customer: r.request.Customer,
			Lag: r.Manifest.ReadBack.Lag, Limit: pageSize,
		}
		if err := r.stretch(ctx, q); err != nil {
			return err
		}
	}
	return r.flush(ctx)
}

// stretch reads the sums of a stretch. They come by customer, so a customer is
// complete when the next one begins.
func (r *run) stretch(ctx context.Context, q storage.SumQuery) error {
	var customer []storage.ItemSum
	for {
		page, err := r.Store.SumItems(ctx, q)
		if err != nil {
			return fmt.Errorf("sum items: %w", err)
		}
		for i := range page.Sums {
			if len(customer) > 0 && customer[0].Customer != page.Sums[i].Customer {
				if err := r.add(ctx, q, customer); err != nil {
					return err
				}
				customer = customer[:0]
			}
			customer = append(customer, page.Sums[i])
		}
		if !page.More || len(page.Sums) == 0 {
			return r.add(ctx, q, customer)
		}
		q.After = page.Next
	}
}

// add puts the sums of one customer into groups, and asks when there are enough.
func (r *run) add(ctx context.Context, q storage.SumQuery, sums []storage.ItemSum) error {
	q.After = storage.SumKey{}
	at := map[string]int{}
	var groups []group
	for _, s := range sums {
		fields, known := r.mappings[s.MappingVersion]
		key := r.meter(s, fields, known)
		i, found := at[key]
		if !found {
			i = len(groups)
			at[key] = i
			groups = append(groups, group{query: q, customer: s.Customer, mapping: fields})
		}
		groups[i].sums = append(groups[i].sums, s)
	}
	for i := range groups {
		// A feature that is asked for comes with those that share its meter.
		asked := r.request.Feature == "" || slices.ContainsFunc(groups[i].sums, func(s storage.ItemSum) bool { return s.Feature == r.request.Feature })
		if !asked || r.request.Unconfirmed && groups[i].settled() {
			continue
		}
		r.waiting = append(r.waiting, groups[i])
	}
	for len(r.waiting) >= r.Questions {
		if err := r.ask(ctx, r.waiting[:r.Questions]); err != nil {
			return err
		}
		r.waiting = slices.Delete(r.waiting, 0, r.Questions)
	}
	return nil
}

func (r *run) flush(ctx context.Context) error {
	if len(r.waiting) == 0 {
		return nil
	}
	defer func() { r.waiting = nil }()
	return r.ask(ctx, r.waiting)
}

// meter is what the provider tells apart: the fields that every mapping of this
// exporter must have. Where it names none, each mapping is a meter.
func (r *run) meter(s storage.ItemSum, fields map[string]string, known bool) string {
	if !known || len(r.Manifest.MappingKeys) == 0 {
		return canon.Join("mapping", s.MappingVersion)
	}
	parts := []string{"meter"}
	for _, k := range slices.Sorted(slices.Values(r.Manifest.MappingKeys)) {
		parts = append(parts, k, fields[k])
	}
	return canon.Join(parts...)
}

// settled reports whether the group has nothing that a comparison could change.
func (g *group) settled() bool {
	return !slices.ContainsFunc(g.sums, func(s storage.ItemSum) bool {
		return s.ReportedItems > s.Confirmed || s.Open > 0 || s.Disputed > 0
	})
}

// ask compares a batch of groups and stores their lines.
func (r *run) ask(ctx context.Context, groups []group) error {
	if err := fault.Point(ctx, "k1"); err != nil {
		return err
	}
	answers, err := r.probe(ctx, groups)
	if err != nil {
		return err
	}
	if err := fault.Point(ctx, "k2"); err != nil {
		return err
	}
	r.stored.NewLines = nil
	for i := range groups {
		line, err := r.compare(ctx, &groups[i], answers[i])
		if err != nil {
			return err
		}
		r.stored.NewLines = append(r.stored.NewLines, line)
		r.stored.Lines++
		r.stored.Confirmed += line.Confirmed
		if line.Difference != nil && !line.Difference.IsZero() {
			r.stored.Differing++
		}
	}
	if err := fault.Point(ctx, "k3"); err != nil {
		return err
	}
	err = r.Store.SaveReconciliation(ctx, r.stored)
	r.stored.NewLines = nil
	if err != nil {
		return fmt.Errorf("save lines: %w", err)
	}
	return nil
}

// probe asks the provider, and again what it did not answer.
func (r *run) probe(ctx context.Context, groups []group) ([]exporter.ProbeAnswer, error) {
	answers := make([]exporter.ProbeAnswer, len(groups))
	var open []int
	for i := range groups {
		switch {
		case groups[i].customer == "":
			answers[i].Code = CodeNoCustomer
		case groups[i].mapping == nil:
			answers[i].Code = CodeNoMapping
		default:
			open = append(open, i)
		}
	}
	for try := 1; len(open) > 0; try++ {
		p := exporter.Probe{Questions: make([]exporter.ProbeQuestion, len(open))}
		for n, i := range open {
			g := &groups[i]
			p.Questions[n] = exporter.ProbeQuestion{
				Customer: g.customer, Feature: g.features(), Mapping: g.mapping, From: g.query.From, To: g.query.To,
			}
		}
		got, err := r.Prober.Probe(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("ask the provider: %w", err)
		}
		if len(got) != len(open) {
			return nil, sdk.Unavailable("probe_malformed", fmt.Errorf("%d answers to %d questions", len(got), len(open)))
		}
		var again []int
		for n, i := range open {
			answers[i] = got[n]
			if got[n].Sum == nil {
				again = append(again, i)
			}
		}
		open = again
		if try == r.Tries || ctx.Err() != nil {
			break
		}
		if len(open) > 0 {
			r.Wait(ctx, tryAgainAfter)
		}
	}
	return answers, ctx.Err()
}

// features names the features of a group.
func (g *group) features() string {
	var names []string
	for _, s := range g.sums {
		if !slices.Contains(names, s.Feature) {
			names = append(names, s.Feature)
		}
	}
	return strings.Join(names, ",")
}

// total adds the sums of a group up.
func (g *group) total() storage.ItemSum {
	var t storage.ItemSum
	for i := range g.sums {
		s := &g.sums[i]
		t.Recorded, t.Reported = t.Recorded.Add(s.Recorded), t.Reported.Add(s.Reported)
		t.ReportedItems, t.Confirmed = t.ReportedItems+s.ReportedItems, t.Confirmed+s.Confirmed
		t.Fresh, t.FreshValue = t.Fresh+s.Fresh, t.FreshValue.Add(s.FreshValue)
		t.Open, t.OpenValue = t.Open+s.Open, t.OpenValue.Add(s.OpenValue)
		t.Held, t.HeldValue = t.Held+s.Held, t.HeldValue.Add(s.HeldValue)
		t.Disputed, t.DisputedValue = t.Disputed+s.Disputed, t.DisputedValue.Add(s.DisputedValue)
	}
	return t
}

// compare makes the line of one group and confirms it if it agrees.
func (r *run) compare(ctx context.Context, g *group, a exporter.ProbeAnswer) (storage.ReconciliationLine, error) {
	total := g.total()
	line := storage.ReconciliationLine{
		Customer: g.customer, Feature: g.features(), Meter: name(a.Meter), From: g.query.From, To: g.query.To,
		Recorded: total.Recorded, Reported: total.Reported,
	}
	code := a.Code
	if a.Sum != nil {
		if sum, err := decimal.ParseTotal(*a.Sum); err == nil {
			difference := sum.Sub(total.Reported)
			line.Provider, line.Difference = &sum, &difference
		} else {
			code = CodeNoNumber
		}
	}
	// What nobody could be asked about, and nothing was reported of, is no gap in
	// the comparison: it is held back, and the line says so.
	unasked := code == CodeNoCustomer || code == CodeNoMapping && onlyHeld(total)
	if line.Provider == nil && !unasked {
		r.unanswered++
		r.firstCode = cmp.Or(r.firstCode, message(code), "no_code")
		r.Logger.WarnContext(ctx, "a provider did not answer a sum", "exporter", r.Destination.Exporter, "code", message(code))
	}
	line.Cause = cause(total, line.Difference)
	if unasked && onlyHeld(total) {
		line.Cause = CauseHeldItems
	}
	if present(total, line.Difference) && !r.request.Act.DryRun {
		return line, r.attest(ctx, g, &line)
	}
	if r.request.Act.DryRun || !confirmable(total, line.Difference) {
		return line, nil
	}
	for i := range g.sums {
		n, err := r.confirm(ctx, g, &g.sums[i])
		if err != nil {
			return line, err
		}
		line.Confirmed += n
	}
	return line, nil
}

// confirm confirms one sum, if it still is what was compared.
func (r *run) confirm(ctx context.Context, g *group, s *storage.ItemSum) (int64, error) {
	if s.ReportedItems == s.Confirmed {
		return 0, nil
	}
	q := g.query
	q.Customer, q.Feature = s.Customer, s.Feature
	sum := storage.SumConfirm{
		Query: q, Key: s.SumKey, Expect: *s, ConfirmedBy: ConfirmedBy,
		Action: storage.Action{
			Kind: storage.ActionConfirm, Actor: r.request.Act.Actor, Reason: r.request.Act.Reason,
			EvidenceKind: outbox.EvidenceProvider, Evidence: "the provider's sum agrees in run " + r.stored.ID,
			From: storage.Accepted, To: storage.Confirmed,
		},
	}
	n, err := r.Store.ConfirmSum(ctx, sum)
	if err != nil {
		return 0, fmt.Errorf("confirm a sum: %w", err)
	}
	if n > 0 && r.Confirmed != nil {
		r.Confirmed(ctx, sum, n)
	}
	return n, nil
}
