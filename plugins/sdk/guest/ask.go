//go:build !wasip1

package guest

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/wire/sqlv1"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// Ask carries one question of a plugin to its host and brings the answer; the
// payloads are those of host/carrier.Asks. refused says that the host did
// nothing; any other error that nobody knows what it did.
type Ask func(ctx context.Context, name capability.Name, payload []byte) (answer []byte, refused bool, err error)

// HostOver returns the named capabilities of a host that is reached through
// ask, for carriers that have no imports. Unknown names are left out.
func HostOver(ask Ask, names ...capability.Name) capability.Host {
	var h capability.Host
	if slices.Contains(names, capability.HTTPName) {
		h.HTTP = httpOver{ask}
	}
	if slices.Contains(names, capability.AppendName) {
		h.Append = appendOver{ask}
	}
	if slices.Contains(names, capability.SQLName) {
		h.SQL = sqlOver{ask}
	}
	if slices.Contains(names, capability.LogName) {
		h.Log = logOver{ask}
	}
	if slices.Contains(names, capability.ClockName) {
		h.Clock = clockOver{ask}
	}
	if slices.Contains(names, capability.RandomName) {
		h.Random = randomOver{ask}
	}
	return h
}

type httpOver struct{ ask Ask }

func (h httpOver) Send(ctx context.Context, requests []capability.Request) ([]capability.Response, error) {
	answers, refused, err := h.ask(ctx, capability.HTTPName, wirev1.EncodeRequests(requests))
	if refused {
		return nil, &sdk.Error{Tag: sdk.TagInvalid, Code: "batch_refused", Rule: "a batch within the host's limits and grants", Err: err}
	}
	if err == nil {
		responses, err := wirev1.DecodeResponses(answers, len(requests))
		if err == nil {
			return responses, nil
		}
		if refusal, ok := errors.AsType[*sdk.Error](err); ok {
			return nil, refusal
		}
	}
	// The host may have acted and its answer is lost: this is no refusal of
	// the batch.
	responses := make([]capability.Response, len(requests))
	for i := range responses {
		responses[i] = capability.Response{Failure: capability.FailureUnknown, Reason: "answers_lost"}
	}
	return responses, nil
}

type appendOver struct{ ask Ask }

func (a appendOver) Append(ctx context.Context, records []capability.Record) ([]capability.Appended, error) {
	answers, refused, err := a.ask(ctx, capability.AppendName, wirev1.EncodeRecords(records))
	if refused {
		return nil, &sdk.Error{Tag: sdk.TagInvalid, Code: "batch_refused", Rule: "a batch within the host's limits and grants", Err: err}
	}
	if err == nil {
		return decodeAppended(answers, len(records))
	}
	return lostAppended(len(records)), nil
}

type sqlOver struct{ ask Ask }

func (s sqlOver) Do(ctx context.Context, work capability.Work) (capability.Done, error) {
	payload, err := sqlv1.EncodeWork(work)
	if err != nil {
		return capability.Done{}, err
	}
	answer, refused, err := s.ask(ctx, capability.SQLName, payload)
	switch {
	case refused:
		return capability.Done{}, workRefused(err)
	case err != nil:
		return capability.Done{}, workUnknown(err)
	}
	return doneOf(answer, len(work.Statements))
}

type logOver struct{ ask Ask }

// Write drops what the host does not take: a plugin's line is never worth a
// call.
func (l logOver) Write(level capability.Level, message string) {
	payload := append([]byte{byte(int8(max(min(level, 127), -128)))}, message...)
	_, _, _ = l.ask(context.Background(), capability.LogName, payload)
}

type clockOver struct{ ask Ask }

// Now returns the zero time if the host does not answer, which is only when
// the call is over.
func (c clockOver) Now() time.Time {
	answer, _, err := c.ask(context.Background(), capability.ClockName, nil)
	if err != nil || len(answer) != 8 {
		return time.Time{}
	}
	return time.UnixMicro(int64(binary.LittleEndian.Uint64(answer))).UTC()
}

type randomOver struct{ ask Ask }

// randomAtOnce is what the host gives for one question.
const randomAtOnce = 64 << 10

func (r randomOver) Read(p []byte) error {
	for part := range slices.Chunk(p, randomAtOnce) {
		answer, _, err := r.ask(context.Background(), capability.RandomName, binary.LittleEndian.AppendUint32(nil, uint32(len(part))))
		if err != nil {
			return sdk.Unavailable("no_random", err)
		}
		if copy(part, answer) != len(part) {
			return sdk.Unavailable("no_random", errors.New("the host gave too few bytes"))
		}
	}
	return nil
}
