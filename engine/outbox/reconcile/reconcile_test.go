package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/engine/outbox/reconcile"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	day  = time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
	dest = outbox.Destination{Exporter: "stripe", Account: "acct_1", Mode: "test"}
	act  = outbox.Act{Actor: "test", Reason: "a test"}
)

func dec(s string) decimal.Decimal { return decimal.MustParse(s) }

// store answers the sums of each stretch in pages of two, and keeps what it is
// handed.
type store struct {
	storage.RouteStore
	sums     map[time.Time][]storage.ItemSum
	err      error
	queries  []storage.SumQuery
	confirms []storage.SumConfirm
	saved    []storage.Reconciliation
	lines    []storage.ReconciliationLine
}

func (s *store) Routes(context.Context) (storage.RouteSet, error) {
	return storage.RouteSet{Mappings: []storage.Mapping{
		{Version: "v1", Content: []byte(`{"event_name":"tokens"}`)},
		{Version: "v2", Content: []byte(`{"event_name":"tokens","value_key":"n"}`)},
		{Version: "v3", Content: []byte(`{"event_name":"calls"}`)},
		{Version: "bad", Content: []byte(`[]`)},
	}}, nil
}

func (s *store) SumItems(_ context.Context, q storage.SumQuery) (storage.SumPage, error) {
	s.queries = append(s.queries, q)
	page := storage.SumPage{Next: q.After}
	for _, x := range s.sums[q.From] {
		if key := [3]string{x.Customer, x.Feature, x.MappingVersion}; strings.Join(key[:], "\x00") <= strings.Join([]string{q.After.Customer, q.After.Feature, q.After.MappingVersion}, "\x00") {
			continue
		}
		if len(page.Sums) == 2 {
			page.More = true
			break
		}
		page.Sums, page.Next = append(page.Sums, x), x.SumKey
	}
	return page, s.err
}

func (s *store) ConfirmSum(_ context.Context, c storage.SumConfirm) (int64, error) {
	s.confirms = append(s.confirms, c)
	return c.Expect.ReportedItems - c.Expect.Confirmed, nil
}

func (s *store) SaveReconciliation(_ context.Context, r storage.Reconciliation) error {
	s.lines = append(s.lines, r.NewLines...)
	r.NewLines = nil
	s.saved = append(s.saved, r)
	return nil
}

func (*store) Reconciliations(context.Context, storage.ReconciliationQuery) ([]storage.Reconciliation, error) {
	return nil, nil
}

func (*store) ReconciliationLines(context.Context, string, int64, int) ([]storage.ReconciliationLine, error) {
	return nil, nil
}

// provider answers by "customer meter".
type provider struct {
	sums  map[string]string
	asked []exporter.Probe
	fails map[string]int // how often a question goes unanswered first
	err   error
}

func (p *provider) Probe(_ context.Context, q exporter.Probe) ([]exporter.ProbeAnswer, error) {
	p.asked = append(p.asked, q)
	out := make([]exporter.ProbeAnswer, len(q.Questions))
	for i, x := range q.Questions {
		key := x.Customer + " " + x.Mapping["event_name"]
		if sum, ok := p.sums[key]; ok && p.fails[key] == 0 {
			out[i] = exporter.ProbeAnswer{Sum: &sum, Meter: "mtr_" + x.Mapping["event_name"]}
		} else {
			p.fails[key]--
			out[i].Code = "http_500"
		}
	}
	return out, p.err
}

func config(s *store, p *provider) reconcile.Config {
	if p.fails == nil {
		p.fails = map[string]int{}
	}
	return reconcile.Config{
		Store: s, Routes: s, Prober: p, Destination: dest, Now: func() time.Time { return noon }, Questions: 2,
		Manifest: exporter.Manifest{
			MappingKeys: []string{"event_name"}, ReadBack: exporter.ReadBack{Sums: true, Lag: time.Hour, Granularity: time.Minute},
		},
		Wait: func(context.Context, time.Duration) {},
	}
}

func request() reconcile.Request {
	return reconcile.Request{ID: "rec_1", From: day, To: day.AddDate(0, 0, 1), Act: act}
}

func sum(customer, feature, mapping, reported string, items int64, edit ...func(*storage.ItemSum)) storage.ItemSum {
	s := storage.ItemSum{
		SumKey:   storage.SumKey{Customer: customer, Feature: feature, MappingVersion: mapping},
		Recorded: dec(reported), Reported: dec(reported), ReportedItems: items,
	}
	for _, f := range edit {
		f(&s)
	}
	return s
}

