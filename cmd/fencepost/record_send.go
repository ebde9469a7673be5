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

// send records one batch and reports each of its lines.
func (r *recording) send(ctx context.Context, batch []line) error {
	if len(batch) == 0 {
		return nil
	}
	req := request{method: http.MethodPost, path: "/v1/events", media: "application/json", body: arrayOf(batch)}
	if batch[0].cloud {
		req.media = "application/cloudevents-batch+json"
	}
	answer, err := r.try(ctx, req)
	if err != nil {
		return err
	}
	if len(answer.Results) != len(batch) {
		return sdk.Unavailable("bad_answer", errors.New("the server answered for another number of events"))
	}
	for i, res := range answer.Results {
		out := lineResult{Line: batch[i].number, ID: res.ID, Outcome: string(res.Outcome)}
		if out.ID == "" {
			out.ID = decodeID(batch[i].body)
		}
		if res.Error != nil {
			out.Error = &lineError{Tag: string(res.Error.Tag), Field: withoutIndex(res.Error.Field), Rule: res.Error.Rule}
		}
		if err := r.report(out); err != nil {
			return err
		}
	}
	return nil
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

func arrayOf(batch []line) []byte {
	var b bytes.Buffer
	b.WriteByte('[')
	for i, l := range batch {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(l.body)
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
