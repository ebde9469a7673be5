package workbench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// Input is what a plugin is tried with: a batch, as an exporter gets it, and what
// an operator would have set.
type Input struct {
	Configuration exporter.Configuration
	Items         []exporter.Item
}

type inputFile struct {
	Configuration inputConfiguration `json:"configuration"`
	Items         []inputItem        `json:"items"`
}

type inputConfiguration struct {
	Name     string          `json:"name"`
	Account  string          `json:"account"`
	Mode     string          `json:"mode"`
	BaseURL  string          `json:"base_url"`
	Settings json.RawMessage `json:"settings"`
}

type inputItem struct {
	ID          string            `json:"id"`
	Identifier  string            `json:"identifier"`
	Attempt     int               `json:"attempt"`
	Kind        string            `json:"kind"`
	Account     *string           `json:"account"`
	Mode        string            `json:"mode"`
	Customer    string            `json:"customer"`
	Feature     string            `json:"feature"`
	Value       literal           `json:"value"`
	Timestamp   time.Time         `json:"timestamp"`
	PeriodStart time.Time         `json:"period_start"`
	PeriodEnd   time.Time         `json:"period_end"`
	Mapping     map[string]string `json:"mapping"`
	Corrects    *inputCorrects    `json:"corrects"`
}

type inputCorrects struct {
	Method     exporter.CorrectionMode `json:"method"`
	Identifier string                  `json:"identifier"`
	Value      literal                 `json:"value"`
}

// literal is a decimal: a string, or a number taken from its text.
type literal string

// UnmarshalJSON keeps every digit.
func (l *literal) UnmarshalJSON(b []byte) error {
	text := string(b)
	if b[0] == '"' {
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
	}
	d, err := decimal.Parse(text)
	if err != nil {
		return err
	}
	*l = literal(d.String())
	return nil
}

// epoch is the time of items that say none, and of a clock that stands still.
func epoch() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// ReadInput reads a batch. What an item does not say is filled in: its place as
// its id, "fencepost_" and the id as its identifier, the first attempt, an event,
// the configuration's account and mode. Errors have tag invalid.
func ReadInput(path string) (Input, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Input{}, sdk.Invalid("input", err.Error())
	}
	return parseInput(text)
}

func parseInput(text []byte) (Input, error) {
	var f inputFile
	if err := strict(text, &f); err != nil {
		return Input{}, sdk.Invalid("input", "a JSON object of the documented shape: "+err.Error())
	}
	if len(f.Items) == 0 {
		return Input{}, sdk.Invalid("input.items", "at least one")
	}
	c := exporter.Configuration(f.Configuration)
	if c.Mode == "" {
		c.Mode = "test"
	}
	if c.Name == "" {
		c.Name = "try"
	}
	in := Input{Configuration: c}
	for i, it := range f.Items {
		item, err := it.item(i, c)
		if err != nil {
			return Input{}, err
		}
		if slices.ContainsFunc(in.Items, func(other exporter.Item) bool { return other.ID == item.ID }) {
			return Input{}, sdk.Invalid(fmt.Sprintf("input.items[%d].id", i), "another one than the items before")
		}
		in.Items = append(in.Items, item)
	}
	return in, nil
}

func (it inputItem) item(i int, c exporter.Configuration) (exporter.Item, error) {
	field := fmt.Sprintf("input.items[%d]", i)
	out := exporter.Item{
		ID: or(it.ID, strconv.Itoa(i+1)), Attempt: max(it.Attempt, 1), Kind: or(it.Kind, "event"), Account: c.Account,
		Mode: or(it.Mode, c.Mode), Customer: it.Customer, Feature: it.Feature, Value: string(it.Value), Mapping: it.Mapping,
		Timestamp: it.Timestamp, PeriodStart: it.PeriodStart, PeriodEnd: it.PeriodEnd,
	}
	out.Identifier = or(it.Identifier, "fencepost_"+out.ID)
	if it.Account != nil {
		out.Account = *it.Account
	}
	if out.Value == "" {
		return out, sdk.Invalid(field+".value", "an exact decimal, such as \"12.5\"")
	}
	if !slices.Contains([]string{"event", "correction", "usage_window"}, out.Kind) {
		return out, sdk.Invalid(field+".kind", "event, correction or usage_window")
	}
	if (out.Kind == "correction") != (it.Corrects != nil) {
		return out, sdk.Invalid(field+".corrects", "present for a correction, and only there")
	}
	if it.Corrects != nil {
		out.Corrects = &exporter.Corrects{Method: it.Corrects.Method, Identifier: it.Corrects.Identifier, Value: string(it.Corrects.Value)}
	}
	for _, t := range []*time.Time{&out.Timestamp, &out.PeriodStart, &out.PeriodEnd} {
		if t.IsZero() {
			*t = epoch()
		}
		*t = t.UTC().Truncate(time.Microsecond)
	}
	return out, nil
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// strict decodes one JSON value without unknown fields and nothing after.
func strict(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the object")
	}
	return nil
}
