package wirev1

import (
	"fmt"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
)

// EncodeRecords encodes an AppendBatch.
func EncodeRecords(records []capability.Record) []byte {
	m := &AppendBatch{Records: make([]*AppendRecord, len(records))}
	for i, r := range records {
		m.Records[i] = &AppendRecord{Item: text(r.Item), Identifier: text(r.Identifier), Again: r.Again, Json: r.JSON}
	}
	return encode(m)
}

// DecodeRecords decodes an AppendBatch.
func DecodeRecords(data []byte) ([]capability.Record, error) {
	var m AppendBatch
	if err := decode("AppendBatch", data, boundsRecords, &m); err != nil {
		return nil, err
	}
	out := make([]capability.Record, len(m.GetRecords()))
	for i, r := range m.GetRecords() {
		out[i] = capability.Record{Item: r.GetItem(), Identifier: r.GetIdentifier(), Again: r.GetAgain(), JSON: r.GetJson()}
	}
	return out, nil
}

// EncodeAppended encodes an AppendAnswers. If err is not nil nothing was
// written, and answers are left out.
func EncodeAppended(answers []capability.Appended, err error) []byte {
	if err != nil {
		return encode(&AppendAnswers{Error: errorMessage(err)})
	}
	m := &AppendAnswers{Answers: make([]*AppendAnswer, len(answers))}
	for i, a := range answers {
		m.Answers[i] = &AppendAnswer{
			Failure: failureMessage(a.Failure), Reason: text(a.Reason), Earlier: a.Earlier, Sequence: a.Sequence,
		}
	}
	return encode(m)
}

// DecodeAppended decodes an AppendAnswers for a batch of n records, as
// [DecodeResponses] does.
func DecodeAppended(data []byte, n int) ([]capability.Appended, error) {
	var m AppendAnswers
	if err := decode("AppendAnswers", data, boundsAppended, &m); err != nil {
		return nil, err
	}
	if m.Error != nil {
		return nil, errorValue(m.Error)
	}
	if len(m.GetAnswers()) != n {
		return nil, fmt.Errorf("decode AppendAnswers: %w: %d answers to %d records", ErrMalformed, len(m.GetAnswers()), n)
	}
	out := make([]capability.Appended, n)
	for i, a := range m.GetAnswers() {
		out[i] = capability.Appended{Reason: a.GetReason(), Earlier: a.GetEarlier(), Sequence: a.GetSequence()}
		out[i].Failure = failureValue(a.GetFailure(), &out[i].Reason)
	}
	return out, nil
}
