// Package meter reads events and measures them: strict decoders for CloudEvents
// and for the plain form, the limits every event must keep, and the meters that
// turn a CloudEvent into quantities of features.
//
// Everything here is pure and safe for concurrent use. Errors are [Errors]: all
// that is wrong with an input, each naming field and rule and never the value.
package meter

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// Meter says what CloudEvents of one type mean for one feature.
type Meter struct {
	Feature     string      `json:"feature" yaml:"feature"`
	EventType   string      `json:"event_type" yaml:"event_type"`
	Aggregation Aggregation `json:"aggregation" yaml:"aggregation"`
	// Value is the path of the quantity in the event's data, "$.usage.tokens",
	// for unique of the text. Empty for count.
	Value string `json:"value,omitempty" yaml:"value,omitempty"`
	// Dimensions maps the name of a dimension to its path in the data.
	Dimensions map[string]string `json:"dimensions,omitempty" yaml:"dimensions,omitempty"`
}

// Set is a set of meters that was checked. The zero value has none: every event
// is unmatched. A Set is immutable and safe for concurrent use.
type Set struct {
	byType    map[string][]compiled
	byFeature map[string]Aggregation
}

// compiled is a meter with its paths read.
type compiled struct {
	feature    string
	how        Aggregation
	value      path
	dimensions []dimension
}

type dimension struct {
	name string
	path path
}

// NewSet checks meters and returns them as a set. It fails with [Errors] naming
// each fault ("meters[2].value"); two meters with the same event type and
// feature are refused, and so are meters of one feature that add up differently.
func NewSet(meters []Meter) (Set, error) {
	var errs Errors
	type key struct{ eventType, feature string }
	seen := make(map[key]int, len(meters))
	s := Set{byType: make(map[string][]compiled), byFeature: make(map[string]Aggregation)}
	for i, m := range meters {
		field := "meters[" + strconv.Itoa(i) + "]"
		c := compile(&errs, field, m)
		k := key{m.EventType, m.Feature}
		if first, twice := seen[k]; twice {
			errs.add(field, "one meter for each event type and feature; meters["+strconv.Itoa(first)+"] is the same")
			continue
		}
		seen[k] = i
		if m.Aggregation.Valid() && !s.unite(m.Feature, m.Aggregation) {
			errs.add(field+".aggregation", "one aggregation for each feature; "+string(s.byFeature[m.Feature])+" is that of another meter of this one")
		}
		s.byType[m.EventType] = append(s.byType[m.EventType], c)
	}
	if errs != nil {
		return Set{}, errs
	}
	for _, cs := range s.byType {
		slices.SortFunc(cs, func(a, b compiled) int { return cmp.Compare(a.feature, b.feature) })
	}
	return s, nil
}

func compile(errs *Errors, field string, m Meter) compiled {
	c := compiled{feature: m.Feature, how: m.Aggregation}
	if !featureName.MatchString(m.Feature) {
		errs.add(field+".feature", FeatureRule)
	}
	checkName(errs, field+".event_type", m.EventType, MaxType)
	if !m.Aggregation.Valid() {
		errs.add(field+".aggregation", aggregationRule)
	}
	var ok bool
	switch {
	case c.how == Count && m.Value != "":
		errs.add(field+".value", "absent: count adds 1 for each event")
	case c.how != Count:
		if c.value, ok = parsePath(m.Value); !ok {
			errs.add(field+".value", pathRule)
		}
	}
	if most := c.maxDimensions(); len(m.Dimensions) > most {
		errs.add(field+".dimensions", "at most "+strconv.Itoa(most)+" dimensions")
		return c
	}
	for _, name := range slices.Sorted(maps.Keys(m.Dimensions)) {
		at := field + ".dimensions" + dotted(name)
		if name == "" || len(name) > MaxDimensionKey {
			errs.add(at, "names of 1 to 64 bytes")
		} else {
			checkName(errs, at, name, MaxDimensionKey)
		}
		if name == ValueDimension && c.how == Unique {
			errs.add(at, "another name: it is the dimension of what unique counts")
		}
		p, ok := parsePath(m.Dimensions[name])
		if !ok {
			errs.add(at, pathRule)
		}
		c.dimensions = append(c.dimensions, dimension{name, p})
	}
	return c
}

// maxDimensions leaves room for the one that unique adds.
func (c compiled) maxDimensions() int {
	if c.how == Unique {
		return MaxDimensions - 1
	}
	return MaxDimensions
}

// Measurement is what one CloudEvent means for one feature.
type Measurement struct {
	Feature    string
	Quantity   decimal.Decimal
	Dimensions map[string]string // nil if there are none
	// Path is where the quantity came from, for errors: "data.usage.tokens".
	// "type" for a count.
	Path string
}

// Matches reports whether some meter takes events of a type.
func (s Set) Matches(eventType string) bool { return len(s.byType[eventType]) > 0 }

// Apply measures e: one measurement for each meter of its type, in the order of
// their features. No meter: an empty result and no error, the event is
// unmatched. If any meter cannot be applied the whole event is invalid, and the
// error names the path ("data.usage.tokens").
//
// A dimension that is absent or null in the data is left out.
func (s Set) Apply(e CloudEvent) ([]Measurement, error) {
	meters := s.byType[e.Type]
	if len(meters) == 0 {
		return nil, nil
	}
	var errs Errors
	out := make([]Measurement, len(meters))
	for i, m := range meters {
		out[i] = m.apply(&errs, e)
	}
	if errs != nil {
		return nil, errs
	}
	return out, nil
}

func (c compiled) apply(errs *Errors, e CloudEvent) Measurement {
	m := Measurement{Feature: c.feature, Quantity: decimal.One, Path: "type"}
	var value *string
	if c.how != Count {
		m.Path = c.value.field
		raw, found, err := canon.Find(e.Data, c.value.steps)
		switch {
		case e.Data == nil:
			errs.add("data", "JSON data, because a meter reads it")
		case err != nil:
			errs.note("data", err)
		case !found || canon.KindOf(raw) == canon.Null:
			errs.add(m.Path, "required by the meter of feature "+c.feature)
		case c.how == Unique:
			text, _ := c.label(errs, c.value, raw)
			value = &text
		default:
			m.Quantity, err = quantity(raw)
			if !errs.has(m.Path) {
				errs.note(m.Path, err)
			}
		}
	}
	m.Dimensions = c.labels(errs, e)
	if value != nil {
		m.Dimensions = with(m.Dimensions, ValueDimension, *value)
	}
	return m
}

func (c compiled) labels(errs *Errors, e CloudEvent) map[string]string {
	var out map[string]string
	for _, d := range c.dimensions {
		raw, found, err := canon.Find(e.Data, d.path.steps)
		if e.Data == nil || err != nil || !found || canon.KindOf(raw) == canon.Null {
			continue
		}
		if value, ok := c.label(errs, d.path, raw); ok {
			out = with(out, d.name, value)
		}
	}
	return out
}

// label reads the text of a dimension at p.
func (c compiled) label(errs *Errors, p path, raw json.RawMessage) (string, bool) {
	value, ok := label(raw)
	switch {
	case !ok:
		errs.add(p.field, labelRule)
	case len(value) > MaxDimensionValue:
		errs.add(p.field, "at most 256 bytes, because it is a dimension")
		ok = false
	}
	return value, ok
}

func with(m map[string]string, name, value string) map[string]string {
	if m == nil {
		m = make(map[string]string)
	}
	m[name] = value
	return m
}
