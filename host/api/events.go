package api

import (
	"io"
	"mime"
	"net/http"
	"strconv"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// RecordAnswer answers POST /v1/events.
type RecordAnswer struct {
	Results []RecordResult `json:"results"`
	Summary map[string]int `json:"summary"`
}

// RecordResult is the outcome of one item, in input order.
type RecordResult struct {
	Index   int            `json:"index"`
	ID      string         `json:"id"`
	Outcome engine.Outcome `json:"outcome"`
	Seq     string         `json:"seq,omitempty"`
	Entries []RecordEntry  `json:"entries,omitempty"`
	Error   *errorMessage  `json:"error,omitempty"`
	Errors  []errorMessage `json:"errors,omitempty"`
}

// RecordEntry is one feature that a CloudEvent fed.
type RecordEntry struct {
	Feature string         `json:"feature"`
	Outcome engine.Outcome `json:"outcome"`
	Seq     string         `json:"seq,omitempty"`
}

// decoded is one item of a request: an input, or why there is none.
type decoded struct {
	input engine.Input
	err   error
}

func (s *server) postEvents(w http.ResponseWriter, r *http.Request) {
	if q := readQuery(r); q.err != nil {
		s.fail(w, r, q.err)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	items, single, err := decodeEvents(r.Header, body)
	if all := meter.AsErrors(err); len(items) > s.cfg.MaxEvents || (len(all) == 1 && all[0].Field == "events") {
		err = &sdk.Error{
			Tag: sdk.TagInvalid, Code: codeTooLarge, Field: "events",
			Rule: "at most " + strconv.Itoa(s.cfg.MaxEvents) + " events in one request",
		}
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	answer, err := s.record(r, items, single)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	status := http.StatusOK
	if answer.Summary["conflict"]+answer.Summary["invalid"] > 0 {
		status = http.StatusMultiStatus
	}
	writeJSON(w, status, answer)
}

// record records what was decoded and puts the results of both in order. What
// is wrong with a single event is wrong with the request.
func (s *server) record(r *http.Request, items []decoded, single bool) (RecordAnswer, error) {
	s.countUndecoded(items)
	if single && items[0].err != nil {
		return RecordAnswer{}, items[0].err
	}
	answer := RecordAnswer{
		Results: make([]RecordResult, len(items)),
		Summary: map[string]int{"inserted": 0, "duplicate": 0, "conflict": 0, "invalid": 0, "unmatched": 0},
	}
	batch := engine.Batch{Mode: storage.Each}
	var at []int
	for i, it := range items {
		if it.err != nil {
			answer.Results[i] = failed(i, "", engine.Invalid, it.err)
			continue
		}
		batch.Inputs = append(batch.Inputs, it.input)
		at = append(at, i)
	}
	if len(batch.Inputs) > 0 {
		results, err := s.cfg.Engine.RecordBatch(r.Context(), batch)
		if err != nil {
			return RecordAnswer{}, err
		}
		for j, res := range results {
			if single && res.Outcome == engine.Invalid {
				return RecordAnswer{}, res.Err
			}
			if errs := meter.AsErrors(res.Err); !single && len(errs) > 0 {
				res.Err = errs.At(at[j])
			}
			answer.Results[at[j]] = result(at[j], res)
		}
	}
	for _, res := range answer.Results {
		answer.Summary[string(res.Outcome)]++
	}
	return answer, nil
}

// countUndecoded counts the events that the engine will not see.
func (s *server) countUndecoded(items []decoded) {
	if s.cfg.Observer == nil {
		return
	}
	n := 0
	for _, it := range items {
		if it.err != nil {
			n++
		}
	}
	s.cfg.Observer.Recorded(string(engine.Invalid), n)
}

func result(index int, res engine.Result) RecordResult {
	if res.Err != nil {
		return failed(index, res.ID, res.Outcome, res.Err)
	}
	out := RecordResult{Index: index, ID: res.ID, Outcome: res.Outcome, Seq: seqText(res.Seq)}
	for _, en := range res.Entries {
		out.Entries = append(out.Entries, RecordEntry{Feature: en.Feature, Outcome: en.Outcome, Seq: seqText(en.Seq)})
	}
	return out
}

func failed(index int, id string, outcome engine.Outcome, err error) RecordResult {
	out := RecordResult{Index: index, ID: id, Outcome: outcome}
	all := messages(meter.AsErrors(err))
	if len(all) == 0 {
		all = []errorMessage{{Tag: sdk.TagInvalid}}
	}
	out.Error = &all[0]
	if len(all) > 1 {
		out.Errors = all
	}
	return out
}

func seqText(seq int64) string {
	if seq == 0 {
		return ""
	}
	return strconv.FormatInt(seq, 10)
}

// decodeEvents reads a body in any of the forms of POST /v1/events. single says
// that the form carries one event, so that what is wrong with it is wrong with
// the request.
func decodeEvents(h http.Header, body []byte) (items []decoded, single bool, err error) {
	if h.Get("Content-Encoding") != "" && h.Get("Content-Encoding") != "identity" {
		return nil, false, mediaError("content-encoding", "no compression in this version")
	}
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil && h.Get("Content-Type") != "" {
		return nil, false, mediaError("content-type", "a media type")
	}
	switch {
	case media == "application/cloudevents+json":
		e, err := meter.DecodeCloudEvent(body)
		return []decoded{{engine.Input{Cloud: &e}, err}}, true, nil
	case media == "application/cloudevents-batch+json":
		list, err := meter.DecodeCloudEventBatch(body)
		for _, it := range list {
			items = append(items, decoded{engine.Input{Cloud: &it.Event}, it.Err})
		}
		return items, false, err
	case isBinary(h):
		e, err := meter.DecodeCloudEventBinary(h, body)
		return []decoded{{engine.Input{Cloud: &e}, err}}, true, nil
	case media == "application/json" && firstByte(body) == '[':
		list, err := meter.DecodePlainBatch(body)
		for _, it := range list {
			items = append(items, decoded{engine.Input{Plain: &it.Event}, it.Err})
		}
		return items, false, err
	case media == "application/json":
		e, err := meter.DecodePlain(body)
		return []decoded{{engine.Input{Plain: &e}, err}}, true, nil
	}
	return nil, false, mediaError("content-type",
		"application/json, application/cloudevents+json, application/cloudevents-batch+json, or the ce-* headers of a CloudEvent in binary mode")
}

// Codes of a body in a form that is not taken, and of one to send in parts.
const (
	codeMedia    = "media_type"
	codeTooLarge = "too_large"
)

func mediaError(field, rule string) error {
	return &sdk.Error{Tag: sdk.TagInvalid, Code: codeMedia, Field: field, Rule: rule}
}

// isBinary reports whether a request carries a CloudEvent in its headers. One
// such header is enough: a missing ce-specversion is then an error of the
// event, not a reason to read the body as something else.
func isBinary(h http.Header) bool {
	for _, name := range []string{"Ce-Specversion", "Ce-Id", "Ce-Source", "Ce-Type"} {
		if h.Get(name) != "" {
			return true
		}
	}
	return false
}

func firstByte(b []byte) byte {
	for _, c := range b {
		switch c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}
