package stripe

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// The types of the messages that this exporter understands.
const (
	typeErrorReport  = "v1.billing.meter.error_report_triggered"
	typeNoMeterFound = "v1.billing.meter.no_meter_found"
)

// coreEventVersion is the version of the API in which a message's data is
// fetched: API v2 came after the version of stripe-go's types here.
const coreEventVersion = "2025-01-27.acacia"

const coreEventsPath = "/v2/core/events/"

// coreEvent is a message of Stripe's. Thin ones come without data.
type coreEvent struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Livemode *bool  `json:"livemode"`
	// Context names the account that a message is about where it is not, or not
	// surely, the one of the endpoint: "acct_1", or "org_1/acct_1". Account is
	// what messages of API v1 have for it.
	Context string `json:"context"`
	Account string `json:"account"`
	Data    *struct {
		Reason struct {
			ErrorCount int `json:"error_count"`
			ErrorTypes []struct {
				Code       string `json:"code"`
				ErrorCount int    `json:"error_count"`
				Samples    []struct {
					Message string `json:"error_message"`
					Request struct {
						Identifier string `json:"identifier"`
					} `json:"request"`
				} `json:"sample_errors"`
			} `json:"error_types"`
		} `json:"reason"`
	} `json:"data"`
}

// Webhook reads an error report: Stripe's word that events which it had taken
// are not counted after all. A report names only samples, so Counted tells how
// many there are. A thin message's data is fetched; if that fails the error is
// unavailable and the message has to come again. Messages of other types, and of
// the other mode, say nothing.
func (e *Exporter) Webhook(ctx context.Context, w exporter.Webhook) (exporter.WebhookAnswer, error) {
	if !e.configured {
		return exporter.WebhookAnswer{}, &sdk.Error{Tag: sdk.TagInvalid, Code: "not_configured", Rule: "Configure before Webhook"}
	}
	var event coreEvent
	if json.Unmarshal(w.Body, &event) != nil || event.ID == "" {
		return exporter.WebhookAnswer{}, sdk.Invalid("body", "a message of Stripe's")
	}
	answer := exporter.WebhookAnswer{ID: short(event.ID), Code: short(event.Type)}
	if event.Type != typeErrorReport && event.Type != typeNoMeterFound {
		return answer, nil
	}
	if event.Livemode != nil && *event.Livemode != (e.configuration.Mode == modeLive) {
		answer.Code = CodeModeMismatch
		return answer, nil
	}
	if e.foreign(event) {
		answer.Code = CodeAccountMismatch
		return answer, nil
	}
	if event.Data == nil {
		full, err := e.fetchEvent(ctx, event)
		if err != nil {
			return exporter.WebhookAnswer{}, err
		}
		if event = full; e.foreign(event) {
			answer.Code = CodeAccountMismatch
			return answer, nil
		}
	}
	if event.miscounted() {
		return exporter.WebhookAnswer{}, sdk.Invalid("data.reason.error_count", "0 or more")
	}
	answer.Counted = event.Data.Reason.ErrorCount
	answer.Evidence = samples(event)
	return answer, nil
}

// foreign reports whether a message is about another account than this exporter's.
// One that names none is about the account of the endpoint, whose secret signed it;
// an account of the configuration that is no id of Stripe's is only a name.
func (e *Exporter) foreign(event coreEvent) bool {
	own := e.configuration.Account
	if !strings.HasPrefix(own, accountPrefix) {
		return false
	}
	for _, named := range []string{event.Account, event.Context[strings.LastIndexByte(event.Context, '/')+1:]} {
		if named != "" && named != own {
			return true
		}
	}
	return false
}

// miscounted reports whether a number of errors is none.
func (event coreEvent) miscounted() bool {
	bad := event.Data.Reason.ErrorCount < 0
	for _, t := range event.Data.Reason.ErrorTypes {
		bad = bad || t.ErrorCount < 0
	}
	return bad
}

// samples are the items that a report names, each once.
func samples(event coreEvent) []exporter.Evidence {
	var out []exporter.Evidence
	at := map[string]int{}
	for _, t := range event.Data.Reason.ErrorTypes {
		for _, s := range t.Samples {
			// The repetition of an identifier is refused late too, and says that
			// the event itself was counted. Any other refusal outweighs it.
			says := exporter.Evidence{
				Identifier: s.Request.Identifier, Refused: t.Code != codeDuplicate, Code: short(t.Code), Message: short(s.Message),
			}
			i, again := at[says.Identifier]
			switch {
			case says.Identifier == "":
			case !again:
				at[says.Identifier] = len(out)
				out = append(out, says)
			case says.Refused && !out[i].Refused:
				out[i] = says
			}
		}
	}
	return out
}

// fetchEvent reads a message with its data.
func (e *Exporter) fetchEvent(ctx context.Context, thin coreEvent) (coreEvent, error) {
	if strings.Trim(thin.ID, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
		return coreEvent{}, sdk.Invalid("body", "a message with an id of letters, digits and underscores")
	}
	request := e.reading(coreEventsPath+thin.ID, nil)
	request.Headers[0].Value = coreEventVersion
	responses, err := e.http.Send(ctx, []capability.Request{request})
	if err != nil || len(responses) != 1 {
		return coreEvent{}, sdk.Unavailable("message_not_fetched", err)
	}
	if code, _ := readable(&responses[0]); code != "" {
		return coreEvent{}, sdk.Unavailable("message_not_fetched_"+code, nil)
	}
	var full coreEvent
	if json.Unmarshal(responses[0].Body, &full) != nil || full.ID != thin.ID || full.Type != thin.Type || full.Data == nil {
		return coreEvent{}, sdk.Unavailable("message_not_fetched", nil)
	}
	return full, nil
}
