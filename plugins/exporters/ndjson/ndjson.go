// Package ndjson exports usage as lines of JSON to a file that the operator
// named: `file` in the exporter's configuration. The host writes the file; its
// lines form a chain of hashes, and what was accepted has reached the disk.
// `fencepost journal verify FILE` checks the chain.
package ndjson

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// Version of this exporter.
const Version = "1.0.0"

// New builds the exporter on the host's append capability. It is an
// [exporter.New].
func New(host capability.Host) exporter.Exporter { return &Exporter{file: host.Append} }

// Exporter writes items as lines. Make it with [New]; the zero value can only
// describe itself. It is not for use from two goroutines at once.
type Exporter struct {
	file       capability.Append
	configured bool
}

// CodeUnknown is the code of a correction of a method that was not declared:
// nothing is written.
const CodeUnknown = "unknown_correction"

// Describe returns the manifest.
func (*Exporter) Describe(context.Context) (exporter.Manifest, error) {
	return exporter.Manifest{
		Name: "ndjson", Version: Version,
		IdentifierMaxLength: 255, // and known for ever: the file is searched for it
		Values:              exporter.ValueDomain{MaxDecimals: -1, Negative: true, Zero: true},
		MaxBatch:            500,
		Corrections:         exporter.CorrectNegative,
		Capabilities:        []capability.Name{capability.AppendName},
	}, nil
}

// Configure checks the operator's settings. Its errors are tagged invalid and
// name the field.
func (e *Exporter) Configure(_ context.Context, c exporter.Configuration) error {
	if e.file == nil {
		return &sdk.Error{
			Tag: sdk.TagUnsupported, Code: "capability_missing", Field: "append",
			Rule: "the capability append", Hint: "grant append to this plugin, and name its file",
		}
	}
	if c.Mode != "test" && c.Mode != "live" {
		return sdk.Invalid("mode", "test or live")
	}
	if c.BaseURL != "" {
		return sdk.Invalid("base_url", "absent: this exporter writes a file")
	}
	if text := strings.TrimSpace(string(c.Settings)); text != "" && text != "{}" && text != "null" {
		return sdk.Invalid("settings", "absent: this exporter has none")
	}
	e.configured = true
	return nil
}

// Close has nothing to release.
func (*Exporter) Close(context.Context) error { return nil }

// Record is what a line says of an item.
type Record struct {
	Identifier  string            `json:"identifier"` // a reader counts each once
	Kind        string            `json:"kind"`       // event, correction or usage_window
	Account     string            `json:"account,omitempty"`
	Mode        string            `json:"mode"`
	Customer    string            `json:"customer"`
	Feature     string            `json:"feature"`
	Value       string            `json:"value"` // exact decimal; of a correction what changes
	Timestamp   time.Time         `json:"timestamp"`
	PeriodStart time.Time         `json:"period_start"`
	PeriodEnd   time.Time         `json:"period_end"`
	Mapping     map[string]string `json:"mapping,omitempty"`
	// Corrects is the identifier of what a correction takes back.
	Corrects string `json:"corrects,omitempty"`
}

// Deliver appends one record for each item and answers for each.
func (e *Exporter) Deliver(ctx context.Context, d exporter.Delivery) ([]exporter.ItemOutcome, error) {
	if !e.configured {
		return nil, &sdk.Error{Tag: sdk.TagInvalid, Code: "not_configured", Rule: "Configure before Deliver"}
	}
	outcomes := make([]exporter.ItemOutcome, len(d.Items))
	var records []capability.Record
	var asked []int
	for i := range d.Items {
		it := &d.Items[i]
		if it.Corrects != nil && it.Corrects.Method != exporter.CorrectNegative {
			outcomes[i] = exporter.ItemOutcome{ItemID: it.ID, Kind: exporter.Retry, Code: CodeUnknown}
			continue
		}
		r := Record{
			Identifier: it.Identifier, Kind: it.Kind, Account: it.Account, Mode: it.Mode, Customer: it.Customer,
			Feature: it.Feature, Value: it.Value, Timestamp: it.Timestamp.UTC(),
			PeriodStart: it.PeriodStart.UTC(), PeriodEnd: it.PeriodEnd.UTC(), Mapping: it.Mapping,
		}
		if it.Corrects != nil {
			r.Corrects = it.Corrects.Identifier
		}
		text, err := json.Marshal(r)
		if err != nil {
			return nil, sdk.Invalid("items", "times and texts that JSON has").At(i)
		}
		asked = append(asked, i)
		records = append(records, capability.Record{Item: it.ID, Identifier: it.Identifier, Again: it.Attempt > 1, JSON: text})
	}
	if len(records) == 0 {
		return outcomes, nil
	}
	appended, err := e.file.Append(ctx, records)
	if err != nil {
		return nil, err //nolint:wrapcheck // the host's own refusal says it all
	}
	for n, i := range asked {
		outcomes[i] = judge(&d.Items[i], appended[n])
	}
	return outcomes, nil
}

func judge(item *exporter.Item, a capability.Appended) exporter.ItemOutcome {
	o := exporter.ItemOutcome{ItemID: item.ID, Kind: exporter.Accepted, Code: a.Reason}
	switch {
	case a.Failure == capability.FailureNotSent:
		o.Kind = exporter.Retry
	case a.Failure != capability.FailureNone:
		o.Kind = exporter.Uncertain
	case a.Earlier:
		o.Kind = exporter.AcceptedEarlier
	}
	if a.Sequence > 0 {
		o.ProviderRef = "line " + strconv.FormatInt(a.Sequence, 10)
	}
	return o
}
