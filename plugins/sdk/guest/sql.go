package guest

import (
	"errors"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/wire/sqlv1"
)

// workRefused is the error for work of which the host did nothing.
func workRefused(err error) error {
	return &sdk.Error{Tag: sdk.TagInvalid, Code: "work_refused", Rule: "work within the host's limits and grants", Err: err}
}

// workUnknown is the error for work that the host may have done.
func workUnknown(err error) error { return sdk.Unavailable("commit_unknown", err) }

// doneOf reads the host's answer. One that cannot be read leaves the work
// unknown: the host acted.
func doneOf(answer []byte, statements int) (capability.Done, error) {
	done, err := sqlv1.DecodeDone(answer, statements)
	if err == nil {
		return done, nil
	}
	if _, ok := errors.AsType[*sdk.Error](err); ok {
		return capability.Done{}, err
	}
	return capability.Done{}, workUnknown(err)
}
