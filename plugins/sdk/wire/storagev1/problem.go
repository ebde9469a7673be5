package storagev1

import "github.com/fencepost/fencepost/plugins/sdk"

// Problem is an error beside a result, as it travels in an answer.
type Problem struct {
	Tag   sdk.Tag `json:"tag"`
	Code  string  `json:"code,omitempty"`
	Field string  `json:"field,omitempty"`
	Rule  string  `json:"rule,omitempty"`
	Hint  string  `json:"hint,omitempty"`
}