// O25: every cause, and what alone is confirmed. A difference is reported as it
// is.
func TestCauses(t *testing.T) {
	t.Parallel()
	open := func(value string) func(*storage.ItemSum) {
		return func(s *storage.ItemSum) {
			s.Open, s.OpenValue = 1, dec(value)
			s.Recorded = s.Recorded.Add(dec(value))
		}
	}
	disputed := func(value string) func(*storage.ItemSum) {
		return func(s *storage.ItemSum) { s.Disputed, s.DisputedValue = 1, dec(value) }
	}
	held := func(s *storage.ItemSum) { s.Held, s.HeldValue = 1, dec("3") }
	fresh := func(s *storage.ItemSum) { s.Fresh, s.FreshValue = 1, dec("5") }
	confirmed := func(s *storage.ItemSum) { s.Confirmed = s.ReportedItems }
	for name, c := range map[string]struct {
		sum        storage.ItemSum
		provider   string // empty: no answer
		difference string
		cause      string
		confirms   int64
	}{
		"agrees":                       {sum("c", "f", "v1", "10", 2), "10", "0", reconcile.CauseNone, 2},
		"agrees, confirmed":            {sum("c", "f", "v1", "10", 2, confirmed), "10", "0", reconcile.CauseNone, 0},
		"agrees, fresh":                {sum("c", "f", "v1", "10", 2, fresh), "10", "0", reconcile.CauseNone, 0},
		"agrees, held":                 {sum("c", "f", "v1", "10", 2, held), "10", "0", reconcile.CauseHeldItems, 2},
		"agrees, open":                 {sum("c", "f", "v1", "10", 2, open("3")), "10", "0", reconcile.CauseOpenItems, 0},
		"agrees, disputed":             {sum("c", "f", "v1", "10", 2, disputed("3")), "10", "0", reconcile.CauseDisputed, 0},
		"none reported, none counted":  {sum("c", "f", "v1", "0", 0, held), "0", "0", reconcile.CauseHeldItems, 0},
		"no answer":                    {sum("c", "f", "v1", "10", 2), "", "", reconcile.CauseProviderUnknown, 0},
		"no number":                    {sum("c", "f", "v1", "10", 2), "ten", "", reconcile.CauseProviderUnknown, 0},
		"fresh and less":               {sum("c", "f", "v1", "10", 2, fresh), "5", "-5", reconcile.CauseLag, 0},
		"open and counted":             {sum("c", "f", "v1", "10", 2, open("3")), "13", "3", reconcile.CauseOpenItems, 0},
		"open does not explain it":     {sum("c", "f", "v1", "10", 2, open("3")), "14", "4", reconcile.CauseProviderMore, 0},
		"open, and less":               {sum("c", "f", "v1", "10", 2, open("3")), "9", "-1", reconcile.CauseProviderLess, 0},
		"disputed and counted":         {sum("c", "f", "v1", "10", 2, disputed("3")), "13", "3", reconcile.CauseDisputed, 0},
		"open and disputed, both":      {sum("c", "f", "v1", "10", 2, open("1"), disputed("3")), "14", "4", reconcile.CauseOpenItems, 0},
		"held and counted":             {sum("c", "f", "v1", "10", 2, held), "13", "3", reconcile.CauseProviderMore, 0},
		"a cancellation is open":       {sum("c", "f", "v1", "10", 2, open("-4")), "6", "-4", reconcile.CauseOpenItems, 0},
		"less by the last digit":       {sum("c", "f", "v1", "10", 2), "9.999999999999", "-0.000000000001", reconcile.CauseProviderLess, 0},
		"more than twenty-six numbers": {sum("c", "f", "v1", "10", 2), "12345678901234567890123456", "12345678901234567890123446", reconcile.CauseProviderMore, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := &store{sums: map[time.Time][]storage.ItemSum{day: {c.sum}}}, &provider{sums: map[string]string{}}
			if c.provider != "" {
				p.sums["c tokens"] = c.provider
			}
			got, err := reconcile.Run(t.Context(), config(s, p), request())
			if err != nil || len(s.lines) != 1 {
				t.Fatalf("%+v, %v, %d lines", got, err, len(s.lines))
			}
			l := s.lines[0]
			difference := ""
			if l.Difference != nil {
				difference = l.Difference.String()
			}
			if l.Cause != c.cause || difference != c.difference || l.Confirmed != c.confirms || got.Confirmed != c.confirms || int64(len(s.confirms)) != min(c.confirms, 1) {
				t.Errorf("line %+v, difference %q, %d confirmations", l, difference, len(s.confirms))
			}
			if differs := difference != "" && difference != "0"; (got.Differing == 1) != differs || got.Lines != 1 {
				t.Errorf("run %+v", got)
			}
			if unanswered := c.cause == reconcile.CauseProviderUnknown; (got.Error != "") != unanswered {
				t.Errorf("error %q", got.Error)
			}
		})
	}
}

