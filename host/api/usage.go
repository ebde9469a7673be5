package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/engine/period"
	"github.com/fencepost/fencepost/plugins/sdk"
)

// UsageAnswer answers GET /v1/usage.
type UsageAnswer struct {
	Data []UsageRow `json:"data"`
	AsOf string     `json:"as_of"`
}

// UsageRow is one feature in one window, of one group.
type UsageRow struct {
	Feature     string             `json:"feature"`
	From        string             `json:"from"`
	To          string             `json:"to"`
	Aggregation string             `json:"aggregation"`
	Value       Figure             `json:"value"`
	Count       Figure             `json:"count"`
	Group       map[string]*string `json:"group"`
	// Source is "events", or "counters" for a buffered feature: Value is then
	// what all hosts have written, and Unflushed what the answering host
	// has counted beside it and not yet written.
	Source    string `json:"source"`
	Unflushed string `json:"unflushed,omitempty"`
	// Refused is the code with which a request for this feature alone would
	// be refused, in an answer about all features. Value is null then.
	Refused string `json:"refused,omitempty"`
}

// Figure is a number in digits, or null: the empty figure.
type Figure string

// MarshalJSON writes a JSON string or null.
func (f Figure) MarshalJSON() ([]byte, error) {
	if f == "" {
		return []byte("null"), nil
	}
	b, err := json.Marshal(string(f))
	if err != nil {
		return nil, fmt.Errorf("encode figure: %w", err)
	}
	return b, nil
}

// UnmarshalJSON reads a JSON string or null.
func (f *Figure) UnmarshalJSON(b []byte) error {
	var s *string
	if bytes.Equal(b, []byte("null")) {
		*f = ""
		return nil
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("decode figure: %w", err)
	}
	*f = Figure(*s)
	return nil
}

func (s *server) usage(w http.ResponseWriter, r *http.Request) {
	q, err := usageQuery(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	u, err := s.cfg.Engine.Usage(r.Context(), q)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	answer := UsageAnswer{Data: make([]UsageRow, len(u.Rows)), AsOf: stamp(u.AsOf)}
	for i, row := range u.Rows {
		answer.Data[i] = usageRow(row)
	}
	writeJSON(w, http.StatusOK, answer)
}

func usageRow(u engine.UsageRow) UsageRow {
	row := UsageRow{
		Feature: u.Feature, From: stamp(u.From), To: stamp(u.To), Aggregation: string(u.Aggregation),
		Group: u.Group, Source: "events", Refused: u.Refused,
	}
	if row.Group == nil {
		row.Group = map[string]*string{}
	}
	if u.Value != nil {
		row.Value = Figure(u.Value.String())
	}
	if u.Count != nil {
		row.Count = Figure(strconv.FormatInt(*u.Count, 10))
	}
	if u.Buffered {
		row.Source, row.Unflushed = "counters", u.Unflushed.String()
	}
	return row
}

const groupBy = "group_by"

// usageQuery reads the parameters of GET /v1/usage. Groups are given once each or
// separated by commas, filters as filter[NAME]=VALUE; names and values are
// values, whatever characters they hold.
func usageQuery(r *http.Request) (engine.UsageQuery, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return engine.UsageQuery{}, sdk.Invalid("query", "a well-formed query string")
	}
	out := engine.UsageQuery{}
	for _, list := range values[groupBy] {
		out.GroupBy = append(out.GroupBy, strings.Split(list, ",")...)
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		inner, ok := strings.CutPrefix(key, "filter[")
		if !ok {
			continue
		}
		name, ok := strings.CutSuffix(inner, "]")
		if !ok {
			return out, sdk.Invalid("filter", "filter[NAME]=VALUE")
		}
		if len(values[key]) > 1 {
			return out, sdk.Invalid("filter", "each dimension once")
		}
		if out.Filter == nil {
			out.Filter = map[string]string{}
		}
		out.Filter[name] = values.Get(key)
		values.Del(key)
	}
	values.Del(groupBy)
	q := checkQuery(values, "tenant", "feature", "from", "to", "window", "timezone", "aggregation", groupBy, "filter[NAME]")
	out.Tenant, out.Feature, out.From, out.To = q.text("tenant"), q.text("feature"), q.time("from"), q.time("to")
	out.Window, out.Timezone = period.Unit(q.text("window")), q.text("timezone")
	out.Aggregation = meter.Aggregation(q.text("aggregation"))
	return out, q.err
}
