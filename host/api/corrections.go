package api

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// CorrectionAnswer answers POST /v1/corrections.
type CorrectionAnswer struct {
	Results []CorrectionResult `json:"results"`
	Summary map[string]int     `json:"summary"`
}

// CorrectionResult is the outcome of one correction, in input order.
type CorrectionResult struct {
	Index   int            `json:"index"`
	ID      string         `json:"id"`
	Outcome engine.Outcome `json:"outcome"`
	Seq     string         `json:"seq,omitempty"`
	// Quantity is what was taken back, Remaining what is left of the event.
	Quantity    string             `json:"quantity,omitempty"`
	Remaining   string             `json:"remaining,omitempty"`
	Replacement *ReplacementResult `json:"replacement,omitempty"`
	// DryRun: nothing was written, and the rest is what would be.
	DryRun bool           `json:"dry_run,omitempty"`
	Error  *errorMessage  `json:"error,omitempty"`
	Errors []errorMessage `json:"errors,omitempty"`
}

// ReplacementResult names the event that takes the place of another.
type ReplacementResult struct {
	ID  string `json:"id"`
	Seq string `json:"seq,omitempty"` // absent while it is not recorded
}

// postCorrections corrects one event or, one after another, those of an array:
// each by itself, so that what is wrong with one changes nothing for the others.
func (s *server) postCorrections(w http.ResponseWriter, r *http.Request) {
	items, single, err := s.readCorrections(r)
	if err == nil && single {
		err = items[0].Err
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	answer := CorrectionAnswer{
		Results: make([]CorrectionResult, len(items)),
		Summary: map[string]int{"inserted": 0, "duplicate": 0, "conflict": 0, "invalid": 0},
	}
	for i, it := range items {
		var res engine.CorrectionResult
		err := it.Err
		if err == nil {
			res, err = s.cfg.Engine.Correct(r.Context(), it.Correction)
			if !single && err != nil {
				err = ofItem(err, i)
			}
		}
		if wholeFailure(err) || (single && err != nil && !errors.Is(err, sdk.ErrConflict)) {
			s.fail(w, r, err) // what came before is recorded, and a duplicate when it is asked for again
			return
		}
		answer.Results[i] = correctionResult(i, it.Correction.ID, res, err)
		answer.Summary[string(answer.Results[i].Outcome)]++
	}
	status := http.StatusOK
	if answer.Summary["conflict"]+answer.Summary["invalid"] > 0 {
		status = http.StatusMultiStatus
	}
	writeJSON(w, status, answer)
}

func (s *server) readCorrections(r *http.Request) (items []meter.CorrectionItem, single bool, err error) {
	if q := readQuery(r); q.err != nil {
		return nil, false, q.err
	}
	if h := r.Header; h.Get("Content-Encoding") != "" && h.Get("Content-Encoding") != "identity" {
		return nil, false, mediaError("content-encoding", "no compression in this version")
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return nil, false, mediaError("content-type", "application/json")
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, false, err
	}
	if firstByte(body) != '[' {
		c, err := meter.DecodeCorrection(body)
		return []meter.CorrectionItem{{Correction: c, Err: err}}, true, nil
	}
	items, err = meter.DecodeCorrectionBatch(body)
	if all := meter.AsErrors(err); len(items) > s.cfg.MaxEvents || (len(all) == 1 && all[0].Field == "events") {
		err = &sdk.Error{
			Tag: sdk.TagInvalid, Code: codeTooLarge, Field: "corrections",
			Rule: "at most " + strconv.Itoa(s.cfg.MaxEvents) + " corrections in one request",
		}
	}
	return items, false, err
}

// wholeFailure reports whether an error says nothing about the correction it
// came from: nobody knows, or there are no corrections here at all.
func wholeFailure(err error) bool {
	return sdk.TagOf(err) == sdk.TagUnavailable ||
		errors.Is(err, &sdk.Error{Tag: sdk.TagUnsupported, Code: string(storage.Corrections)})
}

// ofItem makes an error one about an item of the array. An error without a tag
// stays what it is: nobody knows.
func ofItem(err error, i int) error {
	if all := meter.AsErrors(err); len(all) > 0 {
		return all.Of("corrections", i)
	}
	return err
}

func correctionResult(index int, id string, res engine.CorrectionResult, err error) CorrectionResult {
	out := CorrectionResult{Index: index, ID: id, Outcome: res.Outcome}
	if err != nil {
		outcome := engine.Invalid
		if errors.Is(err, sdk.ErrConflict) {
			outcome = engine.Conflict
		}
		f := failed(index, id, outcome, err)
		out.Outcome, out.Error, out.Errors = f.Outcome, f.Error, f.Errors
		return out
	}
	out.DryRun = res.DryRun
	out.Seq, out.Quantity, out.Remaining = seqText(res.Seq), res.Quantity.String(), res.Remaining.String()
	if r := res.Replacement; r != nil {
		out.Replacement = &ReplacementResult{ID: r.EventID, Seq: seqText(r.Seq)}
	}
	return out
}

// listCorrections answers a page of the corrections of one event.
func (s *server) listCorrections(w http.ResponseWriter, r *http.Request) {
	q := readQuery(r, "tenant", "event", "after", "limit")
	key := storage.EventKey{Tenant: q.text("tenant"), EventID: q.text("event")}
	after, limit := q.number("after", 0, 0, maxCursor), int(q.number("limit", 100, 1, 1000))
	err := q.err
	for _, must := range []struct{ name, value string }{{"tenant", key.Tenant}, {"event", key.EventID}} {
		if err == nil && must.value == "" {
			err = sdk.Invalid(must.name, "required")
		}
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	page, err := s.cfg.Engine.Corrections(r.Context(), key, after, limit)
	if err == nil && len(page.Events) == 0 {
		// Of an event that does not exist "none" would be no answer.
		_, err = s.cfg.Engine.Event(r.Context(), key)
		err = notFound(err, "what came as a CloudEvent is found by the id that GET /v1/events shows")
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	out := Page[EventView]{Data: []EventView{}}
	for _, e := range page.Events {
		out.Data = append(out.Data, eventView(e))
	}
	if page.More {
		out.Next = strconv.FormatInt(page.Next, 10)
	}
	writeJSON(w, http.StatusOK, out)
}