// The provider knows a customer at a meter: features and mappings that share a
// meter are compared together, also over pages and where one feature is asked
// for, and each is confirmed as what it was.
func TestGroups(t *testing.T) {
	t.Parallel()
	s := &store{sums: map[time.Time][]storage.ItemSum{day: {
		sum("", "in", "v1", "0", 0, func(s *storage.ItemSum) { s.Held, s.HeldValue, s.Recorded = 1, dec("2"), dec("2") }),
		sum("a", "in", "v1", "1", 1), sum("a", "in", "v2", "2", 1), sum("a", "out", "v1", "4", 1, func(s *storage.ItemSum) { s.Confirmed = 1 }), sum("a", "zcalls", "v3", "8", 1),
		sum("b", "in", "v1", "16", 1), sum("c", "in", "gone", "32", 1), sum("d", "in", "bad", "64", 1),
	}}}
	p := &provider{sums: map[string]string{"a tokens": "7", "a calls": "8", "b tokens": "17"}}
	got, err := reconcile.Run(t.Context(), config(s, p), request())
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, l := range s.lines {
		lines = append(lines, fmt.Sprintf("%s|%s|%s|%v|%s|%d", l.Customer, l.Feature, l.Meter, l.Reported, l.Cause, l.Confirmed))
	}
	want := []string{
		"|in||0|held_items|0", "a|in,out|mtr_tokens|7|none|2", "a|zcalls|mtr_calls|8|none|1", "b|in|mtr_tokens|16|provider_more|0",
		"c|in||32|provider_unknown|0", "d|in||64|provider_unknown|0",
	}
	if d := cmp.Diff(want, lines); d != "" {
		t.Error(d)
	}
	if got.Lines != 6 || got.Differing != 1 || got.Confirmed != 3 || len(s.confirms) != 3 || !strings.Contains(got.Error, "2 sums without an answer, the first: mapping_unknown") {
		t.Errorf("run %+v", got)
	}
	first := s.confirms[0]
	if first.ConfirmedBy != "aggregate" || first.Query.Customer != "a" || first.Query.Feature != "in" || first.Key != s.sums[day][1].SumKey ||
		first.Expect.Reported.String() != "1" || first.Action.Kind != storage.ActionConfirm || first.Action.Actor != "test" || !strings.Contains(first.Action.Evidence, "rec_1") {
		t.Errorf("confirm %+v", first)
	}
	for _, q := range s.queries {
		if q.Lag != time.Hour || q.Exporter != "stripe" || q.Account != "acct_1" || q.Mode != "test" {
			t.Errorf("query %+v", q)
		}
	}
	for _, a := range p.asked {
		if len(a.Questions) > 2 {
			t.Errorf("%d questions at once", len(a.Questions))
		}
	}
	s.lines = nil
	r := request()
	r.Feature = "out"
	if _, err := reconcile.Run(t.Context(), config(s, p), r); err != nil || len(s.lines) != 1 || s.lines[0].Reported.String() != "7" {
		t.Errorf("one feature: %+v, %v", s.lines, err)
	}
}

// O25: an item without a mapping, quarantined for it, is a line of its own and no
// reason to call the run incomplete; one that was reported is.
func TestUnmappedItems(t *testing.T) {
	t.Parallel()
	held := func(s *storage.ItemSum) { s.Held, s.HeldValue, s.Recorded = 1, dec("3"), dec("3") }
	s := &store{sums: map[time.Time][]storage.ItemSum{day: {sum("a", "in", "v1", "7", 1), sum("a", "other", "", "0", 0, held), sum("b", "in", "v1", "1", 1)}}}
	p := &provider{sums: map[string]string{"a tokens": "7", "b tokens": "1"}}
	got, err := reconcile.Run(t.Context(), config(s, p), request())
	if err != nil || got.Error != "" || got.Lines != 3 || got.Confirmed != 2 || got.Differing != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if l := s.lines[1]; l.Feature != "other" || l.Cause != reconcile.CauseHeldItems || l.Provider != nil || l.Recorded.String() != "3" {
		t.Errorf("%+v", l)
	}
	s = &store{sums: map[time.Time][]storage.ItemSum{day: {sum("a", "other", "", "2", 1, held)}}}
	if got, err := reconcile.Run(t.Context(), config(s, p), request()); err != nil || got.Error == "" || s.lines[0].Cause != reconcile.CauseProviderUnknown {
		t.Errorf("%+v, %v", got, err)
	}
}

