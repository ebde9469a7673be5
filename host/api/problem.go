package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// problem is an RFC 9457 document with our members.
type problem struct {
	Type      string         `json:"type"`
	Title     string         `json:"title"`
	Status    int            `json:"status"`
	Tag       sdk.Tag        `json:"tag"`
	Code      string         `json:"code,omitempty"`
	Field     string         `json:"field,omitempty"`
	Rule      string         `json:"rule,omitempty"`
	Hint      string         `json:"hint,omitempty"`
	Retryable bool           `json:"retryable"`
	ItemIndex *int           `json:"item_index,omitempty"`
	RequestID string         `json:"request_id,omitempty"`
	Errors    []errorMessage `json:"errors,omitempty"`
	// Current is what an item is that is not what somebody took it for.
	Current *current `json:"current,omitempty"`
}

// current is where an item stands.
type current struct {
	State        storage.ItemState `json:"state"`
	LeaseToken   int64             `json:"lease_token"`
	Settled      bool              `json:"settled"`
	SupersededBy string            `json:"superseded_by,omitempty"`
	// MappingVersion is the one in force, where the expected one is not.
	MappingVersion string `json:"mapping_version,omitempty"`
}

// errorMessage is one broken rule.
type errorMessage struct {
	Tag   sdk.Tag `json:"tag"`
	Code  string  `json:"code,omitempty"`
	Field string  `json:"field,omitempty"`
	Rule  string  `json:"rule,omitempty"`
	Hint  string  `json:"hint,omitempty"`
}

const problemTypes = "https://fencepost.dev/problems/"

// titles are what a person reads first.
var titles = map[sdk.Tag]string{
	sdk.TagInvalid:     "The request breaks a rule",
	sdk.TagConflict:    "What is stored differs, or has moved",
	sdk.TagUnavailable: "The outcome is unknown; repeat with the same ids",
	sdk.TagUnsupported: "Not supported here",
	sdk.TagNotFound:    "Not found",
}

var statuses = map[sdk.Tag]int{
	sdk.TagInvalid:     http.StatusBadRequest,
	sdk.TagConflict:    http.StatusConflict,
	sdk.TagUnavailable: http.StatusServiceUnavailable,
	sdk.TagUnsupported: http.StatusNotImplemented,
	sdk.TagNotFound:    http.StatusNotFound,
}

// fail answers with the problem document of err.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		s.problem(w, r, problem{
			Status: http.StatusRequestEntityTooLarge, Tag: sdk.TagInvalid, Code: codeTooLarge, Title: titles[sdk.TagInvalid],
			Field: "body", Rule: "at most " + strconv.FormatInt(tooLarge.Limit, 10) + " bytes in one request",
		})
		return
	}
	p := problem{Tag: sdk.TagOf(err)}
	if all := meter.AsErrors(err); len(all) > 0 {
		first := all[0]
		p.Tag, p.Code, p.Field, p.Rule, p.Hint = first.Tag, first.Code, first.Field, first.Rule, first.Hint
		if i, ok := first.ItemIndex(); ok {
			p.ItemIndex = &i
		}
		if len(all) > 1 {
			p.Errors = messages(all)
		}
	}
	p.Title, p.Status = titles[p.Tag], statuses[p.Tag]
	if rule, now := movedItem(err); now != nil {
		p.Title, p.Field, p.Rule, p.Current = "The item has moved", "item", rule, now
	}
	if changed, ok := errors.AsType[*outbox.MappingChangedError](err); ok {
		p.Field, p.Rule = "expect.mapping_version", "the mapping in force; the item: "+changed.Why
		p.Current = &current{State: changed.State, LeaseToken: changed.LeaseToken, Settled: changed.Settled, MappingVersion: changed.Current}
	}
	switch p.Code {
	case codeMedia:
		p.Status = http.StatusUnsupportedMediaType
	case codeTooLarge:
		p.Status = http.StatusRequestEntityTooLarge
	}
	p.Retryable = p.Tag == sdk.TagUnavailable
	if p.Retryable {
		w.Header().Set("Retry-After", "1")
		s.cfg.Logger.WarnContext(r.Context(), "request unavailable", "error", err, "request_id", requestID(r.Context()))
	}
	s.problem(w, r, p)
}

func (s *server) problem(w http.ResponseWriter, r *http.Request, p problem) {
	p.Type = problemTypes + string(p.Tag)
	p.RequestID = requestID(r.Context())
	w.Header().Set("Content-Type", "application/problem+json")
	writeBody(w, p.Status, p)
}

func internalProblem() problem {
	return problem{Status: http.StatusInternalServerError, Tag: sdk.TagUnavailable, Title: titles[sdk.TagUnavailable], Retryable: true}
}

// message is the first thing that an error says.
func message(err error) *errorMessage {
	all := meter.AsErrors(err)
	if len(all) == 0 {
		return &errorMessage{Tag: sdk.TagOf(err)}
	}
	m := messages(all[:1])[0]
	if rule, now := movedItem(err); now != nil {
		m.Field, m.Rule = "item", rule
	}
	return &m
}

// movedItem says where an item is that is not what somebody took it for; nil if
// that is not what is wrong.
func movedItem(err error) (rule string, now *current) {
	moved, ok := errors.AsType[*outbox.StateMismatchError](err)
	if !ok {
		return "", nil
	}
	now = &current{State: moved.Current, LeaseToken: moved.LeaseToken, Settled: moved.Settled}
	if moved.SupersededBy != 0 {
		now.SupersededBy = strconv.FormatInt(moved.SupersededBy, 10)
	}
	return "as it was expected to be; it is " + moved.Now(), now
}

func messages(all meter.Errors) []errorMessage {
	out := make([]errorMessage, len(all))
	for i, e := range all {
		out[i] = errorMessage{Tag: e.Tag, Code: e.Code, Field: e.Field, Rule: e.Rule, Hint: e.Hint}
	}
	return out
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	writeBody(w, status, v)
}

// writeBody encodes first and writes then, so that a failure to encode cannot
// leave half a document behind a status that says it is whole.
func writeBody(w http.ResponseWriter, status int, v any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		status = http.StatusInternalServerError
		b.Reset()
		b.WriteString(`{"tag":"unavailable","title":"the answer could not be encoded","retryable":true}`)
	}
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the client is gone; nobody is left to tell
}

type requestIDKey struct{}

func withRequestID(ctx context.Context) context.Context {
	return context.WithValue(ctx, requestIDKey{}, rand.Text()[:16])
}

func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}
