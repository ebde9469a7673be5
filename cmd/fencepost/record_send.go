package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/plugins/sdk"
)

// sendTries is how often one batch is sent before the command gives up. Every
// try carries the same ids, so it cannot count twice.
const sendTries = 5

// send records a batch, reports each of its lines in order, and empties it.
func (r *recording) send(ctx context.Context, b *batch) error {
	results, err := r.record(ctx, *b)
	if err != nil {
		return err
	}
	for i, res := range results {
		if b.lines[i].err != nil {
			res = lineResult{Line: b.lines[i].number, ID: b.lines[i].id, Outcome: "invalid", Error: toLineError(b.lines[i].err)}
		}
		if err := r.report(res); err != nil {
			return err
		}
	}
	b.lines, b.bytes = b.lines[:0], 0
	return nil
}

// record answers for each line of b that is an event. What is refused as a whole
// is sent again in halves: one line that nobody can read, or limits of the
// server below ours, must not take the others with them.
func (r *recording) record(ctx context.Context, b batch) ([]lineResult, error) {
	out := make([]lineResult, len(b.lines))
	var at []int
	for i, l := range b.lines {
		if l.err == nil {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return out, nil
	}
	req := request{method: http.MethodPost, path: "/v1/events", media: "application/json", body: arrayOf(b.lines)}
	if b.cloud {
		req.media = "application/cloudevents-batch+json"
	}
	answer, err := r.try(ctx, req)
	if refused, ok := errors.AsType[refusedError](err); ok {
		return r.halves(ctx, b, at, refused)
	}
	if err != nil {
		return nil, err
	}
	if len(answer.Results) != len(at) {
		return nil, sdk.Unavailable("bad_answer", errors.New("the server answered for another number of events"))
	}
	for j, res := range answer.Results {
		out[at[j]] = resultOf(b.lines[at[j]], res)
	}
	return out, nil
}

// halves sends what was refused in two parts; of one event alone the refusal is
// the outcome.
func (r *recording) halves(ctx context.Context, b batch, at []int, why error) ([]lineResult, error) {
	if len(at) == 1 {
		l := b.lines[at[0]]
		out := make([]lineResult, len(b.lines))
		e := toLineError(why)
		nameField(e)
		out[at[0]] = lineResult{Line: l.number, ID: decodeID(l.body), Outcome: "invalid", Error: e}
		return out, nil
	}
	middle := at[len(at)/2]
	head, err := r.record(ctx, batch{lines: b.lines[:middle], cloud: b.cloud})
	if err != nil {
		return nil, err
	}
	tail, err := r.record(ctx, batch{lines: b.lines[middle:], cloud: b.cloud})
	return append(head, tail...), err
}

// nameField says where to look when the rule is about a line as a whole.
func nameField(e *lineError) {
	if e.Field == "" || e.Field == "body" {
		e.Field = "event"
	}
}

func resultOf(l line, res api.RecordResult) lineResult {
	out := lineResult{Line: l.number, ID: res.ID, Outcome: string(res.Outcome)}
	if out.ID == "" {
		out.ID = decodeID(l.body)
	}
	if res.Error != nil {
		out.Error = &lineError{Tag: string(res.Error.Tag), Field: withoutIndex(res.Error.Field), Rule: res.Error.Rule}
		nameField(out.Error)
	}
	return out
}

func (r *recording) try(ctx context.Context, req request) (api.RecordAnswer, error) {
	wait := 200 * time.Millisecond
	for n := 1; ; n++ {
		var answer api.RecordAnswer
		err := r.client.do(ctx, req, &answer)
		if err == nil || n == sendTries || !errors.Is(err, sdk.ErrUnavailable) {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return answer, err
		case <-time.After(wait):
			wait *= 2
		}
	}
}

// arrayOf is a JSON array of those lines that are events.
func arrayOf(lines []line) []byte {
	var b bytes.Buffer
	before := byte('[')
	for _, l := range lines {
		if l.err != nil {
			continue
		}
		b.WriteByte(before)
		b.Write(l.body)
		before = ','
	}
	b.WriteByte(']')
	return b.Bytes()
}

// withoutIndex drops the position in a batch that the user never saw: the line
// number says it better.
func withoutIndex(field string) string {
	rest, ok := strings.CutPrefix(field, "events[")
	if !ok {
		return field
	}
	index, name, found := strings.Cut(rest, "]")
	if _, err := strconv.Atoi(index); err != nil || !found {
		return field
	}
	return strings.TrimPrefix(name, ".")
}
