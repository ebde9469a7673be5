package conformance

import (
	"context"
	"errors"
	"net/http"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// AppendSend is the append capability over bytes: an encoded AppendBatch is
// answered with an encoded AppendAnswers. The cases see each record as a request
// that carries it and reports its item, to an address that is nobody's. A status
// of 2xx is a line that was written, 208 one that the file has from an earlier
// attempt; a file says nothing else but failures. An error means that nothing was
// written.
func (d *Double) AppendSend(ctx context.Context, batch []byte) ([]byte, error) {
	records, err := wirev1.DecodeRecords(batch)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	s := d.script
	if s.refuse == nil {
		d.raw = append(d.raw, append([]byte(nil), batch...))
	}
	d.mu.Unlock()
	if s.refuse != nil {
		return wirev1.EncodeAppended(nil, s.refuse), nil //nolint:nilerr // the refusal is the answer
	}
	appended := make([]capability.Appended, len(records))
	for i, record := range records {
		r := capability.Request{Method: http.MethodPost, URL: "https://file.invalid/", Items: []string{record.Item}, Body: record.JSON}
		for _, item := range covered(r, s.items) {
			if item.Identifier != record.Identifier || record.Again != (item.Attempt > 1) {
				return wirev1.EncodeAppended(nil, sdk.Invalid("records", "the item's identifier, and again from its second attempt on").At(i)), nil
			}
		}
		appended[i] = d.line(r, s, int64(i)+1)
	}
	if s.wait {
		<-ctx.Done()
	}
	answers := wirev1.EncodeAppended(appended, nil)
	if s.bytes != nil {
		answers = s.bytes(answers)
	}
	return answers, nil
}

// line is what the file says of one record.
func (d *Double) line(r capability.Request, s script, n int64) capability.Appended {
	d.mu.Lock()
	d.sent = append(d.sent, r)
	d.mu.Unlock()
	switch {
	case s.wait:
		return capability.Appended{Failure: capability.FailureUnknown, Reason: "deadline"}
	case s.answer == nil:
		return capability.Appended{Failure: capability.FailureNotSent, Reason: "no_script"}
	}
	switch a := s.answer(r, covered(r, s.items)); {
	case a.Failure != capability.FailureNone:
		return capability.Appended{Failure: a.Failure, Reason: a.Reason}
	case a.Status >= 200 && a.Status < 300:
		return capability.Appended{Earlier: a.Status == http.StatusAlreadyReported, Sequence: n}
	default:
		return capability.Appended{Failure: capability.FailureUnknown, Reason: "io_error"}
	}
}

type linkedAppend struct{ double *Double }

// Append implements [capability.Append].
func (l linkedAppend) Append(ctx context.Context, records []capability.Record) ([]capability.Appended, error) {
	answers, err := l.double.AppendSend(ctx, wirev1.EncodeRecords(records))
	if err != nil {
		return nil, err
	}
	appended, err := wirev1.DecodeAppended(answers, len(records))
	if _, refused := errors.AsType[*sdk.Error](err); err == nil || refused {
		return appended, err
	}
	// As in a guest: they may have been written.
	appended = make([]capability.Appended, len(records))
	for i := range appended {
		appended[i] = capability.Appended{Failure: capability.FailureUnknown, Reason: "answers_lost"}
	}
	return appended, nil
}