// Stretches are cut at multiples of the step, and what is settled is left out
// where only the rest is asked for. A dry run confirms nothing.
func TestStretches(t *testing.T) {
	t.Parallel()
	second := day.AddDate(0, 0, 1)
	s := &store{sums: map[time.Time][]storage.ItemSum{
		day.Add(6 * time.Hour): {sum("a", "in", "v1", "1", 1, func(s *storage.ItemSum) { s.Confirmed = 1 })},
		second:                 {sum("a", "in", "v1", "1", 1)},
	}}
	p := &provider{sums: map[string]string{"a tokens": "1"}}
	r := request()
	r.From, r.To, r.Step, r.Unconfirmed, r.Act.DryRun = day.Add(6*time.Hour), second.Add(2*time.Hour), 24*time.Hour, true, true
	if _, err := reconcile.Run(t.Context(), config(s, p), r); err != nil {
		t.Fatal(err)
	}
	if len(s.queries) != 2 || !s.queries[0].To.Equal(second) || !s.queries[1].To.Equal(r.To) {
		t.Errorf("queries %+v", s.queries)
	}
	if len(s.lines) != 1 || !s.lines[0].From.Equal(second) || len(s.confirms) != 0 {
		t.Errorf("lines %+v, confirms %v", s.lines, s.confirms)
	}
}

// A question without an answer is asked again, and no more than that.
func TestTries(t *testing.T) {
	t.Parallel()
	s := &store{sums: map[time.Time][]storage.ItemSum{day: {sum("a", "in", "v1", "1", 1), sum("b", "in", "v1", "1", 1)}}}
	p := &provider{sums: map[string]string{"a tokens": "1", "b tokens": "1"}, fails: map[string]int{"a tokens": 2}}
	if got, err := reconcile.Run(t.Context(), config(s, p), request()); err != nil || got.Error != "" || got.Confirmed != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	if len(p.asked) != 3 || len(p.asked[1].Questions) != 1 {
		t.Errorf("asked %d times", len(p.asked))
	}
}

// What breaks a run off is stored with it, and what was confirmed stays.
func TestBrokenOff(t *testing.T) {
	t.Parallel()
	s := &store{sums: map[time.Time][]storage.ItemSum{day: {sum("a", "in", "v1", "1", 1)}}}
	p := &provider{err: errors.New("the plugin trapped")}
	got, err := reconcile.Run(t.Context(), config(s, p), request())
	if err == nil || !strings.Contains(got.Error, "trapped") || got.FinishedAt.IsZero() || len(s.confirms) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if first, last := s.saved[0], s.saved[len(s.saved)-1]; !first.FinishedAt.IsZero() || last.Error != got.Error {
		t.Errorf("saved %+v", s.saved)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s = &store{err: context.Canceled}
	if got, err := reconcile.Run(ctx, config(s, &provider{}), request()); !errors.Is(err, context.Canceled) || got.FinishedAt.IsZero() || len(s.saved) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestRequestRules(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit func(*reconcile.Config, *reconcile.Request)
		want error
	}{
		"no read-back": {func(c *reconcile.Config, _ *reconcile.Request) { c.Manifest.ReadBack.Sums = false }, sdk.ErrUnsupported},
		"nobody":       {func(_ *reconcile.Config, r *reconcile.Request) { r.Act.Actor = "" }, sdk.ErrInvalid},
		"from":         {func(_ *reconcile.Config, r *reconcile.Request) { r.From = r.From.Add(time.Second) }, sdk.ErrInvalid},
		"to":           {func(_ *reconcile.Config, r *reconcile.Request) { r.To = r.To.Add(time.Nanosecond) }, sdk.ErrInvalid},
		"empty":        {func(_ *reconcile.Config, r *reconcile.Request) { r.To = r.From }, sdk.ErrInvalid},
		"step":         {func(_ *reconcile.Config, r *reconcile.Request) { r.Step = time.Second }, sdk.ErrInvalid},
		"many steps":   {func(_ *reconcile.Config, r *reconcile.Request) { r.Step = time.Minute }, sdk.ErrInvalid},
	} {
		s := &store{}
		cfg, r := config(s, &provider{}), request()
		c.edit(&cfg, &r)
		if _, err := reconcile.Run(t.Context(), cfg, r); !errors.Is(err, c.want) || len(s.saved) != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
