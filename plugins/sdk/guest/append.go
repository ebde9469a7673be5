package guest

import (
	"errors"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// decodeAppended reads the host's answers to n records.
func decodeAppended(answers []byte, n int) ([]capability.Appended, error) {
	out, err := wirev1.DecodeAppended(answers, n)
	if err == nil {
		return out, nil
	}
	if refusal, ok := errors.AsType[*sdk.Error](err); ok {
		return nil, refusal
	}
	return lostAppended(n), nil
}

// lostAppended are answers where the host may have acted and its own are lost:
// this is no refusal of the batch.
func lostAppended(n int) []capability.Appended {
	out := make([]capability.Appended, n)
	for i := range out {
		out[i] = capability.Appended{Failure: capability.FailureUnknown, Reason: "answers_lost"}
	}
	return out
}
